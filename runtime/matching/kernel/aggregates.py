"""Aggregate the candidates of a `find every`.

What each aggregate means is defined in `runtime.interpreter.aggregates`; here it is computed one
candidate at a time.
"""

from __future__ import annotations

import math
from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from runtime.column_types import Integers
from runtime.compiling.compiled import borrowing, inlined
from runtime.matching.kernel.evaluator import KNOWN, NULL, LoadedProgram, state_of, state_of_operand
from runtime.matching.kernel.tables import Records
from runtime.matching.kernel.workspace import Matches, is_more_recent

# Exact sums of floats and means of integers, rounded once, when they are read.
#
# A sum is one long integer, in units of the least float. So it depends neither on the order of the
# values nor on what was added and removed before. `runtime.interpreter.aggregates.exact_sum`
# defines the result.

CHUNKS = 70
"""How many chunks of 32 bits a sum has: 66 for the greatest float, the others for carries."""

CHUNK_BITS, LOW_BITS = 32, 0xFFFFFFFF
UNIT = -1074
"""The least float is 2 ** UNIT."""

DIGITS = 53
"""The bits of a float's significand."""

GREATEST_SHIFT = 971 - UNIT
"""By how many bits the integer significand of the greatest floats is shifted."""


class ExactSums(NamedTuple):
    """Sums by number.

    chunks: by (sum, chunk): chunk c counts 2 ** (32 * c + UNIT). A chunk may be negative or have
        carries, up to 2 ** 31 values fit
    first, last: the chunks that have been used
    odd: by (sum, kind), how many values are NaN, infinity and minus infinity
    carried: a sum with its carries, while it is read
    """

    chunks: Integers
    first: Integers
    last: Integers
    odd: Integers
    carried: Integers


def new_exact_sums(count: int) -> ExactSums:
    """So many sums of nothing."""
    first, last = np.full(count, CHUNKS, np.int64), np.full(count, -1, np.int64)
    return ExactSums(
        np.zeros((count, CHUNKS), np.int64), first, last, np.zeros((count, 3), np.int64), np.empty(CHUNKS, np.int64)
    )


@borrowing
def clear_sum(sums: ExactSums, number: int) -> None:
    """Begins a sum again."""
    for chunk in range(sums.first[number], sums.last[number] + 1):
        sums.chunks[number, chunk] = 0
    sums.first[number], sums.last[number] = CHUNKS, -1
    for kind in range(3):
        sums.odd[number, kind] = 0


@borrowing
def add_to_sum(sums: ExactSums, number: int, value: float, times: int) -> None:
    """Adds a value; `times` is 1, or -1 to remove it again."""
    if not math.isfinite(value):
        kind = 0 if math.isnan(value) else 1 if value > 0.0 else 2
        sums.odd[number, kind] += times
        return
    if value == 0.0:
        return
    # The value is `whole` units, shifted to the left. It has 53 bits, so it covers three chunks at
    # most. The last bits of a subnormal float are 0: nothing is lost by a shift to the right.
    fraction, exponent = math.frexp(abs(value))
    whole, shift = int(fraction * 9007199254740992.0), exponent - DIGITS - UNIT
    if shift < 0:
        whole, shift = whole >> -shift, 0
    sign = times if value > 0.0 else -times
    chunk, offset = shift // CHUNK_BITS, shift % CHUNK_BITS
    low = (whole & LOW_BITS) << offset
    high = ((whole >> CHUNK_BITS) << offset) + (low >> CHUNK_BITS)
    sums.chunks[number, chunk] += sign * (low & LOW_BITS)
    sums.chunks[number, chunk + 1] += sign * (high & LOW_BITS)
    sums.chunks[number, chunk + 2] += sign * (high >> CHUNK_BITS)
    sums.first[number] = min(sums.first[number], chunk)
    sums.last[number] = max(sums.last[number], chunk + 2)


