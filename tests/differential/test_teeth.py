"""The differential test would notice: a plan that is a little wrong differs on some stream."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from querylang.plan.model import Input, Plan, QueryPlan, Within
from tests.differential.compare import expectation, plan_of, run_at_once, same
from tests.differential.streams import random_scenario
from tests.support import pattern_oracle
from tests.support.scenario import Scenario

Change = Callable[[QueryPlan], QueryPlan]


def alter(item: Input, name: str, value: Any) -> Input:
    """The input with another value of one field."""
    return replace(item, **{name: value})


def each_input(**changes: Callable[[int], int | None]) -> Change:
    """Change fields of every input that has them."""

    def change(query: QueryPlan) -> QueryPlan:
        inputs = query.inputs
        for name, changed in changes.items():
            inputs = tuple(
                item if getattr(item, name) is None else alter(item, name, changed(getattr(item, name)))
                for item in inputs
            )
        return replace(query, inputs=inputs)

    return change


def longer(condition: Any) -> Any:
    """A `within` that is a tick longer."""
    return replace(condition, duration=condition.duration + 1) if isinstance(condition, Within) else condition


CHANGES: dict[str, Change] = {
    "window a tick longer": each_input(within=lambda length: length + 1),
    "window a tick shorter": each_input(within=lambda length: length - 1),
    "one more retained": each_input(retain=lambda count: count + 1),
    "one fewer retained": each_input(retain=lambda count: max(1, count - 1)),
    "wait a tick longer": each_input(wait=lambda length: length + 1),
    "order trusted or not": each_input(out_of_order=lambda ignored: not ignored),
    "heartbeats forgotten": each_input(heartbeat=lambda _: None),
    "filter forgotten": each_input(filter=lambda _: None),
    "pattern within a tick longer": lambda query: replace(query, conditions=tuple(map(longer, query.conditions))),
    "conditions forgotten": lambda query: replace(
        query,
        automaton=replace(
            query.automaton,
            states=tuple(
                replace(state, transitions=tuple(replace(item, checks=()) for item in state.transitions))
                for state in query.automaton.states
            ),
        ),
    ),
}


def agrees(scenario: Scenario, plan: Plan) -> bool:
    """Whether this plan brings what the oracles expect of the scenario."""
    expected = expectation(*pattern_oracle.run(scenario))
    try:
        same("wrong plan", run_at_once(plan, scenario, "auto"), expected)
    except AssertionError:
        return False
    return True


@pytest.mark.parametrize("name", CHANGES)
def test_a_wrong_plan_is_noticed(name: str) -> None:
    change = CHANGES[name]

    def wrong(number: int) -> bool:
        scenario = random_scenario(number)
        plan = plan_of(scenario)
        changed = Plan(plan.events, (change(plan.queries[0]),))
        return changed != plan and not agrees(scenario, changed) and agrees(scenario, plan)

    assert any(wrong(number) for number in range(200))
