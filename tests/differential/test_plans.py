"""Longer streams, and plans of several queries."""

from __future__ import annotations

from dataclasses import replace

import pytest

from querylang.plan.model import Plan
from tests.differential.compare import Observed, check, plan_of, run_together
from tests.differential.streams import random_scenario
from tests.support.scenario import Scenario


@pytest.mark.parametrize("number", range(8))
def test_long_streams_of_many_keys(number: int) -> None:
    check(random_scenario(number, length=400, spread=25), seed=number)


@pytest.mark.parametrize("number", range(0, 40, 2))
def test_queries_of_one_plan_do_not_touch_each_other(number: int) -> None:
    first, second = random_scenario(number), random_scenario(number + 1)
    second = replace(second, rows=first.rows)
    alone = [plan_of(first), plan_of(second)]
    renamed = replace(alone[1].queries[0], name="R")
    plan = Plan(alone[0].events, (alone[0].queries[0], renamed))
    assert facts(first, plan, "Q") == facts(first, alone[0], "Q")
    assert facts(first, plan, "R") == facts(first, Plan(plan.events, (renamed,)), "R")


def facts(scenario: Scenario, plan: Plan, name: str) -> Observed:
    """What one query of a plan gives on the rows of the scenario."""
    return run_together(plan, [replace(scenario, name=name)], "auto")[name]
