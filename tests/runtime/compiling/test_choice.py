"""A process runs kernels as plain Python while that is faster than to load machine code; answers are the same."""

from __future__ import annotations

import subprocess
import sys
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

from querylang.errors import InputError
from runtime.compiling import compiled
from runtime.compiling.compiled import (
    TO_COMPILE,
    TO_LOAD,
    VARIABLE,
    Choice,
    CompileSetting,
    Kernel,
    TakesTooLong,
    arrays_of,
    call_or_give_up,
    call_plain,
    inlined,
    kernel,
    setting,
)


class Clock:
    """Seconds that a test sets."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(compiled, "perf_counter", made)
    return made


def spend(choice: Choice, clock: Clock, seconds: float) -> None:
    began = choice.begin(lambda: False)
    clock.now += seconds
    choice.end(began)


@pytest.mark.parametrize(
    ("entries", "is_on_disk", "plain"),
    [
        (TO_LOAD.entries, True, True),
        (TO_LOAD.entries + 1, True, False),
        (TO_LOAD.entries + 1, False, True),
        (TO_COMPILE.entries, False, True),
        (TO_COMPILE.entries + 1, False, False),
    ],
)
def test_a_long_call_runs_machine_code(entries: int, is_on_disk: bool, plain: bool) -> None:
    assert Choice(CompileSetting.AUTO).is_plain(entries, lambda: is_on_disk) == plain
    assert Choice(CompileSetting.OFF).is_plain(entries, lambda: is_on_disk) == plain
    assert not Choice(CompileSetting.ALWAYS).is_plain(entries, lambda: is_on_disk)
    assert Choice(CompileSetting.NEVER).is_plain(entries, lambda: is_on_disk)


def test_many_short_calls_change_to_machine_code(clock: Clock) -> None:
    choice = Choice(CompileSetting.AUTO)
    spend(choice, clock, TO_LOAD.seconds + 0.1)
    assert not choice.is_plain(1, lambda: True)
    assert choice.is_plain(1, lambda: False)
    spend(choice, clock, TO_COMPILE.seconds)
    assert not choice.is_plain(1, lambda: False)


@pytest.mark.parametrize(("is_on_disk", "patience"), [(True, TO_LOAD), (False, TO_COMPILE)])
def test_a_call_that_takes_too_long_is_given_up(clock: Clock, is_on_disk: bool, patience: Any) -> None:
    choice = Choice(CompileSetting.AUTO)
    choice.begin(lambda: is_on_disk)
    for _ in range(10):
        clock.now += patience.seconds / 10
        choice.check_time()
    clock.now += 0.001
    with pytest.raises(TakesTooLong):
        choice.check_time()


def test_plain_python_only_is_never_given_up(clock: Clock) -> None:
    choice = Choice(CompileSetting.NEVER)
    choice.begin(lambda: True)
    clock.now = 1e9
    choice.check_time()


def test_the_setting_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "sometimes")
    with pytest.raises(InputError, match="ENSUE_COMPILE: expected auto, off, always, never; found 'sometimes'"):
        setting()
    monkeypatch.setenv(VARIABLE, "")
    assert setting() == CompileSetting.AUTO


class Counts(NamedTuple):
    of: NDArray[np.int64]
    table: NDArray[Any]


@inlined
def one_more(number: int) -> int:
    return number + 1


@inlined
def count_up(counts: Counts, index: int) -> int:
    counts.of[index] = one_more(counts.of[index] * counts.table[index].factor)
    return counts.of[index]


@kernel
def count_all(counts: Counts) -> tuple[int, float]:
    last = 0
    for index in range(len(counts.of)):
        last = count_up(counts, index)
    return last, np.float64(last) / 0.0


def counts() -> Counts:
    table = np.zeros(3, [("factor", np.int64)])
    table["factor"] = 1, 2, 2**62
    return Counts(np.array([1, 2, 6]), table)


def made(function: Any) -> Kernel[..., Any]:
    assert isinstance(function, Kernel)
    return function


@pytest.mark.filterwarnings("error")
def test_plain_python_answers_as_machine_code_does() -> None:
    plain, compiled_ = counts(), counts()
    results = call_plain(made(count_all).plain, (plain,)), made(count_all).machine_code(compiled_)
    assert results[0] == results[1] == (-(2**63) + 1, -np.inf)
    assert [type(item) for item in results[0]] == [int, float]
    assert plain.of.tolist() == compiled_.of.tolist() == [2, 5, -(2**63) + 1]


def test_a_call_that_is_given_up_changes_nothing() -> None:
    given, before = counts(), counts()

    def spoil(counts: Counts) -> None:
        counts.of[:] = 0
        raise TakesTooLong

    with pytest.raises(TakesTooLong):
        call_or_give_up(spoil, (given,))
    assert [array.tolist() for array in arrays_of(given)] == [array.tolist() for array in arrays_of(before)]


def test_what_is_given_up_is_run_as_machine_code(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "_CHOICE", Choice(CompileSetting.AUTO))
    clock.now = -1e9
    slow = Kernel(made(count_all).function)
    steps = iter(range(100))
    monkeypatch.setattr(compiled, "perf_counter", lambda: float(TO_COMPILE.seconds * next(steps)))
    given = counts()
    assert slow(given) == (-(2**63) + 1, -np.inf)
    assert given.of.tolist() == [2, 5, -(2**63) + 1]


def test_kernels_are_defined_without_numba() -> None:
    code = "import sys, runtime.engine.engine, runtime.replay.steps; print('numba' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_a_process_that_lives_long_uses_what_is_on_disk_at_once(clock: Clock) -> None:
    choice = Choice(CompileSetting.AUTO)
    choice.load_at_once()
    assert not choice.is_plain(0, lambda: True)
    assert choice.is_plain(TO_COMPILE.entries, lambda: False)
    spend(choice, clock, TO_COMPILE.seconds + 1)
    assert not choice.is_plain(0, lambda: False)
