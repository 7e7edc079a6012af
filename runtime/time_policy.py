"""When an input's records count as happened: the settings of one timeline.

Frozen settings only; what they do is in `runtime.admission`. `apama` is the preset that a query's inputs ask for by what they
say (`wait`, `or Heartbeat`, `@OutOfOrder`). Lengths are microseconds.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from querylang.plan import Input, QueryPlan, known
from runtime.controls import NEVER

DEFAULT_LEEWAY = 10_000_000
"""delayLeeway: a record older than this when it arrives is held (Apama 10.0 help, "Out of order events")."""

DEFAULT_REORDER = 10_000_000
"""reorderBuffer: how long such a record is held (same source)."""

NO_WAIT = -1
"""Stands for "no `wait`" in columns of lengths: events happen when they arrive."""


@dataclass(frozen=True, slots=True)
class TimePolicy:
    """The bound of one timeline is the largest of: punctuation received; the arrival clock less `max_delay`; with
    `records_move_bound` the newest trusted time; ripe held times. `max_delay` None: time is arrival time."""

    max_delay: int | None
    records_move_bound: bool


def apama(item: Input) -> TimePolicy:
    """The policy of an Apama input: `wait` is the largest delay, `@OutOfOrder` keeps records from moving the bound."""
    delay = None if item.wait is None else min(known(item.wait), NEVER)
    return TimePolicy(max_delay=delay, records_move_bound=not item.out_of_order)


@dataclass(frozen=True, slots=True)
class PolicyColumns:
    """The policies of a query's inputs as the admission kernel takes them, one entry an input."""

    delay: NDArray[np.int64]
    moves: NDArray[np.bool_]


def policy_columns(query: QueryPlan) -> PolicyColumns:
    """One policy an input of the query."""
    policies = [apama(item) for item in query.inputs]
    delay = [NO_WAIT if policy.max_delay is None else policy.max_delay for policy in policies]
    return PolicyColumns(np.array(delay, np.int64), np.array([policy.records_move_bound for policy in policies]))


def definitive_times(
    bounds: NDArray[np.int64], everywhere: NDArray[np.int64], delay: NDArray[np.int64], clock: int
) -> NDArray[np.int64]:
    """A query's definitive time by key, at `clock`: the least over its inputs.

    `bounds`: (keys, inputs), what each timeline has reached by punctuation and records; `everywhere`: per input, what
    punctuation for every key has reached.
    """
    by_clock = np.where(delay == NO_WAIT, clock, clock - delay)
    reached: NDArray[np.int64] = np.maximum(bounds, np.maximum(by_clock, everywhere)).min(axis=1)
    return reached
