"""A job whose three queries feed each other over three keys, beside jobs of each query alone, in turn.

The second and third query alone read what is routed to them from files. `python -m benchmarks.chained_jobs --engine local`
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from shutil import rmtree
from statistics import median

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import ensue
from job_engine.job.job import run
from job_engine.setting_keys import Engine

SPACING = 300
"""Microseconds from one event to the next."""
FILES = 2
"""In a micro-batch."""

EVENTS = """\
event P { integer k; integer j; integer m; float v; }
event Alarm { integer j; float v; }
event Wave { integer m; float v; }
"""
FIRST = (
    "query First { inputs { P() key k within 5 seconds; }"
    " find P as a -> P as b where b.v > a.v + LEAST { route Alarm(b.j, b.v); } }\n"
)
SECOND = (
    "query Second { inputs { Alarm() key j within 5 seconds; P() key j within 5 seconds; }"
    " find Alarm as a -> P as b where a.v < b.v { route Wave(b.m, b.v); } }\n"
)
THIRD = (
    "query Third { inputs { Wave() key m within 5 seconds; P() key m within 5 seconds; }"
    " find Wave as a -> P as b where a.v < b.v }\n"
)


def records(count: int) -> pa.Table:
    """Events of P in order of arrival."""
    chance = np.random.default_rng(7)
    return pa.table(
        {
            "at": pa.array(np.arange(count) * SPACING, pa.timestamp("us", "UTC")),
            "event": pa.repeat("P", count),
            **{name: chance.integers(0, most, count) for name, most in (("k", 2_000), ("j", 1_500), ("m", 1_000))},
            "v": chance.random(count),
        }
    )


def with_routed(table: pa.Table, query: str, event: str) -> pa.Table:
    """The records with what a query routes of a type, each behind the record that has caused it."""
    rows = ensue.replay(EVENTS + query, table).matches["b.row"].to_numpy().astype(int) - 1
    routed = table.take(pa.array(rows))
    routed = routed.set_column(1, "event", pa.repeat(event, len(rows)))
    order = np.argsort(np.concatenate([np.arange(len(table)) * 2, rows * 2 + 1]), kind="stable")
    return pa.concat_tables([table, routed]).take(pa.array(order))


def write(folder: Path, table: pa.Table, events: int) -> None:
    """Files of the moments of so many events each."""
    folder.mkdir(parents=True)
    at = table.column("at").to_numpy().astype(np.int64)
    ends = np.searchsorted(at, np.arange(0, int(at[-1]) + SPACING * events, SPACING * events))
    for number, (begin, end) in enumerate(pairwise([*ends, len(table)])):
        if end > begin:
            path = folder / f"{number:04}.parquet"
            pq.write_table(table.slice(begin, end - begin), path)
            os.utime(path, (10**9 + number, 10**9 + number))


def milliseconds(folder: Path, data: Path, queries: str, engine: Engine, buckets: int) -> list[float]:
    """From the end of each micro-batch to the next one's; those of the first are left out."""
    rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "bench.query").write_text(EVENTS + queries, encoding="utf-8")
    deployment = {
        "name": "bench",
        "engine": str(engine),
        "queries": ["bench.query"],
        "sources": {"table": {"format": "parquet", "path": str(data), "options": {"maxFilesPerTrigger": FILES}}},
        "sinks": {"matches": {"format": "parquet", "path": "matches"}},
        "buckets": buckets,
        "checkpoint": "state",
    }
    (folder / "bench.yaml").write_text(json.dumps(deployment), encoding="utf-8")
    ends: list[float] = []
    run(folder / "bench.yaml", once=True, progress=lambda _: ends.append(time.monotonic()))
    return [(end - start) * 1000 for start, end in pairwise(ends)]


def main() -> None:
    """Prints a line for each share of events that cause an alarm."""
    parser = argparse.ArgumentParser(prog="chained_jobs", description=__doc__)
    parser.add_argument("--engine", type=Engine, choices=list(Engine), default=Engine.LOCAL)
    parser.add_argument("--events", type=int, default=1_000_000, help="in a micro-batch")
    parser.add_argument("--batches", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--buckets", type=int, default=4)
    parser.add_argument("--least", nargs="*", default=["0.8", "0.98"])
    given = parser.parse_args()
    table = records(given.events * given.batches)
    for least in given.least:
        first = FIRST.replace("LEAST", least)
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as temporary:
            folder = Path(temporary)
            alarms = with_routed(table, first, "Alarm")
            waves = with_routed(alarms, SECOND, "Wave")
            waves = waves.filter(pc.not_equal(waves.column("event"), "Alarm"))
            for name, own in (("once", table), ("alarms", alarms), ("waves", waves)):
                write(folder / name, own, given.events // FILES)
            jobs = {
                "chain": ("once", first + SECOND + THIRD),
                "first": ("once", first),
                "second": ("alarms", SECOND),
                "third": ("waves", THIRD),
            }
            times: dict[str, list[float]] = {name: [] for name in jobs}
            for _ in range(given.rounds):
                for name, (data, queries) in jobs.items():
                    own = milliseconds(folder / "job", folder / data, queries, given.engine, given.buckets)
                    times[name] += own
            found = {name: median(own) for name, own in times.items()}
            alone = sum(found.values()) - found["chain"]
            print(
                f"{given.engine}, {given.events:,} events a micro-batch, alarms with `+ {least}`"
                f" ({len(alarms) - len(table):,} alarms, {len(waves) - len(table):,} waves): chain"
                f" {found['chain']:.0f} ms, alone {', '.join(f'{found[name]:.0f}' for name in list(jobs)[1:])} ms:"
                f" {found['chain'] / alone:.2f} of their sum",
                flush=True,
            )


if __name__ == "__main__":
    main()
