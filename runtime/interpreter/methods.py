"""The methods of all types (`querylang.plan.library`), by kind of receiver and name.

The arguments of a method are the receiver and those of the call; it raises EvaluationError if there
is no value. Before them, methods of a table `..._OF_TYPE` take the world and the receiver's type.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from querylang.plan.expression import Kind, Type
from querylang.plan.library import TIME_FORMAT
from runtime.interpreter import containers, decimals
from runtime.interpreter.decimals import DECIMAL_METHODS
from runtime.interpreter.event_text import EventTextError, parse_value
from runtime.interpreter.numbers import FLOAT_METHODS, INTEGER_METHODS, larger, smaller
from runtime.interpreter.strings import STRING_METHODS
from runtime.interpreter.time_format import TIME_FORMAT_METHODS
from runtime.interpreter.value_text import text_of
from runtime.interpreter.values import EvaluationError, Value, World, clone

Method = Callable[..., Any]

METHODS: Mapping[Kind, Mapping[str, Method]] = {
    Kind.BOOLEAN: {},
    Kind.INTEGER: {**INTEGER_METHODS, "toDecimal": decimals.of_integer},
    Kind.FLOAT: {**FLOAT_METHODS, "toDecimal": decimals.of_float},
    Kind.DECIMAL: DECIMAL_METHODS,
    Kind.STRING: STRING_METHODS,
    Kind.LOCATION: containers.LOCATION_METHODS,
    Kind.SEQUENCE: containers.SEQUENCE_METHODS,
    Kind.DICTIONARY: containers.DICTIONARY_METHODS,
    Kind.OPTIONAL: containers.OPTIONAL_METHODS,
    Kind.EVENT: containers.EVENT_METHODS,
}

METHODS_OF_TYPE: Mapping[Kind, Mapping[str, Method]] = {
    **{kind: {} for kind in Kind},
    Kind.SEQUENCE: containers.SEQUENCE_METHODS_OF_TYPE,
    Kind.DICTIONARY: containers.DICTIONARY_METHODS_OF_TYPE,
}

_OF_ALL: Mapping[str, Method] = {
    "toString": lambda _world, type_, value: text_of(value, type_),
    "clone": lambda _world, _type, value: clone(value),
}


def _parse(world: World, type_: Type, text: str) -> Value:
    try:
        return parse_value(text, type_, world)
    except EventTextError as error:
        raise EvaluationError(f"cannot parse {text[:40]!r} as {type_}: {error}") from error


def _can_parse(world: World, type_: Type, text: str) -> bool:
    try:
        parse_value(text, type_, world)
    except EventTextError:
        return False
    return True


STATIC_METHODS: Mapping[str, Method] = {
    "parse": _parse,
    "canParse": _can_parse,
    "min": lambda _world, _type, left, right: smaller(left, right),
    "max": lambda _world, _type, left, right: larger(left, right),
}


def bound_method(type_: Type, name: str, world: World) -> Method:
    """The function that a method call runs; it takes the receiver and the arguments.

    type_: the receiver's type
    name: the method's name; of a static method with the type before it: `integer.parse`
    """
    owner, _, short = name.rpartition(".")
    if owner == TIME_FORMAT:
        return TIME_FORMAT_METHODS[short]
    if owner:
        return _of_type(STATIC_METHODS[short], Type.parse(owner), world)
    method = METHODS[type_.kind].get(name)
    if method is not None:
        return method
    typed = METHODS_OF_TYPE[type_.kind].get(name) or _OF_ALL[name]
    return _of_type(typed, type_, world)


def _of_type(method: Method, type_: Type, world: World) -> Method:
    def bound(*values: Value) -> Any:
        return method(world, type_, *values)

    return bound
