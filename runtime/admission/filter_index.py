"""Which records the inputs of many queries can want: one pass over a piece decides for all of them.

Each input has one *lookup*, a conjunct of its filter, by which its records are found:

- values of a field, from `a = 1`, `a in [1, 2]` or `a = 1 or a = 2`: the column is hashed once, and
  each record goes to the inputs that have its value;
- ranges of a number, from `a > 1`, `a >= 1 and a < 5`: the column is sorted once;
- any other condition on one field: computed once for each distinct value of the piece;
- otherwise the whole filter, once for all inputs that have it.

A conjunct that is not true makes the filter not true. So no record is missed, and where the lookup
is not all of the filter, selection computes the rest for the records that were found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain
from math import isnan

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from querylang.dataclass import dataclass, field, replace
from querylang.plan.expression import Binary, Call, Expression, FieldOf, IndexOf, Items, Literal, Type, Unary, walk
from querylang.plan.model import Plan, QueryPlan
from runtime.column_types import Integers, arrow_type, different_numbers, has_column, one_chunk
from runtime.columns.arrivals import column_name
from runtime.columns.expressions import as_array, evaluate
from runtime.columns.keys import group_rows
from runtime.columns.rows import RepeatedTexts, stable_order

_HASHED = (Type.INTEGER, Type.STRING)
"""Types of fields whose values are hashed. Of floats 0.0 equals -0.0, which hashes do not know."""

_COMPUTED = (Type.BOOLEAN, Type.INTEGER, Type.FLOAT)
"""Types of what is computed once for each text of a field."""

_OF_VALUES = (Literal, FieldOf, Unary, Binary, Call, Items, IndexOf)
"""Expressions of these alone give equal values for equal fields."""

_DIFFERENT = frozenset({"rand", "getUnique", "getTime", "toString", "clone"})
"""Methods that may give another value for an equal field."""


@dataclass(frozen=True, slots=True)
class Lookup:
    """How the records of an input are found.

    field: the only field that it reads; None = it may read others
    values: of the field, those for which it is true; None = it is computed
    condition: is true for no other record
    is_whole: whether it is all of the filter
    """

    field: FieldOf | None
    values: tuple[int | str, ...] | None
    condition: Expression
    is_whole: bool


def lookup_of(filter_: Expression) -> Lookup:
    """The conjunct of a filter that excludes the most, as far as its form says."""
    parts = list(_conjuncts(filter_))
    for part in parts:
        found = _values_of(part)
        if found is not None:
            return Lookup(found[0], tuple(dict.fromkeys(found[1])), part, len(parts) == 1)
    if (only := _only_field(filter_)) is not None:
        return Lookup(only, None, filter_, True)
    for part in parts:
        if (only := _only_field(part)) is not None:
            return Lookup(only, None, part, False)
    return Lookup(None, None, filter_, True)


def _conjuncts(node: Expression) -> Iterator[Expression]:
    if isinstance(node, Binary) and node.operator == "and":
        yield from _conjuncts(node.left)
        yield from _conjuncts(node.right)
    else:
        yield node


def _values_of(node: Expression) -> tuple[FieldOf, list[int | str]] | None:
    """The field that a condition compares with constants, and these; None = it does not."""
    match node:
        case Binary(operator="=", left=FieldOf() as read, right=Literal(value=value)) if read.type in _HASHED:
            return read, [_hashed(value)]
        case Binary(operator="=", left=Literal(value=value), right=FieldOf() as read) if read.type in _HASHED:
            return read, [_hashed(value)]
        case Binary(operator="or", left=left, right=right):
            one, other = _values_of(left), _values_of(right)
            is_same = one is not None and other is not None and one[0] == other[0]
            return (one[0], [*one[1], *other[1]]) if one is not None and other is not None and is_same else None
        case Call(method="contains", receiver=Items(items=items), arguments=(FieldOf() as read,)):
            constants = [item.value for item in items if isinstance(item, Literal)]
            if read.type in _HASHED and len(constants) == len(items):
                return read, [_hashed(value) for value in constants]
    return None


def _hashed(value: object) -> int | str:
    assert isinstance(value, int | str), "constants have the type of the field"
    return value


def _only_field(node: Expression) -> FieldOf | None:
    """The field that alone decides; None = there is more than one, or something else decides."""
    read: FieldOf | None = None
    for part in walk(node):
        if type(part) not in _OF_VALUES or (isinstance(part, Call) and _differs(part)):
            return None
        if isinstance(part, FieldOf):
            if not part.type.is_scalar or (read is not None and part != read):
                return None
            read = part
    return read


def read_of(table: pa.Table, rows: Integers, conditions: Sequence[Expression]) -> pa.Table:
    """These rows, ascending, with the columns that conditions read at least."""
    names = {"_kind"}
    for node in chain.from_iterable(map(walk, conditions)):
        if isinstance(node, FieldOf):
            names.add(column_name(node.field, node.type))
        elif type(node) not in _OF_VALUES:
            names.update(table.column_names)
    own = table.select([name for name in table.column_names if name in names])
    return own if len(rows) == len(table) else own.take(pa.array(rows))


def _differs(call: Call) -> bool:
    return call.method.rpartition(".")[2] in _DIFFERENT


@dataclass(frozen=True, slots=True)
class _Range:
    """The values of a field for which a condition is true; None = there is no limit there.

    has_least, has_most: whether these values are part of it
    """

    least: float | None
    has_least: bool
    most: float | None
    has_most: bool

    def cut(self, other: _Range) -> _Range:
        """What is in both."""
        least, has_least = max(
            (own for own in (self._begin, other._begin) if own[0] is not None),
            key=lambda own: (own[0], not own[1]),
            default=self._begin,
        )
        most, has_most = min(
            (own for own in (self._end, other._end) if own[0] is not None),
            key=lambda own: (own[0], own[1]),
            default=self._end,
        )
        return _Range(least, has_least, most, has_most)

    @property
    def integers(self) -> tuple[int, int] | None:
        """The first and the last integer in it; None = it has no integer, or a limit is a float."""
        first = _SMALLEST if self.least is None else self.least + (not self.has_least)
        last = _LARGEST if self.most is None else self.most - (not self.has_most)
        return (first, last) if isinstance(first, int) and isinstance(last, int) and first <= last else None

    @property
    def _begin(self) -> tuple[float | None, bool]:
        return self.least, self.has_least

    @property
    def _end(self) -> tuple[float | None, bool]:
        return self.most, self.has_most


_SMALLEST, _LARGEST = int(np.iinfo(np.int64).min), int(np.iinfo(np.int64).max)

_TURNED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


def _range_of(node: Expression) -> _Range | None:
    """The range of a number for which a condition is true; None = it is not a range."""
    match node:
        case Binary(operator="and", left=left, right=right):
            one, other = _range_of(left), _range_of(right)
            return None if one is None or other is None else one.cut(other)
        case Binary(operator=operator, left=FieldOf() as read, right=Literal(value=value)) if operator in _TURNED:
            return _side(read, operator, value)
        case Binary(operator=operator, left=Literal(value=value), right=FieldOf() as read) if operator in _TURNED:
            return _side(read, _TURNED[operator], value)
    return None


def _side(read: FieldOf, operator: str, value: object) -> _Range | None:
    if read.type not in (Type.INTEGER, Type.FLOAT) or not isinstance(value, int | float) or isnan(value):
        return None
    has_value = operator.endswith("=")
    return _Range(value, has_value, None, False) if operator[0] == ">" else _Range(None, False, value, has_value)


@dataclass(frozen=True, slots=True)
class Filtered:
    """Records of one event type as an input wants them.

    kind: the number of the event type
    lookup: None = all of them
    query: whose input it is
    """

    kind: int
    lookup: Lookup | None
    query: QueryPlan


@dataclass(slots=True)
class _OfField:
    """The lookups of one event type in one field.

    values: by value who wants records with it
    ranges: by range who wants records with a value in it
    computed: by condition who wants records for which it is true
    owned_ranges: the ranges, if they are such
    """

    read: FieldOf
    values: dict[int | str, list[int]] = field(default_factory=dict)
    ranges: dict[_Range, list[int]] = field(default_factory=dict)
    computed: dict[Expression, list[int]] = field(default_factory=dict)
    owned_ranges: _OwnedRanges | None = None


@dataclass(slots=True)
class _OfKind:
    """The lookups of one event type; by number who wants all, and those of `_OfField` by column."""

    all: list[int] = field(default_factory=list)
    fields: dict[str, _OfField] = field(default_factory=dict)
    computed: dict[Expression, list[int]] = field(default_factory=dict)
    query: QueryPlan | None = None


class FoundRecords:
    """By number the records of a piece that can be wanted.

    Mostly each value, and each range, is wanted by one number only. Then it is known by record
    whose it is, and nothing is done for a number until somebody asks for its records.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._parts: dict[int, list[Integers]] = {}
        self._owned: list[tuple[Integers, Integers]] = []
        self._known: dict[int, Integers] = {}

    def add(self, numbers: Iterable[int], rows: Integers) -> None:
        """All these numbers can want these records, ascending."""
        if len(rows):
            for number in numbers:
                self._parts.setdefault(number, []).append(rows)

    def add_owned(self, owner: Integers, rows: Integers) -> None:
        """Each of these records, ascending, can be wanted by one number; -1 = by none."""
        owner, rows = _not_negative(owner, rows)
        if len(rows):
            self._owned.append((owner, rows))

    def of(self, number: int) -> Integers:
        """The records of a number, ascending."""
        if number not in self._known:
            start, rows = self._grouped
            own = rows[start[number] : start[number + 1]]
            self._known[number] = _joined([*self._parts.get(number, ()), *([own] if len(own) else [])])
        return self._known[number]

    @cached_property
    def _grouped(self) -> tuple[Sequence[int], Integers]:
        """Where the records of each number begin among all that are owned, and these, ascending."""
        owner, rows = map(np.concatenate, zip(*self._owned, strict=True)) if self._owned else (_NO_ROWS, _NO_ROWS)
        start, order = group_rows(owner, self._count)
        owner, rows = owner[order], rows[order]
        # Of a number that owns records by several fields or event types, they are in several parts.
        is_mixed = (owner[1:] == owner[:-1]) & (rows[1:] < rows[:-1])
        for number in np.unique(owner[1:][is_mixed]).tolist():
            rows[start[number] : start[number + 1]].sort()
        return start.tolist(), rows

    def by_record(self, numbers: Sequence[int]) -> tuple[Integers, Integers]:
        """Whose the records of these numbers are, by their places in `numbers`, and the records.

        They are in the order of the records, then of the places.
        """
        if len(self._owned) == 1 and not any(number in self._parts for number in numbers):
            place_of = np.full(self._count, -1, np.int64)
            place_of[numbers] = np.arange(len(numbers))
            owner, rows = self._owned[0]
            return _not_negative(place_of[owner], rows)
        each = [self.of(number) for number in numbers]
        place, row = np.repeat(np.arange(len(each)), [*map(len, each)]), np.concatenate([_NO_ROWS, *each])
        order = stable_order(row)
        return place[order], row[order]

    def parts_of(self, numbers: Sequence[int]) -> Iterator[Integers]:
        """All records of these numbers, in parts; a record may be in several."""
        is_asked = np.zeros(self._count, np.bool_)
        is_asked[numbers] = True
        yield from (rows[is_asked[owner]] for owner, rows in self._owned)
        shared = chain.from_iterable(self._parts.get(number, ()) for number in numbers)
        yield from {id(rows): rows for rows in shared}.values()


