"""Vectorised evaluation of expressions over one event: a column of values for a table of events.

Operators and methods that numpy or Arrow compute with exactly the interpreter's results run on
whole columns. All other nodes are evaluated by `runtime.interpreter.expressions`, row by row. A
differential test compares this evaluator with the interpreter and with the compiled one
(`runtime.matching.kernel.program`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from querylang.dataclass import dataclass, replace
from querylang.plan.expression import (
    Binary,
    Call,
    EventOf,
    Expression,
    FieldOf,
    IndexOf,
    Invoke,
    KeyOf,
    Kind,
    Literal,
    Lookup,
    MemberOf,
    Type,
    Unary,
    children,
    rewritten,
    type_of,
    walk,
)
from querylang.plan.lookups import failed_name, stored_lookups, stored_name
from querylang.plan.model import EventType, Field, Plan, QueryPlan
from runtime import interpreter
from runtime.column_types import Integers, arrow_type, has_column, made_once, one_chunk
from runtime.columns.arrivals import column_name, column_values, row_events, to_cell
from runtime.columns.methods import Mask, both_valid, native_call, seconds_of
from runtime.columns.rows import is_any_of
from runtime.compiling.compiled import kernel
from runtime.exact_times import MICROSECONDS, with_exact_sum
from runtime.instants import NO_TIME


@dataclass(frozen=True, slots=True)
class Column:
    """One value per row.

    values: a numpy array; for strings an Arrow array, for other types that numpy lacks a list
    valid: the rows that have a value; None = all
    failed: of the others, those on which the evaluation has failed; None = no row. The rest is null
    """

    values: Any
    valid: Mask | None = None
    failed: Mask | None = None


@dataclass(frozen=True, slots=True)
class EventRows:
    """A table of events of one type, perhaps among rows of other types.

    table: fields in columns named by `column_name`; perhaps `_time`, for `getTime()`, µs
    event: the event type
    world: event types and actions by name
    key_types: the types of the query's keys
    """

    table: pa.Table
    event: EventType
    world: interpreter.World
    key_types: tuple[Type, ...] = ()

    @property
    def keys(self) -> tuple[Type, ...]:
        """The types of the query's keys, if the table has them as `key_field` columns."""
        names = (column_name(key_field(index), type_) for index, type_ in enumerate(self.key_types))
        return self.key_types if all(has_column(self.table, name) for name in names) else ()

    def __len__(self) -> int:
        return int(self.table.num_rows)

    @property
    def times(self) -> Integers | None:
        """The events' times by row, µs; None = not known yet."""
        return self.table.column("_time").to_numpy() if has_column(self.table, "_time") else None


def key_field(index: int) -> str:
    """The name of a key's column; no field can have it, because it contains a space."""
    return f"key {index}"


def with_keys(table: pa.Table, query: QueryPlan, keys: Sequence[pa.Array]) -> pa.Table:
    """Add the keys of the rows to a table, for expressions that refer to them."""
    for index, (key, column) in enumerate(zip(query.keys, keys, strict=True)):
        table = table.append_column(column_name(key_field(index), key.type), column)
    return table


def as_array(
    expression: Expression, table: pa.Table, plan: Plan, event: EventType, query: QueryPlan | None = None
) -> pa.Array:
    """The value of an expression on every row, as an Arrow array of its type; null = no value.

    query: its actions, and its keys if the table has them (`with_keys`), may be in the expression
    """
    type_ = interpreter.value_type(expression)
    if isinstance(expression, FieldOf) and type_ in _ARROW:
        cells = _cells(table, expression.field, type_)
        if cells.type == _ARROW[type_]:
            return cells
    column = evaluate(expression, table, plan, event, query)
    if type_ == Type.STRING:
        return column.values if column.valid is None else pc.if_else(pa.array(column.valid), column.values, None)
    mask = None if column.valid is None else ~column.valid
    if isinstance(column.values, list):
        cells = [to_cell(value) for value in column.values]
        known = (
            cells
            if mask is None
            else [None if is_missing else cell for cell, is_missing in zip(cells, mask, strict=True)]
        )
        return pa.array(known, arrow_type(type_, plan))
    return pa.array(column.values, mask=mask)


