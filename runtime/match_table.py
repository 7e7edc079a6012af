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
from runtime.batch import ARROW_TYPES, NO_TIME, column_name
from runtime.keys import key_columns, one_chunk
from runtime.results import TIMESTAMP, fields_struct, key_struct, match_schema, member_struct

_WAITED = pa.array([waited.name.lower() for waited in Waited])
_HEX = np.frombuffer(b"0123456789abcdef", np.uint8)


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
    first = table.take(pa.array(matched.members[:, 0]))
    keys = key_columns(first, first.column("_kind").to_numpy(), plan, query)
    columns = [
        match_ids(query.name, table, matched.members),
        pa.repeat(pa.scalar(query.name), count),
        pa.repeat(pa.scalar(""), count),
        _struct(keys, key_struct(plan, query), count),
        _timestamps(matched.time),
        _timestamps(matched.definitive),
        _timestamps(matched.emitted),
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
        _timestamps(time[rows]),
        _timestamps(table.column("_source_time").to_numpy()[rows]),
        _timestamps(table.column("_arrival").to_numpy()[rows]),
        one_chunk(table.column("_source")).take(index).dictionary_decode(),
        one_chunk(table.column("_partition")).take(index),
        one_chunk(table.column("_offset")).take(index),
        _struct(fields, fields_struct(event), len(rows)),
    ]
    return _struct(columns, member_struct(event), len(rows))


def _struct(columns: list[pa.Array], type_: pa.StructType, count: int) -> pa.StructArray:
    if not columns:
        return pa.array([{}] * count, type_)
    return pa.StructArray.from_arrays(columns, fields=list(type_))


def _timestamps(micros: NDArray[np.int64]) -> pa.Array:
    missing = micros == NO_TIME
    return pa.array(micros, mask=missing if missing.any() else None).cast(TIMESTAMP)


def match_ids(query: str, table: pa.Table, members: NDArray[np.int64]) -> pa.StringArray:
    """128 bits in hexadecimal: two chains of mixed 64-bit words over the query's name and the members' coordinates."""
    source = one_chunk(table.column("_source"))
    names = np.array([_text_hash(name) for name in source.dictionary.to_pylist()] or [0], np.uint64)
    code = source.indices.to_numpy()
    partition, offset = table.column("_partition").to_numpy(), table.column("_offset").to_numpy()
    chains = [np.full(len(members), _text_hash(f"{lane}{query}"), np.uint64) for lane in "ab"]
    for term in range(members.shape[1]):
        rows = members[:, term]
        for word in (names[code[rows]], partition[rows].astype(np.uint64), offset[rows].astype(np.uint64)):
            chains = [_mix(chain ^ word) for chain in chains]
    digits = np.stack(chains, axis=1).astype(">u8").view(np.uint8).reshape(len(members), 16)
    text = np.stack([_HEX[digits >> 4], _HEX[digits & 15]], axis=2).reshape(-1)
    ends = np.arange(len(members) + 1, dtype=np.int32) * 32
    return pa.StringArray.from_buffers(len(members), pa.py_buffer(ends), pa.py_buffer(np.ascontiguousarray(text)))


def _text_hash(text: str) -> int:
    value = 0xCBF29CE484222325
    for byte in text.encode():
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return value


def _mix(value: NDArray[np.uint64]) -> NDArray[np.uint64]:
    with np.errstate(over="ignore"):
        value = value + np.uint64(0x9E3779B97F4A7C15)
        value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))