def _not_negative(owner: Integers, rows: Integers) -> tuple[Integers, Integers]:
    """The same of those records that have an owner."""
    is_owned = owner >= 0
    return (owner, rows) if is_owned.all() else (owner[is_owned], rows[is_owned])


class FilterIndex:
    """The lookups of many inputs; those of one number are looked up together."""

    def __init__(self, plan: Plan, wanted: Sequence[Sequence[Filtered]]) -> None:
        """`wanted`: by number the records that are wanted, one entry per event type."""
        self._plan, self._count = plan, len(wanted)
        self._kinds: dict[int, _OfKind] = {}
        for number, items in enumerate(wanted):
            for item in items:
                self._add(number, item)
        self._values = self._values_by_column()

    def _values_by_column(self) -> dict[str, _Values]:
        """The values that are looked up in each column."""
        found: dict[str, _Values] = {}
        for kind, of_kind in self._kinds.items():
            for name, own in of_kind.fields.items():
                if own.values:
                    found.setdefault(name, _Values(arrow_type(own.read.type, self._plan))).add(kind, own.values)
                own.owned_ranges = _OwnedRanges.of(own)
        return found

    def _add(self, number: int, item: Filtered) -> None:
        own, lookup = self._kinds.setdefault(item.kind, _OfKind()), item.lookup
        own.query = own.query or item.query
        if lookup is None:
            own.all.append(number)
        elif lookup.field is None:
            own.computed.setdefault(lookup.condition, []).append(number)
        else:
            name = column_name(lookup.field.field, lookup.field.type)
            of_field = own.fields.setdefault(name, _OfField(lookup.field))
            if lookup.values is None and (found := _range_of(lookup.condition)) is not None:
                of_field.ranges.setdefault(found, []).append(number)
            elif lookup.values is None:
                of_field.computed.setdefault(lookup.condition, []).append(number)
            else:
                for value in lookup.values:
                    of_field.values.setdefault(value, []).append(number)

    def found(self, texts: RepeatedTexts, kinds: Integers) -> FoundRecords:
        """By number the records that can be wanted.

        texts: of the records
        kinds: by record the number of its event type; others are negative
        """
        found = FoundRecords(self._count)
        start, rows = group_rows(kinds, len(self._plan.events))
        of_kinds: dict[int, Integers] = {}
        for kind, own in self._kinds.items():
            of_kind = rows[start[kind] : start[kind + 1]].astype(np.int64)
            if len(of_kind):
                of_kinds[kind] = of_kind
                found.add(own.all, of_kind)
                self._find(own, _RowsOfKind(self._plan, kind, own.query, texts, of_kind), found)
        for name, values in self._values.items():
            if has_column(texts.table, name):
                values.find(texts, name, of_kinds, found)
        return found

    def _find(self, own: _OfKind, rows: _RowsOfKind, found: FoundRecords) -> None:
        """Adds what is not looked up by values."""
        for name, of_field in own.fields.items():
            if not has_column(rows.table, name):  # all are null
                for condition, numbers in of_field.computed.items():
                    found.add(numbers, rows.true_for(condition))
                continue
            if of_field.ranges:
                _add_ranges(found, of_field, rows.column(name), rows.numbers)
            if of_field.computed:
                distinct = rows.distinct(name)
                for condition, numbers in of_field.computed.items():
                    found.add(numbers, distinct.true_for(condition))
        for condition, numbers in own.computed.items():
            found.add(numbers, rows.true_for(condition))