def evaluate(
    expression: Expression, table: pa.Table, plan: Plan, event: EventType, query: QueryPlan | None = None
) -> Column:
    """The value of an expression on every row; see `as_array` and `EventRows`."""
    keys = () if query is None else tuple(key.type for key in query.keys)
    return _value(expression, EventRows(table, event, interpreter.PlanWorld(plan, query), keys))


_ARRAYS = (Type.BOOLEAN, Type.INTEGER, Type.FLOAT)


def _value(expression: Expression, rows: EventRows) -> Column:
    match expression:
        case Literal(type=type_, value=value):
            return _constant(type_, value, len(rows))
        case FieldOf(type=type_, field=field):
            return _field(rows, field, type_)
        case MemberOf(type=type_) if type_.is_scalar and (column := _member(expression, rows)) is not None:
            return _of_scalars(column, type_, rows)
        case KeyOf(type=type_, index=index):
            return _field(rows, key_field(index), rows.keys[index] if rows.keys else type_)
        case EventOf():
            return Column(row_events(rows.event, rows.table, rows.world, _times(rows)))
        case Unary(operator="is null", operand=operand):
            return _nulls(operand, rows)
        case Unary(operator=operator, operand=operand) if operand.type in _ARRAYS:
            inner = _value(operand, rows)
            with np.errstate(over="ignore"):
                return replace(inner, values=~inner.values if operator == "not" else -inner.values)
        case Binary() if (exact := with_exact_sum(expression)) is not None:
            return _value(exact, rows)
        case Binary(type=Type.BOOLEAN, operator="and" | "or"):
            return _logical(expression, rows)
        case Binary(operator=operator, left=left, right=right) if left.type in _ARRAYS:
            return _operation(operator, interpreter.value_type(left), _value(left, rows), _value(right, rows))
        case Binary(operator=operator, left=left, right=right) if left.type == Type.STRING:
            one, two = _value(left, rows), _value(right, rows)
            return _joined(_strings(operator, one.values, two.values), [one, two])
        case Lookup():
            return _lookup(expression, rows)
        case Call(method="getTime" | "microseconds" as method, receiver=EventOf()) if (times := rows.times) is not None:
            return _joined(times if method == MICROSECONDS else seconds_of(times), (), times != NO_TIME)
        case Call() | IndexOf() if (known := interpreter.constant_receiver(expression)) is not None:
            return _of_constant(expression, known, [_value(part, rows) for part in children(expression)[1:]], rows)
        case Call():
            return _call(expression, rows)
        case _:
            return _each(expression, [_value(part, rows) for part in children(expression)], rows)


def _joined(values: Any, parts: Sequence[Column], computed: Mask | None = None) -> Column:
    """What was made of parts: it has failed where one has, and else is null where one is.

    computed: the rows on which it does not fail, if the parts have values; None = all
    """
    valid = failed = None
    for part in parts:
        valid, failed = both_valid(valid, part.valid), _either(failed, part.failed)
    if computed is not None and not computed.all():
        wrong = ~computed if valid is None else valid & ~computed
        if wrong.any():
            valid, failed = both_valid(valid, computed), _either(failed, wrong)
    return Column(values, valid, failed)


def _either(left: Mask | None, right: Mask | None) -> Mask | None:
    """The rows that one of the masks has; None = no row."""
    if left is None or right is None:
        return right if left is None else left
    return left | right


def _constant(type_: Type, value: Any, length: int) -> Column:
    if type_ == Type.STRING:
        return Column(pa.repeat(pa.scalar(value, pa.string()), length))
    if type_ in _ARRAYS:
        return Column(np.full(length, value, _DTYPES[type_]))
    return Column([value] * length)


_DTYPES: dict[Type, type] = {Type.BOOLEAN: np.bool_, Type.INTEGER: np.int64, Type.FLOAT: np.float64}
_MOST_APART = 64
"""Numbers of a constant sequence have a table up to so many times their number."""

_ARROW = {Type.BOOLEAN: pa.bool_(), Type.INTEGER: pa.int64(), Type.FLOAT: pa.float64(), Type.STRING: pa.string()}


def _field(rows: EventRows, field: str, type_: Type) -> Column:
    if not type_.is_scalar:
        values = column_values(rows.table, field, type_, rows.world)
        present = np.fromiter((value is not None for value in values), np.bool_, len(values))
        return _read(values, None if type_.kind is Kind.OPTIONAL or present.all() else present, rows)
    return _of_scalars(_cells(rows.table, field, type_), type_, rows)


