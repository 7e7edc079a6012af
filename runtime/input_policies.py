"""The time policies of a query's inputs, in the form that admission needs.

A policy is chosen for the source of an input (`querylang.plan.model.TimePolicy`). Without one, the
query says how events are
ordered: `wait`, `or Heartbeat`, `@OutOfOrder`. The query's own timelines belong to one input and
    one partition key. Those of a source's policy may be shared by many keys
    (`runtime.admission.shared_clock`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from querylang.plan.model import Input, QueryPlan, TimelineKind, known, plain_field
from runtime.instants import NEVER

DEFAULT_LEEWAY = 10_000_000
"""A record older than this at its arrival is held, µs.

delayLeeway in the Apama 10.0 help, "Out of order events".
"""

DEFAULT_REORDER = 10_000_000
"""How long such a record is held, µs (same source: reorderBuffer)."""

NO_WAIT = -1
"""In columns of lengths: the input has no `wait`, the time of its events is their arrival."""

BY_CLOCK = -2
"""In columns of lengths: the input's source has a policy, and a shared clock judges its records."""


def is_clocked(item: Input) -> bool:
    """Whether the policy of its source orders an input's records, not the query itself."""
    return item.policy is not None and not item.policy.is_per_key


def uses_source_time(item: Input) -> bool:
    """Whether the time of an input's events is their source time, not their arrival."""
    return item.wait is not None or is_clocked(item)


def adjusts(query: QueryPlan) -> bool:
    """Whether events of the query can be adjusted: get another time than their own."""
    return any(item.policy is not None and item.policy.action != "drop" for item in query.inputs)


def has_ends(query: QueryPlan) -> bool:
    """Whether a query's events may be intervals."""
    return any(item.policy is not None and item.policy.events_last for item in query.inputs)


def key_places(query: QueryPlan, inputs: tuple[int, ...]) -> tuple[int, ...] | None:
    """Where the fields of substreams are among the query's keys; None = not all are keys."""
    policy = query.inputs[inputs[0]].policy
    assert policy is not None, "the inputs of a clock have a policy"
    places = []
    for index in inputs:
        keys = query.inputs[index].keys
        fields = [None if place in query.optional_keys else plain_field(key) for place, key in enumerate(keys)]
        if not set(policy.over) <= set(fields):
            return None
        places.append(tuple(fields.index(field) for field in policy.over))
    return places[0] if policy.timeline is TimelineKind.SUBSTREAM and len(set(places)) == 1 else None


def clock_inputs(query: QueryPlan) -> list[tuple[int, ...]]:
    """The inputs that share a clock, by clock.

    Inputs share a clock if they have the same policy and one source can bring events of both. That
    is transitive: two inputs may be connected by a third one. If timelines are event types, each
    type has a clock of its own.
    """
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
    return one.policy == other.policy and (one.event == other.event or not is_by_type) and not are_apart


def is_by_substream(query: QueryPlan, inputs: tuple[int, ...]) -> bool:
    """Whether the timelines of these inputs are substreams."""
    policy = query.inputs[inputs[0]].policy
    return policy is not None and policy.timeline is TimelineKind.SUBSTREAM


def shares_clock(query: QueryPlan) -> bool:
    """Whether keys of the query depend on each other's records: then one task processes all.

    They do not if each key has a substream of its own: if the fields of substreams are all keys,
    and all keys are such fields.
    """
    places = [key_places(query, inputs) for inputs in clock_inputs(query)]
    return any(found is None or set(found) != set(range(len(query.keys))) for found in places)


class PolicyColumns(NamedTuple):
    """The settings of the inputs' timelines per key, one entry per input; lengths in µs.

    delay: how far a record may be behind its arrival; NO_WAIT, BY_CLOCK = see there
    moves: whether records advance the bound
    early: how far a record's time may be ahead of its arrival; NEVER = no limit
    leeway: the age from which a record is held, until a control event changes it
    reorder: how long such a record is held, until a control event changes it
    """

    delay: NDArray[np.int64]
    moves: NDArray[np.bool_]
    early: NDArray[np.int64]
    leeway: NDArray[np.int64]
    reorder: NDArray[np.int64]


def policy_columns(query: QueryPlan) -> PolicyColumns:
    """The settings of each input of the query."""
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
    """The watermark of each key by the query's own timelines, the least over its inputs.

    NEVER = there are no such timelines.

    bounds: (keys, inputs), the bound of each timeline by heartbeats and records, µs
    everywhere: by input, the bound by heartbeats for all keys, µs
    delay: `PolicyColumns.delay`
    clock: the clock, µs
    """
    anyway = np.maximum(clock - delay, everywhere)
    reached: NDArray[np.int64] = np.full(len(bounds), NEVER)
    for item, length in enumerate(delay.tolist()):
        if length == NO_WAIT:
            np.minimum(reached, clock, out=reached)
        elif length != BY_CLOCK:
            np.minimum(reached, np.maximum(bounds[:, item], anyway[item]), out=reached)
    return reached