class _Values:
    """The values of a column that are looked up, for several event types.

    Mostly the types that ask are most of a piece. Then the whole column is hashed at once, which
    copies no text.
    """

    def __init__(self, type_: pa.DataType) -> None:
        self._type = type_
        self._numbers: dict[int | str, int] = {}
        self._own: dict[int, Integers] = {}
        self._wanting: dict[int, Sequence[Sequence[int]]] = {}

    def add(self, kind: int, wanted: Mapping[int | str, Sequence[int]]) -> None:
        """`wanted`: by value who wants records of this kind that have it."""
        self._own[kind] = np.array([self._numbers.setdefault(value, len(self._numbers)) for value in wanted])
        self._wanting[kind] = list(wanted.values())

    @cached_property
    def _values(self) -> pa.Array:
        return pa.array(list(self._numbers), self._type)

    @cached_property
    def _marks(self) -> dict[int, tuple[Integers, bool]]:
        """By kind, by number of a value: who wants it, if each has one only; else its number among
        those of the kind. -1 = it is not one of them, as is the last entry."""
        found = dict[int, tuple[Integers, bool]]()
        for kind, wanting in self._wanting.items():
            marks, is_owned = np.full(len(self._numbers) + 1, -1, np.int64), all(len(own) == 1 for own in wanting)
            marks[self._own[kind]] = [own[0] for own in wanting] if is_owned else np.arange(len(wanting))
            found[kind] = marks, is_owned
        return found

    def find(self, texts: RepeatedTexts, name: str, of_kinds: Mapping[int, Integers], found: FoundRecords) -> None:
        """Adds the records that have one of the values.

        name: of the column
        of_kinds: by kind, its rows in the column
        """
        asked = [kind for kind in self._own if kind in of_kinds]
        values, column = self._values, one_chunk(texts.table.column(name))
        is_most = 2 * sum(len(of_kinds[kind]) for kind in asked) > len(column)
        whole: Integers | None = None
        if is_most:
            known = texts.column(name)
            whole = (
                _numbers_in(column, values)
                if known is None
                else _numbers_in(known.dictionary, values)[known.indices.to_numpy()]
            )
        for kind in asked:
            rows = of_kinds[kind]
            numbers = _numbers_in(column.take(pa.array(rows)), values) if whole is None else whole
            numbers = numbers if len(numbers) == len(rows) else numbers[rows]
            marks, is_owned = self._marks[kind]
            if is_owned:
                found.add_owned(marks[numbers], rows)
            else:
                _add_slices(found, self._wanting[kind], marks[numbers], rows)