def _cells(table: pa.Table, field: str, type_: Type) -> pa.Array:
    """The column of a field of a scalar type; nulls if the table does not have it."""
    place = table.schema.get_field_index(column_name(field, type_))
    return one_chunk(table.column(place)) if place >= 0 else pa.nulls(len(table), _ARROW[type_])


def _of_scalars(column: pa.Array, type_: Type, rows: EventRows) -> Column:
    valid = column.is_valid().to_numpy(zero_copy_only=False) if column.null_count else None
    if type_ == Type.STRING:
        return _read(column, valid, rows)
    if valid is not None:
        column = column.fill_null(False if type_ == Type.BOOLEAN else 0)
    return _read(column.to_numpy(zero_copy_only=False), valid, rows)


def _member(expression: MemberOf, rows: EventRows) -> pa.Array | None:
    """A member of a field that is an event, or of an event in it; None = it is something else."""
    names: list[str] = []
    node: Expression = expression
    while isinstance(node, MemberOf) and type_of(node.receiver).kind is Kind.EVENT:
        names.append(node.field)
        node = node.receiver
    name = column_name(node.field, node.type) if isinstance(node, FieldOf) else ""
    if not has_column(rows.table, name):
        return None
    column = one_chunk(rows.table.column(name))
    for member in reversed(names):
        place = column.type.get_field_index(member) if pa.types.is_struct(column.type) else -1
        if place < 0:
            return None
        column = column.flatten()[place]
    return column


def _read(values: Any, valid: Mask | None, rows: EventRows) -> Column:
    """What was read; in a plan of an earlier version a null is a failure."""
    return Column(values, valid, ~valid if valid is not None and rows.world.nulls_fail else None)


def _nulls(operand: Expression, rows: EventRows) -> Column:
    """The rows on which an expression is null, or an optional without a value."""
    if isinstance(operand, FieldOf) and operand.type.kind is Kind.OPTIONAL:
        name = column_name(operand.field, operand.type)
        if has_column(rows.table, name):
            return Column(one_chunk(rows.table.column(name)).is_null().to_numpy(zero_copy_only=False))
    inner = _value(operand, rows)
    if interpreter.value_type(operand).kind is Kind.OPTIONAL:
        null = np.fromiter((value is None for value in inner.values), np.bool_, len(rows))
    else:
        null = np.zeros(len(rows), np.bool_) if inner.valid is None else ~inner.valid
    return Column(null, None if inner.failed is None else ~inner.failed, inner.failed)


def _lookup(node: Lookup, rows: EventRows) -> Column:
    """What a table says of a key when the row's event has arrived, or what was stored of that."""
    name = stored_name(node)
    if name is not None and has_column(rows.table, column_name(name, node.type)):
        column = one_chunk(rows.table.column(column_name(name, node.type)))
        failed = one_chunk(rows.table.column(failed_name(name))).to_numpy(zero_copy_only=False)
        found = _of_scalars(column, node.type, rows)
        return replace(found, failed=failed) if failed.any() else found
    keys = [_value(key, rows) for key in node.keys]
    known, count = _joined(None, keys), len(rows)
    has_keys = np.ones(count, np.bool_) if known.valid is None else known.valid
    content = rows.world.table(node.table)
    places = content.rows_of(list(map(_probe, keys)), rows.table.column("_arrival").to_numpy())
    is_there = has_keys & (places >= 0)
    if not node.field:
        return Column(is_there, known.valid, known.failed)
    column = content.column(node.field).take(pa.array(places, mask=~is_there))
    if node.has_default and not is_there.all():
        default = pa.scalar(interpreter.default_value(node.type, rows.world), column.type)
        column = pc.if_else(pa.array(is_there), column, default)
    found = _of_scalars(column, node.type, rows)
    failed = known.failed if node.has_default else _either(known.failed, has_keys & ~is_there)
    valid = both_valid(known.valid, found.valid)
    return Column(found.values, valid, None if failed is None or not failed.any() else failed)


