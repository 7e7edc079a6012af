"""`dataclass` as the standard library's, with methods that are compiled when first called.

The standard library compiles six functions for each class while its module is imported. That took
half of the time of `ensue check`, and a command makes or compares few of those classes. Fields,
slots, `replace` and what type checkers see are the standard library's.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import MISSING, FrozenInstanceError, asdict, astuple, field, fields, is_dataclass, replace
from functools import partial
from reprlib import recursive_repr
from types import MemberDescriptorType
from typing import TYPE_CHECKING, Any

__all__ = ["asdict", "astuple", "dataclass", "field", "fields", "is_dataclass", "replace"]

_Class = type[Any]

if TYPE_CHECKING:
    from dataclasses import dataclass
else:

    def dataclass(cls: _Class | None = None, /, **settings: bool) -> Any:
        """As `dataclasses.dataclass`, which says what the settings of `_with_methods` mean.

        Fields may be neither InitVar nor for keywords only.
        """
        decorate = partial(_with_methods, **settings)
        return decorate if cls is None else decorate(cls)


def _with_methods(
    cls: _Class,
    /,
    *,
    frozen: bool = False,
    slots: bool = False,
    eq: bool = True,
    repr: bool = True,  # noqa: A002
    order: bool = False,
) -> _Class:
    own = {name for name, value in vars(cls).items() if value is not None}
    cls.__doc__ = cls.__doc__ or cls.__name__  # else its signature would be made and written into it
    made = dataclasses.dataclass(cls, init=False, repr=False, eq=False, slots=slots)
    _deferred(made, "__init__", partial(_initializer, made, frozen=frozen))
    added: dict[str, Any] = {"__signature__": _Signature(partial(_initializer, made, frozen=frozen))}
    if frozen:
        added |= _frozen(made)
    if frozen and slots:
        added |= {"__getstate__": _state, "__setstate__": _set_state}
    if eq and not frozen:
        added["__hash__"] = None
    for name, value in added.items():
        if name not in own:
            setattr(made, name, value)
    if repr and "__repr__" not in own:
        _deferred(made, "__repr__", partial(_shown, made))
    compared = _COMPARISONS if order else _EQUALITY if eq else {}
    for name, operator in compared.items():
        if name not in own:
            _deferred(made, name, partial(_comparison, made, name, operator))
    if eq and frozen and "__hash__" not in own:
        _deferred(made, "__hash__", partial(_hash, made))
    return made


_EQUALITY = {"__eq__": "=="}
_COMPARISONS = _EQUALITY | {"__lt__": "<", "__le__": "<=", "__gt__": ">", "__ge__": ">="}


def _deferred(cls: _Class, name: str, make: Callable[[], Callable[..., Any]]) -> None:
    """Let a method of a class make itself when it is first called."""

    def method(*arguments: Any, **named: Any) -> Any:
        made = make()
        made.__qualname__ = f"{cls.__qualname__}.{name}"
        setattr(cls, name, made)
        return made(*arguments, **named)

    method.__name__, method.__qualname__ = name, f"{cls.__qualname__}.{name}"
    setattr(cls, name, method)


class _Signature:
    """What `inspect` and notebooks show of a class whose `__init__` may not be made yet."""

    def __init__(self, make: Callable[[], Callable[..., Any]]) -> None:
        self.make = make

    def __get__(self, instance: object, owner: _Class) -> Any:
        import inspect  # by those who ask only

        return inspect.signature(partial(self.make(), None))


def _compiled(name: str, parameters: list[str], body: list[str], names: dict[str, Any]) -> Callable[..., Any]:
    """A function with these parameters and lines, which knows `names`.

    Its text is made of names of fields and nothing else.
    """
    lines = "".join(f"\n  {line}" for line in body or ["pass"])
    exec(f"def {name}({', '.join(parameters)}):{lines}", names)  # noqa: S102
    made: Callable[..., Any] = names[name]
    return made


def _initializer(cls: _Class, *, frozen: bool) -> Callable[..., Any]:
    parameters, body = ["_self_"], list[str]()
    names: dict[str, Any] = {"_set_": object.__setattr__, "_missing_": MISSING}
    for item in fields(cls):
        name, default, factory = item.name, item.default, item.default_factory
        value = name
        if item.init and factory is not MISSING:
            names[f"_make_{name}_"] = factory
            parameters.append(f"{name}=_missing_")
            value = f"_make_{name}_() if {name} is _missing_ else {name}"
        elif item.init and default is not MISSING:
            names[f"_default_{name}_"] = default
            parameters.append(f"{name}=_default_{name}_")
        elif item.init:
            parameters.append(name)
        elif factory is not MISSING:
            names[f"_make_{name}_"] = factory
            value = f"_make_{name}_()"
        elif default is not MISSING:
            names[f"_default_{name}_"] = default
            value = f"_default_{name}_"
        else:
            continue
        slot = getattr(cls, name, None) if frozen else None
        if isinstance(slot, MemberDescriptorType):
            # Half the time of `object.__setattr__`: most of what a compiler makes is such a field.
            names[f"_set_{name}_"] = slot.__set__
            body.append(f"_set_{name}_(_self_, {value})")
        else:
            body.append(f"_set_(_self_, {name!r}, {value})" if frozen else f"_self_.{name} = {value}")
    if hasattr(cls, "__post_init__"):
        body.append("_self_.__post_init__()")
    made = _compiled("__init__", parameters, body, names)
    made.__annotations__ = {item.name: item.type for item in fields(cls) if item.init} | {"return": None}
    return made


def _values(cls: _Class, owner: str, *, hashed: bool = False) -> str:
    """The compared fields as the text of a tuple."""
    own = [item for item in fields(cls) if (item.compare if item.hash is None or not hashed else item.hash)]
    return f"({''.join(f'{owner}.{item.name}, ' for item in own)})"


def _comparison(cls: _Class, name: str, operator: str) -> Callable[..., Any]:
    body = [
        f"if other.__class__ is self.__class__: return {_values(cls, 'self')} {operator} {_values(cls, 'other')}",
        "return NotImplemented",
    ]
    return _compiled(name, ["self", "other"], body, {})


def _hash(cls: _Class) -> Callable[..., Any]:
    return _compiled("__hash__", ["self"], [f"return hash({_values(cls, 'self', hashed=True)})"], {})


def _shown(cls: _Class) -> Callable[..., Any]:
    shown = ", ".join(f"{item.name}={{self.{item.name}!r}}" for item in fields(cls) if item.repr)
    body = [f"return f'{{type(self).__qualname__}}({shown})'"]
    return recursive_repr()(_compiled("__repr__", ["self"], body, {}))


def _frozen(cls: _Class) -> dict[str, Any]:
    """The methods that refuse to set or delete a field."""
    names = frozenset(item.name for item in fields(cls))

    def set_field(self: Any, name: str, value: Any) -> None:
        if type(self) is cls or name in names:
            raise FrozenInstanceError(f"cannot assign to field {name!r}")
        super(cls, self).__setattr__(name, value)

    def delete_field(self: Any, name: str) -> None:
        if type(self) is cls or name in names:
            raise FrozenInstanceError(f"cannot delete field {name!r}")
        super(cls, self).__delattr__(name)

    return {"__setattr__": set_field, "__delattr__": delete_field}


def _state(self: Any) -> list[Any]:
    """What is pickled of an instance with slots that cannot be set."""
    return [getattr(self, item.name) for item in fields(self)]


def _set_state(self: Any, state: list[Any]) -> None:
    for item, value in zip(fields(self), state, strict=True):
        object.__setattr__(self, item.name, value)
