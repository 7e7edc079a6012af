"""Matches as a table (`match_schema`): members, times and identity, gathered column by column.

`match_id` is a hash of query, instance, key, and the members' source, partition and offset. It is
the same in every executor, batching and replay. Users store it, so it must never change.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from querylang.plan.expression import EndOf, Type, type_of
from querylang.plan.model import EventType, Field, Gap, Plan, QueryPlan, known, plain_field
from querylang.plan.text import SUPPRESSED
from runtime.admission import Waited, reason_words
from runtime.column_types import Integers, arrow_type, has_column, one_chunk
from runtime.columns.arrivals import column_name
from runtime.columns.keys import MIX_STEP, hash_keys, key_values, mix
from runtime.columns.rows import (
    evenly,
    joined,
    only_value,
    plain_cells,
    repeated,
    repeated_number,
    taken_by_term,
    taken_cells,
)
from runtime.compiling.compiled import inlined, kernel
from runtime.input_policies import adjusts, has_ends
from runtime.instants import NEVER, NO_TIME
from runtime.matching.interface import columns_of
from runtime.results.matched import Matched, OrderedMatches, seeds_of, taken_columns, text_hash
from runtime.results.schemas import (
    fields_struct,
    key_struct,
    match_schema,
    member_struct,
    members_struct,
    moments,
    term_event,
    told_columns,
)
from runtime.threads import in_threads, shares

_ODD = np.uint64(MIX_STEP)
_WAITED = pa.array([waited.name.lower() for waited in Waited])
_EXACT = (Type.INTEGER, Type.STRING, Type.BOOLEAN)
"""Types of which equal keys are the same value: floats have 0.0 and -0.0."""
_NOTHING = -2
"""Where a run has fewer events than another."""


def match_table(plan: Plan, query: QueryPlan, table: pa.Table, keys: Sequence[pa.Array], matched: Matched) -> pa.Table:
    """The matches of one query; `keys`: the key columns, by row of `table`."""
    return _table(plan, query, table, keys, matched, _Titled.of(query, len(matched)))


class _Titled(NamedTuple):
    """What matches say of their query.

    seeds: the words with which their identities begin, by half and match; one if all are equal
    names, instances: by match
    metadata: by name of a column, its cells
    """

    seeds: NDArray[np.uint64]
    names: pa.Array
    instances: pa.Array
    metadata: Mapping[str, pa.Array]

    @staticmethod
    def of(query: QueryPlan, count: int) -> _Titled:
        """So many matches of one query."""
        seeds = np.array(seeds_of(query), np.uint64).reshape(2, 1)
        return _Titled(seeds, repeated(query.name, count), repeated(query.instance, count), told_columns(query, count))

    @staticmethod
    def of_all(queries: Sequence[QueryPlan], counts: Sequence[int]) -> _Titled:
        """So many matches of each query; all of them say the same things."""
        index = np.repeat(np.arange(len(queries)), counts)
        seeds = np.array([seeds_of(query) for query in queries], np.uint64).T
        told = [told_columns(query, 1) for query in queries]
        names = {name: pa.concat_arrays([own[name] for own in told]).take(pa.array(index)) for name in told[0]}
        titles = [pa.array([query.name for query in queries]), pa.array([query.instance for query in queries])]
        name, instance = (column.take(pa.array(index)) for column in titles)
        return _Titled(np.ascontiguousarray(seeds[:, index]), name, instance, names)


def _table(
    plan: Plan, query: QueryPlan, table: pa.Table, keys: Sequence[pa.Array], matched: Matched, titled: _Titled
) -> pa.Table:
    count = len(matched)
    schema = match_schema(plan, query)
    own = taken_columns(keys, matched.latest)
    keys = key_values(query, own)
    columns = [
        _ids(query, table, matched, own, titled.seeds),
        titled.names,
        titled.instances,
        _struct(keys, key_struct(plan, query), count),
        moments(matched.time),
        moments(matched.definitive),
        moments(matched.emitted),
        _waited(matched.waited),
        *([pa.array(matched.suppressed)] if SUPPRESSED in schema.names else []),
        *titled.metadata.values(),
        _members(plan, query, table, matched, keys),
    ]
    if "selected" in schema.names:
        selected = _selected(plan, query, columns[-1], table, matched)
        columns.append(_struct(selected, schema.field("selected").type, count))
    if "points" in schema.names:
        columns.append(_points(query, matched, schema.field("points").type))
    return pa.table([*columns, pa.array(matched.step), pa.array(matched.rank)], schema=schema)


def _waited(codes: NDArray[np.int8]) -> pa.StringArray:
    """The word of each code; mostly all are the same."""
    code = only_value(codes)
    return _WAITED.take(pa.array(codes)) if code is None else repeated(_WAITED[int(code)].as_py(), len(codes))


def _members(
    plan: Plan, query: QueryPlan, table: pa.Table, matched: Matched, keys: Sequence[pa.Array]
) -> pa.StructArray:
    type_ = members_struct(plan, query)
    if query.every is not None:
        return _struct([], type_, len(matched))
    if matched.widths:
        return _struct(_members_with_runs(plan, query, table, matched), type_, len(matched))
    return _struct(_events(plan, query, range(len(query.terms)), table, matched, keys), type_, len(matched))


def _selected(
    plan: Plan, query: QueryPlan, members: pa.StructArray, table: pa.Table, matched: Matched
) -> list[pa.Array]:
    """A column per select; those that are events are the members of the matches."""
    terms, values = query.selected_events, iter(matched.selected)
    if query.every is not None:
        events = dict(zip(terms, _events(plan, query, terms.values(), table, matched), strict=True))
    else:
        events = {name: members.field(query.terms[term].name) for name, term in terms.items()}
        ends = {item.name: item.value for item in query.selects}
        events |= {name: _end(events[name], end.function) for name, end in ends.items() if isinstance(end, EndOf)}
    return [events[select.name] if select.name in events else next(values) for select in query.selected]


def _end(runs: pa.ListArray, function: str) -> pa.StructArray:
    """The first or the last event of each run; null = it has none."""
    begin, end = runs.offsets.to_numpy()[:-1], runs.offsets.to_numpy()[1:]
    return runs.values.take(pa.array(begin if function == "first" else end - 1, mask=begin == end))


class _Column(NamedTuple):
    """Events of one name: rows and times, as in `Matched`; `reasons` None: none is adjusted.

    `source_times` is `times` itself where they are known to be equal.
    """

    rows: Integers
    times: Integers
    source_times: Integers
    arrivals: Integers
    offsets: Integers
    reasons: NDArray[np.int8] | None

    def only(self, chosen: NDArray[np.bool_]) -> _Column:
        """The chosen events."""
        rows, times, source_times, arrivals, offsets = (part[chosen] for part in self[:5])
        return _Column(
            rows, times, source_times, arrivals, offsets, None if self.reasons is None else self.reasons[chosen]
        )


def _column(matched: Matched, columns: int | slice) -> _Column:
    """The events in these columns; those of several one match after the other."""
    parts = (matched.members, matched.times, matched.source_times, matched.arrivals, matched.offsets)
    rows, times, source_times, arrivals, offsets = (part[:, columns].reshape(-1) for part in parts)
    if matched.source_times is matched.times:
        source_times = times
    reasons = matched.reasons[:, columns].reshape(-1) if matched.reasons.shape[1] else None
    return _Column(rows, times, source_times, arrivals, offsets, reasons)


def _events(
    plan: Plan,
    query: QueryPlan,
    terms: Iterable[int],
    table: pa.Table,
    matched: Matched,
    keys: Sequence[pa.Array] = (),
) -> list[pa.StructArray]:
    """A column per member; `terms`: by column of `matched.members`, the term of its events.

    keys: by match, the key columns, if all members are of its key
    """
    only = _only_of(table, len(matched))
    events = [(term, term_event(plan, query, term)) for term in terms]
    return [
        _member(plan, query, event, table, _column(matched, index), only, _fields_in_keys(query, term, event, keys))
        for index, (term, event) in enumerate(events)
    ]


def _fields_in_keys(query: QueryPlan, term: int, event: EventType, keys: Sequence[pa.Array]) -> dict[str, pa.Array]:
    """By name, the fields of a term's event type that are part of its key, as columns by match."""
    if not keys:
        return {}
    types = {field.name: field.type for field in event.fields}
    named = zip(map(plain_field, query.inputs[query.terms[term].input].keys), keys, strict=True)
    return {name: column for name, column in named if name is not None and types[name] in _EXACT}


