"""Partition keys as columns: dense numbers within a batch, stable hashes, buckets.

Dense numbers (`number_keys`) are valid within one call only. The bucket of a key (`bucket_of`) is a
stable function of its value: it is part of the checkpoint's layout and must never change.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from querylang.dataclass import dataclass, replace
from querylang.errors import InputError, listed
from querylang.plan.expression import Expression, FieldOf
from querylang.plan.model import Plan, QueryPlan, expression_to_dict, plain_field
from runtime.column_types import arrow_type, has_column, made_once, one_chunk
from runtime.columns.arrivals import Arrivals
from runtime.columns.expressions import as_array
from runtime.columns.rows import is_any_of
from runtime.compiling.compiled import kernel
from runtime.interpreter import event_numbers
from runtime.interpreter.written_values import JsonError, parse_json

FNV_START, FNV_FACTOR = 0xCBF29CE484222325, 0x100000001B3
"""Of FNV-1a, the hash of a text's bytes."""

MIX_STEP, MIX_FIRST, MIX_SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
"""Of splitmix64, whose finalizer mixes the bits of a word."""

NEAR = 8
"""Integer keys are numbered by a lookup table if it has at most so many entries per record."""

NO_KEY = -1
"""The dense number of a record whose key has a null."""


# A type that is several inputs, by their roles, has a key for each. A *layer* has one input of each
# type: layer 0 the first ones, layer 1 the second inputs of types that have two, and so on.

INPUT = pa.field("_input", pa.int16())
"""A column of events, of queries with such a type: the input that a row is of; -1 = none."""


def inputs_of_layer(query: QueryPlan, layer: int) -> list[int]:
    """The inputs of a layer, in order."""
    seen: dict[str, int] = {}
    found = []
    for index, item in enumerate(query.inputs):
        if seen.get(item.event, 0) == layer:
            found.append(index)
        seen[item.event] = seen.get(item.event, 0) + 1
    return found


def layer_of_inputs(query: QueryPlan) -> NDArray[np.int64]:
    """By input its layer."""
    found = np.zeros(len(query.inputs), np.int64)
    for layer in layers(query):
        found[inputs_of_layer(query, layer)] = layer
    return found


def layers(query: QueryPlan) -> range:
    """The numbers of a query's layers: one, if no type is several inputs."""
    return range(max(map(len, query.shared_types.values()), default=1))


def has_keys_apart(query: QueryPlan) -> bool:
    """Whether a record may count in several keys: as several inputs with different keys."""
    shared = [[query.inputs[index] for index in inputs] for inputs in query.shared_types.values()]
    return any((item.keys, item.optional_keys) != (own[0].keys, own[0].optional_keys) for own in shared for item in own)


def key_sources(query: QueryPlan, layer: int = 0) -> dict[str, tuple[Expression, ...]]:
    """By event type: the expressions over the event (term 0) that give the query's key."""
    sources = {query.inputs[index].event: query.inputs[index].keys for index in inputs_of_layer(query, layer)}
    for item in query.inputs if layer == 0 else ():
        if item.heartbeat is not None and item.heartbeat.keys:
            sources[item.heartbeat.event] = item.heartbeat.keys
    return sources


def may_miss(query: QueryPlan, layer: int = 0) -> dict[str, frozenset[int]]:
    """By event type: the places of its keys whose null is a value; types without any are left out.

    A heartbeat of several inputs has those of all of them.
    """
    found: dict[str, frozenset[int]] = {}
    for item in (query.inputs[index] for index in inputs_of_layer(query, layer)):
        of_heartbeat = [item.heartbeat.event] if item.heartbeat is not None and item.heartbeat.keys else []
        for event in (item.event, *of_heartbeat) if item.optional_keys else ():
            found[event] = found.get(event, frozenset()) | frozenset(item.optional_keys)
    return found


def key_types(plan: Plan, query: QueryPlan) -> list[pa.DataType]:
    """The types of `key_columns`: of a key that may be missing, a struct that is never null.

    It says whether there is a value. The struct itself is null on records without the key.
    """
    types, optional = [arrow_type(key.type, plan) for key in query.keys], query.optional_keys
    return [_either(type_) if place in optional else type_ for place, type_ in enumerate(types)]