def _probe(key: Column) -> pa.Array:
    """The values of a key, null where there is none."""
    if isinstance(key.values, pa.Array) and key.valid is not None:
        return pc.if_else(pa.array(key.valid), key.values, pa.scalar(None, key.values.type))
    return (
        key.values
        if isinstance(key.values, pa.Array)
        else pa.array(key.values, mask=None if key.valid is None else ~key.valid)
    )


def _times(rows: EventRows) -> Sequence[int | None]:
    times = rows.times
    if times is None:
        return [None] * len(rows)
    return [None if time == NO_TIME else time for time in times.tolist()]


def _logical(expression: Binary, rows: EventRows) -> Column:
    """`and` and `or`: one side that decides is enough, but for a left side that has failed."""
    left, right, is_and = _value(expression.left, rows), _value(expression.right, rows), expression.operator == "and"
    if left.valid is None and right.valid is None:
        return Column(left.values & right.values if is_and else left.values | right.values)
    by_left, by_right = _deciding(left, is_and=is_and), _deciding(right, is_and=is_and)
    decided = by_left | by_right
    both = both_valid(left.valid, right.valid)
    valid = decided if both is None else decided | both
    failed = _either(left.failed, None if right.failed is None else right.failed & ~by_left)
    if failed is not None:
        valid &= ~failed
    return Column(~decided if is_and else decided, None if valid.all() else valid, failed)


def _deciding(side: Column, *, is_and: bool) -> Mask:
    """The rows on which one side of an `and` or `or` decides."""
    decides: Mask = ~side.values if is_and else side.values
    return decides if side.valid is None else decides & side.valid


def _operation(operator: str, type_: Type, left: Column, right: Column) -> Column:
    divides = type_ == Type.INTEGER and operator in ("/", "%")
    values = _arithmetic(operator, type_, left.values, right.values)
    return _joined(values, (left, right), right.values != 0 if divides else None)


def _arithmetic(operator: str, type_: Type, a: Any, b: Any) -> Any:
    with np.errstate(all="ignore"):
        match operator:
            case "+":
                return a + b
            case "-":
                return a - b
            case "*":
                return a * b
            case "/":
                return _divide(a, b) if type_ == Type.INTEGER else a / b
            case "%":
                return _remainder(a, b) if type_ == Type.INTEGER else np.fmod(a, b)
            case "=":
                return a == b
            case "!=":
                return a != b
            case "<":
                return a < b
            case "<=":
                return a <= b
            case ">":
                return a > b
            case ">=":
                return a >= b
            case "and":
                return a & b
            case "or":
                return a | b
            case "xor":
                return a ^ b
    raise AssertionError(f"operator {operator!r} on {type_}")


_STRING_COMPARISONS = {
    "=": pc.equal,
    "!=": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}


def _strings(operator: str, left: pa.Array, right: pa.Array) -> Any:
    if operator == "+":
        return pc.binary_join_element_wise(left, right, "")
    answer = _STRING_COMPARISONS[operator](left, right)
    return answer.fill_null(False).to_numpy(zero_copy_only=False)


def _call(call: Call, rows: EventRows) -> Column:
    """A method by numpy or Arrow if they can compute it, else row by row."""
    parts = [_value(part, rows) for part in children(call)]
    found = native_call(call, [part.values for part in parts])
    if found is None:
        return _each(call, parts, rows)
    values, fits = found
    return _joined(values, parts, fits)


def _of_constant(
    node: Call | IndexOf, known: interpreter.Constant, arguments: Sequence[Column], rows: EventRows
) -> Column:
    """What a node reads in a container that is the same for all rows."""
    if isinstance(node, Call) and node.method in ("contains", "indexOf"):
        type_, wanted = interpreter.value_type(node.arguments[0]), arguments[0].values
        if node.method == "contains" and type_ in _ARROW:
            return _joined(_are_in(known, type_, wanted), arguments)
        places = _places(known, type_, wanted)
        return _joined(places if node.method == "indexOf" else places >= 0, arguments)
    return _each(node, [Column([known.value] * len(rows)), *arguments], rows)


def _places(known: interpreter.Constant, type_: Type, wanted: Any) -> Integers:
    """Where values are in a constant sequence; -1 = nowhere."""
    if type_ not in _ARROW:
        return np.fromiter(map(known.place_of, wanted), np.int64, len(wanted))
    places = np.fromiter(known.places.values(), np.int64, len(known.places))
    found = pc.index_in(_plain(type_, wanted), _elements(known, type_))
    return np.append(places, -1)[found.fill_null(len(places)).to_numpy()]


