"""Which of a partition's events may still matter, by trying every future: what eviction must not drop.

An event matters if there are events to come, at definitive time at the earliest, with which it is bound by a candidate, lies
in the range of a `without` of its type, or holds a `retain` slot against such an event. Nothing is asked of values: `where`
clauses may hold or not, and what is to come is nobody's duplicate. Uses nothing of `runtime`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace

from tests.support.admission_oracle import Released
from tests.support.candidates import Candidate, Judge
from tests.support.patterns import Within, Without, leaves_of
from tests.support.scenario import Row, Scenario


def needed(scenario: Scenario, events: Sequence[Released], definitive: int) -> set[int]:
    """The offsets of the events, all of one partition, that may still matter. Raises TooManyError."""
    if not events:
        return set()
    without_slots = replace(
        scenario, inputs=tuple(item if item.retain is None else replace(item, unique=()) for item in scenario.inputs)
    )
    found: set[int] = set()
    for later in futures(scenario, events[-1], definitive):
        judge = Judge(without_slots, [*events, *later])
        found |= {place for place in _used(judge) if place < len(events)}
    return {events[place].offset for place in found}


def futures(scenario: Scenario, last: Released, definitive: int) -> Iterator[list[Released]]:
    """Every sequence of types, no longer than the pattern has names, all as early as can be."""
    for count in range(1, len(leaves_of(scenario.pattern)) + 1):
        for inputs in itertools.product(range(len(scenario.inputs)), repeat=count):
            yield [
                replace(
                    last, offset=-1, input=index, time=definitive, row=Row(definitive, scenario.inputs[index].event)
                )
                for index in inputs
            ]


def _used(judge: Judge) -> set[int]:
    """The positions that the candidates at the latest event use; with `every` those of all candidates."""
    latest = len(judge.events) - 1
    good = [item for item in judge.candidates() if _is_short(judge, item)]
    with_latest = [item for item in good if latest in item.values()]
    chosen = with_latest if judge.scenario.every is None else good if with_latest else []
    bound = {place for item in chosen for place in item.values()}
    return bound | {place for item in chosen for place in _inside(judge, item)}


def _is_short(judge: Judge, item: Candidate) -> bool:
    """Whether the candidate meets every `within`."""
    clauses = [clause for clause in judge.scenario.clauses if isinstance(clause, Within)]
    return all(judge.is_met(clause, item, judge.windows) for clause in clauses)


def _inside(judge: Judge, item: Candidate) -> Iterator[int]:
    """The events that a `without` may be about; one that mentions an unset name is ignored."""
    for clause in judge.scenario.clauses:
        unset = set(getattr(clause, "between", ())) & (set(judge.names) - set(item))
        if isinstance(clause, Without) and not unset:
            yield from (place for place in judge.windows[clause.event] if judge.is_inside(clause, item, place))