def _either(type_: pa.DataType) -> pa.DataType:
    return pa.struct([(_IS_THERE, pa.bool_()), (_VALUE, type_)])


_IS_THERE, _VALUE = "is there", "value"


def key_values(query: QueryPlan, columns: Sequence[pa.Array]) -> list[pa.Array]:
    """Key columns as users and expressions see them: a missing value is a null."""
    found = list(columns)
    for place in query.optional_keys:
        is_there, value = columns[place].flatten()
        found[place] = pc.if_else(is_there, value, pa.scalar(None, value.type))
    return found


def key_cells(query: QueryPlan, cells: Sequence[Any]) -> list[Any]:
    """Cells of `key_columns` as those of `key_values`."""
    found = list(cells)
    for place in query.optional_keys:
        cell = cells[place]
        found[place] = cell[_VALUE] if cell is not None and cell[_IS_THERE] else None
    return found


def cells_of_values(plan: Plan, query: QueryPlan, values: Sequence[Any]) -> list[Any]:
    """The inverse of `key_cells`, for the key of a record that has one."""
    found = list(values)
    for place in query.optional_keys:
        type_ = arrow_type(query.keys[place].type, plan)
        found[place] = _missing_or(pa.array([values[place]], type_), np.ones(1, np.bool_))[0].as_py()
    return found


def _missing_or(column: pa.Array, may_miss: NDArray[np.bool_]) -> pa.StructArray:
    """The column of a key that may be missing; `may_miss`: the rows on which a null is a value."""
    is_there = column.is_valid()
    type_ = _either(column.type)
    has_no_key = pc.and_not(pc.invert(is_there), pa.array(may_miss))
    return pa.StructArray.from_arrays([is_there, filled(column)], fields=list(type_), mask=has_no_key)


def filled(column: pa.Array) -> pa.Array:
    """The column with some value in place of each null."""
    if not column.null_count:
        return column
    if pa.types.is_struct(column.type):
        return pa.StructArray.from_arrays(list(map(filled, column.flatten())), fields=list(column.type))
    return column.fill_null("" if pa.types.is_string(column.type) else pa.scalar(0, pa.int8()).cast(column.type))


def key_identity(query: QueryPlan) -> list[list[Any]]:
    """`key_sources` as sorted plain data; equal for all queries of a partition group."""

    def text_of(places: frozenset[int], place: int, source: Expression) -> str:
        text = plain_field(source) or json.dumps(expression_to_dict(source))
        return json.dumps([text, "?"]) if place in places else text

    return sorted(
        [event, [text_of(missing.get(event, frozenset()), place, source) for place, source in enumerate(sources)]]
        for layer in layers(query)
        for missing in [may_miss(query, layer)]
        for event, sources in key_sources(query, layer).items()
    )


def key_columns(table: pa.Table, kinds: NDArray[np.int64], plan: Plan, query: QueryPlan) -> list[pa.Array]:
    """One column per key of the query (`key_types`); null on records without the key.

    Rows of a table with the column `INPUT` have the key of their input, others that of layer 0.
    """
    columns = keys_of_layer(table, kinds, plan, query, 0)
    if not has_column(table, INPUT.name):
        return columns
    input_of = table.column(INPUT.name).to_numpy()
    for layer in layers(query)[1:]:
        is_mine = is_any_of(input_of, inputs_of_layer(query, layer))
        if is_mine.any():
            own = keys_of_layer(table, kinds, plan, query, layer)
            columns = [chosen(is_mine, *pair) for pair in zip(own, columns, strict=True)]
    return columns


def chosen(is_first: NDArray[np.bool_], first: pa.Array, second: pa.Array) -> pa.Array:
    """By row, the value of the first or of the second column."""
    if first.equals(second):
        return second
    place = np.arange(len(first)) + np.where(is_first, 0, len(first))
    return pa.concat_arrays([first, second]).take(pa.array(place))


def keys_of_layer(
    table: pa.Table, kinds: NDArray[np.int64], plan: Plan, query: QueryPlan, layer: int
) -> list[pa.Array]:
    """The key columns of records as events of the inputs of one layer."""
    columns = []
    for part in _key_parts(plan, query, layer):
        column = _coalesce(table, kinds, plan, query, part.sources, part.type)
        columns.append(column if part.may_miss is None else _missing_or(column, is_any_of(kinds, part.may_miss)))
    return columns


