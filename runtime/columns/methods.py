"""Methods that numpy or Arrow can compute on whole columns with exactly the interpreter's results.

All others are left to the interpreter: functions that are not correctly rounded on every machine
(`exp`, `sin`), and methods of strings for which Arrow counts characters differently.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from querylang.plan.expression import Call, Kind, Literal
from runtime import interpreter
from runtime.column_types import Integers

Mask = NDArray[np.bool_]
Floats = NDArray[np.float64]

Result = tuple[Any, Mask | None]
"""The values, and a mask of the rows that have one; None = all rows."""


def both_valid(left: Mask | None, right: Mask | None) -> Mask | None:
    """The rows on which both columns have a value; None = all rows."""
    if left is None or right is None:
        return right if left is None else left
    return left & right


def native_call(call: Call, parts: Sequence[Any]) -> Result | None:
    """The values of a call on every row; None = numpy and Arrow cannot compute it.

    parts: the columns of the receiver and the arguments
    """
    kind = None if call.receiver.type is None else call.receiver.type.kind
    if kind is None:
        return None
    name = call.method.rpartition(".")[2]
    method = _METHODS.get(kind, {}).get(name)
    if method is not None:
        return method(*parts)
    argument = call.arguments[0] if len(call.arguments) == 1 else None
    with_constant = _WITH_CONSTANT.get(name) if kind is Kind.STRING and name == call.method else None
    if with_constant is None or not isinstance(argument, Literal):
        return None
    try:
        found = with_constant(parts[0], argument.value)
    except (pa.ArrowInvalid, interpreter.EvaluationError):  # an invalid regular expression or network
        return None
    return _flags(found), None


def seconds_of(micros: Integers) -> Floats:
    """Times in seconds, as `runtime.interpreter.values.seconds`."""
    return micros.astype(np.float64) / 1_000_000.0


def _whole(values: Floats) -> Result:
    """Floats without a fraction as integers; those that no integer can hold have no value."""
    fits = (values >= -(2.0**63)) & (values < 2.0**63)
    return np.where(fits, values, 0.0).astype(np.int64), None if fits.all() else fits


def _rounded(values: Floats) -> Result:
    with np.errstate(invalid="ignore"):
        near = np.trunc(values)
        away = np.abs(values - near) >= 0.5
    return _whole(near + np.where(away, np.copysign(1.0, values), 0.0))


def _smaller(left: Any, right: Any) -> Result:
    return np.where((right < left) | np.isnan(right), right, left), None


def _larger(left: Any, right: Any) -> Result:
    return np.where((right > left) | np.isnan(right), right, left), None


def _root(values: Floats) -> Result:
    with np.errstate(invalid="ignore"):
        return np.sqrt(values), None


def _same(values: Any) -> Result:
    return values, None


def _always(answer: bool) -> Callable[[Any], Result]:
    return lambda values: (np.full(len(values), answer), None)


def _flags(answer: pa.Array) -> Mask:
    flags: Mask = answer.fill_null(False).to_numpy(zero_copy_only=False)
    return flags


def _lengths(text: pa.Array) -> Integers:
    lengths: Integers = pc.utf8_length(text).fill_null(0).to_numpy().astype(np.int64)
    return lengths


def _for_each_value(method: Callable[[str, Any], bool]) -> Callable[[pa.Array, Any], pa.Array]:
    """A method that is called once for each value of the column, however many rows have it."""

    def run(text: pa.Array, argument: Any) -> pa.Array:
        values = text.dictionary_encode()
        if isinstance(values, pa.ChunkedArray):
            values = values.unify_dictionaries().combine_chunks()
        answers = [method(value, argument) for value in values.dictionary.to_pylist()]
        return pc.take(pa.array(answers, pa.bool_()), values.indices)

    return run


_METHODS: Mapping[Kind, Mapping[str, Callable[..., Result]]] = {
    Kind.INTEGER: {
        "abs": lambda values: (np.abs(values), None),
        "min": lambda left, right: (np.where(right < left, right, left), None),
        "max": lambda left, right: (np.where(right > left, right, left), None),
        **dict.fromkeys(("ceil", "floor", "round", "toInteger"), _same),
        "toFloat": lambda values: (values.astype(np.float64), None),
        "isNaN": _always(False),
        "isFinite": _always(True),
        "isInfinite": _always(False),
        "sqrt": lambda values: _root(values.astype(np.float64)),
    },
    Kind.FLOAT: {
        "abs": lambda values: (np.abs(values), None),
        "min": _smaller,
        "max": _larger,
        "ceil": lambda values: _whole(np.ceil(values)),
        "floor": lambda values: _whole(np.floor(values)),
        "round": _rounded,
        "toInteger": lambda values: _whole(np.trunc(values)),
        "toFloat": _same,
        "isNaN": lambda values: (np.isnan(values), None),
        "isFinite": lambda values: (np.isfinite(values), None),
        "isInfinite": lambda values: (np.isinf(values), None),
        "sqrt": _root,
    },
    Kind.STRING: {
        "length": lambda text: (_lengths(text), None),
        "isEmpty": lambda text: (_lengths(text) == 0, None),
        "ltrim": lambda text: (pc.utf8_ltrim(text, characters=interpreter.WHITE_SPACE), None),
        "rtrim": lambda text: (pc.utf8_rtrim(text, characters=interpreter.WHITE_SPACE), None),
        "toString": _same,
        "clone": _same,
        "intern": _same,
    },
}

_WITH_CONSTANT: Mapping[str, Callable[[pa.Array, Any], pa.Array]] = {
    "contains": lambda text, part: pc.match_substring(text, pattern=part),
    "startsWith": lambda text, part: pc.starts_with(text, pattern=part),
    "endsWith": lambda text, part: pc.ends_with(text, pattern=part),
    "matches": interpreter.match_whole,
    "like": lambda text, pattern: pc.match_substring_regex(text, pattern=interpreter.regular_expression(pattern)),
    "likeIgnoreCase": _for_each_value(interpreter.like_ignoring_case),
    "equalsIgnoreCase": _for_each_value(interpreter.equal_ignoring_case),
    "inNetwork": _for_each_value(interpreter.in_network),
}
"""Methods of strings that can be computed for a column if the argument is a constant."""
