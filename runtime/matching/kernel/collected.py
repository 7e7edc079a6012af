"""Aggregates of a `find every` that need all of their values at once.

They are `nth`, `percentile`, `stddev`, `stddev2` and `wavg`; `runtime.interpreter.aggregates`
defines them. The kernel only writes down the values of the candidates that a search has found; the
rest is done in columns.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import cast

import numpy as np
from numpy.typing import NDArray

from querylang.dataclass import dataclass
from runtime.compiling.compiled import borrowing
from runtime.matching.kernel.aggregates import (
    CHUNK_BITS,
    LOW_BITS,
    Aggregated,
    Arguments,
    ExactSums,
    add_to_sum,
    bind_found,
    clear_sum,
    mean_of_integers,
    new_exact_sums,
    rounded_sum,
    state_of_argument,
)
from runtime.matching.kernel.evaluator import KNOWN, LoadedProgram, Stacks
from runtime.matching.kernel.tables import Records
from runtime.matching.kernel.workspace import Matches
from runtime.number_arrays import Integers

Floats = NDArray[np.float64]
Values = Integers | Floats

COLLECTED = frozenset({"nth", "percentile", "stddev", "stddev2", "wavg"})


@dataclass(frozen=True, slots=True)
class Collected:
    """An aggregate whose values are written down.

    index: of the aggregate
    arguments: the numbers of its arguments among all that are written down
    """

    index: int
    function: str
    arguments: tuple[int, ...]


def collect(
    collected: Sequence[Collected], asked: Arguments, values: Aggregated, match: Integers, results: Aggregated
) -> None:
    """Writes the aggregates of candidates, newest first within each match, into the results.

    asked: the arguments of all of them
    values: of the arguments, by (argument, candidate)
    match: by candidate
    """
    for one in collected:
        # A candidate counts if it has all arguments, a match if it has such a candidate.
        candidates = np.flatnonzero(values.is_valid[list(one.arguments)].all(axis=0))
        own = match[candidates]
        begins = np.flatnonzero(np.diff(own, prepend=-1))
        columns = [
            (values.floats if asked.is_float[number] else values.integers)[number, candidates]
            for number in one.arguments
        ]
        with np.errstate(all="ignore"):  # as the interpreter: what overflows is infinite
            found, has_value = _FUNCTIONS[one.function](*columns, np.append(begins, len(own)))
        matches = own[begins]
        results.is_valid[one.index, matches] = has_value
        (results.integers if found.dtype == np.int64 else results.floats)[one.index, matches] = found


Result = tuple[Values, NDArray[np.bool_]]
"""By match the value, and whether there is one."""


def _nth(values: Values, places: Integers, first: Integers) -> Result:
    sizes, place = np.diff(first), places[first[:-1]]
    has_value = (place >= 0) & (place < sizes)
    return values[np.where(has_value, first[1:] - 1 - place, first[:-1])], has_value


def _percentile(values: Values, shares: Values, first: Integers) -> Result:
    share, match = shares[first[:-1]].astype(np.float64), np.repeat(np.arange(len(first) - 1), np.diff(first))
    is_number = ~np.isnan(values)
    match, numbers = match[is_number], values[is_number].astype(np.float64)
    ordered = numbers[np.lexsort((~np.signbit(numbers), numbers, match))]  # -0.0 before 0.0
    sizes = np.bincount(match, minlength=len(share))
    if not len(ordered):
        return np.full(len(share), math.nan), np.ones(len(share), np.bool_)
    is_share = (share >= 0.0) & (share <= 100.0)
    place = (np.maximum(sizes, 1) - 1) * np.where(is_share, share, 0.0) / 100.0
    low = np.floor(place).astype(np.int64)
    between, at = place - low, np.minimum(np.cumsum(sizes) - sizes + low, len(ordered) - 1)
    below, above = ordered[at], ordered[np.minimum(at + 1, len(ordered) - 1)]
    is_exact = (between == 0.0) | (below == above)
    result = np.where(is_exact, below, below + (above - below) * between)
    return np.where(sizes > 0, result, math.nan), is_share | (sizes == 0)


def _deviation(values: Values, first: Integers, less: int) -> Result:
    sizes = np.diff(first)
    middles = _means(values, first)
    distances = values.astype(np.float64) - np.repeat(middles, sizes)
    squares = _sums(distances * distances, first)
    result = np.sqrt(squares / np.maximum(sizes - less, 1))
    return np.where((sizes > less) & np.isfinite(middles), result, math.nan), np.ones(len(sizes), np.bool_)


def _weighted(values: Values, weights: Values, first: Integers) -> Result:
    floats = weights.astype(np.float64)
    heavy, total = _sums(floats, first), _sums(values.astype(np.float64) * floats, first)
    return np.where(heavy == 0.0, math.nan, total / heavy), np.ones(len(heavy), np.bool_)


_FUNCTIONS: dict[str, Callable[..., Result]] = {
    "nth": _nth,
    "percentile": _percentile,
    "stddev": lambda values, first: _deviation(values, first, 0),
    "stddev2": lambda values, first: _deviation(values, first, 1),
    "wavg": _weighted,
}


def _sums(values: Floats, first: Integers) -> Floats:
    result = np.empty(len(first) - 1)
    sums_of_parts(values, first, new_exact_sums(1), result)
    return result


def _means(values: Values, first: Integers) -> Floats:
    sizes = np.diff(first)
    if values.dtype == np.float64:
        return _sums(cast("Floats", values), first) / sizes
    if not len(sizes):
        return np.empty(0)
    result, integers = np.empty(len(sizes)), cast("Integers", values)
    high, low = (np.add.reduceat(part, first[:-1]) for part in (integers >> CHUNK_BITS, integers & LOW_BITS))
    means_of_integers(high, low, sizes, result)
    return result


@borrowing
def sums_of_parts(values: Floats, first: Integers, sums: ExactSums, results: Floats) -> None:
    """The exact sum of each part, rounded once; `first`: where each begins, then the end."""
    for part in range(len(results)):
        clear_sum(sums, 0)
        for at in range(first[part], first[part + 1]):
            add_to_sum(sums, 0, values[at], 1)
        results[part] = rounded_sum(sums, 0)


@borrowing
def means_of_integers(high: Integers, low: Integers, sizes: Integers, results: Floats) -> None:
    """Each `mean_of_integers`."""
    for part in range(len(results)):
        results[part] = mean_of_integers(high[part], low[part], sizes[part])


@borrowing
def write_values(
    program: LoadedProgram,
    asked: Arguments,
    transitions: Records,
    binds: Integers,
    found: Matches,
    count: int,
    bindings: Integers,
    stacks: Stacks,
    values: Aggregated,
) -> None:
    """Writes the values of arguments down, by (argument, candidate), of the first `count` found.

    bindings: room for the events of one candidate, by term
    """
    for number in range(count):
        bind_found(transitions, binds, found, number, bindings)
        for index in range(len(asked.program)):
            values.is_valid[index, number] = state_of_argument(program, asked, index, bindings, stacks) == KNOWN
            if asked.is_float[index]:
                values.floats[index, number] = stacks.floats[0]
            else:
                values.integers[index, number] = stacks.integers[0]