class _KeyPart(NamedTuple):
    """A part of the key of records as events of one layer.

    sources: the expressions that give it, with the event types that each is for
    may_miss: the event types whose null is a value; None = the part may not be missing
    """

    type: pa.DataType
    sources: dict[Expression, list[int]]
    may_miss: list[int] | None


@made_once
def _key_parts(plan: Plan, query: QueryPlan, layer: int) -> list[_KeyPart]:
    sources, numbers, missing = key_sources(query, layer), event_numbers(plan), may_miss(query, layer)
    found = []
    for position, key in enumerate(query.keys):
        wanted: dict[Expression, list[int]] = {}
        for kind in sorted(numbers[event] for event in sources if event in numbers):
            wanted.setdefault(sources[plan.events[kind].name][position], []).append(kind)
        may_be_null = [numbers[event] for event, places in missing.items() if position in places]
        is_optional = position in query.optional_keys
        found.append(_KeyPart(arrow_type(key.type, plan), wanted, may_be_null if is_optional else None))
    return found


def _coalesce(
    table: pa.Table,
    kinds: NDArray[np.int64],
    plan: Plan,
    query: QueryPlan,
    wanted: dict[Expression, list[int]],
    type_: pa.DataType,
) -> pa.Array:
    """One column from several expressions, each evaluated for the records of its kinds."""
    column = None
    for source, its_kinds in wanted.items():
        is_mine = is_any_of(kinds, its_kinds)
        if not is_mine.any():
            continue
        part = as_array(source, table, plan, plan.events[its_kinds[0]], query)
        if part.null_count == len(part):
            part = pa.nulls(len(part), type_)
        column = part if column is None else pc.if_else(pa.array(is_mine), part, column)
    return pa.nulls(len(table), type_) if column is None else column


def substream_columns(
    table: pa.Table, kinds: NDArray[np.int64], plan: Plan, query: QueryPlan, inputs: Sequence[int]
) -> list[pa.Array]:
    """The fields that identify a substream of these inputs, by column; null on other records."""
    policy = query.inputs[inputs[0]].policy
    numbers = {event.name: number for number, event in enumerate(plan.events)}
    columns = []
    for field in () if policy is None else policy.over:
        wanted: dict[Expression, list[int]] = {}
        for index in inputs:
            name = query.inputs[index].event
            its_kinds = wanted.setdefault(FieldOf(plan.event(name).type_of(field), 0, field), [])
            if numbers[name] not in its_kinds:
                its_kinds.append(numbers[name])
        type_ = plan.event(query.inputs[inputs[0]].event).type_of(field)
        column = _coalesce(table, kinds, plan, query, wanted, arrow_type(type_, plan))
        mine = is_any_of(kinds, [kind for its in wanted.values() for kind in its])
        columns.append(column if mine.all() else pc.if_else(pa.array(mine), column, pa.scalar(None, column.type)))
    return columns


def have_key(
    table: pa.Table, kinds: NDArray[np.int64], plan: Plan, query: QueryPlan, values: Sequence[pa.Scalar]
) -> NDArray[np.bool_]:
    """Which records have this key, as events of any input."""
    columns = [keys_of_layer(table, kinds, plan, query, layer) for layer in layers(query)]
    return np.logical_or.reduce([is_of_key(own, values) for own in columns])


def unique_numbers(
    plan: Plan, query: QueryPlan, table: pa.Table, input_of: NDArray[np.int16]
) -> tuple[NDArray[np.int64], int]:
    """By row a dense number of what `with unique` compares, and the count of all numbers.

    Different inputs have different numbers.

    NO_KEY = the input has no `with unique`, or there is no value.
    """
    values, count = np.full(len(table), NO_KEY, np.int64), 0
    for index, item in enumerate(query.inputs):
        if item.unique:
            event = plan.event(item.event)
            numbers, more = number_keys([as_array(part, table, plan, event, query) for part in item.unique], len(table))
            rows = (input_of == index) & (numbers >= 0)
            values[rows] = count + numbers[rows]
            count += more
    return values, count


