"""`python -m benchmarks.peers.one_system SYSTEM FOLDER THREADS PASSES MARGIN PATTERN`: a process of its own, one line per pass.

The Java systems are in `java/`; they take the same arguments, and print the same lines.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from benchmarks.events import plan
from benchmarks.peers.answers import Answer
from benchmarks.peers.stream import Stream, checksum
from runtime.replay.replay import read_records, replay_records

TYPES = """\
@OutOfOrder() event A {{ integer id; integer k; float v; }}
@OutOfOrder() event B {{ integer id; integer k; float v; }}
"""
LATEST = """\
query Peers {{
    inputs {{
        A() key k within 30 seconds wait 5 seconds;
        B() key k within 30 seconds wait 5 seconds;
    }}
    find A as a -> B as b where b.v > a.v + {margin}
}}
"""
VALLEY = """\
query Peers {{
    inputs {{ A() key k retain 20 wait 5 seconds; }}
    find A as a => A as d+ consecutive => A as u+ consecutive => A as b
        where d.v < prev(d).v
        where u.v > prev(u).v
        where b.v <= prev(b).v
}}
"""
QUERIES = {"latest": TYPES + LATEST, "valley": TYPES + VALLEY}
"""Matches of both bind the names `a` and `b`, their first and their last event."""
DEPLOYMENT = """\
name: peers
queries: [peers.query]
sources:
  events: {{format: parquet, path: {folder}, order: name, options: {{maxFilesPerTrigger: 1}}}}
sinks:
  matches: {{format: parquet, path: matches}}
