"""What clauses of rule books cost beside queries without them: roles, chains, lists, texts, networks, limits.

One core, a table in memory to a table of matches; what is compared alternates, in processor time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from time import process_time

import numpy as np
import pyarrow as pa

import ensue
from benchmarks.embedded import significant

_FIELDS = "integer k; integer j; integer code; integer side; string name; string address; float v;"
_WINDOW = "within 30 seconds"
_SPACING = 300
"""Microseconds from one event to the next."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A clause, and what it is compared with.

    queries: with the clause
    beside: others, whose times together are compared, each with the events that it takes: "once", "twice" (each
        record once for each of two types) or "with alarms" (those that the first query of a chain routes, too)
    """

    name: str
    queries: str
    beside: Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Ruled:
    """Seconds of a processor, medians; `ratio`: with the clause to without."""

    name: str
    events: int
    matches: int
    seconds: float
    beside: float
    ratio: float


def asked() -> tuple[Asked, ...]:
    """All that is compared."""
    return (
        Asked("roles of two keys, beside two types", _roles("k", "j"), [(_types("k", "j"), "twice")]),
        Asked("roles of one key, beside two types", _roles("k", "k"), [(_types("k", "k"), "twice")]),
        *(_chain(least) for least in ("0.0", "0.8", "0.98")),
        Asked("a list of 10,000 numbers, beside `=`", _single(f"code in [{_CODES}]"), _alone("side = 1")),
        Asked("`like`, beside `=`", _single('name.like("a*")'), _alone('name = "abc"')),
        Asked("`inNetwork`, beside `=`", _single('address.inNetwork("10.0.0.0/8")'), _alone('address = "10.1.2.3"')),
        Asked("`at most`, beside none", _single("", limit="at most 1 per 1 hour by a.side"), _alone("")),
        Asked("`new by`, beside none", _single("", new="new by side within 1 hour"), _alone("")),
        Asked("`new by`, nearly all values new, beside none", _single("", new="new by v within 1 hour"), _alone("")),
    )


_CODES = ", ".join(map(str, range(0, 20_000, 2)))


def _roles(one: str, other: str) -> str:
    inputs = f"P() as one key {one} as k {_WINDOW}; P() as two key {other} as k {_WINDOW};"
    return f"event P {{ {_FIELDS} }}\nquery Q {{ inputs {{ {inputs} }} find one as a -> two as b where a.v < b.v }}"


def _types(one: str, other: str) -> str:
    inputs = f"P() key {one} as k {_WINDOW}; R() key {other} as k {_WINDOW};"
    events = f"event P {{ {_FIELDS} }}\nevent R {{ {_FIELDS} }}"
    return f"{events}\nquery Q {{ inputs {{ {inputs} }} find P as a -> R as b where a.v < b.v }}"


def _single(filter_: str, *, limit: str = "", new: str = "") -> str:
    inputs = f"P({filter_}) key k {_WINDOW} {new};"
    return f"event P {{ {_FIELDS} }}\nquery Q {{ inputs {{ {inputs} }} find P as a where a.v > 0.5 {limit} }}"


def _alone(filter_: str) -> Sequence[tuple[str, str]]:
    return [(_single(filter_), "once")]


def _chain(least: str) -> Asked:
    events = f"event P {{ {_FIELDS} }}\nevent Alarm {{ integer k; float v; }}\n"
    first = (
        f"query First {{ inputs {{ P(side = 0) as early key k {_WINDOW}; P(side = 1) as late key k {_WINDOW}; }} "
        f"find early as a -> late as b where b.v > a.v + {least} {{ route Alarm(b.k, b.v); }} }}\n"
    )
    second = (
        f"query Second {{ inputs {{ Alarm() key k {_WINDOW}; P() key k {_WINDOW}; }} "
        "find Alarm as a -> P as b where a.v < b.v }\n"
    )
    return Asked(
        f"a chain, alarms with `b.v > a.v + {least}`, beside both alone",
        events + first + second,
        [(events + first, "once"), (events + second, f"with alarms {least}")],
    )


def measure(count: int, rounds: int) -> list[Ruled]:
    """All of them over so many events, `rounds` times in turn after a first time."""
    table = _records(count)
    tables = {"once": table, "twice": _twice(table)}
    return [_measured(item, tables, rounds) for item in asked()]


def _measured(item: Asked, tables: dict[str, pa.Table], rounds: int) -> Ruled:
    table, own, others = tables["once"], list[float](), list[float]()
    matches = 0
    given = [
        (text, tables[name] if name in tables else _with_alarms(table, item.beside[0][0])) for text, name in item.beside
    ]
    for _ in range(rounds + 1):
        seconds, matches = _replayed(item.queries, table)
        own.append(seconds)
        others.append(sum(_replayed(text, events)[0] for text, events in given))
    mine, beside = median(own[1:]), median(others[1:])
    return Ruled(item.name, len(table), matches, significant(mine), significant(beside), significant(mine / beside))


def _replayed(queries: str, table: pa.Table) -> tuple[float, int]:
    began = process_time()
    result = ensue.replay(queries, table)
    return process_time() - began, len(result.matches)


def _records(count: int) -> pa.Table:
    chance = np.random.default_rng(7)
    side = chance.integers(0, 2, count)
    times = np.arange(count) * _SPACING + 1_000_000_000_000_000
    columns = {
        "at": pa.array(times, pa.timestamp("us", "UTC")),
        "event": pa.repeat("P", count).dictionary_encode(),
        "k": pa.array(chance.integers(0, 2_000, count)),
        "j": pa.array(chance.integers(0, 2_000, count)),
        "code": pa.array(chance.integers(0, 20_000, count)),
        "side": pa.array(side),
        "name": pa.array(np.array(["xyz", "abc"])[side]),
        "address": pa.array(np.array(["192.168.0.1", "10.1.2.3"])[side]),
        "v": pa.array(chance.random(count)),
    }
    return pa.table(columns)


def _twice(table: pa.Table) -> pa.Table:
    """Each record as an event P and as an event R."""
    rows = table.take(pa.array(np.repeat(np.arange(len(table)), 2)))
    types = pa.array(np.tile(np.array(["P", "R"]), len(table))).dictionary_encode()
    return rows.set_column(rows.schema.get_field_index("event"), "event", types)


def _with_alarms(table: pa.Table, first: str) -> pa.Table:
    """The records with the alarms that a query routes, each behind the record that has caused it."""
    rows = ensue.replay(first, table).matches["b.row"].to_numpy() - 1
    alarms = table.take(pa.array(rows))
    types = pa.repeat("Alarm", len(rows)).dictionary_encode()
    alarms = alarms.set_column(alarms.schema.get_field_index("event"), "event", types)
    order = np.argsort(np.concatenate([np.arange(len(table)) * 2, rows * 2 + 1]), kind="stable")
    both = pa.concat_tables([table, alarms]).unify_dictionaries().combine_chunks()
    return both.take(pa.array(order))
