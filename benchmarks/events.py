"""The stream that is measured: two types of events, many keys, five seconds of disorder.

`A -> B where b.v > a.v within 30 seconds`, jitter of 5 s with `wait 10 seconds`: an event every 300 µs, so a million events are
five minutes. Arrival goes up; the source time is the arrival less a random part of the jitter.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

import querylang
from querylang.plan.model import Plan
from runtime.columns.arrivals import Arrivals, arrivals_schema

QUERY = """
@OutOfOrder() event A { integer k; float v; }
@OutOfOrder() event B { integer k; float v; }
query Rising {
    inputs {
        A() key k within 30 seconds wait 10 seconds;
        B() key k within 30 seconds wait 10 seconds;
    }
    find A as a -> B as b where b.v > a.v within 30 seconds
}
"""
SPACING = 300
"""Microseconds from one arrival to the next."""
JITTER = 5_000_000


def plan(query: str = QUERY) -> Plan:
    """A query over these events, compiled."""
    return querylang.compile_text(query).plan


def columns(count: int, keys: int, first: int) -> dict[str, NDArray[Any]]:
    """`count` events from number `first` on; kind 0 is A, 1 is B. The same numbers for the same arguments."""
    random = np.random.default_rng(first)
    number = np.arange(first, first + count)
    arrival = number * SPACING
    return {
        "kind": random.integers(0, 2, count),
        "at": arrival,
        "ts": arrival - random.integers(0, JITTER, count),
        "offset": number,
        "k": random.integers(0, keys, count),
        "v": random.random(count),
    }


def arrivals(plan: Plan, count: int, keys: int, first: int) -> Arrivals:
    """The same as a batch in memory."""
    made = columns(count, keys, first)
    source = pa.DictionaryArray.from_arrays(pa.array(np.zeros(count, np.int32)), pa.array(["bench"]))
    values = {
        "_kind": pa.array(made["kind"], pa.int16()),
        "_arrival": made["at"],
        "_source": source,
        "_partition": np.zeros(count, np.int64),
        "_offset": made["offset"],
        "_source_time": made["ts"],
        "_text": pa.nulls(count, pa.string()),
        "_place": np.zeros(count, np.int64),
        "k:integer": made["k"],
        "v:float": made["v"],
    }
    return Arrivals(pa.table(values).cast(arrivals_schema(plan)).drop_columns("_text"))


def write_files(folder: Path, files: int, rows: int, keys: int) -> None:
    """Parquet files in order of arrival. `t` is the type as a number for the job that does nothing, `event` for ours."""
    folder.mkdir(parents=True)
    names = pa.array(["A", "B"])
    for file in range(files):
        made = columns(rows, keys, file * rows)
        table = pa.table(
            {
                "at": pa.array(made["at"]).cast(pa.timestamp("us", "UTC")),
                "event": names.take(pa.array(made["kind"])),
                "t": pa.array(made["kind"], pa.int8()),
                "ts": pa.array(made["ts"]).cast(pa.timestamp("us", "UTC")),
                "k": made["k"],
                "v": made["v"],
            }
        )
        path = folder / f"{file:04}.parquet"
        pq.write_table(table, path)
        os.utime(path, (1_000_000_000 + file, 1_000_000_000 + file))
