"""Aggregate the candidates of a `find every`.

What each aggregate means is defined in `runtime.interpreter.aggregates`; here it is computed one
candidate at a time.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from runtime.compiling.compiled import borrowing, inlined
from runtime.matching.exact_sums import ExactSums, add_to_sum, clear_sum, mean_of_integers, rounded_sum
from runtime.matching.kernel.evaluator import KNOWN, LoadedProgram, state_of, state_of_operand
from runtime.matching.kernel.steps import is_more_recent
from runtime.matching.kernel.workspace import Workspace
from runtime.number_arrays import Integers


class Function(IntEnum):
    """The aggregates that the kernel knows; `runtime.interpreter.aggregates` defines them."""

    COUNT = 0
    COUNT_TRUE = 1
    COUNT_NUMBERS = 2
    SUM = 3
    MEAN = 4
    MIN = 5
    MAX = 6
    FIRST = 7
    LAST = 8


class Arguments(NamedTuple):
    """What the aggregates are about, one entry per aggregate.

    function: its `Function`
    program: of its argument, -1 = it has none
    operand, term: if the argument is one operand's value; -1 = it is not
    is_float: whether the argument is a float
    first: where its part of `mentions` begins; one more entry for the end
    mentions: the terms that the argument mentions and that may be unset
    """

    function: Integers
    program: Integers
    operand: Integers
    term: Integers
    is_float: NDArray[np.bool_]
    first: Integers
    mentions: Integers


class Aggregated(NamedTuple):
    """Aggregates by (aggregate, match): integers or floats, and whether there is a value."""

    integers: Integers
    floats: NDArray[np.float64]
    is_valid: NDArray[np.bool_]


class Running(NamedTuple):
    """The aggregates over the candidates so far, one entry per aggregate.

    size: how many values there were
    integers, floats: sum of integers, least, greatest, first or last value; one of the two, by the
        aggregate's type
    low: of a mean of integers the sum of their lower 32 bits; that of the others is in `integers`
    sums: of floats
    best: by (aggregate, term), the candidate of the first or last value; used in ambiguous patterns
        only
    """

    size: Integers
    integers: Integers
    floats: NDArray[np.float64]
    low: Integers
    sums: ExactSums
    best: Integers


class Aggregation(NamedTuple):
    """What a `find every` computes; for other queries `is_every` is false and the rest unused."""

    is_every: bool
    arguments: Arguments
    running: Running
    results: Aggregated


@borrowing
def clear(running: Running) -> None:
    """Begins all aggregates again."""
    for index in range(len(running.size)):
        running.size[index] = running.integers[index] = running.low[index] = 0
        clear_sum(running.sums, index)


@inlined
def add_candidate(
    program: LoadedProgram,
    aggregation: Aggregation,
    is_ambiguous: bool,
    is_new: bool,
    bindings: Integers,
    workspace: Workspace,
) -> None:
    """Adds one candidate to each aggregate; `is_new`: it is the first one of a match."""
    arguments, running, stacks = aggregation.arguments, aggregation.running, workspace.stacks
    if is_new:
        clear(running)
    for index in range(len(arguments.function)):
        # Is there a value? Not where the argument mentions a name that is unset, or evaluates to
        # none.
        number, function = arguments.program[index], arguments.function[index]
        is_set = number >= 0
        for at in range(arguments.first[index], arguments.first[index + 1]):
            is_set = is_set and bindings[arguments.mentions[at]] >= 0
        # The value goes to the bottom of a stack; one operand's value is read without its program.
        if is_set:
            operand, term = arguments.operand[index], arguments.term[index]
            if operand < 0:
                is_set = state_of(program, number, bindings, stacks, KNOWN) == KNOWN
            else:
                is_float, position = arguments.is_float[index], bindings[term]
                is_set = state_of_operand(program, operand, is_float, position, stacks) == KNOWN
        # Candidates come newest first, so the first value seen is that of `last`, and each value
        # replaces that of `first`. In ambiguous patterns tied candidates come in any order: there
        # the best so far is compared.
        if is_set:
            is_first = running.size[index] == 0
            replaces = is_first or (function == Function.FIRST and not is_ambiguous)
            if is_ambiguous and not is_first and function >= Function.FIRST:
                best, terms = running.best[index], running.best.shape[1]
                is_newer = is_more_recent(bindings, best, terms, workspace.ours, workspace.theirs)
                replaces = is_newer == (function == Function.LAST)
            if replaces and is_ambiguous:
                for term in range(running.best.shape[1]):
                    running.best[index, term] = bindings[term]
            if arguments.is_float[index]:
                _add_float(function, running, index, stacks.floats[0], is_first, replaces)
            else:
                _add_integer(function, running, index, stacks.integers[0], is_first, replaces)


@inlined
def _add_float(function: int, running: Running, index: int, value: float, is_first: bool, replaces: bool) -> None:
    """Adds a float. NaN is never least or greatest, unless it is all there is, and not counted."""
    best, is_number = running.floats[index], not np.isnan(value)
    if function == Function.COUNT_NUMBERS:
        running.size[index] += is_number
    else:
        running.size[index] += 1
        if function == Function.SUM or function == Function.MEAN:  # noqa: PLR1714
            add_to_sum(running.sums, index, value, 1)
        elif function == Function.MIN:
            if is_first or value <= best or (np.isnan(best) and is_number):
                running.floats[index] = value
        elif function == Function.MAX:
            if is_first or value >= best or (np.isnan(best) and is_number):
                running.floats[index] = value
        elif replaces:
            running.floats[index] = value


@inlined
def _add_integer(function: int, running: Running, index: int, value: int, is_first: bool, replaces: bool) -> None:
    """Adds an integer or a boolean."""
    best = running.integers[index]
    running.size[index] += 1
    if function == Function.COUNT_TRUE or function == Function.SUM:  # noqa: PLR1714
        running.integers[index] = value if is_first else best + value
    elif function == Function.MEAN:
        running.integers[index] = best + (value >> 32)
        running.low[index] += value & 0xFFFFFFFF
    elif function == Function.MIN:
        running.integers[index] = value if is_first else min(best, value)
    elif function == Function.MAX:
        running.integers[index] = value if is_first else max(best, value)
    elif replaces:
        running.integers[index] = value


@borrowing
def finish_match(aggregation: Aggregation, candidates: int, match: int) -> None:
    """Writes the aggregates of one match. A count has a value even if it counted nothing."""
    arguments, running, results = aggregation.arguments, aggregation.running, aggregation.results
    for index in range(len(arguments.function)):
        function, size = arguments.function[index], running.size[index]
        results.is_valid[index, match] = size > 0 or function <= Function.COUNT_NUMBERS
        results.integers[index, match] = running.integers[index]
        results.floats[index, match] = running.floats[index]
        # Where the result is not what was added up.
        if function == Function.COUNT:
            results.integers[index, match] = candidates
        elif function == Function.COUNT_TRUE and size == 0:
            results.integers[index, match] = 0
        elif function == Function.COUNT_NUMBERS:
            results.integers[index, match] = size
        elif function == Function.MEAN and size > 0:
            if arguments.is_float[index]:
                results.floats[index, match] = rounded_sum(running.sums, index) / size
            else:
                high, low = running.integers[index], running.low[index]
                results.floats[index, match] = mean_of_integers(high, low, size)
        elif function == Function.SUM and arguments.is_float[index] and size > 0:
            results.floats[index, match] = rounded_sum(running.sums, index)
