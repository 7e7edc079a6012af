"""Files that are read once, without a job."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from runtime.replay.records import source_names
from spark_backend.sources.reading import Reading, pack_parts
from spark_backend.wire.packed_rows import PACKED_DDL
from spark_backend.wire.program import Program, load_program
from spark_backend.wire.worker_calls import on_worker


def file_list(session: SparkSession, paths: Sequence[Path | str]) -> DataFrame:
    """The paths of files, the names of their sources and their places, as in a replay; one task per
    file."""
    names = enumerate(source_names(paths))
    rows = [(str(Path(path).resolve()), name, place) for path, (place, name) in zip(paths, names, strict=True)]
    return session.createDataFrame(
        session.sparkContext.parallelize(rows, max(1, len(rows))), "path string, source string, place long"
    )


def packed_files(paths: DataFrame, program: Program, reading: Reading) -> DataFrame:
    """Read and pack the files of `file_list`."""
    run = on_worker("spark_backend.sources.files", "pack_files", program.to_text(), reading.to_text())
    return paths.mapInArrow(run, PACKED_DDL)


def pack_files(program: str, reading: str, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """For `mapInArrow`, on workers: see `packed_files`."""
    loaded, settings = load_program(program), Reading.of_text(reading)
    for batch in batches:
        for path, source, place in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            arrivals = replace(settings, source=source, place=place).arrivals(path, loaded.plan())
            # for the clock, all files are one source
            yield from pack_parts(arrivals, loaded, settings, by_partition=True)
