"""Looking ahead: of many events that may come next, the first for which one condition holds.

Takes a program whose steps all lanes can take together, and where the search stands; gives the position to go on with. Each
step is done for a block of events before the next one, so that what costs much with one event after the other, finding
out which step it is, is paid once a block. It decides nothing: who asks for it tries that event as any other. The
steps mean what they mean in `runtime.matching.kernel.evaluator`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from runtime.columns.expressions import divide, remainder
from runtime.compiled import borrowing, inlined
from runtime.instants import NEVER
from runtime.matching.kernel.evaluator import Conditions
from runtime.matching.kernel.program import STACK, KernelProgram, Operation

Integers = NDArray[np.int64]

FIRST_ROOM = 32
ROOM = 128
"""How many events a block holds; the first one of a look is smaller, as what is looked for may be near."""


class Block(NamedTuple):
    """Lanes of a block: the events' positions, which of them may still hold, and stacks by (place, lane).

    Of each linked input the events of the key at hand that have been asked for: `listed[row]`, their positions; `rank[row, p]`,
    how many of them stand before position p (within the key); `reach[row]`, where the key begins, how far it is listed, and how many
    events that were.
    """

    places: Integers
    good: Integers
    whole: Integers
    real: NDArray[np.float64]
    listed: NDArray[np.int32]
    rank: NDArray[np.int32]
    reach: Integers


def new_block(links: int, widest: int) -> Block:
    """Room for any program, so many linked inputs and keys of so many events."""
    shape = STACK + 1, ROOM
    listed, rank = np.empty((links, widest), np.int32), np.empty((links, widest), np.int32)
    lanes = np.empty(ROOM, np.int64), np.empty(ROOM, np.int64), np.empty(shape, np.int64), np.empty(shape)
    return Block(*lanes, listed, rank, np.full((links, 3), -1, np.int64))


def patience(program: KernelProgram, number: int) -> int:
    """How many events are tried one by one before it is looked ahead: fewer for a long expression. NEVER: all, as lanes cannot
    take its steps together where some are skipped."""
    steps = program.code[program.ends[number] : program.ends[number + 1], 0]
    if (steps >= Operation.SKIP_IF_FALSE).any():
        return NEVER
    return 4 if len(steps) <= 3 else 2


@inlined
def _list_events(block: Block, input_of: NDArray[np.int16], item: int, row: int, begin: int, event: int) -> None:
    """Lists the events of an input in the key that begins at `begin`, up to position `event`."""
    reach = block.reach[row]
    if reach[0] != begin:
        reach[0], reach[1], reach[2] = begin, begin, 0
    for position in range(reach[1], event + 1):
        block.rank[row, position - begin] = reach[2]
        block.listed[row, reach[2]] = position
        reach[2] += input_of[position] == item
    reach[1] = event + 1


@inlined
def _first_after(time: Integers, listed: NDArray[np.int32], first: int, stop: int, horizon: int) -> int:
    """The first entry, from `first` to before `stop`, of an event after the horizon; `stop` if there is none."""
    if first < stop and time[listed[first]] <= horizon:
        while first < stop:
            middle = (first + stop) >> 1
            if time[listed[middle]] > horizon:
                stop = middle
            else:
                first = middle + 1
    return first


@borrowing
def look_ahead(
    time: Integers,
    superseded: Integers,
    input_of: NDArray[np.int16],
    item: int,
    row: int,
    conditions: Conditions,
    number: int,
    position: int,
    event: int,
    begin: int,
    lowest: int,
    horizon: int,
    bound: Integers,
    block: Block,
) -> int:
    """The first position, from this one of the input `item` backwards, for which an expression is true; -1: there is none.

    `row`: of the input's links. Events stand from position `lowest` on, and their time is after `horizon`; terms that are not bound
    are the event itself.
    """
    if position < lowest:
        return -1
    _list_events(block, input_of, item, row, begin, event)
    room, places, listed, last = FIRST_ROOM, block.places, block.listed[row], block.rank[row, position - begin]
    first = _first_after(time, listed, block.rank[row, lowest - begin], last + 1, horizon)
    while last >= first:
        count = min(room, last - first + 1)
        for lane in range(count):
            places[lane] = listed[last - lane]
        last -= count
        for lane in range(count):
            block.good[lane] = 1
        if len(superseded) > 0:
            for lane in range(count):
                block.good[lane] = superseded[places[lane]] > event
        if _any_holds(conditions, number, bound, block, count):
            for lane in range(count):
                if block.good[lane] != 0:
                    return places[lane]
        room = ROOM
    return -1


@inlined
def _any_holds(conditions: Conditions, number: int, bound: Integers, block: Block, count: int) -> bool:
    """Evaluates an expression for the first lanes; leaves those good for which it is true, and says whether there are any."""
    code, whole, real, good, places = conditions.code, block.whole, block.real, block.good, block.places
    i = f = -1
    for at in range(conditions.ends[number], conditions.ends[number + 1]):
        step, operand = code[at, 0], code[at, 1]
        if step == 1:
            f += 1
            mask, position = conditions.float_mask[operand], bound[code[at, 2]]
            if position >= 0:
                if mask >= 0 and not conditions.float_valid[mask, position]:
                    return False
                for lane in range(count):
                    real[f, lane] = conditions.float_columns[operand, position]
            else:
                for lane in range(count):
                    real[f, lane] = conditions.float_columns[operand, places[lane]]
                if mask >= 0:
                    for lane in range(count):
                        good[lane] &= np.int64(conditions.float_valid[mask, places[lane]])
        elif step == 0:
            i += 1
            mask, position = conditions.integer_mask[operand], bound[code[at, 2]]
            if position >= 0:
                if mask >= 0 and not conditions.integer_valid[mask, position]:
                    return False
                for lane in range(count):
                    whole[i, lane] = conditions.integer_columns[operand, position]
            else:
                for lane in range(count):
                    whole[i, lane] = conditions.integer_columns[operand, places[lane]]
                if mask >= 0:
                    for lane in range(count):
                        good[lane] &= np.int64(conditions.integer_valid[mask, places[lane]])
        elif step == 2:
            i += 1
            for lane in range(count):
                whole[i, lane] = conditions.integers[operand]
        elif step == 3:
            f += 1
            for lane in range(count):
                real[f, lane] = conditions.floats[operand]
        elif step < 20:
            i -= 1
            if step == 10:
                for lane in range(count):
                    whole[i, lane] += whole[i + 1, lane]
            elif step == 11:
                for lane in range(count):
                    whole[i, lane] -= whole[i + 1, lane]
            elif step == 12:
                for lane in range(count):
                    whole[i, lane] *= whole[i + 1, lane]
            else:
                for lane in range(count):
                    a, b = whole[i, lane], whole[i + 1, lane]
                    if b == 0:
                        good[lane] = 0
                    else:
                        whole[i, lane] = divide(a, b) if step == 13 else remainder(a, b)
        elif step < 30:
            f -= 1
            if step == 20:
                for lane in range(count):
                    real[f, lane] += real[f + 1, lane]
            elif step == 21:
                for lane in range(count):
                    real[f, lane] -= real[f + 1, lane]
            elif step == 22:
                for lane in range(count):
                    real[f, lane] *= real[f + 1, lane]
            elif step == 23:
                for lane in range(count):
                    real[f, lane] /= real[f + 1, lane]
            else:
                for lane in range(count):
                    real[f, lane] = np.fmod(real[f, lane], real[f + 1, lane])
        elif step < 40:
            i -= 1
            if step == 30:
                for lane in range(count):
                    whole[i, lane] = whole[i, lane] == whole[i + 1, lane]
            elif step == 31:
                for lane in range(count):
                    whole[i, lane] = whole[i, lane] != whole[i + 1, lane]
            elif step == 32:
                for lane in range(count):
                    whole[i, lane] = whole[i, lane] < whole[i + 1, lane]
            else:
                for lane in range(count):
                    whole[i, lane] = whole[i, lane] <= whole[i + 1, lane]
        elif step < 50:
            f -= 2
            i += 1
            if step == 40:
                for lane in range(count):
                    whole[i, lane] = real[f + 1, lane] == real[f + 2, lane]
            elif step == 41:
                for lane in range(count):
                    whole[i, lane] = real[f + 1, lane] != real[f + 2, lane]
            elif step == 42:
                for lane in range(count):
                    whole[i, lane] = real[f + 1, lane] < real[f + 2, lane]
            else:
                for lane in range(count):
                    whole[i, lane] = real[f + 1, lane] <= real[f + 2, lane]
        elif step == 50:
            for lane in range(count):
                whole[i, lane] = 1 - whole[i, lane]
        elif step == 51:
            for lane in range(count):
                whole[i, lane] = -whole[i, lane]
        elif step == 52:
            for lane in range(count):
                real[f, lane] = -real[f, lane]
        elif step == 53:
            f += 1
            for lane in range(count):
                real[f, lane] = np.float64(whole[i, lane])
            i -= 1
        else:
            i += 1
            for lane in range(count):
                x = real[f, lane]
                if x >= -9223372036854775808.0 and x < 9223372036854775808.0:
                    whole[i, lane] = np.int64(x)
                else:
                    good[lane] = 0
            f -= 1
    found = 0
    for lane in range(count):
        good[lane] &= np.int64(whole[0, lane] != 0)
        found += good[lane]
    return found > 0
