"""The comparison of random queries would notice: a plan, or a rule of the enumeration, that is a little wrong differs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from querylang.plan.expression import Aggregate, Expression, rewritten
from querylang.plan.model import Input, Plan, QueryPlan, Where, Within, Without
from runtime.engine.engine import Engine
from tests.differential.compare import Observed, expectation, match_key, plan_of, run_together
from tests.differential.patterns import random_queries
from tests.support import candidates, pattern_oracle
from tests.support.candidates import Candidate
from tests.support.pattern_oracle import Found
from tests.support.scenario import InputSetup, Scenario

Change = Callable[[QueryPlan], QueryPlan]
STREAMS = range(40)
"""As many as `test_patterns.py` has, with half of their queries: what these notice, it does."""


@cache
def stream(number: int) -> tuple[list[Scenario], Plan, dict[str, Observed]]:
    """Queries, their plan, and what they find."""
    scenarios = random_queries(number, 10)
    truth = {scenario.name: expectation(*pattern_oracle.run(scenario)) for scenario in scenarios}
    return scenarios, plan_of(*scenarios), truth


def facts(observed: Mapping[str, Observed]) -> dict[str, list[Any]]:
    """The matches of each query; floats without the digits in which sums may differ."""
    told: dict[str, list[Any]] = {}
    for name, own in observed.items():
        told[name] = sorted(repr((match_key(match)[:-1], rounded(match))) for match in own.matches)
    return told


def rounded(match: Found) -> list[Any]:
    """What was selected, to nine digits."""
    return [f"{value:.9g}" if isinstance(value, float) else value for value in match.selected]


def conditions(change: Callable[[Any], Any]) -> Change:
    """Change each condition."""
    return lambda query: replace(query, conditions=tuple(map(change, query.conditions)))


def inputs(change: Callable[[Input], Input]) -> Change:
    """Change each input."""
    return lambda query: replace(query, inputs=tuple(map(change, query.inputs)))


def every(change: Callable[[Expression], Expression]) -> Change:
    """Change each part of what a `find every` selects."""

    def changed(query: QueryPlan) -> QueryPlan:
        if query.every is None:
            return query
        selects = tuple(replace(item, value=rewritten(item.value, change)) for item in query.every.selects)
        return replace(query, every=replace(query.every, selects=selects))

    return changed


def wait(name: str) -> Change:
    """A wait that is a tick longer."""

    def changed(query: QueryPlan) -> QueryPlan:
        item = getattr(query, name)
        return query if item is None else replace(query, **{name: replace(item, duration=item.duration + 1)})

    return changed


def of_kind(kind: type, change: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Change things of one kind only."""
    return lambda item: change(item) if isinstance(item, kind) else item


def function(old: str, new: str) -> Callable[[Expression], Expression]:
    """One aggregate in place of another."""
    return of_kind(Aggregate, lambda node: replace(node, function=new) if node.function == old else node)


PLANS: dict[str, Change] = {
    "within a tick longer": conditions(of_kind(Within, lambda item: replace(item, duration=item.duration + 1))),
    "within a tick shorter": conditions(of_kind(Within, lambda item: replace(item, duration=item.duration - 1))),
    "without where forgotten": conditions(of_kind(Without, lambda item: replace(item, condition=None))),
    "range of without forgotten": conditions(of_kind(Without, lambda item: replace(item, between=None))),
    "what a where mentions forgotten": conditions(of_kind(Where, lambda item: replace(item, mentions=()))),
    "unique forgotten": inputs(lambda item: replace(item, unique=())),
    "filter forgotten": inputs(lambda item: replace(item, filter=None)),
    "leading wait a tick longer": wait("leading"),
    "trailing wait a tick longer": wait("trailing"),
    "nothing is decided late": lambda query: replace(query, decided_late=()),
    "having forgotten": lambda query: (
        query if query.every is None else replace(query, every=replace(query.every, having=()))
    ),
    "first for last": every(function("last", "first")),
    "stddev for stddev2": every(function("stddev2", "stddev")),
    "min for max": every(function("max", "min")),
}


@pytest.mark.parametrize("name", PLANS)
def test_a_wrong_plan_is_noticed(name: str) -> None:
    def differs(number: int) -> bool:
        scenarios, plan, truth = stream(number)
        changed = Plan(plan.events, tuple(map(PLANS[name], plan.queries)))
        return changed != plan and facts(run_together(changed, scenarios, "auto")) != facts(truth)

    assert any(map(differs, STREAMS))


def test_a_right_plan_is_not() -> None:
    for number in STREAMS[:3]:
        scenarios, plan, truth = stream(number)
        assert Engine(plan).plan == plan
        assert facts(run_together(plan, scenarios, "auto")) == facts(truth)


def oldest_first(_: Sequence[str], candidate: Candidate) -> Any:
    """The policy upside down."""
    return tuple(-position for position in sorted(candidate.values())), ()


def first_name_first(names: Sequence[str], candidate: Candidate) -> Any:
    """The policy with its second part the wrong way round."""
    return tuple(sorted(candidate.values(), reverse=True)), tuple(candidate.get(name, -1) for name in names)


def loose_window(item: InputSetup, index: int, events: Sequence[Any]) -> list[int]:
    """`within` not strict."""
    longer = item if item.within is None else replace(item, within=item.within + 1)
    return WINDOW(longer, index, events)


def whole_window(item: InputSetup, index: int, events: Sequence[Any]) -> list[int]:
    """`with unique` before `retain`: older duplicates give their slots away."""
    if not item.unique or item.retain is None:
        return WINDOW(item, index, events)
    return WINDOW(replace(item, retain=None), index, events)[-item.retain :]


WINDOW = candidates.window
RULES: dict[str, tuple[str, Any]] = {
    "the oldest candidate wins": ("recency", oldest_first),
    "ties go by the first written name": ("recency", first_name_first),
    "windows hold what is exactly within old": ("window", loose_window),
    "unique before retain": ("window", whole_window),
    "both sides of an or never bind the same": ("has_same_events", lambda _left, _right: False),
    "both sides of an or bind what they like": ("has_same_events", lambda _left, _right: True),
    "a sequence may share an event": (
        "comes_before",
        lambda left, right: max(left.values()) <= min(right.values()),
    ),
    "a sequence in any order": ("comes_before", lambda left, right: not set(left.values()) & set(right.values())),
    "conditions of the wait are decided at once": ("reaches_wait", lambda _scenario, _clause: False),
}


@pytest.mark.parametrize("name", RULES)
def test_a_wrong_rule_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    attribute, wrong = RULES[name]
    right = {number: stream(number)[2] for number in STREAMS}
    for module in (candidates, pattern_oracle):
        if hasattr(module, attribute):
            monkeypatch.setattr(module, attribute, wrong)

    pattern_oracle.run.cache_clear()

    def differs(number: int) -> bool:
        scenarios = stream(number)[0]
        truth = {scenario.name: expectation(*pattern_oracle.run(scenario)) for scenario in scenarios}
        return facts(truth) != facts(right[number])

    try:
        assert any(map(differs, STREAMS))
    finally:
        pattern_oracle.run.cache_clear()
