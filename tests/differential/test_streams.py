"""Random streams: kernel = reference = the oracles = DuckDB, however the arrivals are cut into calls.

`--streams N` runs N of them, `--streams-seed S` others than those of every day. A stream that fails is made as small as
it can be and printed as a query, a table, and Python that runs it again.
"""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.differential.compare import check, fails
from tests.differential.streams import random_scenario, scenarios
from tests.support import pattern_oracle
from tests.support.scenario import Scenario
from tests.support.shrink import shrink

EVERY_FATE = {"used", "filtered", "heartbeat", "control", "tick", "unrelated", "late", "out_of_order", "null_key"}


def test_every_way_of_running_gives_the_same(request: pytest.FixtureRequest) -> None:
    count: int = request.config.getoption("--streams")
    first: int = request.config.getoption("--streams-seed") * 1_000_000
    fates: Counter[str] = Counter()
    for number in range(first, first + count):
        scenario = random_scenario(number)
        try:
            admitted = check(scenario, seed=number)
        except AssertionError:
            check(smallest(scenario, number), seed=number)
            raise
        fates.update(fate.what for fate in admitted.fates)
        fates["match"] += len(pattern_oracle.find(scenario, admitted))
    if count >= 300:
        assert set(fates) >= EVERY_FATE, f"streams without some fate: {fates}"
        assert fates["match"] >= count, f"streams with few matches: {fates}"


def smallest(scenario: Scenario, number: int) -> Scenario:
    """A smaller scenario that fails too."""
    return shrink(scenario, lambda simpler: fails(simpler, number))


@settings(
    max_examples=50,
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=(Phase.generate, Phase.shrink),
)
@given(scenarios(), st.integers(0, 9))
def test_small_and_strange_streams(scenario: Scenario, cut: int) -> None:
    check(scenario, seed=cut)
