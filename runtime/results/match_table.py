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


def match_table(plan: Plan, query: QueryPlan, table: pa.Table, keys: Sequence[pa.Array], matched: Matched) -> pa.Table:
    """The matches of one query; `keys`: the key columns, by row of `table`."""
    count = len(matched)
    schema = match_schema(plan, query)
    keys = taken(keys, matched.latest)
    columns = [
        match_ids(query, table, matched, keys),
        pa.repeat(pa.scalar(query.name), count),
        pa.repeat(pa.scalar(query.instance), count),
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
    terms = [
        _member(plan, query, plan.event(query.inputs[term.input].event), table, matched, index)
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
    plan: Plan, query: QueryPlan, event: EventType, table: pa.Table, matched: Matched, term: int
) -> pa.StructArray:
    rows = matched.members[:, term]
    unset = rows < 0
    index = pa.array(np.maximum(rows, 0))
    names = [column_name(field.name, field.type) for field in event.fields]
    fields = [
        one_chunk(table.column(name)).take(index)
        if name in table.column_names
        else pa.nulls(len(rows), arrow_type(field.type, plan))
        for name, field in zip(names, event.fields, strict=True)
    ]
    columns = [
        pa.repeat(pa.scalar(event.name), len(rows)),
        moments(matched.times[:, term]),
        moments(matched.source_times[:, term]),
        moments(matched.arrivals[:, term]),
        *_ordering(query, table, matched, term),
        _sources(one_chunk(table.column("_source")), index),
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


def _sources(source: pa.DictionaryArray, index: pa.Array) -> pa.StringArray:
    if len(source.dictionary) == 1:
        return pa.repeat(source.dictionary[0], len(index))
    return source.take(index).dictionary_decode()


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
    text = _identities(members, words, _places(table), table.column("_offset").to_numpy(), seeds, _HEX)
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
    """The text of all identities: 16 entries per match, two characters per entry."""
    text = np.empty(len(members) * 16, np.uint16)
    chains = np.empty(len(seeds), np.uint64)
    at = 0
    for match in range(len(members)):
        for lane in range(len(seeds)):
            chains[lane] = mix(seeds[lane] ^ keys[match])
        for row in members[match]:
            if row < 0:
                for lane in range(len(seeds)):
                    chains[lane] = mix(~chains[lane])
                continue
            place = places[row] if len(places) > 1 else places[0]
            number = np.uint64(offset[row])
            for lane in range(len(seeds)):
                chains[lane] = mix(mix(chains[lane] ^ place) ^ number)
        for value in chains:
            for byte in range(8):
                text[at + byte] = digits[(value >> np.uint64(56 - 8 * byte)) & np.uint64(255)]
            at += 8
    return text