def _numbers_in(column: pa.Array, values: pa.Array) -> Integers:
    """By row the number of its value; -1 = it has another one."""
    if pa.types.is_integer(column.type) and not column.null_count and len(values):
        found = _numbers_near(column.to_numpy(), values.to_numpy())
        if found is not None:
            return found
    hashed: Integers = pc.index_in(column, value_set=values).fill_null(-1).to_numpy()
    return hashed


_SPREAD = 8
"""Values that are at most so many times as far apart as there are values are read from a table."""


def _numbers_near(column: Integers, values: Integers) -> Integers | None:
    """The same, of integers that are near each other; None = they are not.

    Before the least value and behind the last, the table says that it is another one. Differences
    that do not fit into 64 bits are outside, too: they wrap around, but a difference that seems to
    be inside is that of a value which is.
    """
    before, most = int(values.min()) - 1, int(values.max())
    if before < _SMALLEST or most - before > _SPREAD * len(values) + _SPREAD:
        return None
    numbers = np.full(most - before + 2, -1, np.int64)
    numbers[values - before] = np.arange(len(values))
    return numbers.take(column - before, mode="clip")


def _add_slices(found: FoundRecords, wanting: Sequence[Sequence[int]], codes: Integers, rows: Integers) -> None:
    """`codes`: by row the number of its value, whose records `wanting` want; -1 = no value."""
    start, order = group_rows(codes, len(wanting))
    ordered, bounds = rows[order], start.tolist()
    for code in np.flatnonzero(np.diff(start)).tolist():
        found.add(wanting[code], ordered[bounds[code] : bounds[code + 1]])


