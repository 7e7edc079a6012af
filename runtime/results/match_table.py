"""Matches as a table (`match_schema`): members, times and identity, gathered column by column.

`match_id` is a hash of query, instance, key, and the members' source, partition and offset. It is
the same in every executor, batching and replay. Users store it, so it must never change.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from querylang.plan.model import EventType, Plan, QueryPlan, known
from runtime.admission.arrays import Waited
from runtime.admission.outcomes import reason_words
from runtime.arrow_types import arrow_type, one_chunk
from runtime.columns.arrivals import column_name
from runtime.columns.keys import hash_keys, mix
from runtime.compiled import kernel
from runtime.instants import NEVER, NO_TIME
from runtime.policies.per_input import adjusts, has_ends
from runtime.results.matched import Matched, taken
from runtime.results.schemas import (
    fields_struct,
    key_struct,
    match_schema,
    member_struct,
    members_struct,
    moments,
)

Integers = NDArray[np.int64]

_WAITED = pa.array([waited.name.lower() for waited in Waited])
_HEX = np.frombuffer("".join(f"{byte:02x}" for byte in range(256)).encode(), np.uint16)
_MOST_BYTES = 2**31
"""The text of a column of strings is shorter."""


def match_table(plan: Plan, query: QueryPlan, table: pa.Table, keys: Sequence[pa.Array], matched: Matched) -> pa.Table:
    """The matches of one query; `keys`: the key columns, by row of `table`."""
    count = len(matched)
    schema = match_schema(plan, query)
    keys = taken(keys, matched.latest)
    columns = [
        match_ids(query, table, matched, keys),
        repeated(query.name, count),
        repeated(query.instance, count),
        _struct(keys, key_struct(plan, query), count),
        moments(matched.time),
        moments(matched.definitive),
        moments(matched.emitted),
        _WAITED.take(pa.array(matched.waited)),
        _members(plan, query, table, matched),
    ]
    if query.every is not None:
        columns.append(_struct(list(matched.selected), schema.field("selected").type, count))
    if "points" in schema.names:
        columns.append(_points(query, matched, schema.field("points").type))
    return pa.table([*columns, pa.array(matched.step), pa.array(matched.rank)], schema=schema)


def _members(plan: Plan, query: QueryPlan, table: pa.Table, matched: Matched) -> pa.StructArray:
    type_ = members_struct(plan, query)
    if query.every is not None:
        return _struct([], type_, len(matched))
    only_source = _only_source(table, len(matched))
    terms = [
        _member(plan, query, plan.event(query.inputs[term.input].event), table, matched, index, only_source)
        for index, term in enumerate(query.terms)
    ]
    return _struct(terms, type_, len(matched))


def _points(query: QueryPlan, matched: Matched, type_: pa.StructType) -> pa.StructArray:
    """Named waits: the moment when a leading one starts, and when a trailing one ends."""
    columns = []
    if query.leading is not None and query.leading.name is not None:
        bound = np.where(matched.members < 0, NEVER, matched.times)
        columns.append(moments(bound.min(axis=1) - known(query.leading.duration)))
    if query.trailing is not None and query.trailing.name is not None:
        columns.append(moments(matched.time))
    return _struct(columns, type_, len(matched))


def _member(
    plan: Plan,
    query: QueryPlan,
    event: EventType,
    table: pa.Table,
    matched: Matched,
    term: int,
    only_source: pa.StringArray | None,
) -> pa.StructArray:
    rows = matched.members[:, term]
    unset = rows < 0
    index = pa.array(np.maximum(rows, 0) if unset.any() else rows)
    names = [column_name(field.name, field.type) for field in event.fields]
    fields = [
        one_chunk(table.column(name)).take(index)
        if name in table.column_names
        else pa.nulls(len(rows), arrow_type(field.type, plan))
        for name, field in zip(names, event.fields, strict=True)
    ]
    columns = [
        repeated(event.name, len(rows)),
        moments(matched.times[:, term]),
        moments(matched.source_times[:, term]),
        moments(matched.arrivals[:, term]),
        *_ordering(query, table, matched, term),
        one_chunk(table.column("_source")).take(index).dictionary_decode() if only_source is None else only_source,
        one_chunk(table.column("_partition")).take(index),
        one_chunk(table.column("_offset")).take(index),
        _struct(fields, fields_struct(plan, event), len(rows)),
    ]
    return _struct(columns, member_struct(plan, query, event), len(rows), unset if unset.any() else None)


def _ordering(query: QueryPlan, table: pa.Table, matched: Matched, term: int) -> list[pa.Array]:
    """Why events were adjusted, and when they end; only the columns that the query has."""
    columns = []
    if adjusts(query):
        columns.append(reason_words(matched.reasons[:, term]))
    if has_ends(query):
        columns.append(moments(one_chunk(table.column("_end")).fill_null(NO_TIME).to_numpy()[matched.members[:, term]]))
    return columns


def _only_source(table: pa.Table, count: int) -> pa.StringArray | None:
    """The source of so many events if all records have the same; None = they do not."""
    names = one_chunk(table.column("_source")).dictionary
    return repeated(names[0].as_py(), count) if len(names) == 1 else None


def repeated(text: str, count: int) -> pa.StringArray:
    """The same text so many times."""
    data = text.encode()
    if count * len(data) >= _MOST_BYTES:
        return pa.repeat(pa.scalar(text), count)
    ends = np.arange(count + 1, dtype=np.int32) * np.int32(len(data)) if data else np.zeros(count + 1, np.int32)
    return pa.StringArray.from_buffers(count, pa.py_buffer(ends), pa.py_buffer(data * count))


def _struct(
    columns: list[pa.Array], type_: pa.StructType, count: int, missing: NDArray[np.bool_] | None = None
) -> pa.StructArray:
    if not columns:
        return pa.array([{}] * count, type_)
    mask = None if missing is None else pa.array(missing)
    return pa.StructArray.from_arrays(columns, fields=list(type_), mask=mask)


def match_ids(query: QueryPlan, table: pa.Table, matched: Matched, keys: Sequence[pa.Array]) -> pa.StringArray:
    """The identities of matches: 128 bits in hexadecimal.

    Two chains of mixed 64-bit words run over query, instance, key and the members' coordinates. An
    unset name is one word instead of an event's two. A `find every` has the coordinates of its
    latest event.

    keys: by key of the query, its values
    """
    seeds = np.array([_text_hash(f"{lane}\0{query.name}\0{query.instance}") for lane in "ab"], np.uint64)
    members = matched.members if query.every is None else matched.latest.reshape(-1, 1)
    words = hash_keys(keys) if keys else np.zeros(len(members), np.uint64)
    offsets = table.column("_offset").to_numpy()
    text = _identities(np.ascontiguousarray(members.T), words, _places(table), offsets, seeds, _HEX)
    ends = np.arange(len(members) + 1, dtype=np.int32) * 32
    return pa.StringArray.from_buffers(len(members), pa.py_buffer(ends), pa.py_buffer(text))


def _places(table: pa.Table) -> NDArray[np.uint64]:
    """A word for (source, partition) by row; a single entry if all rows have the same."""
    source = one_chunk(table.column("_source"))
    names = np.array([_text_hash(name) for name in source.dictionary.to_pylist()] or [0], np.uint64)
    code, partition = source.indices.to_numpy(), table.column("_partition").to_numpy()
    if len(code) and (code == code[0]).all() and (partition == partition[0]).all():
        code, partition = code[:1], partition[:1]
    return _mixed(names[code], partition)


@kernel
def _mixed(names: NDArray[np.uint64], partition: NDArray[np.int64]) -> NDArray[np.uint64]:
    words = np.empty(len(names), np.uint64)
    for row in range(len(names)):
        words[row] = mix(mix(names[row]) ^ np.uint64(partition[row]))
    return words


def _text_hash(text: str) -> int:
    value = 0xCBF29CE484222325
    for byte in text.encode():
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return value


@kernel
def _identities(
    members: NDArray[np.int64],
    keys: NDArray[np.uint64],
    places: NDArray[np.uint64],
    offset: NDArray[np.int64],
    seeds: NDArray[np.uint64],
    digits: NDArray[np.uint16],
) -> NDArray[np.uint16]:
    """The text of all identities: 16 entries per match, two characters per entry.

    members: by (term, match), rows
    """
    terms, count = members.shape
    text = np.empty(count * 16, np.uint16)
    for match in range(count):
        # Both lanes at once: neither waits for the other.
        first, second = mix(seeds[0] ^ keys[match]), mix(seeds[1] ^ keys[match])
        for term in range(terms):
            row = members[term, match]
            if row < 0:
                first, second = mix(~first), mix(~second)
            else:
                place, number = places[row if len(places) > 1 else 0], np.uint64(offset[row])
                first, second = mix(first ^ place), mix(second ^ place)
                first, second = mix(first ^ number), mix(second ^ number)
        at = 16 * match
        for byte in range(8):
            shift = np.uint64(56 - 8 * byte)
            text[at + byte] = digits[(first >> shift) & np.uint64(255)]
            text[at + 8 + byte] = digits[(second >> shift) & np.uint64(255)]
    return text
