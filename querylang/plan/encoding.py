"""Encode frozen data classes as plain data for JSON, and decode it.

An object becomes a dictionary with the class's name under `is`. Tuples become lists; floats that
JSON cannot express, decimals and types become text. Only the listed classes are ever constructed.

Fields that a later version added are left out where they have their defaults. So data that does not
use them is the same as before, and data of earlier versions can be read. Fields that are
`HERE_ONLY` are always left out.

Data may come from a damaged file, so each field that is decoded has to be of a type that its
annotation names.
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Iterable, Mapping
from decimal import Decimal
from enum import StrEnum
from functools import lru_cache
from typing import Any, Union, get_args, get_origin, get_type_hints

from querylang.dataclass import dataclass
from querylang.plan.expression import Type

HERE_ONLY = "here only"
"""In the metadata of a field: it is of this process, and is never encoded."""


class WrongPart(ValueError):
    """A part that is not what its place needs; it collects where that is on its way out."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message
        self.steps: list[str | int] = []

    def __str__(self) -> str:
        path = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in reversed(self.steps))
        return f"'{path.removeprefix('.')}': {self.message}" if path else self.message

    def inside(self, step: str | int) -> WrongPart:
        """The same, of the field or item `step`."""
        self.steps.append(step)
        return self


class Codec:
    """Encodes and decodes nested instances of `classes`, and of nothing else.

    added: by class the fields that may be left out, each with its default
    """

    def __init__(self, classes: Iterable[type], added: Mapping[type, Mapping[str, Any]]) -> None:
        self._fields: dict[type, tuple[str, ...]] = {
            kind: tuple(item.name for item in dataclasses.fields(kind) if HERE_ONLY not in item.metadata)
            for kind in classes
        }
        self._added = added
        self._kinds = {kind.__name__: kind for kind in self._fields}
        self._shapes: dict[tuple[str, ...], type] = {}
        self._checks: dict[type, dict[str, _Check]] = {}

    def encode(self, value: Any) -> Any:
        """Plain data."""
        kind = type(value)
        if kind in _PLAIN:
            return value
        if kind is tuple:
            return [self.encode(item) for item in value]
        fields = self._fields.get(kind)
        if fields is None:
            return [self.encode(item) for item in value] if isinstance(value, tuple) else _encoded(value)
        added = self._added.get(kind, {})
        written = (name for name in fields if name not in added or getattr(value, name) != added[name])
        return {"is": kind.__name__, **{name: self.encode(getattr(value, name)) for name in written}}

    def decode(self, data: Any) -> Any:
        """The inverse of `encode`; raises WrongPart for data that this version does not know."""
        kind = type(data)
        if kind in _PLAIN:
            return data
        if kind is list:
            return tuple(self._items(data))
        if kind is not dict:
            raise WrongPart(f"{_shown(data)} is not a part of this format")
        name = data.get("is")
        if type(name) is not str:
            raise WrongPart("an object does not say what it 'is'")
        return self._made(name, data) if name not in _WORDS else _word(name, data)

    def _items(self, data: list[Any]) -> list[Any]:
        found: list[Any] = []
        try:
            for item in data:
                found.append(self.decode(item))  # noqa: PERF401 # their number tells which one is wrong
        except WrongPart as wrong:
            raise wrong.inside(len(found)) from None
        return found

    def _made(self, name: str, data: dict[str, Any]) -> Any:
        shape = (name, *data)
        kind = self._shapes.get(shape)
        if kind is None:
            kind = self._kind(name, data.keys() - {"is"})
            self._shapes[shape] = kind
        values, checks = {}, self._checks[kind]
        for field, value in data.items():
            if field == "is":
                continue
            try:
                values[field] = decoded = self.decode(value)
            except WrongPart as wrong:
                raise wrong.inside(field) from None
            check = checks[field]
            if type(decoded) not in check.kinds or (check.items is not None and not check.fits(decoded)):
                raise check.wrong(decoded).inside(field)
        try:
            return kind(**values)
        except ValueError as error:  # of an enum
            raise WrongPart(str(error)) from None

    def _kind(self, name: str, fields: set[str]) -> type:
        """The class that has a name and these fields."""
        kind = self._kinds.get(name)
        if kind is None:
            raise WrongPart(f"{_shown(name)} is not a part that this version knows")
        known = self._fields[kind]
        odd = [field for field in fields if field not in known]
        missing = [field for field in known if field not in fields and field not in self._added.get(kind, {})]
        if odd or missing:
            what = f"has no field {_shown(min(odd))}" if odd else f"needs a field {_shown(missing[0])}"
            raise WrongPart(f"a '{name}' {what}")
        if kind not in self._checks:
            self._checks[kind] = {field: _check_of(hint) for field, hint in get_type_hints(kind).items()}
        return kind


