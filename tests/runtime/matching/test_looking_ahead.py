"""Looking ahead skips the events for which a condition is false: random conditions over more events than a block holds."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

import querylang
from runtime.columns.arrivals import Arrivals
from runtime.engine.engine import Engine
from runtime.instants import NO_TIME


def _integer(chance: random.Random, depth: int) -> str:
    roll = chance.random()
    if not depth or roll < 0.25:
        return chance.choice(["a0.v", "a1.v", "b.v", str(chance.randint(0, 9)), "9223372036854775807"])
    if roll < 0.32:
        return f"(-{_integer(chance, depth - 1)})"
    if roll < 0.4:
        return f"({_real(chance, depth - 1)}).toInteger()"
    return f"({_integer(chance, depth - 1)} {chance.choice('+-*/%')} {_integer(chance, depth - 1)})"


def _real(chance: random.Random, depth: int) -> str:
    roll = chance.random()
    if not depth or roll < 0.3:
        return chance.choice(["a0.f", "a1.f", "b.f", "2.5", "0.0", "(-1.5)"])
    if roll < 0.4:
        return f"({_integer(chance, depth - 1)}).toFloat()"
    return f"({_real(chance, depth - 1)} {chance.choice('+-*/%')} {_real(chance, depth - 1)})"


def _condition(chance: random.Random, depth: int) -> str:
    roll = chance.random()
    if depth and roll < 0.12:
        return f"not ({_condition(chance, depth - 1)})"
    if depth and roll < 0.25:
        word = chance.choice(["and", "or", "xor"])
        return f"({_condition(chance, depth - 1)} {word} {_condition(chance, depth - 1)})"
    sign = chance.choice(["<", "<=", ">", ">=", "=", "!="])
    if roll < 0.32:
        return chance.choice([f"a0.s {sign} a1.s", "a0.g = b.g"])
    make = chance.choice([_integer, _real])
    return f"{make(chance, 2)} {sign} {make(chance, 2)}"


def _events(chance: random.Random, count: int, keys: int) -> pa.Table:
    def missing(value: Any) -> Any:
        return None if chance.random() < 0.04 else value

    rows = range(count)
    odd = [float("nan"), float("inf"), 1e308, -0.0]
    return pa.table(
        {
            "_kind": pa.array([chance.randrange(2) for _ in rows], pa.int16()),
            "_arrival": pa.array([row * 1000 for row in rows]),
            "_source": pa.array(["t"] * count).dictionary_encode(),
            "_partition": pa.array([0] * count, pa.int64()),
            "_place": pa.array([0] * count, pa.int64()),
            "_offset": pa.array(rows),
            "_source_time": pa.array([NO_TIME] * count),
            "k:integer": pa.array([chance.randrange(keys) for _ in rows], pa.int64()),
            "v:integer": pa.array([missing(chance.randint(-9, 9)) for _ in rows], pa.int64()),
            "f:float": pa.array([missing(chance.choice([chance.randint(-9, 9) / 2, *odd])) for _ in rows]),
            "s:string": pa.array([chance.choice(["a", "b", "ab"]) for _ in rows]),
            "g:boolean": pa.array([chance.random() < 0.5 for _ in rows]),
        }
    )


def _found(text: str, table: pa.Table, matcher: str) -> list[list[int]]:
    results = Engine(querylang.compile_text(text).plan, matcher=matcher).process(Arrivals(table))
    rows = results.matches["query"].to_pylist() if "query" in results.matches else []
    return [[member["offset"] for member in row["members"].values()] for row in rows]


@pytest.mark.parametrize("seed", range(40))
def test_looking_ahead_finds_what_trying_one_by_one_finds(seed: int) -> None:
    """Of three names over some events, of two over so many that a search fills several blocks; of one key or two."""
    chance = random.Random(seed)
    fields = "integer k; integer v; float f; string s; boolean g;"
    where = f"where {_condition(chance, 2)}" + (f" where {_condition(chance, 1)}" if chance.random() < 0.3 else "")
    pattern, count, windows = "A as a0 -> A as a1 -> B as b", 170, ["retain 40", "within 0.08 seconds", "within 1 hour"]
    if seed % 2:
        pattern, count, windows = "A as a0 -> B as b", 900, ["retain 300", "within 0.4 seconds", "within 1 hour"]
        where = where.replace("a1.", "a0.")
    window = chance.choice(windows)
    text = (
        f"event A {{ {fields} }} event B {{ {fields} }} inputs {{ A() key k {window}; B() key k {window}; }}"
        f" find {pattern} {where}"
    )
    table = _events(chance, count, keys=chance.choice([1, 2]))
    assert _found(text, table, "kernel") == _found(text, table, "reference")