def _members_with_runs(plan: Plan, query: QueryPlan, table: pa.Table, matched: Matched) -> list[pa.Array]:
    """A column per term; a run is a list of events."""
    found: list[pa.Array] = []
    for term, columns in enumerate(columns_of(matched.widths, len(query.terms))):
        event, events = term_event(plan, query, term), _column(matched, columns)
        if query.terms[term].group is None:
            found.append(_member(plan, query, event, table, events, _only_of(table, len(events.rows))))
            continue
        is_there = events.rows >= 0
        own = events.only(is_there)
        counts = is_there.reshape(len(matched), -1).sum(axis=1)
        ends = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
        member = _member(plan, query, event, table, own, _only_of(table, len(own.rows)))
        type_ = pa.list_(pa.field("element", member.type))
        found.append(pa.ListArray.from_arrays(pa.array(ends), member, type=type_))
    return found


def _points(query: QueryPlan, matched: Matched, type_: pa.StructType) -> pa.StructArray:
    """Named waits: when a leading one starts and the others end; null where one is unset."""
    columns = []
    if query.leading is not None and query.leading.name is not None:
        bound = np.where(matched.members < 0, NEVER, matched.times)
        columns.append(moments(bound.min(axis=1) - known(query.leading.duration)))
    columns += [moments(_points_of(gap, query, matched)) for gap in query.gaps if gap.name is not None]
    if query.trailing is not None and query.trailing.name is not None:
        columns.append(moments(matched.time))
    return _struct(columns, type_, len(matched))


