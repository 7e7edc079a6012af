"""Random streams whose buckets become more or fewer on the way: the same matches, outputs, ledger and discards."""

from __future__ import annotations

import random

import numpy as np
import pytest

import querylang
from job_engine.operator.moved_buckets import moved_buckets
from job_engine.operator.step import run_step
from job_engine.wire.packed_rows import HOME, RefusedFile, Signal, pack_refused
from job_engine.wire.program import Program
from querylang.errors import InputError
from querylang.plan.model import Plan
from runtime.columns.arrivals import Arrivals
from runtime.engine.division import by_rules, equal_in_all
from tests.differential.compare import plan_of
from tests.differential.patterns import random_queries
from tests.oracle.pieces import loaded
from tests.oracle.random_patterns import ALL
from tests.oracle.random_queries import random_draw
from tests.spark_backend.samples import POLICIES, SECOND, SEVERAL, arrivals_of, ordered, places, with_system_rows
from tests.support import scenario
from tests.support.buckets import Stream, unevenly
from tests.support.embedded import embedded, summary

WAITS = """
event A { string k; float v; float ts; }
event B { string k; float v; float ts; }
event C { string k; float v; float ts; }
query Silence { inputs { A() key k within 60 seconds; } find A as x -> wait(3.0) without A as y }
query Numbered { inputs { A() key k within 9.0; B() key k within 9.0; } find A as a => B as b where b.v > a.v }
query Alone { inputs { A() within 2.0; B() within 2.0; } find A as a -> B as b where b.v > a.v and b.k = a.k }
query Newest { inputs { A() key k retain 1 with unique v; B() key k retain 2; } find A as a -> B as b }
"""


def in_order(arrivals: Arrivals, seed: int) -> list[dict[str, Arrivals]]:
    """Micro-batches of one source, cut at random."""
    cuts = sorted(random.Random(seed).sample(range(1, len(arrivals)), 5))
    return [{"s": arrivals.take(rows)} for rows in np.split(np.arange(len(arrivals)), cuts)]


def compare(plan: Plan, arrivals: Arrivals, batches: list[dict[str, Arrivals]], seed: int) -> int:
    """How many matches there are: those of an engine that never had buckets, and all of a job that kept its own."""
    chosen = random.Random(seed)
    count = chosen.choice([1, 3])
    stream, steady = (Stream(Program.of(plan, buckets=count)) for _ in range(2))
    for number, parts in enumerate(batches):
        signal = Signal.FLUSH if number == len(batches) - 1 else None
        stream.take(parts, number, signal)
        steady.take(parts, number, signal)
        if signal is None and chosen.random() < 0.7:
            stream.move(chosen.choice([1, 2, 3, 5]))
    assert stream.summary() == steady.summary()
    wanted = summary(embedded(plan, arrivals))
    assert (stream.summary()[0], stream.summary()[2]) == (wanted[0], wanted[2])
    return len(wanted[0])


@pytest.mark.parametrize("name", ["waits of the queries", *POLICIES])
def test_sources_that_are_read_unevenly(name: str) -> None:
    plan = ordered(POLICIES[name]) if name in POLICIES else SEVERAL
    arrivals = places(600)
    assert compare(plan, arrivals, unevenly(arrivals, 5), 7) > 10


@pytest.mark.parametrize("seed", range(2))
def test_pending_matches_running_numbers_and_control_events(seed: int) -> None:
    plan = querylang.compile_text(WAITS).plan
    arrivals = arrivals_of(400, keys=6, seed=seed, plan=plan)
    assert compare(plan, arrivals, in_order(arrivals, seed), seed) > 50
    several = with_system_rows(arrivals_of(300, seed=seed, plan=SEVERAL))
    assert compare(SEVERAL, several, in_order(several, seed), seed) > 10


@pytest.mark.parametrize("seed", range(2))
def test_random_queries(seed: int) -> None:
    scenarios = random_queries(6_000_000 + seed, 12)
    plan = plan_of(*scenarios)
    arrivals = scenario.arrivals_of(scenarios, plan, scenarios[0].ordered())
    compare(plan, arrivals, in_order(arrivals, seed), seed)
    plan, arrivals = loaded(random_draw(seed, ALL, 12))
    compare(plan, arrivals, in_order(arrivals, seed), seed)


def test_a_bucket_without_a_state_is_noticed() -> None:
    stream = Stream(Program.of(SEVERAL, buckets=3))
    arrivals = arrivals_of(50, plan=SEVERAL)
    stream.take({"s": arrivals}, int(arrivals.system("arrival")[-1]) // SECOND)
    del stream.states[1]
    with pytest.raises(InputError, match="the bucket 1 has no state"):
        stream.move(2)
    stream.states[1] = b"something"
    with pytest.raises(InputError, match="the state of bucket 1 cannot be read"):
        stream.move(2)


def test_buckets_that_were_never_called_begin_empty() -> None:
    """A file that is not a table is reported by HOME alone; one without records calls no bucket."""
    arrivals = arrivals_of(300, plan=SEVERAL)
    first = int(arrivals.system("arrival")[-1]) // SECOND
    for called in ((), (HOME,)):
        stream, steady = (Stream(Program.of(SEVERAL, buckets=3)) for _ in range(2))
        for bucket in called:
            row = pack_refused(RefusedFile("1.csv", "is empty"), ["Rise"]).column(1)[0].as_py()
            stream.states[bucket] = run_step(stream.program, bucket, None, [row], first).state
        with pytest.raises(InputError, match="has no state"):
            dict(moved_buckets(stream.program, stream.states.items(), 2, (*called, 1)))
        stream.states = dict(moved_buckets(stream.program, stream.states.items(), 2, called))
        stream.program = Program.of(SEVERAL, buckets=2)
        stream.take({"s": arrivals}, first, Signal.FLUSH)
        steady.take({"s": arrivals}, first, Signal.FLUSH)
        assert stream.summary() == steady.summary()


def test_an_entry_that_no_rule_joins_is_noticed() -> None:
    parts = [{"clock": 1, "other": 2}] * 2
    with pytest.raises(AssertionError, match=r"no rule joins \['other'\]"):
        by_rules({"clock": max}, parts)
    with pytest.raises(AssertionError, match="parts of one state differ"):
        by_rules({"clock": equal_in_all}, [{"clock": 1}, {"clock": 2}])
