"""The same question as SQL: DuckDB joins the events and keeps the most recent combination.

For streams in which every event is admitted, so that admission plays no part: what counts as the time of an event and
the order of events are all that is left. Knows nothing of our code.
"""

from __future__ import annotations

import itertools
import math
from functools import cache

import duckdb
import pyarrow as pa

from tests.support.conditions import Node, Not, Operation, sql_can_say, to_sql
from tests.support.scenario import EVENTS, PAYLOAD, Scenario

ARROW = {
    "k": pa.int64(),
    "c": pa.string(),
    "v": pa.int64(),
    "f": pa.float64(),
    "s": pa.string(),
    "g": pa.bool_(),
}


@cache
def connection() -> duckdb.DuckDBPyConnection:
    """One database in memory; it runs on one thread."""
    made = duckdb.connect()
    made.execute("SET threads = 1")
    return made


def can_say(scenario: Scenario) -> bool:
    """Whether every event is admitted whatever the order, and SQL has the same meaning for every condition."""
    return (
        all(_takes_all(scenario, index) for index in range(len(scenario.inputs)))
        and all(sql_can_say(condition) for condition in scenario.conditions)
        and (not _has_nulls(scenario) or not any(_two_valued(condition) for condition in scenario.conditions))
        and not any(row.v is not None and abs(row.v) > 2**31 for row in scenario.rows)
        and not any(row.f is not None and math.isnan(row.f) for row in scenario.rows)
    )


def _takes_all(scenario: Scenario, index: int) -> bool:
    """An input without wait, or one that trusts nothing and waits longer than any event is old."""
    item = scenario.inputs[index]
    if item.wait is None:
        return True
    if not item.out_of_order or any(row.kind == item.heartbeat for row in scenario.rows):
        return False
    rows = [row for row in scenario.rows if row.kind == item.event]
    return all(row.time is None or row.at - row.time <= item.wait for row in rows)


def _has_nulls(scenario: Scenario) -> bool:
    return any(getattr(row, name) is None for row in scenario.rows if row.kind in EVENTS for name in PAYLOAD)


def _two_valued(node: Node) -> bool:
    """Whether a null inside does not simply make the whole false: SQL has three values, we fail."""
    match node:
        case Not() | Operation("or" | "xor", _, _):
            return True
        case Operation(_, left, right):
            return _two_valued(left) or _two_valued(right)
        case _:
            return False


def find(scenario: Scenario) -> list[tuple[int, ...]]:
    """The offsets of every match's events, sorted."""
    terms = range(len(scenario.pattern))
    aliases = [f"e{term}" for term in terms]
    last = aliases[-1]
    tables = ", ".join(f"ranked {alias}" for alias in aliases)
    where = [f"{alias}.kind = '{event}'" for alias, event in zip(aliases, scenario.pattern, strict=True)]
    where += [f"{alias}.{name} = {last}.{name}" for alias in aliases[:-1] for name in scenario.keys]
    where += [f"{left}.place < {right}.place" for left, right in itertools.pairwise(aliases)]
    for alias, event in zip(aliases, scenario.pattern, strict=True):
        where += _window(scenario, alias, event, last)
    if scenario.within is not None:
        where.append(f"{last}.moment - e0.moment < {scenario.within}")
    where += [to_sql(condition, aliases) for condition in scenario.conditions]
    recent = ", ".join(f"{alias}.place DESC" for alias in reversed(aliases))
    found = connection().execute(
        f"""
        WITH admitted AS (SELECT * FROM events WHERE {_admitted(scenario)}),
        ranked AS (SELECT *, row_number() OVER (ORDER BY moment, arrival, source, partition, id) AS place FROM admitted)
        SELECT {", ".join(f"{alias}.id" for alias in aliases)} FROM {tables}
        WHERE {" AND ".join(where)}
        QUALIFY row_number() OVER (PARTITION BY {last}.place ORDER BY {recent}) = 1
        """
    )
    return sorted(tuple(int(value) for value in row) for row in found.fetchall())


def _window(scenario: Scenario, alias: str, event: str, last: str) -> list[str]:
    item = next(item for item in scenario.inputs if item.event == event)
    parts: list[str] = []
    if item.within is not None:
        parts.append(f"{last}.moment - {alias}.moment < {item.within}")
    if item.retain is not None:
        same = " AND ".join(["TRUE", *(f"o.{name} = {alias}.{name}" for name in scenario.keys)])
        parts.append(
            f"(SELECT count(*) FROM ranked o WHERE o.kind = '{event}' AND {same}"
            f" AND o.place > {alias}.place AND o.place <= {last}.place) < {item.retain}"
        )
    return parts


def _admitted(scenario: Scenario) -> str:
    kinds: list[str] = []
    for item in scenario.inputs:
        least = "TRUE" if item.least is None else f"v >= {item.least}"
        kinds.append(f"(kind = '{item.event}' AND {least} AND moment IS NOT NULL)")
    return " AND ".join([f"({' OR '.join(kinds)})", *(f"{name} IS NOT NULL" for name in scenario.keys)])


def load(scenario: Scenario) -> None:
    """Give DuckDB the table `events`."""
    waits = {item.event: item.wait for item in scenario.inputs}
    rows = [(number, row) for number, row in enumerate(scenario.rows, 1) if row.kind in EVENTS]
    columns = {
        "id": pa.array([number for number, _ in rows], pa.int64()),
        "kind": pa.array([row.kind for _, row in rows], pa.string()),
        "source": pa.array([row.source for _, row in rows], pa.string()),
        "partition": pa.array([row.partition for _, row in rows], pa.int32()),
        "arrival": pa.array([row.at for _, row in rows], pa.int64()),
        "moment": pa.array([row.at if waits.get(row.kind) is None else row.time for _, row in rows], pa.int64()),
    }
    fields = {name: pa.array([getattr(row, name) for _, row in rows], type_) for name, type_ in ARROW.items()}
    connection().register("events", pa.table(columns | fields))
