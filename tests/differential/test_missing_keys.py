"""Keys that may be missing, `key host, user?`: random streams whose keys are often null, as in `test_streams`."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest

from tests.differential.compare import check, check_together
from tests.differential.patterns import random_queries
from tests.differential.streams import random_scenario
from tests.support import pattern_oracle
from tests.support.scenario import Row, Scenario

KEYED = 1_000_000
"""Far from the seeds of other tests."""


def with_missing_keys(scenarios: Sequence[Scenario], chooser: random.Random) -> list[Scenario]:
    """The queries with a `?` behind keys of most of their inputs, over the stream with more nulls."""
    rows = tuple(_with_nulls(row, chooser) for row in scenarios[0].rows)
    return [_missing(replace(scenario, rows=rows), chooser) for scenario in scenarios]


def _with_nulls(row: Row, chooser: random.Random) -> Row:
    left = {name: None for name in ("k", "c", "v") if chooser.random() < 0.25}
    return replace(row, **left)  # type: ignore[arg-type]


def _missing(scenario: Scenario, chooser: random.Random) -> Scenario:
    has_heartbeats = any(item.heartbeat for item in scenario.inputs)  # they have no action
    keys = scenario.keys or chooser.choice((("k",), ("c", "k")) if has_heartbeats else (("h",), ("h", "c"), ("c",)))
    inputs = tuple(
        replace(item, missing=tuple(name for name in keys if chooser.random() < 0.8)) for item in scenario.inputs
    )
    return replace(scenario, inputs=inputs, keys=keys)


def test_every_way_of_running_gives_the_same(request: pytest.FixtureRequest) -> None:
    count: int = max(12, request.config.getoption("--streams") // 4)
    seen: Counter[str] = Counter()
    for seed in range(KEYED, KEYED + count):
        chooser = random.Random(seed)
        (scenario,) = with_missing_keys([random_scenario(seed)], chooser)
        admitted = check(scenario, seed=seed)
        seen.update(fate.what for fate in admitted.fates)
        seen["of null"] += sum(None in match.key for match in pattern_oracle.find(scenario, admitted))
    assert seen["of null"] > count / 4
    assert seen["null_key"] > 0


def test_several_queries_over_one_stream_give_the_same() -> None:
    for seed in range(KEYED, KEYED + 6):
        check_together(with_missing_keys(random_queries(seed, 3), random.Random(seed)), seed=seed)
