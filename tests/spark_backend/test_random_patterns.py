"""Hundreds of random queries through Spark, in batch and as a stream with restarts: what enumeration finds."""

from __future__ import annotations

import random
from collections.abc import Callable

from job_engine.operator.cases import Case
from runtime.columns.arrivals import Arrivals
from runtime.results.schemas import Results
from spark_backend.case_runs import run_bounded, run_streams
from tests.differential.compare import Observed, expectation, plan_of, same, take
from tests.differential.patterns import random_queries
from tests.oracle.pieces import at_once, found_in, loaded
from tests.oracle.random_patterns import ALL
from tests.oracle.random_queries import random_draw
from tests.support import pattern_oracle
from tests.support.scenario import Scenario, arrivals_of

STREAMS, WITH_ALL, TOGETHER = 6, 4, 20
STEPS = 3
"""So many micro-batches at most, each in a session of its own."""


def drawn() -> list[tuple[list[Scenario], Case]]:
    """Queries that share a stream, and their stream cut at random places."""
    found = []
    for number in range(STREAMS):
        scenarios = random_queries(5_000_000 + number, TOGETHER)
        plan = plan_of(*scenarios)
        arrivals = arrivals_of(scenarios, plan, scenarios[0].ordered())
        found.append((scenarios, Case(plan, arrivals, cuts_of(arrivals, number))))
    return found


def with_additions() -> list[Case]:
    """The same of queries with repeats, `=>`, `find all` and the like, which the embedded engine decides.

    What it finds is compared with enumeration in `tests.oracle`.
    """
    drawn = enumerate(loaded(random_draw(number, ALL, TOGETHER)) for number in range(WITH_ALL))
    return [Case(plan, arrivals, cuts_of(arrivals, number)) for number, (plan, arrivals) in drawn]


def cuts_of(arrivals: Arrivals, number: int) -> tuple[int, ...]:
    return tuple(sorted(random.Random(number).sample(range(1, len(arrivals)), STEPS - 1)))


def compare(scenarios: list[Scenario], case: Case, results: Results) -> None:
    """Each query's matches, discards and account are what the oracles say."""
    observed = {scenario.name: Observed() for scenario in scenarios}
    take(case.plan, observed, results)
    for scenario in scenarios:
        expected = expectation(*pattern_oracle.run(scenario))
        same(f"Spark and oracle\n{scenario.query()}\n{scenario.rows}\n", observed[scenario.name], expected)


def compare_all(run: Callable[[list[Case]], list[Results]]) -> None:
    plain, added = drawn(), with_additions()
    found = run([*(case for _, case in plain), *added])
    for (scenarios, case), results in zip(plain, found, strict=False):
        compare(scenarios, case, results)
    for case, results in zip(added, found[len(plain) :], strict=True):
        assert found_in(case.plan, [results]) == found_in(case.plan, at_once(case.plan, case.arrivals))


def test_batch_finds_what_enumeration_finds() -> None:
    compare_all(run_bounded)


def test_a_stream_with_restarts_finds_what_enumeration_finds() -> None:
    compare_all(run_streams)
