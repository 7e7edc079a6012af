"""Signals to all buckets, as a source: one small file per signal, named by it.

Spark counts these files as processed like any others, so a signal is exactly once too.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from spark_backend.sources.files import file_stream
from spark_backend.wire.packed_rows import PACKED_DDL, Signal, pack_signal
from spark_backend.wire.program import Program, load_program
from spark_backend.wire.worker_calls import on_worker


def signal_file(folder: Path, signal: Signal) -> Path:
    """Where to write the next signal; its content must not be empty, or Spark ignores the file."""
    return folder / f"{sum(1 for _ in folder.iterdir()):08d}-{signal}"


def packed_signals(session: SparkSession, folder: Path, program: Program) -> DataFrame:
    """Packed rows that send each signal file to every bucket."""
    run = on_worker("spark_backend.sources.signals", "pack_signals", program.to_text())
    return file_stream(session, folder, {}).mapInArrow(run, PACKED_DDL)


def pack_signals(program: str, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """For `mapInArrow` over the paths of signal files, on workers."""
    loaded = load_program(program)
    for batch in batches:
        for path in batch.column(0).to_pylist():
            signal = Signal(PurePosixPath(path).name.partition("-")[2])
            yield pack_signal(loaded.buckets, signal)
