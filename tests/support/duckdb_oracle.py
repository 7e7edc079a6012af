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

from tests.support.conditions import Node, sql_can_say, to_sql
from tests.support.patterns import Where, is_plain
from tests.support.scenario import EVENTS, InputSetup, Scenario

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
    """Whether every event is admitted whatever the order, and SQL has the same meaning for pattern and conditions."""
    return (
        is_sequence(scenario)
        and all(_takes_all(scenario, index) for index in range(len(scenario.inputs)))
        and all(sql_can_say(condition) for condition in wheres(scenario))
        and not any(item.missing for item in scenario.inputs)
        and not any(row.v is not None and abs(row.v) > 2**31 for row in scenario.rows)
        and not any(row.f is not None and math.isnan(row.f) for row in scenario.rows)
    )


def is_sequence(scenario: Scenario) -> bool:
    """Whether there is nothing but `->`, `where`, and `within` over the whole pattern."""
    return (
        is_plain(scenario.pattern)
        and scenario.leading is scenario.trailing is scenario.every is None
        and "h" not in scenario.keys
        and not any(item.unique for item in scenario.inputs)
        and len(wheres(scenario)) + (scenario.within is not None) == len(scenario.clauses)
    )


def wheres(scenario: Scenario) -> list[Node]:
    """The conditions of the `where` clauses."""
    return [item.condition for item in scenario.clauses if isinstance(item, Where)]


def _takes_all(scenario: Scenario, index: int) -> bool:
    """An input without wait, or one that trusts nothing and waits longer than any event is old."""
    item = scenario.inputs[index]
    if item.wait is None:
        return True
    if not item.out_of_order or any(row.kind == item.heartbeat for row in scenario.rows):
        return False
    rows = [row for row in scenario.rows if row.kind == item.event]
    return all(row.time is None or row.at - row.time <= item.wait for row in rows)


def find(scenario: Scenario) -> list[tuple[int, ...]]:
    """The offsets of every match's events, sorted."""
    pattern = [leaf.event for leaf in scenario.leaves]
    aliases = list(scenario.names)
    last = aliases[-1]
    tables = ", ".join(f"ranked {alias}" for alias in aliases)
    where = [f"{alias}.kind = '{event}'" for alias, event in zip(aliases, pattern, strict=True)]
    where += [f"{alias}.{name} = {last}.{name}" for alias in aliases[:-1] for name in scenario.keys]
    where += [f"{left}.place < {right}.place" for left, right in itertools.pairwise(aliases)]
    for alias, event in zip(aliases, pattern, strict=True):
        where += _window(scenario, alias, event, last)
    if scenario.within is not None:
        where.append(f"{last}.moment - {aliases[0]}.moment < {scenario.within}")
    where += [to_sql(condition) for condition in wheres(scenario)]
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
    kinds = [f"(kind = '{item.event}' AND {_filtered(item)} AND moment IS NOT NULL)" for item in scenario.inputs]
    return " AND ".join([f"({' OR '.join(kinds)})", *(f"{name} IS NOT NULL" for name in scenario.keys)])


def _filtered(item: InputSetup) -> str:
    parts = ["TRUE"]
    for rule in item.filters:
        if rule.operator[0] in "[(":
            low, high = rule.value
            above, below = ">=" if rule.operator[0] == "[" else ">", "<=" if rule.operator[1] == "]" else "<"
            parts.append(f"{rule.field} {above} {_literal(low)} AND {rule.field} {below} {_literal(high)}")
        else:
            parts.append(f"{rule.field} {rule.operator} {_literal(rule.value)}")
    return f"coalesce({' AND '.join(parts)}, FALSE)"


def _literal(value: object) -> str:
    return f"'{value}'" if isinstance(value, str) else str(value)


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
