"""What a query finds, by enumeration: `find`, `find every` and waits over all candidates (`candidates`).

Admitted events come from the admission oracle, whose clock also says when a wait ends. Uses nothing of `runtime`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

from tests.support import admission_oracle
from tests.support.admission_oracle import AdmissionOracle, Key, Released, Rung
from tests.support.aggregates import selected
from tests.support.candidates import Candidate, Judge, reaches_wait, recency
from tests.support.scenario import Scenario, null_first


@dataclass(frozen=True)
class Found:
    """A match: the offsets of the names' events (none under `every`), what was selected, and when it came out."""

    offsets: tuple[int | None, ...]
    key: Key
    time: int
    emitted: int
    step: int
    definitive: float
    selected: tuple[Any, ...] = ()
    rank: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())


@lru_cache(maxsize=100)
def run(scenario: Scenario) -> tuple[AdmissionOracle, list[Found]]:
    """The whole stream: what became of each row, and all matches in the order in which they come out.

    Raises TooManyError. Drawing a scenario runs it already, so the last results are cached.
    """
    admitted = admission_oracle.run(scenario, timer_of(scenario))
    return admitted, find(scenario, admitted)


def timer_of(scenario: Scenario) -> admission_oracle.Timer:
    """When a trailing wait that starts with the last of a partition's events ends."""
    return partial(_due, scenario)


def _due(scenario: Scenario, events: Sequence[Released]) -> int | None:
    if scenario.trailing is None or best(Judge(scenario, events)) is None:
        return None
    return events[-1].time + scenario.trailing.length


def find(scenario: Scenario, admitted: AdmissionOracle) -> list[Found]:
    """All matches, in the order in which they come out."""
    found = []
    for partition in admitted.partitions.values():
        events = partition.entered
        if scenario.trailing is None:
            outcomes = (_at_once(scenario, events[: number + 1]) for number in range(len(events)))
        else:
            own = [rung for rung in admitted.rung if events and rung.key == events[0].key]
            outcomes = (_waited(scenario, events, rung) for rung in own)
        found += [match for match in outcomes if match is not None]
    return sorted(found, key=lambda match: (match.emitted, match.step, null_first(match.key), match.time, match.rank))


def best(judge: Judge) -> Candidate | None:
    """The winner among the candidates that contain the latest event and satisfy all conditions."""
    latest = len(judge.events) - 1
    return next((item for item in judge.candidates() if latest in item.values() and judge.holds(item)), None)


def _at_once(scenario: Scenario, events: Sequence[Released]) -> Found | None:
    """What the last of these events of one partition brings."""
    judge, latest = Judge(scenario, events), events[-1]
    place = (latest.key, latest.time, latest.emitted, latest.step, latest.definitive)
    if scenario.every is None:
        winner = best(judge)
        return None if winner is None else Found(_offsets(judge, winner), *place, (), recency(scenario.names, winner))
    good = [candidate for candidate in reversed(judge.candidates()) if judge.holds(candidate)]
    if not any(len(events) - 1 in candidate.values() for candidate in good):
        return None
    values = selected(scenario.every, [judge.bound(candidate) for candidate in good])
    return None if values is None else Found((), *place, values, ((len(events) - 1,), ()))


def _waited(scenario: Scenario, events: Sequence[Released], rung: Rung) -> Found | None:
    """The match whose wait has ended, if the conditions that had to wait hold."""
    count = rung.alarm.count
    started = Judge(scenario, events[:count])
    winner = best(started)
    assert winner is not None, "a match started the wait"
    windows = {event: [*live, *_added(scenario, events, event, count)] for event, live in started.windows.items()}
    whole = Judge(scenario, events)
    if not all(whole.is_met(item, winner, windows) for item in scenario.clauses if reaches_wait(scenario, item)):
        return None
    place = (rung.key, rung.alarm.due, rung.emitted, rung.step, rung.definitive)
    return Found(_offsets(started, winner), *place, (), recency(scenario.names, winner))


def _added(scenario: Scenario, events: Sequence[Released], event: str, since: int) -> list[int]:
    """The positions of an input's events that were added since the wait began."""
    index = scenario.input_of(event)
    return [position for position in range(since, len(events)) if events[position].input == index]


def _offsets(judge: Judge, winner: Candidate) -> tuple[int | None, ...]:
    return tuple(judge.events[winner[name]].offset if name in winner else None for name in judge.names)