def number_keys(columns: Sequence[pa.Array], length: int) -> tuple[NDArray[np.int64], int]:
    """By row the dense number of its key, from 0, and the count of numbers; NO_KEY = a null."""
    if not columns:
        return np.zeros(length, np.int64), min(length, 1)
    first, *others = plain_columns(columns)
    numbers, count = _number(first)
    for column in others:
        more, more_count = _number(column)
        paired = np.where((numbers < 0) | (more < 0), np.int64(NO_KEY), numbers * more_count + more)
        numbers, count = _number(pa.array(paired, mask=paired < 0))
    return numbers, count


def number_values(columns: Sequence[pa.Array], length: int) -> tuple[NDArray[np.int64], int]:
    """As `number_keys`, but a null is a value: it equals a null and nothing else."""
    numbers, count = np.zeros(length, np.int64), min(length, 1)
    for column in plain_columns(columns):
        more, more_count = _number(column)
        if column.null_count:
            more, more_count = more + 1, more_count + 1
        if count <= 1:
            numbers, count = more, more_count
        elif more_count > 1:
            numbers, count = _number(pa.array(numbers * more_count + more))
    return numbers, count


def plain_columns(columns: Sequence[pa.Array]) -> list[pa.Array]:
    """Columns of scalars: a location becomes four columns of coordinates."""
    return [part for column in columns for part in _scalars(column)]


def sort_columns(columns: Sequence[pa.Array]) -> list[pa.Array]:
    """Columns of scalars by whose ascending order rows stand as `runtime.interpreter.order_key` has
    it, for `sort_indices`: null first, numbers by value, then NaN; text by code point; false before
    true."""
    return [part for column in columns for part in _sorted_by(column)]


def _sorted_by(column: pa.Array) -> list[pa.Array]:
    own = sort_columns(column.flatten()) if pa.types.is_struct(column.type) else [column]
    return [column.is_valid(), *own] if column.null_count else own


def _scalars(column: pa.Array) -> list[pa.Array]:
    return plain_columns(column.flatten()) if pa.types.is_struct(column.type) else [column]


def _number(column: pa.Array) -> tuple[NDArray[np.int64], int]:
    if pa.types.is_integer(column.type) and len(column) and not column.null_count:
        values = column.to_numpy()
        least = int(values.min())
        span = int(values.max()) - least + 1
        if span <= NEAR * len(values):
            return _number_near(values, least, span)
    if pa.types.is_floating(column.type):
        column = pc.add(column, 0.0)  # -0.0 and 0.0 are one key
    encoded = column.dictionary_encode()
    indices = encoded.indices
    if indices.null_count:
        indices = indices.fill_null(NO_KEY)
    return indices.to_numpy().astype(np.int64), len(encoded.dictionary)


@kernel
def _number_near(values: NDArray[np.int64], least: int, span: int) -> tuple[NDArray[np.int64], int]:
    """Dense numbers of integers from a small range: a lookup table instead of a hash table."""
    known = np.full(span, NO_KEY, np.int32)
    numbers, count = np.empty(len(values), np.int64), 0
    for row in range(len(values)):
        place = values[row] - least
        if known[place] < 0:
            known[place] = count
            count += 1
        numbers[row] = known[place]
    return numbers, count


def bucket_of(arrivals: Arrivals, plan: Plan, query: QueryPlan, buckets: int) -> NDArray[np.int64]:
    """By record the bucket (from 0) of its key under `query`; -1 = a part of the key is missing.

    Queries with equal `key_identity` give equal buckets. Without keys all events of the query's
    types are in bucket 0.

    Nulls are as in SQL, whatever the rule of the query: queries of both rules may be together. A
    key that has a value by the earlier rule has the same value then.
    """
    query = replace(query, nulls_fail=False) if query.nulls_fail else query
    kinds = arrivals.system("kind")
    sources = key_sources(query)
    keyed = np.array([event.name in sources for event in plan.events] or [False])
    has_key = (kinds >= 0) & keyed[np.maximum(kinds, 0)]
    columns = key_columns(arrivals.table, kinds, plan, query)
    hashes = hash_keys(columns) if columns else np.zeros(len(arrivals), np.uint64)
    for column in plain_columns(columns):
        if column.null_count:
            has_key &= column.is_valid().to_numpy(zero_copy_only=False)
    return np.where(has_key, (hashes % np.uint64(buckets)).astype(np.int64), -1)


