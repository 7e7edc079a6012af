"""Files that are read once, without a job."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from job_engine.sources.reading import Reading, pack_parts
from job_engine.wire.packed_rows import PACKED_DDL
from job_engine.wire.program import Program, load_program
from runtime.replay.records import source_names
from spark_backend.stream.worker_calls import on_worker


def file_list(session: SparkSession, paths: Sequence[Path | str], readings: Sequence[Reading]) -> DataFrame:
    """The paths of files, and how each is read, with its source and place; a task per file."""
    each = enumerate(zip(paths, source_names(paths), readings, strict=True))
    rows = [
        (str(Path(path).resolve()), replace(reading, source=name, place=place).to_text())
        for place, (path, name, reading) in each
    ]
    return session.createDataFrame(
        session.sparkContext.parallelize(rows, max(1, len(rows))), "path string, reading string"
    )


def files_of(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[str, Reading]]:
    """On workers: the paths of `file_list`, and how each is read."""
    for batch in batches:
        for path, reading in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            yield path, Reading.of_text(reading)


def packed_files(paths: DataFrame, program: Program) -> DataFrame:
    """Read and pack the files of `file_list`."""
    run = on_worker("spark_backend.frames.files", "pack_files", program.to_text())
    return paths.mapInArrow(run, PACKED_DDL)


def pack_files(program: str, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """For `mapInArrow`, on workers: see `packed_files`."""
    loaded = load_program(program)
    for path, reading in files_of(batches):
        # for the clock, all files are one source
        yield from pack_parts(
            reading.records(path, loaded.plan()),
            loaded,
            replace(reading, source=None),
            by_partition=True,
        )
