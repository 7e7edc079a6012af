"""Random events of two types as columns, for engines."""

from __future__ import annotations

import math
import random
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from runtime.instants import NO_TIME


def random_events(chooser: random.Random, count: int, floats: tuple[float, ...]) -> pa.Table:
    """Events of two types and two keys, with missing values; many are at the same time."""
    seconds, times = 0, []
    for _ in range(count):
        seconds += chooser.choice((0, 0, 1, 1, 3))
        times.append(seconds * 1_000_000)
    missing = [chooser.randrange(5) == 0 for _ in range(count)]
    integers = {name: [chooser.randrange(most) for _ in range(count)] for name, most in (("k", 2), ("v", 5), ("n", 9))}
    return pa.table(
        {
            "_kind": pa.array([chooser.choice((0, 0, 1)) for _ in range(count)], pa.int16()),
            "_arrival": pa.array(times),
            "_source": pa.array(["t"] * count).dictionary_encode(),
            "_partition": pa.array([0] * count, pa.int64()),
            "_place": pa.array([0] * count, pa.int64()),
            "_offset": pa.array(range(count)),
            "_source_time": pa.array([NO_TIME] * count),
            "k:integer": pa.array(integers["k"], pa.int64()),
            "v:integer": pa.array(integers["v"], pa.int64()),
            "n:integer": pa.array(integers["n"], pa.int64(), mask=np.array(missing)),
            "f:float": pa.array([chooser.choice(floats) for _ in range(count)], pa.float64()),
            **{name: _some(chooser, count, values, type_) for name, (values, type_) in _OTHERS.items()},
        }
    )


_OTHERS: dict[str, tuple[tuple[Any, ...], pa.DataType]] = {
    "s:string": (("", "a", "A", "ä", "a\u0308", "\0", "\U0001f600", "\uffff", None), pa.string()),
    "d:decimal": ((*(Decimal(text) for text in ("0", "-0", "1", "1.0", "1e-18", "-7.5")), None), pa.decimal128(38, 18)),
    "xs:sequence<float>": (([], [0.0], [-0.0], [math.nan], [1.0, 2.0], [1.0], None), pa.list_(pa.float64())),
    "o:optional<string>": (("", "a", "b", None), pa.string()),
    "t:boolean": ((True, False, None), pa.bool_()),
}
"""By column: values, and their type."""


def _some(chooser: random.Random, count: int, values: tuple[Any, ...], type_: pa.DataType) -> pa.Array:
    return pa.array([chooser.choice(values) for _ in range(count)], type_)
