"""Delta tables by their names in a catalog: where they are, what is refused, and what is kept of the answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from job_engine.deployment import Deployment, keep_places, unplaced, with_places
from job_engine.deployment_file import load_deployment
from querylang.errors import InputError
from spark_backend.session import find_tables, place_in_catalog
from tests.support.sensors import QUERY

FILE = """\
name: sensors
queries: [sensors.query]
sources:
  readings: {format: delta, table: SOURCE, arrival: at}
sinks:
  matches: {format: delta, path: out/matches}
  output: {format: delta, table: lake.alarms}
checkpoint: state
"""


def deployment(folder: Path, source: str = "lake.readings") -> Deployment:
    (folder / "sensors.query").write_text(QUERY)
    (folder / "sensors.yaml").write_text(FILE.replace("SOURCE", source))
    return load_deployment(folder / "sensors.yaml")


@dataclass(frozen=True, slots=True)
class Catalog:
    """A session that describes one table."""

    rows: Mapping[str, str]

    def sql(self, text: str) -> Catalog:
        assert text == "DESCRIBE TABLE EXTENDED t"
        return self

    def collect(self) -> list[dict[str, Any]]:
        columns = {"at": "timestamp", "Location": "string", "": "", "# Detailed Table Information": ""}
        return [{"col_name": name, "data_type": value} for name, value in [*columns.items(), *self.rows.items()]]


def place(**rows: str) -> str:
    return place_in_catalog(Catalog({"Type": "MANAGED", "Provider": "delta", **rows}), "t", "x")  # type: ignore[arg-type]


def test_a_table_is_where_the_catalog_says(tmp_path: Path) -> None:
    (tmp_path / "a%20b").mkdir()
    assert place(Location=f"file:{tmp_path}/a%20b") == f"{tmp_path}/a%20b"
    assert place(Location=f"file://{tmp_path}/c%20d") == f"{tmp_path}/c d"
    assert place(Location="s3a://lake/t") == "s3a://lake/t"
    for rows, message in (
        ({"Type": "VIEW"}, "x: 't' is a view; name a table"),
        ({"Provider": "iceberg"}, "x: the table 't' is not a Delta table; its format is iceberg"),
        ({"Location": "dbfs://x/t"}, "x: the table 't' is at 'dbfs://x/t', which cannot be opened"),
    ):
        with pytest.raises(InputError) as caught:
            place(**rows)
        assert str(caught.value) == message


def test_a_name_without_a_table_is_one_line(tmp_path: Path, spark: SparkSession) -> None:
    with pytest.raises(InputError) as caught:
        find_tables(deployment(tmp_path), spark)
    assert str(caught.value) == (
        f"{tmp_path}/sensors.yaml: the source 'readings': the catalog of this Spark session has no table"
        " 'lake.readings'. Settings under `spark: conf:` choose the catalog; or set `path`, the table's folder"
    )


def test_the_checkpoint_keeps_what_the_catalog_told(tmp_path: Path) -> None:
    found = deployment(tmp_path)
    assert unplaced(found) == ["lake.readings", "lake.alarms"]
    keep_places(with_places(found, {"lake.readings": "s3://b/readings", "lake.alarms": str(tmp_path / "alarms")}))
    again = load_deployment(tmp_path / "sensors.yaml")
    assert unplaced(again) == []
    assert again.sources[0].own.folder == "s3://b/readings"
    assert again.sinks["output"].place == tmp_path / "alarms"
    assert again.sources[0].fixed["table"].text == "lake.readings"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("table: SOURCE", "table: x y", "4: 'table' must be the name of a table, such as `lake.cards`"),
        ("table: SOURCE", "table: t, path: p", "4: 'table' and 'path' both say where the table is"),
        ("format: delta, table: SOURCE", "format: csv, table: t", "4: 'table' is not a setting of sources of files"),
        ("path: out/matches", "table: lake.m", "6: 'matches' has a table per query; set its folder with 'path'"),
    ],
)
def test_a_mistake_has_its_line(tmp_path: Path, old: str, new: str, message: str) -> None:
    deployment(tmp_path)
    (tmp_path / "sensors.yaml").write_text(FILE.replace(old, new))
    with pytest.raises(InputError, match=message):
        load_deployment(tmp_path / "sensors.yaml")
