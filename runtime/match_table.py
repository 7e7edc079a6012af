"""Matches as a table: members, times and identity, gathered column by column.

Takes the rows that each match binds; gives `match_schema` rows. `match_id` hashes the query's name and its members' coordinates
(source, partition, offset), which fix the key as well: it is the same in every executor, batching and replay, and
part of what users store: it must never change.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from querylang.plan import EventType, Plan, QueryPlan
from runtime.admission import Waited
from runtime.batch import ARROW_TYPES, column_name
from runtime.compiled import kernel
from runtime.arrow import one_chunk
from runtime.keys import key_columns, mix
from runtime.results import fields_struct, key_struct, match_schema, member_struct, moments

_WAITED = pa.array([waited.name.lower() for waited in Waited])
_HEX = np.frombuffer("".join(f"{byte:02x}" for byte in range(256)).encode(), np.uint16)


@dataclass(frozen=True, slots=True)
class Matched:
    """One entry a match: the rows of its members (match, term), and how its latest event was released."""

    members: NDArray[np.int64]
    time: NDArray[np.int64]
    definitive: NDArray[np.int64]
    emitted: NDArray[np.int64]
    waited: NDArray[np.int8]
    step: NDArray[np.int64]
    rank: NDArray[np.int64]


def match_table(plan: Plan, query: QueryPlan, table: pa.Table, time: NDArray[np.int64], matched: Matched) -> pa.Table:
    """The matches of one query; `table` holds the events, `time` their times by row."""
    count = len(matched.time)
    terms = [
        _member(plan.event(query.inputs[term.input].event), table, time, matched.members[:, index])
        for index, term in enumerate(query.terms)
    ]
    first = pa.array(matched.members[:, 0])
    keys = [key.take(first) for key in key_columns(table, table.column("_kind").to_numpy(), plan, query)]
    columns = [
        match_ids(query.name, table, matched.members),
        pa.repeat(pa.scalar(query.name), count),
        pa.repeat(pa.scalar(""), count),
        _struct(keys, key_struct(plan, query), count),
        moments(matched.time),
        moments(matched.definitive),
        moments(matched.emitted),
        _WAITED.take(pa.array(matched.waited)),
        pa.StructArray.from_arrays(terms, names=[term.name for term in query.terms]),
        pa.array(matched.step),
        pa.array(matched.rank),
    ]
    return pa.table(columns, schema=match_schema(plan, query))


def _member(event: EventType, table: pa.Table, time: NDArray[np.int64], rows: NDArray[np.int64]) -> pa.StructArray:
    index = pa.array(rows)
    names = [column_name(field.name, field.type) for field in event.fields]
    fields = [
        one_chunk(table.column(name)).take(index)
        if name in table.column_names
        else pa.nulls(len(rows), ARROW_TYPES[field.type])
        for name, field in zip(names, event.fields, strict=True)
    ]
    columns = [
        pa.repeat(pa.scalar(event.name), len(rows)),
        moments(time[rows]),
        moments(table.column("_source_time").to_numpy()[rows]),
        moments(table.column("_arrival").to_numpy()[rows]),
        _sources(one_chunk(table.column("_source")), index),
        one_chunk(table.column("_partition")).take(index),
        one_chunk(table.column("_offset")).take(index),
        _struct(fields, fields_struct(event), len(rows)),
    ]
    return _struct(columns, member_struct(event), len(rows))


def _sources(source: pa.DictionaryArray, index: pa.Array) -> pa.StringArray:
    if len(source.dictionary) == 1:
        return pa.repeat(source.dictionary[0], len(index))
    return source.take(index).dictionary_decode()


def _struct(columns: list[pa.Array], type_: pa.StructType, count: int) -> pa.StructArray:
    if not columns:
        return pa.array([{}] * count, type_)
    return pa.StructArray.from_arrays(columns, fields=list(type_))


def match_ids(query: str, table: pa.Table, members: NDArray[np.int64]) -> pa.StringArray:
    """128 bits in hexadecimal: two chains of mixed 64-bit words over the query's name and the members' coordinates."""
    seeds = np.array([_text_hash(f"{lane}{query}") for lane in "ab"], np.uint64)
    text = _identities(members, _places(table), table.column("_offset").to_numpy(), seeds, _HEX)
    ends = np.arange(len(members) + 1, dtype=np.int32) * 32
    return pa.StringArray.from_buffers(len(members), pa.py_buffer(ends), pa.py_buffer(text))


def _places(table: pa.Table) -> NDArray[np.uint64]:
    """A word for (source, partition) by row; one entry where all rows have the same."""
    source = one_chunk(table.column("_source"))
    names = np.array([_text_hash(name) for name in source.dictionary.to_pylist()] or [0], np.uint64)
    code, partition = source.indices.to_numpy(), table.column("_partition").to_numpy()
    if len(code) and (code == code[0]).all() and (partition == partition[0]).all():
        code, partition = code[:1], partition[:1]
    return _mixed(names[code], partition)


@kernel
def _mixed(names: NDArray[np.uint64], partition: NDArray[np.int32]) -> NDArray[np.uint64]:
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
    places: NDArray[np.uint64],
    offset: NDArray[np.int64],
    seeds: NDArray[np.uint64],
    digits: NDArray[np.uint16],
) -> NDArray[np.uint16]:
    """The text of all identities, two characters an entry, 32 characters each."""
    text = np.empty(len(members) * 16, np.uint16)
    chains = np.empty(len(seeds), np.uint64)
    at = 0
    for match in range(len(members)):
        chains[:] = seeds
        for row in members[match]:
            place = places[row] if len(places) > 1 else places[0]
            number = np.uint64(offset[row])
            for lane in range(len(seeds)):
                chains[lane] = mix(mix(chains[lane] ^ place) ^ number)
        for value in chains:
            for byte in range(8):
                text[at + byte] = digits[(value >> np.uint64(56 - 8 * byte)) & np.uint64(255)]
            at += 8
    return text
