"""State that earlier releases saved is read by every later one.

`tests/snapshots/bucket-3.state` is the state of a bucket, of version 3, after the rows of BEFORE.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import querylang
from job_engine.operator.step import StepResult, run_step
from job_engine.wire.packed_rows import Signal, pack_arrivals
from job_engine.wire.program import NullRule, Program
from job_engine.wire.tagged_rows import Tag
from runtime.replay.replay import read_records, replay_records
from tests.support.buckets import Stream, rows_of

SNAPSHOTS = Path(__file__).parents[1] / "snapshots"
QUERY = (SNAPSHOTS / "without-clocks.query").read_text("utf-8")
PLAN = querylang.compile_text(QUERY).plan


def rows(numbers: range) -> list[dict[str, Any]]:
    return [
        {"at": 1_000.0 + n, "event": "AB"[n % 2], "ts": 990.0 + n, "k": n % 3, "v": n * 7 % 10 / 2, "offset": n}
        for n in numbers
    ]


BEFORE, AFTER = rows(range(40)), rows(range(40, 80))


def step(state: bytes | None, given: list[dict[str, Any]], timestamp: int, signal: Signal | None = None) -> StepResult:
    program = Program.of(PLAN, buckets=1)
    packed = pack_arrivals(read_records([given], PLAN).arrivals, program.groups(), 1)
    return run_step(program, 0, state, [packed.column(1)[0].as_py()], timestamp, signal=signal)


def test_a_bucket_of_version_3_continues() -> None:
    begun = step(None, BEFORE, 1)
    saved = (SNAPSHOTS / "bucket-3.state").read_bytes()
    continued = step(saved, AFTER, 2, Signal.FLUSH)
    found = [row["match_id"] for part in (begun, continued) for row in rows_of(list(part.rows), Tag.MATCH)]
    everything = replay_records(PLAN, read_records([BEFORE + AFTER], PLAN)).matches.values()
    expected = [match for table in everything for match in table.column("match_id").to_pylist()]
    assert sorted(found) == sorted(expected)
    assert len(found) > len(rows_of(list(begun.rows), Tag.MATCH)) > 0


EITHER = "event A { string k; integer v; integer w; } query Q { inputs { A() key k within 9.0; }"
EITHER += " find A as a -> A as b where b.v > 5 or b.w > 5 }"
NULLS = [{"at": float(n), "k": "x", "v": None, "w": 9, "offset": n} for n in range(8)]
"""By the earlier rule the left side of the `or` fails, and nothing is found."""


def found_in(nulls: NullRule, states: dict[int, bytes], numbers: range, *, is_old: bool = False) -> tuple[int, Stream]:
    """The matches in some of the rows, and the stream behind them."""
    plan = querylang.compile_text(EITHER).plan
    stream = Stream(Program.of(plan.with_failing_nulls() if is_old else plan, buckets=2, nulls=nulls))
    stream.states = dict(states)
    stream.take({"s": read_records([[NULLS[n] for n in numbers]], plan).arrivals}, numbers[-1])
    return len(stream.summary()[0]), stream


@pytest.mark.parametrize("is_moved", [False, True])
def test_a_stream_keeps_the_rule_for_nulls_of_an_old_checkpoint_until_it_is_applied(is_moved: bool) -> None:
    """Earlier versions wrote what a plan by their rule writes now."""
    _, old = found_in(NullRule.PLAN, {}, range(2), is_old=True)
    kept, second = found_in(NullRule.STATE, old.states, range(2, 4))
    if is_moved:
        second.move(2)
    applied, third = found_in(NullRule.APPLIED, second.states, range(4, 6))
    later, _ = found_in(NullRule.STATE, third.states, range(6, 8))
    assert (kept, applied, later) == (0, 2, 2)


def test_a_new_stream_goes_by_the_rule_of_today() -> None:
    first, stream = found_in(NullRule.STATE, {}, range(2))
    assert (first, found_in(NullRule.STATE, stream.states, range(2, 4))[0]) == (1, 2)
