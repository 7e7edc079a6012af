"""A program with delta-spark, run in a process of its own: makes tables, and says what it reads of others.

Arguments: the jars, the folder for its tables, tables to read. It writes JSON: rows by table.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pyspark.sql import SparkSession

SETTINGS = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.default.parallelism": "1",
    "spark.sql.adaptive.enabled": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.session.timeZone": "UTC",
    "spark.databricks.delta.snapshotPartitions": "1",
    # Statements over ten rows: generated classes would cost more than they save.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


def main(jars: str, folder: str, *others: str) -> None:
    builder = SparkSession.builder.master("local[2]").config("spark.jars", jars)
    for key, value in SETTINGS.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    for statement in Path(__file__).with_name("tables.sql").read_text().replace("FOLDER", folder).split(";"):
        if statement.strip():
            session.sql(statement)
    sys.stdout.write(json.dumps({path: rows_of(session, path) for path in others}) + "\n")


def rows_of(session: SparkSession, path: str) -> list[str]:
    """The rows as JSON, of the table as another writer leaves it."""
    session.sql(f"OPTIMIZE delta.`{path}`")
    return sorted(session.read.format("delta").load(path).toJSON().collect())


if __name__ == "__main__":
    main(*sys.argv[1:])