def hash_keys(columns: Sequence[pa.Array]) -> NDArray[np.uint64]:
    """A stable 64-bit hash of each key, of at least one column; meaningless if a part is null."""
    hashes = np.zeros(len(columns[0]), np.uint64)
    for column in plain_columns(columns):
        _mix_in(hashes, _hash(column))
    return hashes


def _hash(column: pa.Array) -> NDArray[np.uint64]:
    """A stable 64-bit hash of each value; meaningless for a null."""
    if pa.types.is_decimal(column.type):
        return _hash(pc.cast(column, pa.string()))
    if pa.types.is_string(column.type):
        _, offsets, data = column.buffers()
        ends = np.frombuffer(offsets, np.int32)[column.offset : column.offset + len(column) + 1]
        text = np.frombuffer(data, np.uint8) if data is not None and data.size else np.zeros(1, np.uint8)
        return _hash_text(ends, text)
    filled = column.fill_null(False if pa.types.is_boolean(column.type) else 0) if column.null_count else column
    values = filled.to_numpy(zero_copy_only=False)
    if values.dtype == np.float64:
        values = np.where(np.isnan(values), np.nan, values + 0.0)
        return values.view(np.uint64)
    return values.astype(np.int64).view(np.uint64)


@kernel
def _hash_text(ends: NDArray[np.int32], text: NDArray[np.uint8]) -> NDArray[np.uint64]:
    """FNV-1a over the bytes of each string."""
    result = np.empty(len(ends) - 1, np.uint64)
    for row in range(len(result)):
        value = np.uint64(FNV_START)
        for at in range(ends[row], ends[row + 1]):
            value = (value ^ np.uint64(text[at])) * np.uint64(FNV_FACTOR)
        result[row] = value
    return result


@kernel
def mix(value: np.uint64) -> np.uint64:
    """Mix the bits of a word: the finalizer of splitmix64 (Steele, Lea and Flood 2014)."""
    value = value + np.uint64(MIX_STEP)
    value = (value ^ (value >> np.uint64(30))) * np.uint64(MIX_FIRST)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(MIX_SECOND)
    return value ^ (value >> np.uint64(31))


@kernel
def _mix_in(hashes: NDArray[np.uint64], values: NDArray[np.uint64]) -> None:
    for row in range(len(hashes)):
        hashes[row] = mix(hashes[row] ^ values[row])


@kernel
def group_rows(numbers: NDArray[np.int64], count: int) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Group rows by key, stable: key k has `rows[start[k]:start[k + 1]]`, rows without key none."""
    start = np.zeros(count + 1, np.int64)
    for number in numbers:
        if number >= 0:
            start[number + 1] += 1
    for key in range(count):
        start[key + 1] += start[key]
    rows = np.empty(start[count], np.int32)
    at = start[:-1].copy()
    for row in range(len(numbers)):
        number = numbers[row]
        if number >= 0:
            rows[at[number]] = row
            at[number] += 1
    return start, rows


# Keys that a user names: which queries have such a key, and which rows are of it.


KeyValues = tuple[pa.Scalar, ...]
"""A value per part of a key."""


@dataclass(frozen=True, slots=True)
class GivenKey:
    """A key as it was written.

    parts: by name of the key's part; "" = the only part, whatever its name
    """

    parts: Mapping[str, Any]

    @staticmethod
    def of_texts(texts: Sequence[str], plan: Plan) -> GivenKey:
        """A key of texts: `VALUE` of queries with one key, `NAME=VALUE` a part, or a JSON object.

        Raises InputError if no query has such a key.
        """
        given = GivenKey(_parts(texts, {key.name for query in plan.queries for key in query.keys}))
        if not any(given.values_for(plan, query) for query in plan.queries):
            known = dict.fromkeys(f"({', '.join(query.key_names)})" for query in plan.queries if query.keys)
            have = f"the queries have the keys {listed(list(known))}" if known else "no query has a key"
            raise InputError(f"--key {' '.join(texts)}: no query has such a key; {have}")
        return given

    def by_queries(self, plan: Plan, queries: Iterable[QueryPlan]) -> list[tuple[KeyValues, list[QueryPlan]]]:
        """The key with the queries that have it, those together whose records have it in the same
        fields."""
        found: dict[object, tuple[KeyValues, list[QueryPlan]]] = {}
        for query in queries:
            values = self.values_for(plan, query)
            if values is not None:
                places = tuple(sorted(key_sources(query).items())), query.optional_keys
                found.setdefault(places, (values, []))[1].append(query)
        return list(found.values())

    def values_for(self, plan: Plan, query: QueryPlan) -> KeyValues | None:
        """The key of a query; None = the query has no such key."""
        names = query.key_names
        parts = {names[0]: self.parts[""]} if len(names) == 1 and self.parts.keys() == {""} else self.parts
        if not names or parts.keys() != set(names):
            return None
        try:
            given = [_scalar(parts[key.name], arrow_type(key.type, plan)) for key in query.keys]
            if any(not part.is_valid and place not in query.optional_keys for place, part in enumerate(given)):
                return None
            cells = cells_of_values(plan, query, [value.as_py() for value in given])
            return tuple(map(pa.scalar, cells, key_types(plan, query)))
        except (ValueError, TypeError, OverflowError, pa.ArrowException):
            return None


def is_of_key(columns: Sequence[pa.Array], values: Sequence[pa.Scalar]) -> NDArray[np.bool_]:
    """Which rows are of a key; `columns`: the key's parts."""
    count = len(columns[0])
    sides = plain_columns(list(columns)), plain_columns([pa.repeat(value, count) for value in values])
    equal = reduce(pc.and_kleene, map(_equal, *sides))
    found: NDArray[np.bool_] = pc.fill_null(one_chunk(equal), False).to_numpy(zero_copy_only=False)
    return found


