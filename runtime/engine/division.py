"""States of engines divided by key, and joined: for another number of buckets.

A snapshot has the rows of all its keys. Each row goes with its key, by the hash that also sends the
key's records to a bucket. What is not of a key is the same in all buckets, and goes to each.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa

from querylang.plan.model import Plan, QueryPlan
from runtime.column_types import Integers, has_column, one_chunk
from runtime.columns.keys import hash_keys
from runtime.columns.rows import joined
from runtime.engine.engine import Engine
from runtime.engine.event_marks import EVENT
from runtime.engine.kept_states import renumbered, saved_states
from runtime.engine.query_state import GIVEN, RECORDS, SEEN, query_parts
from runtime.engine.snapshot import ALIKE, decode, encode
from runtime.input_policies import clock_inputs, key_places

Header = dict[str, Any]
Tables = dict[str, pa.Table]
JoinRule = Callable[[Sequence[Any]], Any]
"""Makes one entry of those that the parts of a state have."""

NOWHERE = -1
"""In place of a bucket: none gets the rows."""


def divided_snapshot(plan: Plan, snapshot: bytes, buckets: int, only: int | None) -> list[bytes]:
    """A snapshot for each bucket, with the rows of its keys.

    only: the bucket that gets all rows, or NOWHERE; None = each row goes by its key
    Raises StateError for state that does not fit the plan.
    """
    header, tables = decode(Engine.restore(plan, snapshot).snapshot())  # as this release writes it
    parts: list[Tables] = [{} for _ in range(buckets)]
    for query in plan.queries:
        own = _tables_of(tables, query.title)
        for name, table in own.items():
            if only is not None:
                bucket = np.full(len(table), only)
            elif name == RECORDS:
                bucket = _of_records(table, own["kept"], _buckets(plan, query, "kept", own["kept"], buckets))
            else:
                bucket = _buckets(plan, query, name, table, buckets)
            for number, part in enumerate(parts):
                part[f"{query.title}/{name}"] = table.filter(pa.array(bucket == number))
    return [encode(header, part) for part in parts]


def united_snapshot(plan: Plan, snapshots: Sequence[bytes]) -> bytes:
    """One snapshot with the rows of several, at least one, that `divided_snapshot` has made."""
    read = [decode(snapshot) for snapshot in snapshots]
    if any(header.get(ALIKE) != read[0][0].get(ALIKE) for header, _ in read):
        read = [_each_by_itself(header, tables) for header, tables in read]
    headers = [header for header, _ in read]
    latest = max(headers, key=lambda header: int(header["clock"]))
    alike = headers[0].get(ALIKE, {})
    titles = [query.title for query in plan.queries if query.title not in alike]
    rules: dict[str, JoinRule] = {
        "clock": max,
        "clock_without_idle": max,
        "leeway": lambda _: latest["leeway"],
        "queries": lambda parts: {title: _query([part[title] for part in parts]) for title in titles},
        "told": _all_told,
    }
    header = by_rules(rules | ({ALIKE: equal_in_all} if alike else {}), headers)
    tables: Tables = {}
    for query in plan.queries:
        parts, first = defaultdict(list), 0
        for part, own in read:
            for name, table in _tables_of(own, query.title).items():
                parts[name].append(_renumbered(table, first))
            first += part["queries"].get(query.title, {}).get("events", 0)
        for name, some in parts.items():
            tables[f"{query.title}/{name}"] = _joined_waits(some) if name == "waits" else joined(some)
    return encode(header, tables)


def snapshot_of_queries(snapshot: bytes, titles: Collection[str]) -> bytes:
    """The state of some of the queries of an engine, by title."""
    header, tables = _each_by_itself(*decode(snapshot))
    queries = {title: own for title, own in header["queries"].items() if title in titles}
    return encode(
        header | {"queries": queries},
        {name: table for name, table in tables.items() if name.rpartition("/")[0] in titles},
    )


def snapshot_beside(snapshots: Sequence[bytes]) -> bytes:
    """One state of the queries of several engines, at least one, that have the same clock."""
    read = [_each_by_itself(*decode(snapshot)) for snapshot in snapshots]
    headers = [header for header, _ in read]
    latest = max(headers, key=lambda header: int(header["clock"]))
    rules: dict[str, JoinRule] = {
        "clock": max,
        "clock_without_idle": max,
        "leeway": lambda _: latest["leeway"],
        "queries": lambda parts: dict(chain.from_iterable(own.items() for own in parts)),
        "told": _all_told,
    }
    return encode(by_rules(rules, headers), dict(chain.from_iterable(own.items() for _, own in read)))


def _of_records(records: pa.Table, kept: pa.Table, bucket: Integers) -> Integers:
    """By record of which rows are pending, the bucket of these rows, which all have one key."""
    events = kept.column(EVENT.name).to_numpy()
    order = np.argsort(events, kind="stable")
    place = np.searchsorted(events[order], records.column("event").to_numpy())
    found: Integers = bucket[order][np.minimum(place, len(order) - 1)] if len(order) else np.zeros(0, np.int64)
    return found


def _renumbered(table: pa.Table, first: int) -> pa.Table:
    """The rows with numbers of events that begin with `first`: each part has its own, from 0 on."""
    for name in (EVENT.name, "event"):
        if first and has_column(table, name):
            numbers = pa.array(table.column(name).to_numpy() + first)
            table = table.set_column(table.schema.get_field_index(name), name, numbers)
    return table


def _each_by_itself(header: Header, tables: Tables) -> tuple[Header, Tables]:
    """A state in which each query has its own, equal or not."""
    saved = saved_states(header, tables)
    plain = {name: value for name, value in header.items() if name != ALIKE}
    own = {f"{title}/{name}": table for title, state in saved.items() for name, table in state.tables.items()}
    return plain | {"queries": {title: state.header for title, state in saved.items()}}, own


def equal_in_all(values: Sequence[Any]) -> Any:
    """What all parts have alike."""
    assert all(value == values[0] for value in values), f"parts of one state differ: {values}"
    return values[0]


def by_rules(rules: Mapping[str, JoinRule], parts: Sequence[Mapping[str, Any]]) -> Header:
    """The entries of several parts, each joined by its own rule; it would be lost without one."""
    for part in parts:
        assert part.keys() == rules.keys(), f"no rule joins {sorted(part.keys() ^ rules.keys())}"
    return {name: rule([part[name] for part in parts]) for name, rule in rules.items()}


def _all_told(parts: Sequence[Sequence[Sequence[Any]]]) -> list[list[Any]]:
    return [list(told) for told in dict.fromkeys(tuple(told) for part in parts for told in part)]


def _query(parts: Sequence[Header]) -> Header:
    left_out = {"forget_keys", "values", "events"} - parts[0].keys()  # of most queries
    return by_rules({name: rule for name, rule in _OF_QUERY.items() if name not in left_out}, parts)


def _clocks(parts: Sequence[Sequence[Header]]) -> list[Header]:
    return [by_rules(_OF_CLOCK, own) for own in zip(*parts, strict=True)]


def _furthest(parts: Sequence[Sequence[int]]) -> list[int]:
    """How far heartbeats for all keys reached, by input."""
    return [max(own) for own in zip(*parts, strict=True)]


_OF_CLOCK: Mapping[str, JoinRule] = {"common": max, "policy": equal_in_all, "timeline": equal_in_all}

_OF_QUERY: Mapping[str, JoinRule] = {
    "keys": equal_in_all,
    "inputs": equal_in_all,
    "forget_keys": equal_in_all,
    "values": equal_in_all,
    "events": sum,
    "everywhere": _furthest,
    "next_due": min,
    "next_release": min,
    "clocks": _clocks,
}


def _joined_waits(tables: Sequence[pa.Table]) -> pa.Table:
    """Waits are told apart by their numbers, which each table has from 0 on."""
    moved, count = [], 0
    for table in tables:
        place = table.schema.get_field_index("_wait")
        numbers = table.column(place).to_numpy() + count
        moved.append(table.set_column(place, table.schema.field(place), pa.array(numbers)))
        count = int(numbers.max(initial=count - 1)) + 1
    return renumbered(joined(moved))


def _tables_of(tables: Mapping[str, pa.Table], title: str) -> Tables:
    return {key.rpartition("/")[2]: table for key, table in tables.items() if key.rpartition("/")[0] == title}


def _buckets(plan: Plan, query: QueryPlan, name: str, table: pa.Table, buckets: int) -> Integers:
    """By row of a table, the bucket of its key."""
    columns = _key_columns(plan, query, name, table)
    if not columns or not len(table):
        return np.zeros(len(table), np.int64)
    return (hash_keys(columns) % np.uint64(buckets)).astype(np.int64)


def _key_columns(plan: Plan, query: QueryPlan, name: str, table: pa.Table) -> list[pa.Array]:
    is_by_value = name == GIVEN or name.startswith(SEEN)
    is_known = name in ("bounds", "kept", "waits") or name.startswith("clock")
    assert is_by_value or is_known, f"nothing says which keys '{name}' has"
    if name == "bounds" or is_by_value:
        return [one_chunk(table.column(f"key{place}")) for place in range(len(query.keys))]
    if not name.startswith("clock"):
        return query_parts(plan, query, "auto").keys_of(table)
    # Clocks whose keys are not in one bucket have a timeline per key: a substream of all its parts.
    places = key_places(query, clock_inputs(query)[int(name.removeprefix("clock"))])
    assert places is not None, "keys that share a timeline are in one bucket"
    return [one_chunk(table.column(f"part{places.index(place)}")) for place in range(len(query.keys))]