@borrowing
def rounded_sum(sums: ExactSums, number: int) -> float:
    """The float that is nearest to the sum, of two the even one; 0.0 for a sum of zero.

    NaN and infinities count as in any order of additions; a sum beyond the floats is an infinity.
    """
    odd, carried = sums.odd, sums.carried
    if odd[number, 0] > 0 or (odd[number, 1] > 0 and odd[number, 2] > 0):
        return math.nan
    if odd[number, 1] > 0:
        return math.inf
    if odd[number, 2] > 0:
        return -math.inf
    # 1. Carry, from the first chunk to three behind the last, which have room for what is carried.
    # What is carried out of these is the sign. The chunks before the first are 0: rounding reads
    # two of them.
    begin, stop, carry = max(0, sums.first[number] - 2), min(CHUNKS, sums.last[number] + 4), 0
    for chunk in range(begin, stop):
        total = sums.chunks[number, chunk] + carry
        carried[chunk] = total & LOW_BITS
        carry = total >> CHUNK_BITS
    is_negative, top = carry < 0, -1
    # 2. The absolute value, whose carry starts with 1 as in any two's complement, and its highest
    # chunk.
    for chunk in range(begin, stop):
        if is_negative:
            total = (carried[chunk] ^ LOW_BITS) - carry
            carried[chunk] = total & LOW_BITS
            carry = -(total >> CHUNK_BITS)
        if carried[chunk] != 0:
            top = chunk
    if top < 0:
        return 0.0
    bits = top * CHUNK_BITS
    highest = carried[top]
    while highest > 0:
        highest >>= 1
        bits += 1
    # 3. The upper 53 bits; the others decide how to round.
    shift = max(0, bits - DIGITS)
    chunk, offset = shift // CHUNK_BITS, shift % CHUNK_BITS
    whole = 0
    for place in range(3):
        if begin <= chunk + place <= top:
            moved = CHUNK_BITS * place - offset
            part = carried[chunk + place]
            whole += part << moved if moved >= 0 else part >> -moved
    if shift > 0:
        chunk, offset = (shift - 1) // CHUNK_BITS, (shift - 1) % CHUNK_BITS
        is_half = begin <= chunk and (carried[chunk] >> offset) & 1 == 1
        is_above = whole & 1 == 1
        if is_half and not is_above:
            is_above = carried[chunk] & ((1 << offset) - 1) != 0
            for lower in range(begin, chunk):
                is_above = is_above or carried[lower] != 0
        if is_half and is_above:
            whole += 1
    result = math.inf
    if shift < GREATEST_SHIFT or (shift == GREATEST_SHIFT and whole < 9007199254740992):
        result = math.ldexp(float(whole), shift + UNIT)
    return -result if is_negative else result


@borrowing
def mean_of_integers(high: int, low: int, count: int) -> float:
    """The float that is nearest to a sum of integers divided by their number, of two the even one.

    high, low: the sum is `high * 2 ** 32 + low`
    count: 1 to 2 ** 31 - 1
    """
    high, low = high + (low >> CHUNK_BITS), low & LOW_BITS
    if -2097152 < high < 2097151:  # the sum has 53 bits at most, so one division rounds it
        return float((high << CHUNK_BITS) + low) / float(count)
    # 1. The absolute value, and its quotient digit by digit, each of 32 bits.
    is_negative = high < 0
    if is_negative:
        high, low = ~high + (1 if low == 0 else 0), (LOW_BITS + 1 - low) & LOW_BITS
    rest = ((high >> CHUNK_BITS) % count << CHUNK_BITS) + (high & LOW_BITS)
    upper, rest = rest // count, (rest % count << CHUNK_BITS) + low
    lower, rest = rest // count, rest % count
    if upper >> 31:  # the mean of least integers only
        return -9223372036854775808.0
    whole, exponent = (upper << CHUNK_BITS) + lower, 0
    # 2. At least 55 bits; what is left over decides how to round.
    while whole < 36028797018963968:
        rest <<= 1
        whole, exponent = (whole << 1) + (1 if rest >= count else 0), exponent - 1
        if rest >= count:
            rest -= count
    extra = 0
    while whole >> extra >= 9007199254740992:
        extra += 1
    left, half = whole & ((1 << extra) - 1), 1 << (extra - 1)
    whole >>= extra
    if left > half or (left == half and (rest > 0 or whole & 1 == 1)):
        whole += 1
    result = math.ldexp(float(whole), exponent + extra)
    return -result if is_negative else result


class Function(IntEnum):
    """The aggregates that the kernel knows; `runtime.interpreter.aggregates` defines them."""

    COUNT = 0
    COUNT_TRUE = 1
    COUNT_NUMBERS = 2
    COUNT_UNIQUE = 3
    SUM = 4
    MEAN = 5
    MIN = 6
    MAX = 7
    FIRST = 8
    LAST = 9
    COLLECTED = 10
    """One that needs all of its values at once: see `runtime.matching.kernel.collected`."""


