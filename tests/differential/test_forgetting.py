"""What a query remembers is never more than what could still matter; that it is enough is what running in pieces shows."""

from __future__ import annotations

import random

import pytest

from querylang.plan.model import Plan
from runtime.engine.engine import Engine
from tests.differential.compare import pieces_of, plan_of
from tests.differential.patterns import random_queries
from tests.support import pattern_oracle
from tests.support.admission_oracle import AdmissionOracle, Partition
from tests.support.candidates import Judge, reaches_wait, unique_value
from tests.support.patterns import Without
from tests.support.scenario import InputSetup, Scenario, arrivals_of


def retained_at_most(scenario: Scenario, oracle: AdmissionOracle) -> int:
    """How many events windows, what waits to be released and pending waits could need, over all keys."""
    used = {leaf.event for leaf in scenario.leaves}
    used |= {clause.event for clause in scenario.clauses if isinstance(clause, Without)}
    total = 0
    for key, partition in oracle.partitions.items():
        places = {
            place
            for index, item in enumerate(scenario.inputs)
            if item.event in used
            for place in in_windows_to_come(item, index, partition, oracle.definitive(key))
        }
        for alarm in partition.alarms:
            members, others = needed_by_wait(scenario, partition, alarm.count)
            total += members
            places |= others
        total += len(partition.waiting) + len(places)
    return total


def in_windows_to_come(item: InputSetup, index: int, partition: Partition, definitive: float) -> list[int]:
    """The window of an event that comes at definitive time; older duplicates stay only for their slots."""
    own = [place for place, event in enumerate(partition.entered) if event.input == index]
    recent = own if item.retain is None else own[-item.retain :]
    events = partition.entered
    live = [place for place in recent if item.within is None or definitive - events[place].time < item.within]
    if item.unique and item.retain is None:
        return list({unique_value(item, events[place]) or place: place for place in live}.values())
    return live


def needed_by_wait(scenario: Scenario, partition: Partition, count: int) -> tuple[int, set[int]]:
    """How many events the match has that started it; the windows then and all events since of what must not come."""
    started = Judge(scenario, partition.entered[:count])
    winner = pattern_oracle.best(started)
    assert winner is not None, "a match started the wait"
    places: set[int] = set()
    for clause in scenario.clauses:
        if isinstance(clause, Without) and reaches_wait(scenario, clause):
            index = scenario.input_of(clause.event)
            since = range(count, len(partition.entered))
            places |= {*started.windows[clause.event], *(p for p in since if partition.entered[p].input == index)}
    return len(winner), places


@pytest.mark.parametrize("number", range(8_000_000, 8_000_005))
def test_no_more_is_remembered_than_could_matter(number: int) -> None:
    scenarios = random_queries(number, 10)
    plan, chooser = plan_of(*scenarios), random.Random(number)
    remembered = 0
    for scenario in scenarios:
        engine = Engine(Plan(plan.events, (plan.query(scenario.name),)))
        oracle = AdmissionOracle(scenario, pattern_oracle.timer_of(scenario))
        for piece in pieces_of(scenario, chooser, (6, 3)):
            engine.process(arrivals_of(scenarios, engine.plan, piece))
            for offset, row in piece:
                oracle.take(offset, row)
            most = retained_at_most(scenario, oracle)
            assert engine.retained() <= most, scenario.query()
            remembered += engine.retained()
    assert remembered
