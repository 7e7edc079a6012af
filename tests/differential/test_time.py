"""Random streams under three systems' rules of time: the engine, however it is given the records, and the oracle agree.

`--streams N` runs N/4 of them (they are looked at record by record), `--streams-seed S` others than those of every day. A stream that
fails is made as small as it can be and printed as inputs, records, and Python that runs them again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from querylang.plan.model import TimePolicy
from tests.differential.timed_compare import at_once, check, expectation, fails, same, smallest
from tests.differential.timed_streams import random_timed
from tests.support.time_oracle import run
from tests.support.timed import Timed
from tests.support.timed_engine import plan_of

EVERY_FATE = {"used", "adjusted_late", "adjusted_out_of_order", "early", "late", "out_of_order", "null_key"}
EVERY_FATE |= {"null_time", "filtered", "heartbeat", "control", "tick"}


def test_the_engine_judges_and_releases_as_the_rules_say(request: pytest.FixtureRequest) -> None:
    count: int = request.config.getoption("--streams") // 4
    first: int = request.config.getoption("--streams-seed") * 1_000_000
    fates: Counter[str] = Counter()
    for number in range(first, first + count):
        query = random_timed(number)
        try:
            oracle = check(query, seed=number)
        except AssertionError:
            check(smallest_of(query, number), seed=number)
            raise
        fates.update(fate.what for fate in oracle.fates)
    if count >= 37:
        assert set(fates) >= EVERY_FATE, f"streams without some fate: {fates}"


def smallest_of(query: Timed, number: int) -> Timed:
    """A smaller query and stream that fail too."""
    return smallest(query, lambda simpler: fails(simpler, number))


# ------------------------------------------------------------------------------------------------------------ teeth

Change = Callable[[TimePolicy], TimePolicy]


def longer(name: str) -> Change:
    """A setting that is a microsecond longer, if it is set."""

    def change(policy: TimePolicy) -> TimePolicy:
        value: int | None = getattr(policy, name)
        changes: dict[str, Any] = {name: None if value is None else value + 1}
        return replace(policy, **changes)

    return change


CHANGES: dict[str, Change] = {
    **{
        f"{name} a microsecond longer": longer(name)
        for name in ("early", "max_delay", "disorder", "idle", "every_span")
    },
    "every one more": longer("every"),
    "what is at the bound": lambda policy: replace(policy, is_strict=not policy.is_strict),
    "the end": lambda policy: replace(policy, is_final=not policy.is_final),
    "adjusted or not": lambda policy: replace(policy, action="drop"),
    "the delayed are trusted": lambda policy: replace(policy, leeway=10**15),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_policy_that_is_a_little_wrong_is_noticed(name: str) -> None:
    assert any(is_noticed(random_timed(number), CHANGES[name]) for number in range(200))


def is_noticed(query: Timed, change: Change) -> bool:
    """Whether the engine under other policies does not do what the oracle says of these."""
    inputs = [item if item.policy is None else replace(item, policy=change(item.policy)) for item in query.inputs]
    wrong = replace(query, inputs=tuple(inputs))
    if wrong == query or not query.records:
        return False
    expected = expectation(plan_of(query), query, run(query))
    try:
        same("wrong policy", at_once(plan_of(wrong), wrong), expected)
    except AssertionError:
        return True
    return False
