"""How kernels are compiled: calls inlined, one version each, machine code for what Python calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, cast

import numpy as np
import pytest
from numba.core.compiler import run_frontend
from numpy.typing import NDArray

from runtime.column_types import Integers
from runtime.compiling.compiled import Kernel, borrowing, inlined, kernel


class Pair(NamedTuple):
    """Two arrays."""

    left: Integers
    right: Integers


@inlined
def _larger(one: int, other: int) -> int:
    if one > other:
        return one
    return other


@inlined
def _first_larger(pair: Pair, than: int, start: int) -> tuple[int, int]:
    """Of two returns in a loop, with a call that is inlined in turn."""
    for place in range(start, len(pair.left)):
        found = _larger(pair.left[place], pair.right[place])
        if found > than:
            return place, found
    return -1, than


@borrowing
def _times(factor: int, value: int) -> int:
    return factor * value


@borrowing
def answers(pair: Pair, into: Integers) -> int:
    """Calls the same functions several times, in the order and with the names of its own."""
    than, count = 10, 0
    place, found = _first_larger(pair, than, 0)
    into[0], into[1] = place, found
    place, than = _first_larger(pair, 5, 1)
    into[2], into[3] = place, than
    while count < 3:
        count += _larger(_larger(1, count), 0)
    into[4] = _times(2, count)
    into[5] = _times(3, count)
    into[6] = _times(found, count)
    return count


def _versions(kernel: Any) -> int:
    return len(cast(Kernel[..., Any], kernel).called_code.overloads)


def test_inlined_functions_do_what_they_do_when_called() -> None:
    pair = Pair(np.array([3, 11, 4]), np.array([9, 2, 14]))
    both = [np.full(7, -7), np.full(7, -7)]
    kernel = cast(Kernel[..., int], answers)
    results = [kernel.machine_code(pair, both[0]), kernel.plain(pair, both[1])]
    assert results == [4, 4]
    assert both[0].tolist() == both[1].tolist() == [1, 11, 1, 11, 8, 12, 44]


def test_constants_among_arguments_make_no_versions() -> None:
    arguments = Pair(np.zeros(3, np.int64), np.zeros(3, np.int64)), np.zeros(7, int)
    caller = cast(Kernel[..., int], answers)
    caller.called_code.compile(tuple(map(caller.machine_code.typeof_pyval, arguments)))  # never stored
    assert _versions(_times) == 1


class Grids(NamedTuple):
    """Arrays of several kinds."""

    whole: NDArray[np.int16]
    narrow: NDArray[np.uint8]
    floats: NDArray[np.float64]
    facts: NDArray[np.bool_]
    every_second: Integers
    records: NDArray[Any]


@borrowing
def moves(grids: Grids, at: int, into: Integers) -> float:
    """Reads and writes items in every way that kernels do, from either end."""
    small, total = grids.narrow[at], 0.0
    grids.whole[at, -1] = grids.whole[-2, small] + 300
    grids.floats[small] = at
    grids.facts[-1] = grids.floats[at] > 0
    grids.every_second[-2] = grids.every_second[at] - 1
    row = grids.whole[at]
    row[2] += row[1]
    for column in range(grids.whole.shape[1]):
        into[column] = row[column] * grids.records[column].factor + grids.records[-1].share
        total += grids.records[column].share
    into[-1] = len(grids.whole) if grids.facts[2] else -1
    into[3:5] = at
    return total


@kernel
def makes_arrays(grids: Grids, at: int, into: Integers) -> float:
    """The same with arrays of its own, so references are counted."""
    copy = np.zeros(len(into), np.int64)
    result = 0.0
    for turn in range(2):
        if turn == at:
            result = copy[turn] + grids.floats[-1 - turn]
        copy[-1 - turn] = grids.whole[turn, turn] + turn
    into[:] = copy
    return result


@borrowing
def chooses(grids: Grids, at: int, into: Integers) -> float:
    """Variables that are assigned on some ways, in loops, before and after they are read."""
    last, seen = -1, 0
    for turn in range(6):
        if turn > at:
            found = grids.floats[turn % 3]
            seen = seen + turn if last < turn else seen
            into[turn] = last
        last = turn if turn != 4 else last
        if turn > at and found > 0:
            into[turn] += seen
    limit = last
    while limit > seen - 20:
        limit, last = last - 2, limit - 1
    into[0] = limit
    return float(last)


def _grids() -> Grids:
    return Grids(
        np.arange(12, dtype=np.int16).reshape(4, 3),
        np.array([2, 1, 0, 2], np.uint8),
        np.array([1.5, -2.0, 4.25]),
        np.array([True, False, False]),
        np.arange(10)[::2],
        np.array([(3, 0.5), (5, 1.0), (7, 2.5)], [("factor", np.int32), ("share", np.float64)]),
    )


@pytest.mark.parametrize("function", [moves, makes_arrays, chooses])
def test_items_and_variables_are_what_they_are_in_plain_python(function: Callable[..., float]) -> None:
    found = []
    for call in (cast(Kernel[..., float], function).machine_code, function.__wrapped__):  # type: ignore[attr-defined]
        grids, into = _grids(), np.full(7, -7)
        records = grids.records.view(np.recarray) if call is not cast(Any, function).machine_code else grids.records
        with np.errstate(all="ignore"):
            result = call(grids._replace(records=records), 1, into)
        found.append([result, into.tolist(), *(array.tolist() for array in grids)])
    assert found[0] == found[1]


def _in_branches(first: int, second: int) -> int:
    before = first + 1
    after = 0
    if first > second:
        inside = before * 2
        after = inside + before
    while after < 10:
        changed = after + before
        after = changed
    return after


def test_only_what_is_assigned_once_before_all_uses_is_a_value() -> None:
    from runtime.compiling.lowering import values_of

    named = {name for name in values_of(run_frontend(_in_branches).blocks) if not name.startswith("$")}
    assert named == {"first", "second", "before", "inside", "changed"}


def test_types_are_looked_up_once(monkeypatch: pytest.MonkeyPatch) -> None:
    from numba.core import types
    from numba.core.registry import cpu_target

    from runtime.compiling.lowering import KnownTypes

    context = cpu_target.typing_context
    add, asked = context.resolve_value_type(max), list[Any]()
    monkeypatch.setattr(context, "resolve_function_type", lambda *call: asked.append(call) or types.int64(types.int64))
    known = KnownTypes(context)
    arguments = types.int64, types.int64
    answers = [known.resolve_function_type(add, arguments, {}) for _ in range(3)]
    known.resolve_function_type(add, (types.int64, types.float64), {})
    assert len(asked) == 2
    assert len(set(answers)) == 1