def _are_in(known: interpreter.Constant, type_: Type, wanted: Any) -> Mask:
    """Whether values are in a constant sequence."""
    numbers = _numbers(known) if type_ == Type.INTEGER and isinstance(wanted, np.ndarray) else None
    if numbers is not None:
        least, is_one = numbers
        # Differences are modulo 2^64: those of numbers outside are larger than any inside.
        return is_one[np.minimum((wanted - least).view(np.uint64), len(is_one) - 1).view(np.int64)]
    found: Mask = pc.is_in(_plain(type_, wanted), _elements(known, type_)).to_numpy(zero_copy_only=False)
    return found


@lru_cache(1_000)
def _numbers(known: interpreter.Constant) -> tuple[int, Mask] | None:
    """The least number of a constant sequence; and from there on which numbers are in it, behind
    the largest one that it is not. None = they are too far apart."""
    numbers = np.array([known.value[place] for place in known.places.values()], np.int64)
    least, largest = int(numbers.min()), int(numbers.max())
    if largest - least > _MOST_APART * len(numbers):
        return None
    is_one = np.zeros(largest - least + 2, np.bool_)
    is_one[numbers - least] = True
    return least, is_one


@lru_cache(1_000)
def _elements(known: interpreter.Constant, type_: Type) -> pa.Array:
    """The elements of a constant sequence, in the order of their places."""
    return _plain(type_, pa.array([known.value[place] for place in known.places.values()], _ARROW[type_]))


def _plain(type_: Type, values: Any) -> pa.Array:
    """Values as Arrow compares them: its zeros of both signs differ."""
    if type_ == Type.FLOAT:
        values = (values.to_numpy() if isinstance(values, pa.Array) else values) + 0.0
    return values if isinstance(values, pa.Array) else pa.array(values)


def _each(node: Expression, parts: Sequence[Column], rows: EventRows) -> Column:
    """A node evaluated by the interpreter row by row, from the columns of its children."""
    count = len(rows)
    inner = _joined(None, parts)
    failed = np.zeros(count, np.bool_) if inner.failed is None else inner.failed.copy()
    good = np.ones(count, np.bool_) if inner.valid is None else inner.valid.copy()
    lists = [_as_list(part.values) for part in parts]
    if interpreter.takes_nulls(node):
        good = ~failed
        lists = [_with_nulls(part, values) for part, values in zip(parts, lists, strict=True)]
    values: list[interpreter.Value] = [None] * count
    context = interpreter.Context(world=rows.world, invoke=interpreter.run_action)
    is_call = isinstance(node, Invoke)
    keys = [
        _as_list(_field(rows, key_field(index), type_).values)
        for index, type_ in enumerate(rows.keys if is_call else ())
    ]
    for row in np.flatnonzero(good).tolist():
        context.budget = interpreter.Budget()
        if is_call:
            context.keys = [key[row] for key in keys]
        try:
            values[row] = interpreter.combine(node, [part[row] for part in lists], context)
        except interpreter.EvaluationError:
            failed[row] = True
    type_ = interpreter.value_type(node)
    good &= ~failed
    if type_.kind is not Kind.OPTIONAL:
        good &= np.fromiter((value is not None for value in values), np.bool_, count)
    return Column(_as_values(values, type_, good), None if good.all() else good, failed if failed.any() else None)


def _with_nulls(part: Column, values: list[Any]) -> list[Any]:
    """The values of a part, None where it is null."""
    if part.valid is None:
        return values
    return [value if has_one else None for value, has_one in zip(values, part.valid.tolist(), strict=True)]


def _as_list(values: Any) -> list[Any]:
    if isinstance(values, list):
        return values
    plain: list[Any] = values.to_pylist() if isinstance(values, pa.Array) else values.tolist()
    return plain


def _as_values(values: list[interpreter.Value], type_: Type, good: Mask) -> Any:
    """The interpreter's values as `Column.values`; rows without a value hold an arbitrary one."""
    if type_ == Type.STRING:
        return pa.array(values, pa.string())
    if type_ not in _ARRAYS:
        return values
    filled = values if good.all() else [value if has_one else 0 for value, has_one in zip(values, good, strict=True)]
    return np.array(filled, _DTYPES[type_])


