"""Raw columns as typed fields: from whatever a file or table holds to the type that an event definition names.

Takes an Arrow column; gives a column of the wanted type and a mark for each cell that is no such value. Vectorised: a
column that is in order costs one cast. What happens to a row with a marked cell is left to `runtime.tables`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_never

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from querylang.expression import Type
from runtime.batch import ARROW_TYPES, NO_TIME
from runtime.times import MICROSECONDS, NUMBER, cast_or_null, is_text, parse_times

_FORMS = {
    pa.bool_(): r"(?i)^(true|false|0|1)$",
    pa.int64(): r"^-?\d{1,19}$",
    pa.float64(): rf"(?i){NUMBER}|^[+-]?(inf|infinity|nan)$",
}
"""How text of each type looks, roughly."""


@dataclass(frozen=True, slots=True)
class Converted:
    """`values` is null where the cell was null or `bad`; `bad` None: every cell is a value of the type."""

    values: pa.Array
    bad: NDArray[np.bool_] | None = None


def convert(column: pa.Array, type_: Type, is_source_time: bool = False) -> Converted:
    """Read a column as values of a type; a field that is a source time may hold any form of time."""
    target = ARROW_TYPES[type_]
    if column.type == target:
        return Converted(column)
    if pa.types.is_null(column.type):
        return Converted(pa.nulls(len(column), target))
    if type_ in (Type.FLOAT, Type.INTEGER) and (is_source_time or is_moment(column.type)):
        return _seconds(column, type_)
    return _cast(_prepared(column, type_), target)


def agrees(kind: pa.DataType, type_: Type, is_source_time: bool = False) -> bool:
    """Whether a column that a schema gives this type can be the field: whole numbers may be kept as floats, seconds as
    times; a source time may be text."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_null(kind):
        return True
    is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    match type_:
        case Type.BOOLEAN:
            return bool(pa.types.is_boolean(kind))
        case Type.STRING:
            return is_text(kind)
        case Type.INTEGER | Type.FLOAT:
            return is_number or is_moment(kind) or (is_source_time and is_text(kind))
    assert_never(type_)


def is_moment(kind: pa.DataType) -> bool:
    """Whether a column of this type holds times."""
    return pa.types.is_timestamp(kind) or pa.types.is_date(kind) or pa.types.is_time(kind)


def _seconds(column: pa.Array, type_: Type) -> Converted:
    if pa.types.is_integer(column.type) or pa.types.is_floating(column.type):
        return _cast(column, ARROW_TYPES[type_])
    moments = parse_times(column)
    missing = moments.micros == NO_TIME
    if type_ is Type.FLOAT:
        seconds = pa.array(np.where(missing, 0, moments.micros) / MICROSECONDS, mask=missing)
        written = _numbers_as_written(column)
        return Converted(pc.coalesce(written, seconds), _some(moments.bad & written.is_null().to_numpy(False)))
    broken = ~missing & (moments.micros % MICROSECONDS != 0)
    whole = pa.array(np.where(missing, 0, moments.micros) // MICROSECONDS, mask=missing | broken)
    return Converted(whole, _some(moments.bad | broken))


def _numbers_as_written(column: pa.Array) -> pa.Array:
    """The numbers in a column of text, to their last digit: a time is rounded to microseconds, a field is not."""
    if not is_text(column.type):
        return pa.nulls(len(column), pa.float64())
    text = pc.utf8_trim_whitespace(column)
    is_number = pc.match_substring_regex(text, NUMBER)
    return cast_or_null(pc.if_else(is_number, text, pa.scalar(None, text.type)), pa.float64())


def _prepared(column: pa.Array, type_: Type) -> pa.Array:
    """Text that a number or boolean is read from may stand between spaces."""
    if type_ is not Type.STRING and is_text(column.type):
        return pc.utf8_trim_whitespace(column)
    return column


def _cast(column: pa.Array, target: pa.DataType) -> Converted:
    try:
        values = cast_or_null(column, target, _FORMS.get(target))
    except (pa.ArrowNotImplementedError, pa.ArrowTypeError):  # a list for a number: no cell is a value
        values = pa.nulls(len(column), target)
    if values.null_count == column.null_count:
        return Converted(values)
    bad = pc.and_(pc.is_valid(column), pc.is_null(values))
    return Converted(values, bad.to_numpy(zero_copy_only=False))


def _some(bad: NDArray[np.bool_]) -> NDArray[np.bool_] | None:
    return bad if bad.any() else None
