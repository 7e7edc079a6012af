"""What the aggregates of a `find every` come to over the candidates that the search finds, for those that the kernel knows.

What each aggregate is, is said in `runtime.interpreter.aggregates`; here it is said once more for one candidate after the other.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from runtime.compiled import borrowing, inlined
from runtime.matching.kernel.evaluator import Conditions, has_value
from runtime.matching.kernel.steps import Memory, is_more_recent

Integers = NDArray[np.int64]


class Function(IntEnum):
    """Aggregates that the kernel knows; see `runtime.interpreter.aggregates` for what they are."""

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
    """What the aggregates are about, one entry an aggregate: its `Function`, the number of its argument's program (-1: it has
    none), the operand and the term if that is one operand's value (-1: it is not), whether it is a float, and the terms that it
    mentions and that may be unset, with ends alike."""

    function: Integers
    program: Integers
    operand: Integers
    term: Integers
    is_float: NDArray[np.bool_]
    first: Integers
    mentions: Integers


class Aggregated(NamedTuple):
    """The values of aggregates by (aggregate, match): whole numbers or floats, and whether there is a value."""

    whole: Integers
    real: NDArray[np.float64]
    is_valid: NDArray[np.bool_]


class Running(NamedTuple):
    """What aggregates have come to so far, an entry each: how many values, and a whole number or a float; `best`: the candidate
    that the oldest or newest value is of, by (aggregate, term)."""

    size: Integers
    whole: Integers
    real: NDArray[np.float64]
    best: Integers


class Gathering(NamedTuple):
    """What a `find every` makes of its candidates; not `is_every`: the query is none, and there is nothing to do."""

    is_every: bool
    arguments: Arguments
    running: Running
    results: Aggregated


@inlined
def take(
    program: Conditions, gathering: Gathering, is_ambiguous: bool, is_new: bool, bound: Integers, memory: Memory
) -> None:
    """Adds what one candidate gives to each aggregate; candidates come newest first, unless the pattern is ambiguous.

    `is_new`: it is the first one of a match.
    """
    arguments, running, stacks = gathering.arguments, gathering.running, memory.stacks
    if is_new:
        running.size[:] = 0
    for index in range(len(arguments.function)):
        number, function = arguments.program[index], arguments.function[index]
        is_set = number >= 0
        for at in range(arguments.first[index], arguments.first[index + 1]):
            is_set = is_set and bound[arguments.mentions[at]] >= 0
        if is_set:
            operand, term = arguments.operand[index], arguments.term[index]
            if operand < 0:
                is_set = has_value(program, number, bound, stacks)
            elif arguments.is_float[index]:
                mask, position = program.float_mask[operand], bound[term]
                is_set = mask < 0 or program.float_valid[mask, position]
                stacks.real[0] = program.float_columns[operand, position]
            else:
                mask, position = program.integer_mask[operand], bound[term]
                is_set = mask < 0 or program.integer_valid[mask, position]
                stacks.whole[0] = program.integer_columns[operand, position]
        if is_set:
            is_first = running.size[index] == 0
            replaces = is_first or (function == 7 and not is_ambiguous)
            if is_ambiguous and not is_first and function >= 7:
                best, terms = running.best[index], running.best.shape[1]
                is_newer = is_more_recent(bound, best, terms, memory.ours, memory.theirs)
                replaces = is_newer == (function == 8)
            if replaces and is_ambiguous:
                for term in range(running.best.shape[1]):
                    running.best[index, term] = bound[term]
            if arguments.is_float[index]:
                _add_float(function, running, index, stacks.real[0], is_first, replaces)
            else:
                _add_whole(function, running, index, stacks.whole[0], is_first, replaces)


@inlined
def _add_float(function: int, running: Running, index: int, value: float, is_first: bool, replaces: bool) -> None:
    """One more value of a float. NaN is neither least nor greatest, unless there is nothing else; `count` counts none."""
    best, is_number = running.real[index], value == value  # noqa: PLR0124
    if function == 2:
        running.size[index] += is_number
    else:
        running.size[index] += 1
        if function == 3 or function == 4:  # noqa: PLR1714
            running.real[index] = value if is_first else best + value
        elif function == 5:
            if is_first or value <= best or (best != best and is_number):  # noqa: PLR0124
                running.real[index] = value
        elif function == 6:
            if is_first or value >= best or (best != best and is_number):  # noqa: PLR0124
                running.real[index] = value
        elif replaces:
            running.real[index] = value


@inlined
def _add_whole(function: int, running: Running, index: int, value: int, is_first: bool, replaces: bool) -> None:
    """One more value of an integer or boolean; a mean is of floats."""
    best = running.whole[index]
    running.size[index] += 1
    if function == 1 or function == 3:  # noqa: PLR1714
        running.whole[index] = value if is_first else best + value
    elif function == 4:
        running.real[index] = np.float64(value) if is_first else running.real[index] + np.float64(value)
    elif function == 5:
        running.whole[index] = value if is_first else min(best, value)
    elif function == 6:
        running.whole[index] = value if is_first else max(best, value)
    elif replaces:
        running.whole[index] = value


@borrowing
def finish(gathering: Gathering, candidates: int, match: int) -> None:
    """Fills the aggregates of one match."""
    arguments, running, results = gathering.arguments, gathering.running, gathering.results
    for index in range(len(arguments.function)):
        function, size = arguments.function[index], running.size[index]
        results.is_valid[index, match] = size > 0 or function < 3
        results.whole[index, match] = running.whole[index]
        results.real[index, match] = running.real[index]
        if function == 0:
            results.whole[index, match] = candidates
        elif function == 1 and size == 0:
            results.whole[index, match] = 0
        elif function == 2:
            results.whole[index, match] = size
        elif function == 4 and size > 0:
            results.real[index, match] = running.real[index] / size
