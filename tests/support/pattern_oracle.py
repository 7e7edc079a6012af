"""The *recent* policy by enumeration: every candidate is made, every rule is asked, the most recent one wins.

For patterns joined by `->`. Uses nothing of `runtime`.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from tests.support.admission_oracle import Key, Released
from tests.support.conditions import is_true
from tests.support.scenario import Scenario


@dataclass(frozen=True)
class Found:
    """A match: the offsets of the terms' events, and when it came out."""

    offsets: tuple[int, ...]
    key: Key
    time: int
    emitted: int
    step: int
    definitive: float


def find(scenario: Scenario, released: Sequence[Released]) -> list[Found]:
    """All matches, in the order in which they come out."""
    partitions: dict[Key, list[Released]] = defaultdict(list)
    for event in released:
        partitions[event.key].append(event)
    found = [
        match
        for events in partitions.values()
        for match in (best(scenario, events[: number + 1]) for number in range(len(events)))
        if match is not None
    ]
    return sorted(found, key=lambda match: (match.emitted, match.step, match.key))


def best(scenario: Scenario, events: Sequence[Released]) -> Found | None:
    """The winning candidate that contains the last of these events of one partition."""
    latest = len(events) - 1
    windows = [window(scenario, events, index) for index in range(len(scenario.inputs))]
    indexes = [scenario.input_of(event) for event in scenario.pattern]
    choices = [windows[index] for index in indexes if index is not None]
    candidates = [
        chosen
        for chosen in itertools.product(*choices)
        if latest in chosen and all(left < right for left, right in itertools.pairwise(chosen))
    ]
    good = [chosen for chosen in candidates if holds(scenario, [events[position] for position in chosen])]
    if not good:
        return None
    winner = max(good, key=lambda chosen: sorted(chosen, reverse=True))
    newest = events[latest]
    offsets = tuple(events[position].offset for position in winner)
    return Found(offsets, newest.key, newest.time, newest.emitted, newest.step, newest.definitive)


def window(scenario: Scenario, events: Sequence[Released], index: int) -> list[int]:
    """Positions of an input's events in its window at the moment of the last event."""
    item = scenario.inputs[index]
    own = [position for position, event in enumerate(events) if event.input == index]
    if item.retain is not None:
        own = own[-item.retain :]
    return [p for p in own if item.within is None or events[-1].time - events[p].time < item.within]


def holds(scenario: Scenario, chosen: Sequence[Released]) -> bool:
    """`within` and every `where`."""
    times = [event.time for event in chosen]
    if scenario.within is not None and not max(times) - min(times) < scenario.within:
        return False
    bound = [asdict(event.row) | {"id": event.offset} for event in chosen]
    return all(is_true(condition, bound) for condition in scenario.conditions)