class Arguments(NamedTuple):
    """What the aggregates are about, one entry per aggregate.

    function: its `Function`
    program: of its argument, -1 = it has none
    operand, term: if the argument is one operand's value; -1 = it is not
    is_float: whether what stands for the argument is a float
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


def new_aggregated(aggregates: int, matches: int) -> Aggregated:
    """Without any values."""
    shape = aggregates, matches
    return Aggregated(np.zeros(shape, np.int64), np.zeros(shape, np.float64), np.zeros(shape, np.bool_))


class Seen(NamedTuple):
    """Which values of aggregates there are, by their numbers (`runtime.matching.kernel.program`).

    round: a number that is another one each time the aggregates begin again
    rounds, times: by (aggregate, number), the round that has seen it, and how often it is there
    """

    round: Integers
    rounds: Integers
    times: Integers


def new_seen(aggregates: int, numbers: int) -> Seen:
    """Room for numbers below `numbers`."""
    shape = aggregates, numbers
    return Seen(np.zeros(1, np.int64), np.zeros(shape, np.int64), np.zeros(shape, np.int64))


@inlined
def see(seen: Seen, index: int, number: int, times: int) -> int:
    """Adds a value, or removes it again: `times` is 1 or -1; returns how many more there are."""
    if seen.rounds[index, number] != seen.round[0]:
        seen.rounds[index, number] = seen.round[0]
        seen.times[index, number] = 0
    before = seen.times[index, number]
    seen.times[index, number] = before + times
    more = 0
    if before == 0:
        more = 1
    elif before + times == 0:
        more = -1
    return more


class Running(NamedTuple):
    """The aggregates over the candidates so far, one entry per aggregate.

    size: how many values there were
    integers, floats: sum of integers, least, greatest, first or last value; one of the two, by the
        aggregate's type
    low: of a mean of integers the sum of their lower 32 bits; that of the others is in `integers`
    sums: of floats
    seen: of different values
    best: by (aggregate, term), the candidate of the first or last value; used in ambiguous patterns
        only
    """

    size: Integers
    integers: Integers
    floats: NDArray[np.float64]
    low: Integers
    sums: ExactSums
    seen: Seen
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
    running.seen.round[0] += 1
    for index in range(len(running.size)):
        running.size[index] = running.integers[index] = running.low[index] = 0
        clear_sum(running.sums, index)


@inlined
def state_of_argument(program: LoadedProgram, arguments: Arguments, index: int, bindings: Integers) -> int:
    """Whether an argument has a value for these bindings; leaves it at the bottom of a stack.

    It has none where it mentions a name that is unset.
    """
    result, number = NULL, arguments.program[index]
    is_set = number >= 0
    for at in range(arguments.first[index], arguments.first[index + 1]):
        is_set = is_set and bindings[arguments.mentions[at]] >= 0
    # One operand's value is read without its program.
    if is_set:
        operand, term = arguments.operand[index], arguments.term[index]
        if operand < 0:
            result = state_of(program, number, bindings, KNOWN)
        else:
            result = state_of_operand(program, operand, arguments.is_float[index], bindings[term])
    return result


@inlined
def add_candidate(
    program: LoadedProgram,
    aggregation: Aggregation,
    is_ambiguous: bool,
    is_new: bool,
    bindings: Integers,
    ours: Integers,
    theirs: Integers,
) -> None:
    """Adds one candidate to each aggregate.

    is_new: it is the first one of a match
    ours, theirs: for comparing two candidates
    """
    arguments, running = aggregation.arguments, aggregation.running
    if is_new:
        clear(running)
    for index in range(len(arguments.function)):
        function = arguments.function[index]
        is_set = state_of_argument(program, arguments, index, bindings) == KNOWN
        # Candidates come newest first, so the first value seen is that of `last`, and each value
        # replaces that of `first`. In ambiguous patterns tied candidates come in any order: there
        # the best so far is compared.
        if is_set:
            is_first = running.size[index] == 0
            replaces = is_first or (function == Function.FIRST and not is_ambiguous)
            if is_ambiguous and not is_first and function >= Function.FIRST:
                best, terms = running.best[index], running.best.shape[1]
                is_newer = is_more_recent(bindings, best, terms, ours, theirs)
                replaces = is_newer == (function == Function.LAST)
            if replaces and is_ambiguous:
                for term in range(running.best.shape[1]):
                    running.best[index, term] = bindings[term]
            if arguments.is_float[index]:
                _add_float(function, running, index, program.stack_floats[0], is_first, replaces)
            else:
                _add_integer(function, running, index, program.stack_integers[0], is_first, replaces)


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
    if function == Function.COUNT_UNIQUE:
        running.integers[index] = best + see(running.seen, index, value, 1)
    elif function == Function.COUNT_TRUE or function == Function.SUM:  # noqa: PLR1714
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
        results.is_valid[index, match] = size > 0 or function <= Function.COUNT_UNIQUE
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


@inlined
def bind_found(transitions: Records, binds: Integers, found: Matches, number: int, bindings: Integers) -> None:
    """Sets the bindings to the events of a candidate; the last entry is the new event."""
    bindings[:] = -1
    bindings[len(bindings) - 1] = found.latest[number]
    for index in range(found.first[number], found.first[number + 1]):
        taken = found.transition[index]
        for bind in range(transitions[taken].first_bind, transitions[taken].stop_bind):
            bindings[binds[bind]] = found.event[index]


@borrowing
def aggregate_found(
    program: LoadedProgram,
    aggregation: Aggregation,
    is_ambiguous: bool,
    transitions: Records,
    binds: Integers,
    found: Matches,
    count: int,
    done: int,
    bindings: Integers,
    ours: Integers,
    theirs: Integers,
    latest: Integers,
) -> int:
    """Makes matches of candidates, those of one new event after the other; returns how many.

    found: the candidates, the first `count` of it
    done: how many matches there are already
    bindings: room for the events of one candidate, by term
    latest: by match, the new event
    """
    candidates = 0
    for number in range(count):
        event = found.latest[number]
        bind_found(transitions, binds, found, number, bindings)
        add_candidate(program, aggregation, is_ambiguous, candidates == 0, bindings, ours, theirs)
        candidates += 1
        if number + 1 == count or found.latest[number + 1] != event:
            latest[done] = event
            finish_match(aggregation, candidates, done)
            done, candidates = done + 1, 0
    return done
