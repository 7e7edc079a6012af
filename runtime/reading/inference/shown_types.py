"""The type of a field that several tables show."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from querylang.errors import InputError
from querylang.plan.expression import Type


class Shown(NamedTuple):
    """What one table shows of a field.

    table: its name
    is_by_value: the type comes from the values, not from a schema: text can be read in its place
    has_values: some cell has a value; otherwise the type says nothing
    mostly: as of `TextType`
    """

    type: Type
    table: str
    is_by_value: bool
    has_values: bool
    mostly: Type | None = None


def joined_type(event: str, field: str, shown: Sequence[Shown]) -> tuple[Type, str | None]:
    """The type that holds what all tables show, and the remark about it, if any.

    An integer here and a float there is a float. Text in one file is text in all of them, as it
    would be in one file. Raises InputError for any other difference.
    """
    first, *others = [item for item in shown if item.has_values] or shown[:1]
    type_, told = first.type, None
    can_be_text = first.is_by_value and first.type.is_scalar
    for item in others:
        if item.type == type_:
            pass
        elif {item.type, type_} == {Type.INTEGER, Type.FLOAT}:
            type_ = Type.FLOAT
        elif item.type == Type.STRING and can_be_text:
            told = f"{item.table}: {field} is text here and {type_} before; it is read as text everywhere"
            type_ = Type.STRING
        elif not (type_ == Type.STRING and item.is_by_value and item.type.is_scalar):
            raise InputError(f"{item.table}: field {field!r} of {event!r} is {item.type} here and {type_} before")
        elif told is None:
            told = f"{item.table}: {field} is {item.type} here and text before; it is read as text everywhere"
        can_be_text = can_be_text and item.is_by_value
    return type_, told


def mostly_number(shown: Sequence[Shown]) -> Type | None:
    """The type of numbers that most cells are in all tables; None = they are not, or all are."""
    types = {item.mostly or item.type for item in shown if item.has_values}
    if not any(item.mostly for item in shown) or not types <= {Type.INTEGER, Type.FLOAT}:
        return None
    return Type.INTEGER if types == {Type.INTEGER} else Type.FLOAT
