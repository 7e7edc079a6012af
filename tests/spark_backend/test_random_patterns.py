"""Hundreds of random queries through Spark, in batch and as a stream with restarts: what enumeration finds."""

from __future__ import annotations

import random

from runtime.results.schemas import Results
from spark_backend.frames.verify import Case, run_bounded, run_streams
from tests.differential.compare import Observed, expectation, plan_of, same, take
from tests.differential.patterns import random_queries
from tests.support import pattern_oracle
from tests.support.scenario import Scenario, arrivals_of

STREAMS, TOGETHER = 10, 20
STEPS = 3
"""So many micro-batches at most, each in a session of its own."""


def drawn() -> list[tuple[list[Scenario], Case]]:
    """Queries that share a stream, and their stream cut at random places."""
    found = []
    for number in range(STREAMS):
        scenarios = random_queries(5_000_000 + number, TOGETHER)
        plan = plan_of(*scenarios)
        arrivals = arrivals_of(scenarios, plan, scenarios[0].ordered())
        cuts = random.Random(number).sample(range(1, len(arrivals)), STEPS - 1)
        found.append((scenarios, Case(plan, arrivals, tuple(sorted(cuts)))))
    return found


def compare(scenarios: list[Scenario], case: Case, results: Results) -> None:
    """Each query's matches, discards and account are what the oracles say."""
    observed = {scenario.name: Observed() for scenario in scenarios}
    take(case.plan, observed, results)
    for scenario in scenarios:
        expected = expectation(*pattern_oracle.run(scenario))
        same(f"Spark and oracle\n{scenario.query()}\n{scenario.rows}\n", observed[scenario.name], expected)


def test_batch_finds_what_enumeration_finds() -> None:
    cases = drawn()
    for (scenarios, case), results in zip(cases, run_bounded([case for _, case in cases]), strict=True):
        compare(scenarios, case, results)


def test_a_stream_with_restarts_finds_what_enumeration_finds() -> None:
    cases = drawn()
    for (scenarios, case), results in zip(cases, run_streams([case for _, case in cases]), strict=True):
        compare(scenarios, case, results)
