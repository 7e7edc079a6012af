"""The stream that all systems get, in the forms in which they take it, and the checksum of an answer.

Times are distinct, so that no rule for ties decides what matches.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from benchmarks import events

RECORD = np.dtype([("key", "<i4"), ("time", "<i8"), ("value", "<f8"), ("is_first", "?")])
"""A record for the Java systems, which read the whole stream into memory first."""

FILES = 4


@dataclass(frozen=True, slots=True)
class Stream:
    """The files of a stream.

    folder: Parquet files in order of arrival, for Ensue on Spark
    table: the same as one Parquet file, for Ensue and DuckDB
    records: the same as `RECORD`s
    """

    folder: Path
    table: Path
    records: Path
    events: int

    @staticmethod
    def of(folder: Path) -> Stream:
        """The stream that `write_stream` wrote."""
        table = folder / "stream.parquet"
        return Stream(folder / "files", table, folder / "stream.records", pq.read_metadata(table).num_rows)


def write_stream(folder: Path, count: int, keys: int, types: int = 2) -> Stream:
    """Write a stream of `count` events in the order of arrival, up to five seconds late, of one type or two."""
    made = events.columns(count, keys, 0)
    if types == 1:
        made["kind"] = np.zeros_like(made["kind"])
    time = _distinct(made["ts"]) + 2 * events.JITTER
    table = pa.table(
        {
            "at": pa.array(made["at"] + 2 * events.JITTER).cast(pa.timestamp("us", "UTC")),
            "event": pa.array(np.where(made["kind"] == 0, "A", "B")),
            "ts": pa.array(time).cast(pa.timestamp("us", "UTC")),
            "id": made["offset"],
            "k": made["k"],
            "v": made["v"],
        }
    )
    pq.write_table(table, folder / "stream.parquet")
    stream = Stream.of(folder)
    stream.folder.mkdir(parents=True)
    size = -(-count // FILES)
    for number in range(FILES):
        pq.write_table(table.slice(number * size, size), stream.folder / f"{number:04}.parquet")
    records = np.empty(count, RECORD)
    for name, values in (("key", made["k"]), ("time", time), ("value", made["v"]), ("is_first", made["kind"] == 0)):
        records[name] = values
    records.tofile(stream.records)
    return stream


def checksum(first: NDArray[np.int64], second: NDArray[np.int64]) -> str:
    """Of matches in any order; `Answer.word` in Java is the same."""
    with np.errstate(over="ignore"):
        one = (first.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        two = (second.astype(np.uint64) + np.uint64(1)) * np.uint64(0xC2B2AE3D27D4EB4F)
        mixed = one ^ two
        return str(np.sum((mixed ^ (mixed >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9), dtype=np.uint64))


def _distinct(times: NDArray[np.int64]) -> NDArray[np.int64]:
    """The same times, some of them a few microseconds later, so that no two are equal."""
    order = np.argsort(times, kind="stable")
    number = np.arange(len(times))
    result = np.empty_like(times)
    result[order] = np.maximum.accumulate(times[order] - number) + number
    return result