@kernel
def divide(a: int, b: int) -> int:
    """Integer division, truncated toward zero and wrapped; `b` is not 0."""
    if b == -1:
        return -a
    quotient = a // b
    if quotient < 0 and quotient * b != a:
        quotient += 1
    return quotient


@kernel
def remainder(a: int, b: int) -> int:
    """The remainder of `divide`, with the sign of `a`; `b` is not 0."""
    if b == -1:
        return 0
    return a - divide(a, b) * b


@kernel
def _divide(a: Integers, b: Integers) -> Integers:
    result = np.zeros(len(a), np.int64)
    for row in range(len(a)):
        if b[row] != 0:
            result[row] = divide(a[row], b[row])
    return result


@kernel
def _remainder(a: Integers, b: Integers) -> Integers:
    result = np.zeros(len(a), np.int64)
    for row in range(len(a)):
        if b[row] != 0:
            result[row] = remainder(a[row], b[row])
    return result


# Lookups that are stored with events, as columns of their own. A lookup that has failed is null,
# and another column says that it has.


_stored_lookups = made_once(stored_lookups)


def lookup_fields(plan: Plan, query: QueryPlan) -> list[pa.Field]:
    """The columns of what is stored with the events of a query."""
    fields = []
    for item in _stored_lookups(query, plan.events):
        fields.append(pa.field(column_name(item.name, item.lookup.type), _ARROW[item.lookup.type]))
        fields.append(pa.field(failed_name(item.name), pa.bool_()))
    return fields


def with_lookups(table: pa.Table, plan: Plan, query: QueryPlan, keys: Sequence[pa.Array]) -> pa.Table:
    """The table with the columns of what is looked up when its records are admitted.

    keys: the values of the query's keys, by row
    """
    stored = _stored_lookups(query, plan.events)
    if not stored:
        return table
    names = [field.name for field in lookup_fields(plan, query)]
    bare = table.drop_columns([name for name in names if has_column(table, name)])
    read = with_keys(bare, query, keys) if any(_mentions_keys(item.lookup) for item in stored) else bare
    kinds, numbers = bare.column("_kind").to_numpy(), interpreter.event_numbers(plan)
    for item in stored:
        column = evaluate(item.lookup, read, plan, plan.event(item.events[0]), query)
        is_own = is_any_of(kinds, [numbers[event] for event in item.events])
        failed = np.zeros(len(bare), np.bool_) if column.failed is None else column.failed & is_own
        valid = is_own if column.valid is None else is_own & column.valid
        values = column.values if isinstance(column.values, pa.Array) else pa.array(column.values)
        if not valid.all():
            values = pc.if_else(pa.array(valid), values, pa.scalar(None, values.type))
        bare = bare.append_column(column_name(item.name, item.lookup.type), values)
        bare = bare.append_column(failed_name(item.name), pa.array(failed))
    return bare.select([*(name for name in table.column_names if name not in names), *names])


def _mentions_keys(node: Expression) -> bool:
    return any(isinstance(part, KeyOf | Invoke) for part in walk(node))


def over_columns(
    expression: Expression,
    known: Mapping[Expression, pa.Array],
    plan: Plan,
    query: QueryPlan,
    keys: Sequence[pa.Array],
    count: int,
    arrivals: Integers | None = None,
) -> pa.Array:
    """The value of an expression on every row; null = no value.

    known: by part of the expression its value on every row
    keys: the values of the query's keys on every row
    count: how many rows
    arrivals: by row, when it is looked up in tables, µs; None = nothing is
    """
    # The parts become fields of one artificial event, so that they are columns of a table.
    names = {node: f"part{number}" for number, node in enumerate(known)}

    def as_field(node: Expression) -> Expression:
        return FieldOf(type_of(node), 0, names[node]) if node in names else node

    event = EventType("", tuple(Field(name, type_of(node)) for node, name in names.items()))
    columns = {column_name(name, type_of(node)): known[node] for node, name in names.items()}
    moments = {} if arrivals is None else {"_arrival": pa.array(arrivals)}
    table = with_keys(pa.table({**columns, "_row": pa.array(np.arange(count)), **moments}), query, list(keys))
    return as_array(rewritten(expression, as_field), table, plan, event, query)