def _equal(column: pa.Array, value: pa.Array) -> pa.Array:
    """Whether they are parts of one key: as for `number_keys`, NaN equals NaN."""
    equal = pc.equal(column, value)
    return pc.or_(equal, pc.and_(pc.is_nan(column), pc.is_nan(value))) if pa.types.is_floating(column.type) else equal


def bucket_of_key(values: Sequence[pa.Scalar], buckets: int) -> int:
    """The bucket of a key, as `runtime.columns.keys.bucket_of` chooses it."""
    return int(hash_keys([pa.array([value.as_py()], value.type) for value in values])[0] % np.uint64(buckets))


def _parts(texts: Sequence[str], names: set[str]) -> dict[str, Any]:
    if len(texts) == 1 and texts[0].lstrip().startswith("{"):
        try:
            found = parse_json(texts[0])
        except JsonError as error:
            raise InputError(f"--key {texts[0]}: is not JSON: {error}") from None
        return dict(found)
    parts: dict[str, Any] = {}
    for text in texts:
        name, sign, value = text.partition("=")
        is_part = bool(sign) and name in names
        parts[name if is_part else ""] = value if is_part else text
    return parts


def _scalar(value: Any, type_: pa.DataType) -> pa.Scalar:
    if isinstance(value, str) and not pa.types.is_string(type_):
        if pa.types.is_nested(type_):
            value = parse_json(value)
        else:
            return pa.scalar(value).cast(type_)
    return pa.scalar(value, type_)


def hash_rows(table: pa.Table) -> NDArray[np.uint64]:
    """By row a stable hash of its values, whatever the order of rows and columns.

    It orders rows that nothing else tells apart.
    """
    columns: list[pa.Array] = []
    for name in sorted(table.column_names):
        column = _plain(one_chunk(table.column(name)))
        if column.null_count == len(column):
            continue  # a column that is not there and one without values are the same
        if column.null_count:
            is_known = column.is_valid()
            zero = "" if pa.types.is_string(column.type) else pa.scalar(0, pa.int8()).cast(column.type)
            columns += [pc.cast(is_known, pa.int8()), column.fill_null(zero)]
        else:
            columns.append(column)
    return hash_keys(columns) if columns else np.zeros(len(table), np.uint64)


def _plain(column: pa.Array) -> pa.Array:
    """The column as numbers or text."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        return _plain(pc.cast(column, kind.value_type))
    if pa.types.is_null(kind):
        return pa.nulls(len(column), pa.int8())
    if pa.types.is_decimal(kind):
        return pc.cast(column, pa.string())
    if pa.types.is_nested(kind):
        return pa.array(_as_text(column.to_pylist()), pa.string())
    return pc.cast(column, pa.int8()) if pa.types.is_boolean(kind) else column


def _as_text(cells: Sequence[object]) -> list[str | None]:
    return [None if cell is None else json.dumps(cell, default=str, sort_keys=True) for cell in cells]