@dataclass(frozen=True, slots=True)
class _Check:
    """What a field may hold.

    kinds: the classes of its values
    items: of a tuple: one check for all of its items, or one for each; None = it is not one
    expected: for people
    """

    kinds: frozenset[type]
    items: _Check | tuple[_Check, ...] | None
    expected: str

    def fits(self, value: Any) -> bool:
        """Whether a value may be here."""
        if type(value) not in self.kinds:
            return False
        if type(value) is not tuple or self.items is None:
            return True
        if isinstance(self.items, _Check):
            item = self.items
            if item.items is None:
                return all(type(part) in item.kinds for part in value)
            return all(map(item.fits, value))
        return len(value) == len(self.items) and all(map(_Check.fits, self.items, value))

    def wrong(self, value: Any) -> WrongPart:
        """What is wrong with a value that does not fit."""
        if type(value) is tuple and tuple in self.kinds and self.items is not None:
            checks = self.items if isinstance(self.items, tuple) else (self.items,) * len(value)
            if len(checks) != len(value):
                return WrongPart(f"expected {len(checks)} items, found {len(value)}")
            number = next(at for at, part in enumerate(value) if not checks[at].fits(part))
            return checks[number].wrong(value[number]).inside(number)
        return WrongPart(f"expected {self.expected}, found {_shown(value)}")


@lru_cache(maxsize=256)
def _check_of(hint: Any) -> _Check:
    """The check of an annotation."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        checks = [_check_of(part) for part in parts]
        items = next((check.items for check in checks if check.items is not None), None)
        return _Check(frozenset().union(*(check.kinds for check in checks)), items, _listed(parts))
    if origin is tuple:
        own = _check_of(parts[0]) if parts[-1:] == (...,) else tuple(map(_check_of, parts))
        return _Check(frozenset({tuple}), own, _listed((hint,)))
    kind = str if issubclass(hint, StrEnum) else hint
    return _Check(frozenset({kind}), None, _listed((hint,)))


_LONGEST_LIST = 6
"""Classes of a union that are named; an expression has more."""


def _listed(hints: tuple[Any, ...]) -> str:
    """What is expected, for people."""
    names = dict.fromkeys("a list" if get_origin(hint) is tuple else _NAMES.get(hint, hint.__name__) for hint in hints)
    if len(names) > _LONGEST_LIST:
        nothing = " or null" if "null" in names else ""
        return f"a part such as {' or '.join(list(names)[:2])}{nothing}"
    return " or ".join(names)


_NAMES = {type(None): "null", bool: "true or false", int: "an integer", float: "a number", str: "text"}


def _shown(value: Any) -> str:
    match value:
        case None | bool() | int() | float() | str():
            text = "null" if value is None else str(value).lower() if isinstance(value, bool) else repr(value)
            return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…"
        case tuple() | list():
            return "a list"
    return f"a {type(value).__name__}"


_LONGEST_SHOWN = 60
"""Characters."""


_PLAIN = frozenset({type(None), bool, int, str})
"""The types of values that JSON holds as they are."""


def _encoded(value: Any) -> Any:
    match value:
        case StrEnum():
            return value.value
        case int() | str():
            return value
        case float():
            return {"is": "float", "value": repr(value)}
        case Decimal():
            return {"is": "decimal", "value": str(value)}
        case Type():
            return {"is": "type", "value": str(value)}
    raise KeyError(type(value))


_WORDS = frozenset({"float", "decimal", "type"})
"""What an object is that stands for a value, and not for a part."""


def _word(name: str, data: Mapping[str, Any]) -> Any:
    text = data.get("value")
    if type(text) is not str or len(data) != 2:
        raise WrongPart(f"a '{name}' needs a text as its 'value', and nothing else")
    return _decoded(name, text)


@lru_cache(maxsize=4096)  # the few types of many expressions
def _decoded(name: str, text: str) -> Any:
    try:
        match name:
            case "float":
                return float(text)
            case "decimal":
                return Decimal(text)
        return Type.parse(text)
    except (ArithmeticError, ValueError):
        raise WrongPart(f"{_shown(text)} is not a '{name}'") from None
