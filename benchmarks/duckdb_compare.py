"""A bounded Parquet table on one core: Ensue against DuckDB with one thread, in turn.

The table is history in order: every event arrives when it happens, so admission plays no part. Both read the file and give
key, times and values of each match's events; ours gives identities and the promised order besides. DuckDB answers in
three forms: a self-join; a window that gathers what each event looks back on; and the self-join by hand cut into slices of
30 seconds, so that it does not pair what is far apart. Of three names all find the best first event of each second
one before they look for a third: conditions are on neighbours, so that loses nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks import events
from benchmarks.embedded import significant
from querylang.plan.model import Plan
from runtime.replay.replay import read_records, replay_records

DEFINITIONS = """
event A {{ integer id; integer k; float v; }}
event B {{ integer id; integer k; float v; }}
query Q {{
    inputs {{
        A() key k within 30 seconds;
        B() key k within 30 seconds;
    }}
    find {find}
}}
"""


@dataclass(frozen=True, slots=True)
class Question:
    """The same asked of both. `sql` by form: the first columns are the row numbers of the names' events; `$file` is the table."""

    name: str
    find: str
    sql: Mapping[str, str]

    @property
    def plan(self) -> Plan:
        """The query for the engine, compiled."""
        return events.plan(DEFINITIONS.format(find=self.find))


@dataclass(frozen=True, slots=True)
class Size:
    """How much is measured; `rounds` of all forms in turn, after one that is not counted."""

    events: int
    keys: int
    rounds: int


@dataclass(frozen=True, slots=True)
class Compared:
    """Medians, milliseconds. `ratio`: how many times ours is faster than the better of self-join and window;
    `sliced_ratio`: than the self-join in slices."""

    name: str
    events: int
    keys: int
    matches: int
    ours_ms: float
    join_ms: float
    window_ms: float
    sliced_ms: float
    ratio: float
    sliced_ratio: float
    all_ms: dict[str, list[float]]


_EVENTS = "SELECT id, event, k, v, epoch_us(ts) AS t FROM read_parquet($file)"
_BY_JOIN = f"""
WITH e AS ({_EVENTS}),
{{firsts}}
pairs AS (
    SELECT b.k, b.id AS b, b.v, b.t, arg_max(a.id, a.t) AS a, arg_max(a.v, a.t) AS a_v, max(a.t) AS a_t
    FROM e AS b JOIN {{first}}
    WHERE b.event = 'B' AND a.t < b.t AND b.t - a.t < 30000000 AND b.v > a.v
    GROUP BY b.k, b.id, b.v, b.t
){{middles}}
"""
_PLAIN = _BY_JOIN.format(firsts="", first="e AS a ON a.k = b.k AND a.event = 'A'", middles="")
_SLICED = _BY_JOIN.format(
    firsts="firsts AS (SELECT *, t // 30000000 + late AS slice FROM e, (VALUES (0), (1)) AS s(late) WHERE event = 'A'),",
    first="firsts AS a ON a.k = b.k AND a.slice = b.t // 30000000",
    middles=", middles AS (SELECT *, t // 30000000 + late AS slice FROM pairs, (VALUES (0), (1)) AS s(late))",
)
_THIRD = """
SELECT arg_max(p.a, p.t) AS a, arg_max(p.b, p.t) AS b, c.id AS c, c.k, c.t, c.v, arg_max(p.a_t, p.t) AS a_t,
    arg_max(p.a_v, p.t) AS a_v, max(p.t) AS b_t, arg_max(p.v, p.t) AS b_v
FROM e AS c JOIN {middle}
WHERE c.event = 'A' AND p.t < c.t AND c.t - p.a_t < 30000000 AND c.v > p.v
GROUP BY c.k, c.id, c.v, c.t
"""
_WINDOWED = f"""
WITH e AS ({_EVENTS}),
seen AS (
    SELECT id, event, k, v, t, list({{'id': id, 'v': v, 't': t}}) FILTER (event = 'A') OVER (
        PARTITION BY k ORDER BY t RANGE BETWEEN 29999999 PRECEDING AND CURRENT ROW
    ) AS before FROM e
),
found AS (SELECT id, k, v, t, [x FOR x IN before IF x.v < v][-1] AS a FROM seen WHERE event = 'B'),
pairs AS (SELECT a.id AS a, id AS b, k, v, t, a.t AS a_t, a.v AS a_v FROM found WHERE a IS NOT NULL)
"""
_THIRD_WINDOWED = """,
either AS (
    SELECT k, v, t, {'a': a, 'b': b, 'v': v, 't': t, 'a_t': a_t, 'a_v': a_v} AS pair, NULL AS c FROM pairs
    UNION ALL SELECT k, v, t, NULL, id FROM e WHERE event = 'A'
),
later AS (
    SELECT k, c, v, t, list(pair) FILTER (c IS NULL) OVER (
        PARTITION BY k ORDER BY t RANGE BETWEEN 29999999 PRECEDING AND CURRENT ROW
    ) AS before FROM either
),
last AS (
    SELECT k, c, v, t, [x FOR x IN before IF x.v < v AND t - x.a_t < 30000000][-1] AS p FROM later WHERE c IS NOT NULL
)
SELECT p.a AS a, p.b AS b, c, k, t, v, p FROM last WHERE p IS NOT NULL
"""
_PAIR = "SELECT a, b, k, t, v, a_t, a_v FROM pairs"