@dataclass(frozen=True, slots=True)
class _OwnedRanges:
    """Ranges of an integer that have no value in common, each wanted by one number.

    first, last: by range, ascending
    owner: by range, the number
    """

    first: Integers
    last: Integers
    owner: Integers

    @staticmethod
    def of(own: _OfField) -> _OwnedRanges | None:
        """None = they are not such ranges."""
        known = [(range_.integers, numbers) for range_, numbers in own.ranges.items()]
        if own.read.type != Type.INTEGER or not known or any(len(numbers) > 1 for _, numbers in known):
            return None
        bounds = sorted((*ends, numbers[0]) for ends, numbers in known if ends is not None)
        if len(bounds) < len(known):
            return None
        first, last, owner = (np.array(column, np.int64) for column in zip(*bounds, strict=True))
        return _OwnedRanges(first, last, owner) if (first[1:] > last[:-1]).all() else None

    def owners(self, values: Integers) -> Integers | None:
        """By value who wants it, -1 = nobody; None = the values are too far apart for a table."""
        least, most = int(values.min()), int(values.max())
        if most - least > len(values):
            return None
        possible = np.arange(most - least + 1) + least  # `most + 1` may not fit into 64 bits
        range_ = np.searchsorted(self.first, possible, "right") - 1
        is_inside = (range_ >= 0) & (possible <= self.last[range_])
        return np.where(is_inside, self.owner[range_], -1)[values - least]


def _add_ranges(found: FoundRecords, wanted: _OfField, column: pa.Array, rows: Integers) -> None:
    """The rows whose value is in a range; null and NaN are in none."""
    if wanted.owned_ranges is not None and not column.null_count:
        owner = wanted.owned_ranges.owners(column.to_numpy())
        if owner is not None:
            found.add_owned(owner, rows)
            return
    is_value = pc.is_valid(column) if pa.types.is_integer(column.type) else pc.equal(column, column).fill_null(False)
    is_there = is_value.to_numpy(zero_copy_only=False)
    values = column.filter(is_value).to_numpy()
    order = stable_order(values) if values.dtype.kind == "i" else np.argsort(values, kind="stable")
    values, rows = values[order], rows[is_there][order]
    for own, numbers in wanted.ranges.items():
        begin = 0 if own.least is None else np.searchsorted(values, own.least, "left" if own.has_least else "right")
        end = (
            len(values) if own.most is None else np.searchsorted(values, own.most, "right" if own.has_most else "left")
        )
        found.add(numbers, np.sort(rows[begin:end]))


def _joined(parts: Sequence[Integers]) -> Integers:
    """Rows of parts that have none in common, ascending."""
    if len(parts) == 1:
        return parts[0]
    return np.sort(np.concatenate(parts)) if parts else _NO_ROWS


_NO_ROWS = np.empty(0, np.int64)


