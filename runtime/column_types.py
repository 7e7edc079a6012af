"""Types of columns: Arrow's of the language's types, and numpy's of integers."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from querylang.plan.expression import Kind, Type
from querylang.plan.model import Plan

# Arrays of numbers: their type, and what all parts ask of them.

Integers = NDArray[np.int64]


def different_numbers(numbers: Integers, limit: int) -> tuple[Integers, Integers]:
    """The different ones, ascending, and by place which of them it has.

    They are from 0 to below `limit`, so none is compared with others unless they are few.
    """
    if limit > 8 * len(numbers):
        different, places = np.unique(numbers, return_inverse=True)
        return different, places.astype(np.int64)
    is_there = np.zeros(limit, np.bool_)
    is_there[numbers] = True
    return np.flatnonzero(is_there), (np.cumsum(is_there) - 1)[numbers]


# The Arrow type of each type of the language.
#
# boolean is bool, integer int64, float float64, decimal decimal128(38, 18), string string. A
# location is a struct of four floats, a sequence a list, a dictionary a map, an event a struct of
# its fields. An optional has the type of its content; an empty one is null.

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

_MOST_KEPT = 512


def made_once(make: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """A function of plans and parts of them whose results are kept: a schema costs time to make.

    Arguments are told apart by their identities, so they are kept as well; nobody changes them.
    """
    known: dict[tuple[int, ...], tuple[Any, Result]] = {}

    @wraps(make)
    def found_or_made(*given: Parameters.args, **named: Parameters.kwargs) -> Result:
        assert not named, "arguments are given by position"
        key = tuple(map(id, given))
        found = known.get(key)
        if found is None:
            if len(known) >= _MOST_KEPT:
                known.clear()
            found = known[key] = (given, make(*given, **named))
        return found[1]

    return found_or_made


_SIMPLE: dict[Kind, pa.DataType] = {
    Kind.BOOLEAN: pa.bool_(),
    Kind.INTEGER: pa.int64(),
    Kind.FLOAT: pa.float64(),
    Kind.DECIMAL: pa.decimal128(38, 18),
    Kind.STRING: pa.string(),
    Kind.LOCATION: pa.struct([(name, pa.float64()) for name in ("x1", "y1", "x2", "y2")]),
}


def arrow_type(type_: Type, plan: Plan) -> pa.DataType:
    """The Arrow type of a type; `plan` defines its event types, KeyError if it lacks one."""
    match type_.kind:
        case Kind.SEQUENCE:
            return pa.list_(arrow_type(type_.of[0], plan))
        case Kind.DICTIONARY:
            return pa.map_(arrow_type(type_.of[0], plan), arrow_type(type_.of[1], plan))
        case Kind.OPTIONAL:
            return arrow_type(type_.of[0], plan)
        case Kind.EVENT:
            return pa.struct([(field.name, arrow_type(field.type, plan)) for field in plan.event(type_.name).fields])
        case kind:
            return _SIMPLE[kind]


def has_column(table: pa.Table | pa.RecordBatch, name: str) -> bool:
    """Whether it has one column of this name; how many others it has does not matter."""
    return bool(table.schema.get_field_index(name) >= 0)


def one_chunk(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """The values of a column as one Arrow array."""
    if isinstance(column, pa.Array):
        return column
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


class _NoPandas:
    """Finds no module, and says so of pandas."""

    @staticmethod
    def find_spec(name: str, *_: Any) -> None:
        if name == "pandas":
            raise ImportError(name)


def load_arrow_alone() -> None:
    """Load pyarrow without pandas, which takes longer than all that a small table needs.

    Arrow looks for pandas at its first array, because a pandas column may be given to it. It looks
    again when it is asked for a DataFrame. Commands and workers give it none, so it need not know
    pandas yet.
    """
    if "pandas" in sys.modules:
        return
    refusal: Any = _NoPandas()
    sys.meta_path.insert(0, refusal)
    try:
        pa.array([0])
    finally:
        sys.meta_path.remove(refusal)