QUESTIONS = (
    Question(
        "A -> B where b.v > a.v within 30 seconds",
        "A as a -> B as b where b.v > a.v within 30 seconds",
        {"join": f"{_PLAIN} {_PAIR}", "sliced": f"{_SLICED} {_PAIR}", "window": f"{_WINDOWED} {_PAIR}"},
    ),
    Question(
        "A -> B -> A, two conditions, within 30 seconds",
        "A as a -> B as b -> A as c where b.v > a.v where c.v > b.v within 30 seconds",
        {
            "join": _PLAIN + _THIRD.format(middle="pairs AS p ON p.k = c.k"),
            "sliced": _SLICED + _THIRD.format(middle="middles AS p ON p.k = c.k AND p.slice = c.t // 30000000"),
            "window": _WINDOWED + _THIRD_WINDOWED,
        },
    ),
)


def measure(folder: Path, size: Size) -> list[Compared]:
    """Writes its table to `folder`, asks each question of all three, in turn. Raises AssertionError where they differ."""
    path = folder / "history.parquet"
    write_table(path, size.events, size.keys)
    with _one_core(), duckdb.connect(config={"threads": 1}) as connection:
        connection.sql("SET enable_progress_bar = false")
        return [_compared(question, path, size, connection) for question in QUESTIONS]


def _compared(question: Question, path: Path, size: Size, connection: duckdb.DuckDBPyConnection) -> Compared:
    plan = question.plan
    forms: dict[str, Callable[[], pa.Table]] = {
        "ours": lambda: ours(plan, path),
        **{form: partial(theirs, connection, sql, path) for form, sql in question.sql.items()},
    }
    times: dict[str, list[float]] = {name: [] for name in forms}
    counts: set[int] = set()
    for _ in range(size.rounds + 1):
        for name, form in forms.items():
            started = perf_counter()
            counts.add(form().num_rows)
            times[name].append((perf_counter() - started) * 1e3)
    assert len(counts) == 1, f"{question.name}: as many matches in every form, not {sorted(counts)}"
    medians = {name: median(own[1:]) for name, own in times.items()}
    return Compared(
        name=question.name,
        events=size.events,
        keys=size.keys,
        matches=counts.pop(),
        ours_ms=medians["ours"],
        join_ms=medians["join"],
        window_ms=medians["window"],
        sliced_ms=medians["sliced"],
        ratio=significant(min(medians["join"], medians["window"]) / medians["ours"]),
        sliced_ratio=significant(medians["sliced"] / medians["ours"]),
        all_ms={name: own[1:] for name, own in times.items()},
    )


def ours(plan: Plan, path: Path) -> pa.Table:
    """The file through the engine, as `ensue.replay` does it, with the kernel."""
    return replay_records(plan, read_records([path], plan), matcher="kernel").matches["Q"]


def theirs(connection: duckdb.DuckDBPyConnection, sql: str, path: Path) -> pa.Table:
    """The file through DuckDB."""
    return connection.sql(sql, params={"file": str(path)}).to_arrow_table()


def write_table(path: Path, count: int, keys: int) -> None:
    """Events in order of time, no two at the same moment; `id` is the row's number."""
    made = events.columns(count, keys, 0)
    table = {
        "id": made["offset"],
        "event": pa.array(["A", "B"]).take(pa.array(made["kind"])),
        "ts": pa.array(made["at"]).cast(pa.timestamp("us", "UTC")),
        "k": made["k"],
        "v": made["v"],
    }
    pq.write_table(pa.table(table), path)


@contextmanager
def _one_core() -> Iterator[None]:
    """This process, DuckDB and Arrow in it, on one core."""
    cores, threads = os.sched_getaffinity(0), pa.cpu_count()
    os.sched_setaffinity(0, {min(cores)})
    pa.set_cpu_count(1)
    try:
        yield
    finally:
        pa.set_cpu_count(threads)
        os.sched_setaffinity(0, cores)
