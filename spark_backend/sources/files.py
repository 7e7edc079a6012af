"""Sources as packed rows: files that workers read themselves, DataFrames of any Spark source, and signals.

Takes a session and what to read; gives a DataFrame `(bucket, data)`, streaming or not. Spark lists files and remembers
which were taken; it does not read them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import to_arrow_schema

from querylang.plan.model import Plan
from runtime.replay.replay import source_names
from spark_backend.sources.pushdown import needed_columns
from spark_backend.sources.reading import Reading
from spark_backend.wire.packed_rows import PACKED_DDL
from spark_backend.wire.plan_text import on_worker
from spark_backend.wire.program import Program

_FILE_SCHEMA = "path string, modificationTime timestamp, length long, content binary"
_FOR_EVER = "100000d"
"""Spark ignores files older than `maxFileAge` without a word; nothing is older than this."""


def file_stream(session: SparkSession, folder: Path | str, options: Mapping[str, str]) -> DataFrame:
    """The paths of a folder's files as they come, oldest first; the files stay unread."""
    reader = session.readStream.format("binaryFile").schema(_FILE_SCHEMA).option("maxFileAge", _FOR_EVER)
    for key, value in options.items():
        reader = reader.option(key, value)
    return reader.load(str(folder)).select("path")


def file_list(session: SparkSession, paths: Sequence[Path | str]) -> DataFrame:
    """The paths of known files and the names of their sources, as in a replay; each a task of its own."""
    rows = [(str(Path(path).resolve()), name) for path, name in zip(paths, source_names(paths), strict=True)]
    return session.createDataFrame(
        session.sparkContext.parallelize(rows, max(1, len(rows))), "path string, source string"
    )


def packed_files(paths: DataFrame, program: Program, reading: Reading) -> DataFrame:
    """Read and pack the files of a column of paths."""
    return paths.mapInArrow(
        on_worker("spark_backend.sources.reading", "pack_files", program.to_text(), reading.to_text()), PACKED_DDL
    )


def packed_signals(paths: DataFrame, program: Program) -> DataFrame:
    """One call for every bucket a file."""
    return paths.mapInArrow(on_worker("spark_backend.sources.reading", "pack_signals", program.to_text()), PACKED_DDL)


def packed_frame(frame: DataFrame, program: Program, reading: Reading) -> DataFrame:
    """Pack a DataFrame's rows; only the columns that the plan needs leave the JVM.

    Raises InputError for columns that are declared and not there.
    """
    wanted = needed_columns(program.plan(), reading)
    chosen = frame.select(*(f.col(f"`{name}`") for name in frame.columns if name in wanted))
    _refuse_other_columns(chosen, program.plan(), reading)
    return chosen.mapInArrow(
        on_worker("spark_backend.sources.reading", "pack_rows", program.to_text(), reading.to_text()), PACKED_DDL
    )


def _refuse_other_columns(frame: DataFrame, plan: Plan, reading: Reading) -> None:
    """Reads a table of these columns and no rows: what is wrong with them is said here, not by a worker."""
    for _ in reading.arrivals(to_arrow_schema(frame.schema, timezone="UTC").empty_table(), plan):
        pass