def _points_of(gap: Gap, query: QueryPlan, matched: Matched) -> Integers:
    """By match, when a wait between steps ends; NO_TIME = it is unset."""
    columns = columns_of(matched.widths, len(query.terms))
    before = np.concatenate([np.arange(matched.members.shape[1])[columns[term]] for term in gap.before])
    is_set = matched.members[:, before] >= 0
    latest = np.where(is_set, matched.times[:, before], NO_TIME).max(axis=1)
    points: Integers = np.where(is_set.any(axis=1), latest + known(gap.duration), NO_TIME)
    return points


def _member(
    plan: Plan,
    query: QueryPlan,
    event: EventType,
    table: pa.Table,
    events: _Column,
    only: _Only,
    in_keys: Mapping[str, pa.Array] = MappingProxyType({}),
) -> pa.StructArray:
    rows = events.rows
    unset = rows < 0
    has_unset = bool(unset.any())
    index = pa.array(np.maximum(rows, 0) if has_unset else rows)
    fields = [
        in_keys[field.name] if field.name in in_keys and not has_unset else _field(plan, table, field, index)
        for field in event.fields
    ]
    times = moments(events.times)
    columns = [
        repeated(event.name, len(rows)),
        times,
        times if events.source_times is events.times else moments(events.source_times),
        moments(events.arrivals),
        *_ordering(query, table, events),
        one_chunk(table.column("_source")).take(index).dictionary_decode() if only.source is None else only.source,
        taken_cells(one_chunk(table.column("_partition")), index) if only.partition is None else only.partition,
        pa.array(events.offsets),
        _struct(fields, fields_struct(plan, event), len(rows)),
    ]
    return _struct(columns, member_struct(plan, query, event), len(rows), unset if has_unset else None)


def _field(plan: Plan, table: pa.Table, field: Field, index: pa.Array) -> pa.Array:
    """A field of these rows."""
    name = column_name(field.name, field.type)
    if not has_column(table, name):
        return pa.nulls(len(index), arrow_type(field.type, plan))
    return taken_cells(one_chunk(table.column(name)), index)


def _ordering(query: QueryPlan, table: pa.Table, events: _Column) -> list[pa.Array]:
    """Why events were adjusted, and when they end; only the columns that the query has."""
    columns = []
    if adjusts(query):
        assert events.reasons is not None, "a policy can adjust events"
        columns.append(reason_words(events.reasons))
    if has_ends(query):
        ends = one_chunk(table.column("_end")).fill_null(NO_TIME).to_numpy()
        columns.append(moments(ends[events.rows]))
    return columns


class _Only(NamedTuple):
    """Columns of so many events, if all records have the same source or partition; None = they do
    not."""

    source: pa.StringArray | None
    partition: pa.Array | None


