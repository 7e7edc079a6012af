"""When an input's records count as happened: what of a query's time policies the engine needs to know.

An input's policy is chosen for its source (`querylang.plan.model.TimePolicy`), or, without one, is what the query says: `wait`,
`or Heartbeat`, `@OutOfOrder`. Timelines of the second kind belong to one input and one partition key; those of the
first may be shared by many keys (`runtime.admission.shared_clock`). What the settings do is in `runtime.admission.rules` and `runtime.admission.per_key`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from querylang.plan.model import Input, QueryPlan, TimelineKind, known, plain_field
from runtime.instants import NEVER

DEFAULT_LEEWAY = 10_000_000
"""delayLeeway: a record older than this when it arrives is held (Apama 10.0 help, "Out of order events")."""

DEFAULT_REORDER = 10_000_000
"""reorderBuffer: how long such a record is held (same source)."""

NO_WAIT = -1
"""Stands for "no `wait`" in columns of lengths: events happen when they arrive."""

BY_CLOCK = -2
"""Stands for "its source has a policy" there: `runtime.admission.shared_clock` judges its records and says when they are definitive."""


def is_clocked(item: Input) -> bool:
    """Whether a policy chosen for the source puts an input's records in order, not what the query says."""
    return item.policy is not None and not item.policy.is_per_key


def uses_source_time(item: Input) -> bool:
    """Whether an input's events happen at their source time, not at their arrival."""
    return item.wait is not None or is_clocked(item)


def adjusts(query: QueryPlan) -> bool:
    """Whether an event of the query may get another time than its own."""
    return any(item.policy is not None and item.policy.action != "drop" for item in query.inputs)


def has_ends(query: QueryPlan) -> bool:
    """Whether a query's events may be intervals."""
    return any(item.policy is not None and item.policy.events_last for item in query.inputs)


def key_places(query: QueryPlan, inputs: tuple[int, ...]) -> tuple[int, ...] | None:
    """Where the fields that these inputs' substreams are told apart by stand among the query's keys; None: not all are keys."""
    policy = query.inputs[inputs[0]].policy
    assert policy is not None, "only of inputs with a policy"
    places = []
    for index in inputs:
        fields = [plain_field(key) for key in query.inputs[index].keys]
        if not set(policy.over) <= set(fields):
            return None
        places.append(tuple(fields.index(field) for field in policy.over))
    return places[0] if policy.timeline is TimelineKind.SUBSTREAM and len(set(places)) == 1 else None


def clock_inputs(query: QueryPlan) -> list[tuple[int, ...]]:
    """The inputs that have a clock together: those of one policy that a source can bring, directly or by way of others; but
    each input by itself where timelines are event types."""
    groups: list[list[int]] = []
    for index, item in enumerate(query.inputs):
        if is_clocked(item):
            mine = [group for group in groups if any(_are_together(item, query.inputs[other]) for other in group)]
            groups = [group for group in groups if group not in mine]
            groups.append(sorted([*(other for group in mine for other in group), index]))
    return [tuple(group) for group in sorted(groups)]


def _are_together(one: Input, other: Input) -> bool:
    """Whether the same source partition can bring events of both inputs, under one policy."""
    is_by_type = one.policy is not None and one.policy.timeline is TimelineKind.EVENT_TYPE
    are_apart = one.sources and other.sources and not set(one.sources) & set(other.sources)
    return one.policy == other.policy and not is_by_type and not are_apart


def is_by_substream(query: QueryPlan, inputs: tuple[int, ...]) -> bool:
    """Whether the values of fields tell the timelines of these inputs apart."""
    policy = query.inputs[inputs[0]].policy
    return policy is not None and policy.timeline is TimelineKind.SUBSTREAM


def shares_clock(query: QueryPlan) -> bool:
    """Whether keys of the query depend on each other's records, so that all of them have to be in one place: they do not where each
    substream has one key, the fields that tell substreams apart being all of the key's."""
    places = [key_places(query, inputs) for inputs in clock_inputs(query)]
    return any(found is None or set(found) != set(range(len(query.keys))) for found in places)


class PolicyColumns(NamedTuple):
    """The inputs' timelines by key as the admission kernel takes them, one entry an input.

    `delay`: the largest delay, NO_WAIT or BY_CLOCK; `moves`: whether records move the bound; `early`: how far a record's
    time may be ahead of its arrival (NEVER: as far as it likes); `leeway`, `reorder`: what is allowed at the start.
    """

    delay: NDArray[np.int64]
    moves: NDArray[np.bool_]
    early: NDArray[np.int64]
    leeway: NDArray[np.int64]
    reorder: NDArray[np.int64]


def policy_columns(query: QueryPlan) -> PolicyColumns:
    """What holds for each input of the query."""
    chosen = [None if is_clocked(item) else item.policy for item in query.inputs]
    given = [
        (None, None, None) if policy is None else (policy.early, policy.leeway, policy.reorder) for policy in chosen
    ]
    standard = (NEVER, DEFAULT_LEEWAY, DEFAULT_REORDER)
    columns = np.array(
        [
            [fallback if value is None else value for value, fallback in zip(row, standard, strict=True)]
            for row in given
        ],
        np.int64,
    )
    return PolicyColumns(
        delay=np.array([_delay(item) for item in query.inputs], np.int64),
        moves=np.array([not item.out_of_order for item in query.inputs]),
        early=columns[:, 0].copy(),
        leeway=columns[:, 1].copy(),
        reorder=columns[:, 2].copy(),
    )


def _delay(item: Input) -> int:
    if is_clocked(item):
        return BY_CLOCK
    return NO_WAIT if item.wait is None else min(known(item.wait), NEVER)


def definitive_times(
    bounds: NDArray[np.int64], everywhere: NDArray[np.int64], delay: NDArray[np.int64], clock: int
) -> NDArray[np.int64]:
    """How far a query's own timelines have come by key, at `clock`: the least over its inputs; NEVER: it has none.

    `bounds`: (keys, inputs), what each timeline has reached by punctuation and records; `everywhere`: per input, what
    punctuation for every key has reached.
    """
    anyway = np.maximum(clock - delay, everywhere)
    reached: NDArray[np.int64] = np.full(len(bounds), NEVER)
    for item, length in enumerate(delay.tolist()):
        if length == NO_WAIT:
            np.minimum(reached, clock, out=reached)
        elif length != BY_CLOCK:
            np.minimum(reached, np.maximum(bounds[:, item], anyway[item]), out=reached)
    return reached
