"""Shapes: what plain data of JSON has to look like, as types that annotations write.

A shape is `int` (of 64 bits), `str | None`, `tuple[str, ...]`, `dict[str, int]`,
`Annotated[int, range(2**64)]`, `Annotated[str, re.compile(...)]`, a `TypedDict`, or a dataclass,
which is made of the object's fields. A `TypedDict` leaves out fields that it does not have, as
formats of others need it; a dataclass refuses them.
"""

from __future__ import annotations

import dataclasses
import json
import re
import types
from collections import abc
from collections.abc import Callable, Sequence
from enum import Enum
from functools import lru_cache
from typing import Annotated, Any, Literal, NotRequired, Union, get_args, get_origin, get_type_hints, is_typeddict

from querylang.dataclass import dataclass
from querylang.errors import listed

Count = Annotated[int, range(2**63)]
"""A shape: a number of things, not negative."""
Unicode = Annotated[str, re.compile("[^\ud800-\udfff]*", re.DOTALL)]
"""A shape: text that can be written as UTF-8, without halves of surrogate pairs."""
ROW = "row"
"""`Annotated[Point, ROW]`: a dataclass that is written as the list of its fields."""


_INTEGERS = range(-(2**63), 2**63)
_LONGEST_FIELD = 80


class WrongValue(Exception):
    """A value that does not fit; it collects where that is on its way out."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message
        self.steps: list[str | int] = []

    def inside(self, step: str | int) -> WrongValue:
        """The same, of the field or item `step`."""
        self.steps.append(step)
        return self

    def text(self) -> str:
        """The field, and what is wrong with it."""
        path = ""
        for step in reversed(self.steps):
            path += f"[{step}]" if isinstance(step, int) else f".{step}" if path else step
        if len(path) > _LONGEST_FIELD:
            path = path[:_LONGEST_FIELD] + "…"
        if not path:
            return self.message
        return f"'{path}'{' ' if self.message.startswith('is ') else ': '}{self.message}"


Check = Callable[[Any], Any]
"""Gives a value in the form of a shape; raises WrongValue."""


@lru_cache(maxsize=1024)
def check_of(shape: Any) -> Check:
    """How values of a shape are checked."""
    origin, parts = get_origin(shape), get_args(shape)
    if shape in (Any, object):
        return _as_it_is
    if shape is None or shape is type(None):
        return _none
    if isinstance(shape, type) and shape in _SCALARS:
        return _SCALARS[shape]
    if isinstance(shape, type) and issubclass(shape, Enum):
        return _one_of({item.value: item for item in shape})
    if origin is Annotated:
        return _annotated(parts[0], parts[1])
    if origin is Literal:
        return _one_of({item: item for item in parts})
    if origin in (Union, types.UnionType):
        return _any_of(parts)
    if origin is tuple and parts[-1:] != (...,):
        return _row(tuple(check_of(part) for part in parts))
    if origin in _LISTS:
        return _items(check_of(parts[0]), _LISTS[origin])
    if origin in (dict, abc.Mapping):
        return _mapping(parts[0], check_of(parts[1]))
    if is_typeddict(shape):
        return _fields(_typed_dict(shape), is_open=True)
    if dataclasses.is_dataclass(shape):
        return _made(shape)
    raise AssertionError(f"{shape!r} is a shape")


def _as_it_is(value: Any) -> Any:
    return value


def _none(value: Any) -> None:
    if value is not None:
        raise WrongValue(f"expected null, found {shown(value)}")


def _text_of(value: Any) -> str:
    if type(value) is not str:
        raise WrongValue(f"expected text, found {shown(value)}")
    return value


def _truth(value: Any) -> bool:
    if type(value) is not bool:
        raise WrongValue(f"expected true or false, found {shown(value)}")
    return value


def _integer(value: Any) -> int:
    if type(value) is not int:
        raise WrongValue(f"expected an integer, found {shown(value)}")
    if value not in _INTEGERS:
        raise WrongValue("is not an integer of 64 bits")
    return value


def _number(value: Any) -> float:
    if type(value) is not float and type(value) is not int:
        raise WrongValue(f"expected a number, found {shown(value)}")
    try:
        return float(value)
    except OverflowError:
        raise WrongValue("a number is too large") from None


_SCALARS: dict[type, Check] = {str: _text_of, bool: _truth, int: _integer, float: _number}


def _within(values: range) -> Check:
    def check(value: Any) -> int:
        if type(value) is not int:
            raise WrongValue(f"expected an integer, found {shown(value)}")
        if value not in values:
            raise WrongValue(f"expected an integer from {values.start} to {values.stop - 1}")
        return value

    return check


def _annotated(shape: Any, told: Any) -> Check:
    match told:
        case range():
            return _within(told)
        case re.Pattern():
            return _matching(told)
        case _:
            assert told == ROW, told
            return _made(shape, is_row=True)


def _matching(pattern: re.Pattern[str]) -> Check:
    def check(value: Any) -> str:
        if not pattern.fullmatch(_text_of(value)):
            raise WrongValue("is not of the form that it has to have")
        return value

    return check


def _one_of(values: dict[Any, Any]) -> Check:
    def check(value: Any) -> Any:
        if type(value) is not str or value not in values:
            raise WrongValue(f"expected {' or '.join(map(repr, values))}, found {shown(value)}")
        return values[value]

    return check


def _any_of(parts: Sequence[Any]) -> Check:
    checks = [check_of(part) for part in parts if part is not type(None)]
    may_be_null = type(None) in parts

    def check(value: Any) -> Any:
        if value is None and may_be_null:
            return None
        mistakes = []
        for one in checks:
            try:
                return one(value)
            except WrongValue as wrong:
                mistakes.append(wrong)
        # the one that got furthest says most
        raise max(mistakes, key=lambda wrong: len(wrong.steps))

    return check


_LISTS: dict[Any, Callable[[list[Any]], Any]] = {
    tuple: tuple,
    list: list,
    set: set,
    frozenset: frozenset,
    abc.Sequence: tuple,
}


def _items(one: Check, make: Callable[[list[Any]], Any]) -> Check:
    def check(value: Any) -> Any:
        if type(value) is not list:
            raise WrongValue(f"expected a list, found {shown(value)}")
        found: list[Any] = []
        try:
            for item in value:
                found.append(one(item))  # noqa: PERF401 # the length is the place of a mistake
        except WrongValue as wrong:
            raise wrong.inside(len(found)) from None
        return make(found)

    return check


def _row(checks: Sequence[Check]) -> Check:
    def check(value: Any) -> tuple[Any, ...]:
        if type(value) is not list or len(value) != len(checks):
            size = f" of {len(value)}" if type(value) is list else ""
            raise WrongValue(f"expected a list of {len(checks)}, found {shown(value)}{size}")
        found: list[Any] = []
        try:
            for one, item in zip(checks, value, strict=True):
                found.append(one(item))  # as above
        except WrongValue as wrong:
            raise wrong.inside(len(found)) from None
        return tuple(found)

    return check


def _mapping(key_shape: Any, one: Check) -> Check:
    """JSON has only texts as keys: integers are written in decimal digits."""
    assert key_shape in (str, int), key_shape

    def check(value: Any) -> dict[Any, Any]:
        if type(value) is not dict:
            raise WrongValue(f"expected an object, found {shown(value)}")
        found: dict[Any, Any] = {}
        key = ""
        try:
            for key, item in value.items():
                found[key if key_shape is str else _integer_key(key)] = one(item)
        except WrongValue as wrong:
            raise wrong.inside(key) from None
        return found

    return check


def _integer_key(key: str) -> int:
    digits = key.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) < 20 and int(key) in _INTEGERS):
        raise WrongValue("expected an integer of 64 bits as key")
    return int(key)


@dataclass(frozen=True, slots=True)
class _Field:
    check: Check
    is_needed: bool


def _typed_dict(shape: Any) -> dict[str, _Field]:
    found = {}
    for name, hint in get_type_hints(shape, include_extras=True).items():
        may_lack = get_origin(hint) is NotRequired
        inner = get_args(hint)[0] if may_lack else hint
        found[name] = _Field(check_of(inner), shape.__total__ and not may_lack)
    return found


def _made(shape: Any, *, is_row: bool = False) -> Check:
    hints = get_type_hints(shape, include_extras=True)
    fields = {
        item.name: _Field(
            check_of(hints[item.name]),
            item.default is dataclasses.MISSING and item.default_factory is dataclasses.MISSING,
        )
        for item in dataclasses.fields(shape)
        if item.init
    }
    check_fields = _fields(fields, is_open=False)
    names = list(fields)
    least = sum(item.is_needed for item in fields.values())

    def check(value: Any) -> Any:
        if is_row:
            if type(value) is not list or not least <= len(value) <= len(names):
                raise WrongValue(f"expected a list of {listed(names)}, found {shown(value)}")
            value = dict(zip(names, value, strict=False))
        found = check_fields(value)
        try:
            return shape(**found)
        except ValueError as error:
            raise WrongValue(str(error)) from error

    return check


def _fields(fields: dict[str, _Field], *, is_open: bool) -> Check:
    needed = [name for name, item in fields.items() if item.is_needed]

    def check(value: Any) -> dict[str, Any]:
        if type(value) is not dict:
            raise WrongValue(f"expected an object, found {shown(value)}")
        found: dict[str, Any] = {}
        name = ""
        try:
            for name, item in value.items():
                if name in fields:
                    found[name] = fields[name].check(item)
                elif not is_open:
                    unknown(item)
        except WrongValue as wrong:
            raise wrong.inside(name) from None
        for name in needed:
            if name not in found:
                raise WrongValue("is missing").inside(name)
        return found

    def unknown(_: Any) -> None:
        raise WrongValue(f"is not known; expected {listed(list(fields), 'or')}")

    return check


def shown(value: object) -> str:
    """What a value is; texts are not shown, since they may be secret."""
    match value:
        case None | bool():
            return json.dumps(value)
        case int() | float():
            return repr(value) if not isinstance(value, int) or abs(value) < 10**20 else "a large integer"
        case str():
            return "text"
        case list():
            return "a list"
        case _:
            return "an object"