def _only_of(table: pa.Table, count: int) -> _Only:
    names = one_chunk(table.column("_source")).dictionary
    partition = only_value(table.column("_partition").to_numpy())
    return _Only(
        repeated(names[0].as_py(), count) if len(names) == 1 else None,
        None if partition is None else repeated_number(int(partition), count),
    )


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
    latest event. The words of a match whose trailing wait repeats depend on its time, too.

    keys: by key of the query, its values
    """
    return _ids(query, table, matched, keys, np.array(seeds_of(query), np.uint64).reshape(2, 1))


def _ids(
    query: QueryPlan, table: pa.Table, matched: Matched, keys: Sequence[pa.Array], seeds: NDArray[np.uint64]
) -> pa.StringArray:
    members, offsets = matched.members, matched.offsets
    if query.every is not None:
        members = matched.latest.reshape(-1, 1)
    elif matched.widths:
        members = _with_ends_of_runs(query, matched)
    if members is not matched.members:
        offsets = taken_by_term(table.column("_offset").to_numpy(), members)
    words = hash_keys(keys) if keys else np.zeros(len(members), np.uint64)
    if query.trailing is not None and query.trailing.most > 1:  # the same members, again and again
        words = words ^ matched.time.astype(np.uint64) * _ODD
    of_terms = np.ascontiguousarray(members.T), np.ascontiguousarray(offsets.T)
    text = _identities(*of_terms, words, _places(table), seeds)
    return pa.StringArray.from_buffers(len(members), evenly(len(members), 32), pa.py_buffer(text))


def _with_ends_of_runs(query: QueryPlan, matched: Matched) -> Integers:
    """The rows of members; one -1 behind the last event of a run, and _NOTHING from there on."""
    parts = []
    for term, columns in enumerate(columns_of(matched.widths, len(query.terms))):
        rows = matched.members[:, columns]
        if query.terms[term].group is not None:
            rows = np.column_stack([rows, np.full(len(rows), -1, np.int64)])
            is_behind = np.cumsum(rows < 0, axis=1) > 1
            rows[is_behind] = _NOTHING
        parts.append(rows)
    return np.concatenate(parts, axis=1)


def _places(table: pa.Table) -> NDArray[np.uint64]:
    """A word for (source, partition) by row; a single entry if all rows have the same."""
    source = one_chunk(table.column("_source"))
    names = np.array([text_hash(name) for name in source.dictionary.to_pylist()] or [0], np.uint64)
    code, partition = source.indices.to_numpy(), table.column("_partition").to_numpy()
    if (len(names) == 1 or only_value(code) is not None) and only_value(partition) is not None:
        code, partition = code[:1], partition[:1]
    return _mixed(names[code], partition)


@kernel
def _mixed(names: NDArray[np.uint64], partition: NDArray[np.int64]) -> NDArray[np.uint64]:
    words = np.empty(len(names), np.uint64)
    for row in range(len(names)):
        words[row] = mix(mix(names[row]) ^ np.uint64(partition[row]))
    return words


@kernel
def _identities(
    members: NDArray[np.int64],
    offsets: NDArray[np.int64],
    keys: NDArray[np.uint64],
    places: NDArray[np.uint64],
    seeds: NDArray[np.uint64],
) -> NDArray[np.uint64]:
    """The text of all identities: four entries per match, eight characters per entry.

    members, offsets: by (term, match), rows and their offsets; row -1 = unset, or the end of a run
    seeds: by half and match; one for all matches
    """
    terms, count = members.shape
    first, second = np.empty(count, np.uint64), np.empty(count, np.uint64)
    # A short loop over all matches at a time: the processor takes several matches at once.
    for match in range(count):
        seed = match if seeds.shape[1] > 1 else 0
        first[match], second[match] = mix(seeds[0, seed] ^ keys[match]), mix(seeds[1, seed] ^ keys[match])
    for term in range(terms):
        for match in range(count):
            row = members[term, match]
            if row >= 0:
                place, number = places[row if len(places) > 1 else 0], np.uint64(offsets[term, match])
                first[match] = mix(mix(first[match] ^ place) ^ number)
                second[match] = mix(mix(second[match] ^ place) ^ number)
            elif row != _NOTHING:
                first[match], second[match] = mix(~first[match]), mix(~second[match])
    text = np.empty(4 * count, np.uint64)
    for match in range(count):
        text[4 * match] = _digits(first[match] >> np.uint64(32))
        text[4 * match + 1] = _digits(first[match] & np.uint64(0xFFFFFFFF))
        text[4 * match + 2] = _digits(second[match] >> np.uint64(32))
        text[4 * match + 3] = _digits(second[match] & np.uint64(0xFFFFFFFF))
    return text


@inlined
def _digits(value: np.uint64) -> np.uint64:
    """The text of 32 bits in hexadecimal: eight characters, the first one in the lowest byte."""
    # The parts change places, so that each half byte has a byte of its own.
    pairs = ((value & np.uint64(0xFFFF)) << np.uint64(32)) | (value >> np.uint64(16))
    low = np.uint64(0x000000FF000000FF)
    pairs = ((pairs & low) << np.uint64(16)) | ((pairs >> np.uint64(8)) & low)
    low = np.uint64(0x000F000F000F000F)
    pairs = ((pairs & low) << np.uint64(8)) | ((pairs >> np.uint64(4)) & low)
    # What is above nine has the fifth bit once six is added: letters come 39 places further.
    is_letter = ((pairs + np.uint64(0x0606060606060606)) >> np.uint64(4)) & np.uint64(0x0101010101010101)
    return pairs + np.uint64(0x3030303030303030) + is_letter * np.uint64(39)


LEAST = 10_000
"""So many matches per thread are worth one."""


def gather_table(later: OrderedMatches, threads: int = 1) -> pa.Table:
    """The table of the matches (`match_schema`)."""

    def part(share: slice) -> pa.Table:
        return match_table(later.plan, later.query, later.table, later.keys, later.matched.part(share))

    threads = max(1, min(threads, len(later.matched) // LEAST))
    parts = [slice(*share) for share in shares(len(later.matched), threads)]
    return pa.concat_tables(in_threads(part, parts, threads))


def gather_tables(parts: Sequence[OrderedMatches]) -> list[pa.Table]:
    """The table of each; those of a family, which share their rows, are gathered together."""
    together: dict[tuple[Any, ...], list[int]] = {}
    for place, part in enumerate(parts):
        family = (place,) if part.like is None else (id(part.like), id(part.table), *_shown(part.query))
        together.setdefault(family, []).append(place)
    tables: dict[int, pa.Table] = {}
    for places in together.values():
        own = [parts[place] for place in places]
        if len(own) == 1:
            tables[places[0]] = gather_table(own[0])
            continue
        first, counts = own[0], [len(part.matched) for part in own]
        titled = _Titled.of_all([part.query for part in own], counts)
        matched = Matched.joined([part.matched for part in own])
        whole = _table(first.plan, first.query, first.table, first.keys, matched, titled)
        ends = np.cumsum(counts).tolist()
        tables |= {
            place: whole.slice(end - count, count) for place, end, count in zip(places, ends, counts, strict=True)
        }
    return [tables[place] for place in range(len(parts))]


def _shown(query: QueryPlan) -> Iterator[object]:
    """In what the tables of a family's members may differ."""
    yield from query.told
    yield query.at_most is None
    events = query.selected_events
    yield from ((item.name, item.value if item.name in events else type_of(item.value)) for item in query.selects)