class _RowsOfKind:
    """The records of one event type in a piece; `numbers`: their rows in the table of `texts`."""

    def __init__(self, plan: Plan, kind: int, query: QueryPlan | None, texts: RepeatedTexts, numbers: Integers) -> None:
        self.table, self.numbers = texts.table, numbers
        self._texts, self._plan, self._event, self._query = texts, plan, plan.events[kind], query
        self._known: dict[Expression, pa.Array | None] = {}

    def column(self, name: str) -> pa.Array:
        """A column of these records."""
        column = one_chunk(self.table.column(name))
        return column if len(self.numbers) == len(column) else column.take(pa.array(self.numbers))

    def true_for(self, condition: Expression) -> Integers:
        """The records for which a condition is true."""
        columns = dict[str, pa.Array]()
        condition = self._with_columns(condition, columns)
        table = read_of(self.table, self.numbers, [condition])
        for name, column in columns.items():
            table = table.append_column(name, column)
        return self.numbers[self._is_true(condition, table)]

    def distinct(self, name: str) -> _Distinct:
        """The different values of a column, with nulls as one of them."""
        codes, values = self._by_value(name)
        return _Distinct(codes, self.numbers, lambda condition: self._is_true(condition, pa.table({name: values})))

    def _by_value(self, name: str) -> tuple[Integers, pa.Array]:
        """By record the number of its value in a column, and the values, among them all of these
        records."""
        encoded = self._texts.column(name)
        if encoded is None:
            encoded = self.column(name).dictionary_encode(null_encoding="encode")
            return encoded.indices.to_numpy().astype(np.int64), encoded.dictionary
        codes, values = encoded.indices.to_numpy()[self.numbers].astype(np.int64), encoded.dictionary
        if len(values) <= len(codes):
            return codes, values
        different, codes = different_numbers(codes, len(values))
        return codes, values.take(pa.array(different))

    def _with_columns(self, node: Expression, columns: dict[str, pa.Array]) -> Expression:
        """An expression that reads a column in place of each part that one text decides.

        columns: gets these, by name
        """
        if isinstance(node, Literal | FieldOf):
            return node
        column = self._column_of(node)
        if column is not None and node.type is not None:
            field_ = FieldOf(node.type, 0, f"#{len(columns)}")
            columns[column_name(field_.field, field_.type)] = column
            return field_
        match node:
            case Binary(left=left, right=right):
                return replace(node, left=self._with_columns(left, columns), right=self._with_columns(right, columns))
            case Unary(operand=operand):
                return replace(node, operand=self._with_columns(operand, columns))
        return node

    def _column_of(self, node: Expression) -> pa.Array | None:
        """What a number or a condition is, if one text decides; None = it does not."""
        if node not in self._known:
            only = _only_field(node) if node.type in _COMPUTED else None
            name = "" if only is None else column_name(only.field, only.type)
            is_known = has_column(self.table, name) and self._texts.column(name) is not None
            self._known[node] = self._computed(node, name) if is_known else None
        return self._known[node]

    def _computed(self, node: Expression, name: str) -> pa.Array | None:
        """What it is by record, computed once for each text; None = it fails for some."""
        codes, values = self._by_value(name)
        found = evaluate(node, pa.table({name: values}), self._plan, self._event, self._query)
        if found.failed is not None:
            return None  # a part that fails is more than null to what is around it
        return pa.array(found.values, mask=None if found.valid is None else ~found.valid).take(pa.array(codes))

    def _is_true(self, condition: Expression, table: pa.Table) -> NDArray[np.bool_]:
        passes = as_array(condition, table, self._plan, self._event, self._query)
        return passes.fill_null(False).to_numpy(zero_copy_only=False)


class _Distinct:
    """Records by the different values of a column."""

    def __init__(self, codes: Integers, numbers: Integers, is_true: Callable[[Expression], NDArray[np.bool_]]) -> None:
        self._codes, self._numbers, self._is_true = codes, numbers, is_true
        self._start, order = group_rows(codes, int(codes.max()) + 1)
        self._ordered = numbers[order]

    def true_for(self, condition: Expression) -> Integers:
        """The records for whose value a condition is true."""
        is_true = self._is_true(condition)
        passing = np.flatnonzero(is_true)
        if len(passing) * 8 > len(is_true):
            return self._numbers[is_true[self._codes]]
        slices = [self._ordered[self._start[code] : self._start[code + 1]] for code in passing.tolist()]
        return np.sort(np.concatenate(slices)) if slices else _NO_ROWS
