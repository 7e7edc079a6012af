"""Random queries of every construct: kernel = reference = enumeration of all candidates, however arrivals are cut.

`--streams N` runs about five times as many queries, `--streams-seed S` others than those of every day. A query that
fails is made as small as it can be, with its stream, and printed as text, table, case file, and Python that runs it
again. `tests/oracle` has twice as many queries of the same constructs, and of newer ones.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from tests.differential.compare import check, check_together, fails
from tests.differential.patterns import constructs_of, random_queries
from tests.support.scenario import Scenario
from tests.support.shrink import shrink

TOGETHER = 20
"""So many queries share a stream and a plan."""

EVERY_CONSTRUCT = {
    *("event", "->", "and", "or", "nested", "where", "within", "within between", "without", "without where"),
    *("without between", "leading", "trailing", "every", "having", "unique", "retain", "filters", "key action"),
    *("count", "sum", "avg", "mean", "min", "max", "first", "last", "nth", "percentile", "stddev", "stddev2", "wavg"),
    *("countUnique", "parameters"),
}


def test_every_way_of_running_finds_what_enumeration_finds(request: pytest.FixtureRequest) -> None:
    count: int = max(6, request.config.getoption("--streams") * 4 // 15)
    first: int = request.config.getoption("--streams-seed") * 1_000_000
    seen: Counter[str] = Counter()
    for number in range(first, first + count):
        scenarios = random_queries(number, TOGETHER)
        try:
            check_together(scenarios, seed=number)
        except Exception:
            for scenario in scenarios:
                check(smallest(scenario, number), seed=number)
            raise
        seen.update(construct for scenario in scenarios for construct in constructs_of(scenario))
    if count >= 40:
        assert set(seen) == EVERY_CONSTRUCT, f"constructs seen: {seen}"


def smallest(scenario: Scenario, number: int) -> Scenario:
    """A smaller scenario that fails too; itself if it does not fail."""
    alone = replace(scenario, name="Q")
    return shrink(alone, lambda simpler: fails(simpler, number)) if fails(alone, number) else alone