def joined_matches(parts: Sequence[OrderedMatches]) -> OrderedMatches:
    """The matches that several engines have found in one call, in order; there is one part."""
    if len(parts) == 1:
        return parts[0]
    matched, first = [], 0
    parts = [_over_own_rows(part) for part in parts]
    for part in parts:
        matched.append(part.matched.behind(first))
        first += len(part.table)
    table = joined([plain_cells(part.table) for part in parts])
    keys = [
        pa.concat_arrays([column[: len(part.table)] for part, column in zip(parts, columns, strict=True)])
        for columns in zip(*(part.keys for part in parts), strict=True)
    ]
    return OrderedMatches(parts[0].plan, parts[0].query, table, keys, Matched.joined(matched).by_step(keys))


def _over_own_rows(part: OrderedMatches) -> OrderedMatches:
    """The same without rows that are in no match, if these are many."""
    latest, members = part.matched.latest, part.matched.members
    used = np.unique(np.concatenate([latest, members[members >= 0]]))
    if 2 * len(used) > len(part.table):
        return part
    renumbered = np.where(members < 0, -1, np.searchsorted(used, members))
    matched = replace(part.matched, latest=np.searchsorted(used, latest), members=renumbered)
    return replace(part, table=part.table.take(pa.array(used)), keys=taken_columns(part.keys, used), matched=matched)
