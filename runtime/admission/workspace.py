"""What admission works on, and in: a case with its facts, and room for one key at a time.

All tuples of arrays and numbers: kernels take them apart at their beginning.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from runtime.admission.arrays import Came, Integers, Punctuation, Ready, Released, Rows, Timers
from runtime.instants import NO_TIME
from runtime.policies.per_input import BY_CLOCK, PolicyColumns


class Case(NamedTuple):
    """What is to be admitted, and where the answer goes: see `runtime.admission.per_key.admit`. `came`: rows one key after the other."""

    rows: Rows
    came: Came
    punctuation: Punctuation
    policies: PolicyColumns
    bounds: Integers
    everywhere: Integers
    limit: int
    timers: Timers
    ready: Ready
    released: Released


class Progress(NamedTuple):
    """How far admission has come: the next key, the next free positions, and as `runtime.admission.per_key.Admitted` has it."""

    key: int
    out: int
    left: int
    next_due: int
    last_due: int


class Facts(NamedTuple):
    """`longest` and `shortest`: the largest and the least delay, an input without `wait`, or with a shared clock, has none;
    `longest_own`: of the keys' own timelines, -1: they have none; `is_still`: only the clock moves them. Whether any record is a
    heartbeat; whether a key may be simple (`runtime.admission.per_key_sorted`); whether definitive time may be just `longest` behind the
    clock: no heartbeat was for every key so far, and no clock is shared; `is_shared`: one is."""

    longest: int
    shortest: int
    longest_own: int
    is_still: bool
    any_beats: bool
    may_be_simple: bool
    may_be_quiet: bool
    is_shared: bool


def facts_of(case: Case) -> Facts:
    """What holds for all keys of a case."""
    delay, everywhere = case.policies.delay, case.everywhere
    may_move = bool((case.policies.moves & (delay >= 0)).any())
    is_shared = bool(delay.min() == BY_CLOCK)
    own = delay[delay != BY_CLOCK]
    any_beats = bool(case.rows.beats.any())
    return Facts(
        longest=max(0, int(delay.max())),
        shortest=int(np.maximum(delay, 0).min()),
        longest_own=max(0, int(own.max())) if len(own) else -1,
        is_still=not may_move and max(int(everywhere.max()), int(case.bounds.max(initial=NO_TIME))) == NO_TIME,
        any_beats=any_beats,
        may_be_simple=not any_beats and not len(case.punctuation.beat_row),
        may_be_quiet=bool(everywhere.max() == NO_TIME) and not is_shared,
        is_shared=is_shared,
    )


class Steps(NamedTuple):
    """How the timelines of the key at hand go up by records, by input: step n is to `time[item, n]`, by the record at
    `place[item, n]`; `size`: how many steps there are. `next`, `seen`: how far two pointers have come along them."""

    time: Integers
    place: Integers
    size: Integers
    next: Integers
    seen: Integers


class Room(NamedTuple):
    """Room for one key at a time: `common` to `pending_number` as `runtime.admission.per_key` has them, `steps` as `runtime.admission.per_key_sorted`."""

    common: Integers
    held_time: Integers
    held_ripe: Integers
    held: Integers
    pending_time: Integers
    pending_number: Integers
    steps: Steps


def new_room(case: Case) -> Room:
    """Room for the key of the case that has most rows and timers."""
    inputs = len(case.everywhere)
    widest = int((np.diff(case.rows.start) + np.diff(case.timers.start)).max(initial=1))
    return Room(
        common=np.empty(inputs, np.int64),
        held_time=np.empty((inputs, widest), np.int64),
        held_ripe=np.empty((inputs, widest), np.int64),
        held=np.zeros(inputs, np.int64),
        pending_time=np.empty(widest, np.int64),
        pending_number=np.empty(widest, np.int64),
        steps=_new_steps(inputs, widest),
    )


def _new_steps(inputs: int, widest: int) -> Steps:
    """Room for one key of so many rows."""
    time, place = np.empty((inputs, widest), np.int64), np.empty((inputs, widest), np.int64)
    return Steps(time, place, *(np.zeros(inputs, np.int64) for _ in range(3)))
