"""However records are cut into micro-batches and sources are read, they are processed in one total order."""

from __future__ import annotations

import numpy as np
import pytest

import querylang
from job_engine.operator.step import run_step
from job_engine.wire.clock_sources import ClockSource
from job_engine.wire.packed_rows import Signal, pack_arrivals
from job_engine.wire.program import Program
from job_engine.wire.tagged_rows import Tag
from runtime.columns.arrivals import Arrivals, place_of
from runtime.replay.replay import read_records
from runtime.results.schemas import Results
from tests.support.buckets import rows_of
from tests.support.embedded import Summary, embedded, summary

PLAN = querylang.compile_text(
    """event A { string k; integer n; } event B { string k; integer n; } event C { string k; integer n; }
    query Follows { inputs { A() key k within 3.0; B() key k within 3.0; } find A as a -> B as b }
    query Waits { inputs { A() key k within 3.0; C() key k within 3.0; } find A as a -> wait(1.0) without C as c }
    query Any { inputs { A() within 2.0; B() within 2.0; C() within 2.0; } find A as a -> C as c -> B as b }"""
).plan
SOURCES = (ClockSource("a", "A"), ClockSource("b"), ClockSource("c", "C"))


def tables(seed: int) -> list[list[dict[str, object]]]:
    """A table per source, with many ties of arrival in and across sources."""
    random = np.random.default_rng(seed)
    found = []
    for source in SOURCES:
        at = np.sort(random.integers(0, 12, 14)) / 2
        kinds = [source.event or "ABC"[number] for number in random.integers(0, 3, len(at))]
        found.append(
            [
                {"at": float(moment), "event": kind, "k": "xy"[number % 2], "n": number}
                for number, (moment, kind) in enumerate(zip(at, kinds, strict=True))
            ]
        )
    return found


def as_job(arrivals: Arrivals, seed: int, program: Program) -> Summary:
    """The results of buckets that get a random piece of each source in each micro-batch."""
    random, place = np.random.default_rng(seed), arrivals.system("place")
    left = [np.flatnonzero(place == place_of(number, 0)) for number in range(len(SOURCES))]
    states: dict[int, bytes | None] = dict.fromkeys(range(program.buckets))
    tagged = []
    while True:
        packed = []
        for number, source in enumerate(SOURCES):
            count = int(random.integers(0, 5)) * int(random.random() < 0.6)
            if count and len(left[number]):
                part = arrivals.take(random.permutation(left[number][:count]))
                packed.append(pack_arrivals(part, program.groups(), program.buckets, source=source.name, rank=number))
                left[number] = left[number][count:]
        is_over = not any(len(rows) for rows in left)
        for bucket, state in list(states.items()):
            rows = [batch.column(1)[bucket].as_py() for batch in packed]
            step = run_step(program, bucket, state, rows, 0, signal=Signal.FLUSH if is_over else None)
            states[bucket] = step.state
            tagged.extend(step.rows)
        if is_over:
            break
    matches = sorted(str(row["match_id"]) for row in rows_of(tagged, Tag.MATCH))
    return matches, [], {}, len(rows_of(tagged, Tag.DISCARDED))


def of_replay(results: Results) -> Summary:
    matches, _, _, discarded = summary(results)
    return matches, [], {}, discarded


@pytest.mark.parametrize("seed", range(12))
def test_random_cuts_and_speeds_give_the_total_order(seed: int) -> None:
    arrivals = read_records(tables(seed), PLAN).arrivals
    expected = of_replay(embedded(PLAN, arrivals))
    assert expected[0]
    for buckets in (1, 2):
        assert as_job(arrivals, 100 + seed, Program.of(PLAN, buckets=buckets, sources=SOURCES)) == expected


def test_a_stuck_source_holds_up_no_query_that_does_not_read_it() -> None:
    program = Program.of(PLAN, buckets=1, sources=(ClockSource("a", "A"), ClockSource("b", "B"), ClockSource("c", "C")))
    assert [group.sources for group in program.groups()] == [("a", "b"), ("a", "c"), ("a", "b", "c")]
    rows = [[{"at": 1.0, "event": "A", "k": "x", "n": 1}], [{"at": 2.0, "event": "B", "k": "x", "n": 2}]]
    packed = [
        pack_arrivals(read_records([table], PLAN).arrivals, program.groups(), 1, source=name)
        for name, table in zip("ab", (rows[0] + [rows[0][0] | {"at": 3.0}], rows[1]), strict=True)
    ]
    step = run_step(program, 0, None, [batch.column(1)[0].as_py() for batch in packed], 0)
    times = {row["query"]: row for row in rows_of(list(step.rows), Tag.TIMELINE)}
    assert [row["query"] for row in rows_of(list(step.rows), Tag.MATCH)] == ["Follows"]
    assert times["Follows"]["waits_for"] == ["b"]
    assert times["Waits"]["waits_for"] == times["Any"]["waits_for"] == ["c"]
    assert (times["Follows"]["arrival"], times["Waits"]["arrival"]) == (2_000_000, None)


def test_what_no_query_can_read_keeps_its_arrival_where_no_query_waits_for_its_source() -> None:
    plan = querylang.compile_text(
        "event A { string k; integer n; } event C { string k; integer n; } query Q { inputs { A() key k retain 1; } find A as a }"
    ).plan
    program, state = Program.of(plan, buckets=1, sources=(ClockSource("a", "A"), ClockSource("c", "C"))), None
    ahead: dict[str, object] = {"at": 5.0, "event": "A", "k": "x", "n": 1}
    behind: dict[str, object] = {"at": 2.0, "event": "C", "k": "x", "n": "none"}
    tagged = []
    for source, row in (("a", ahead), ("a", ahead | {"at": 6.0}), ("c", behind)):
        packed = pack_arrivals(read_records([[row]], plan).arrivals, program.groups(), 1, source=source)
        step = run_step(program, 0, state, [packed.column(1)[0].as_py()], 0)
        state, tagged = step.state, [*tagged, *step.rows]
    (row,) = rows_of(tagged, Tag.DISCARDED)
    assert row["reason"] == "malformed"
    assert str(row["arrival"]).endswith("00:00:02+00:00")
    counts = {str(row["what"]): row["count"] for row in rows_of(tagged, Tag.LEDGER) if row["source"] == "table-2"}
    assert "before_clock" not in counts