buckets: {buckets}
checkpoint: state
"""
SLICED = """
WITH e AS (SELECT id, event, k, v, epoch_us(ts) AS t FROM read_parquet($file)),
firsts AS (SELECT *, t // 30000000 + late AS slice FROM e, (VALUES (0), (1)) AS s(late) WHERE event = 'A')
SELECT b.k, b.id AS b, b.v, b.t, arg_max(a.id, a.t) AS a, arg_max(a.v, a.t) AS a_v, max(a.t) AS a_t
FROM e AS b JOIN firsts AS a ON a.k = b.k AND a.slice = b.t // 30000000
WHERE b.event = 'B' AND a.t < b.t AND b.t - a.t < 30000000 AND b.v > a.v + $margin
GROUP BY b.k, b.id, b.v, b.t
"""
WINDOW = """
WITH e AS (SELECT id, event, k, v, epoch_us(ts) AS t FROM read_parquet($file)),
seen AS (
    SELECT id, event, k, v, t, list({'id': id, 'v': v, 't': t}) FILTER (event = 'A') OVER (
        PARTITION BY k ORDER BY t RANGE BETWEEN 29999999 PRECEDING AND CURRENT ROW
    ) AS before FROM e
),
found AS (SELECT id, k, v, t, [x FOR x IN before IF v > x.v + $margin][-1] AS a FROM seen WHERE event = 'B')
SELECT k, id AS b, v, t, a.id AS a, a.v AS a_v, a.t AS a_t FROM found WHERE a IS NOT NULL
"""
TURNS = """
WITH e AS (
    SELECT id, k, v, ts, sign(v - lag(v) OVER own) AS step, sign(lead(v) OVER own - v) AS next, lead(id) OVER own AS after
    FROM read_parquet($file) WINDOW own AS (PARTITION BY k ORDER BY ts)
),
turns AS (
    SELECT *, lag(id, 2) OVER own AS start, lag(v, 2) OVER own AS start_v, lag(ts, 2) OVER own AS start_ts,
        lag(step) OVER own AS fall, lag(next) OVER own AS rise
    FROM e WHERE coalesce(step, 0) != coalesce(next, 0) WINDOW own AS (PARTITION BY k ORDER BY ts)
)
SELECT k, start AS a, start_v, start_ts, after AS b, v, ts
FROM turns WHERE fall = -1 AND rise = 1 AND step = 1 AND next <= 0
"""


@dataclass(frozen=True, slots=True)
class Asked:
    """What is looked for: a pattern of `QUERIES`, and by how much more than the value of A that of B must be."""

    pattern: str
    margin: float

    @property
    def query(self) -> str:
        """The query's text, with its event types."""
        return QUERIES[self.pattern].format(margin=self.margin)


def embedded(stream: Stream, threads: int, passes: int, asked: Asked) -> None:
    """Ensue: the file to the table of matches."""
    _limit_arrow(threads)
    compiled = plan(asked.query)
    for _ in range(passes):
        started = perf_counter()
        found = replay_records(compiled, read_records([stream.table], compiled), matcher="kernel").matches["Peers"]
        seconds = perf_counter() - started
        members = found.column("members").combine_chunks()
        _tell(stream.events, seconds, *_ids(*(members.field(name) for name in "ab")))


def spark(stream: Stream, threads: int, passes: int, asked: Asked) -> None:
    """Ensue as a Spark job, Parquet to Parquet: the time between the first and the last commit of its micro-batches."""
    from job_engine.job.job import run  # Spark is slow to import

    for number in range(passes):
        folder = stream.table.parent / f"job-{threads}-{number}"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        (folder / "peers.query").write_text(asked.query, encoding="utf-8")
        deployment = folder / "peers.yaml"
        deployment.write_text(DEPLOYMENT.format(folder=stream.folder, buckets=4 * threads), encoding="utf-8")
        run(deployment, once=True, flush=True)
        commits = sorted(path.stat().st_mtime for path in (folder / "state" / "commits").glob("[0-9]*"))
        sizes = [pq.read_metadata(path).num_rows for path in sorted(stream.folder.iterdir())]
        found = pa.concat_tables([pq.read_table(path) for path in sorted((folder / "matches").rglob("*.parquet"))])
        _tell(
            sum(sizes[1:]),
            commits[len(sizes) - 1] - commits[0],
            *_ids(*(found.column(name).combine_chunks() for name in "ab")),
        )


def _duckdb(sql: str) -> Callable[[Stream, int, int, Asked], None]:
    """DuckDB: the same file to the same columns, without identities and in any order."""

    def ask(stream: Stream, threads: int, passes: int, asked: Asked) -> None:
        _limit_arrow(threads)
        values = {"file": str(stream.table)} | ({"margin": asked.margin} if "$margin" in sql else {})
        with duckdb.connect(config={"threads": threads}) as connection:
            connection.sql("SET enable_progress_bar = false")
            for _ in range(passes):
                started = perf_counter()
                found = connection.sql(sql, params=values).to_arrow_table()
                seconds = perf_counter() - started
                _tell(stream.events, seconds, found.column("a").to_numpy(), found.column("b").to_numpy())

    return ask


SYSTEMS: Mapping[str, Callable[[Stream, int, int, Asked], None]] = {
    "ensue": embedded,
    "ensue-spark": spark,
    "duckdb-sliced": _duckdb(SLICED),
    "duckdb-window": _duckdb(WINDOW),
    "duckdb-turns": _duckdb(TURNS),
}


def _ids(a: pa.Array, b: pa.Array) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The row numbers of the events of all matches; `a`, `b`: the events, with their fields."""
    first, second = (own.field("fields").field("id").to_numpy() for own in (a, b))
    return first, second


def _limit_arrow(threads: int) -> None:
    pa.set_cpu_count(threads)


def _tell(events: int, seconds: float, first: NDArray[np.int64], second: NDArray[np.int64]) -> None:
    print(Answer(events, seconds, len(first), checksum(first, second)).line(), flush=True)


def main() -> None:
    """Runs what the arguments say."""
    system, folder, threads, passes, margin, pattern = sys.argv[1:]
    SYSTEMS[system](Stream.of(Path(folder)), int(threads), int(passes), Asked(pattern, float(margin)))


if __name__ == "__main__":
    main()
