"""The operator without Spark: packed rows and state in, tables and state out."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import querylang
from job_engine.operator.step import StepResult, run_step
from job_engine.wire.clock_sources import Clock
from job_engine.wire.packed_rows import Signal, pack, pack_arrivals, unpack_row
from job_engine.wire.program import Program
from job_engine.wire.tagged_rows import Tag, TaggedRow
from querylang.errors import InputError
from querylang.plan.model import Plan
from runtime.columns.arrivals import Arrivals, RecordKind
from runtime.engine.engine import Engine
from runtime.replay.replay import read_records
from tests.spark_backend.samples import PLAN, SECOND, SEVERAL, arrivals_of, with_system_rows
from tests.support.buckets import Stream, rows_of
from tests.support.embedded import embedded, ledger_of, summary


def run(program: Program, parts: list[Arrivals], *, flush: bool = True) -> list[TaggedRow]:
    """Every part a micro-batch; the state goes from one to the next."""
    states: dict[int, bytes] = {}
    out: list[TaggedRow] = []
    for number, part in enumerate(parts):
        rows = pack_arrivals(part, program.groups(), program.buckets).to_pylist()
        for row in rows:
            bucket, data = row["bucket"], row["data"]
            last = flush and number == len(parts) - 1
            step = run_step(program, bucket, states.get(bucket), [data], number, signal=Signal.FLUSH if last else None)
            states[bucket] = step.state
            out.extend(step.rows)
    return out


@pytest.mark.parametrize("plan", [PLAN, SEVERAL], ids=["one query", "three queries, two groups"])
@pytest.mark.parametrize("buckets", [1, 5])
@pytest.mark.parametrize("cuts", [1, 3])
def test_buckets_and_batches_give_what_one_engine_gives(plan: Plan, buckets: int, cuts: int) -> None:
    arrivals = with_system_rows(arrivals_of(2000, plan=plan))
    parts = [arrivals.take(rows) for rows in np.array_split(np.arange(len(arrivals)), cuts)]
    tagged = run(Program.of(plan, buckets=buckets), parts)
    matches, outputs, ledger, discarded = summary(embedded(plan, arrivals))
    assert matches
    assert sorted(str(row["match_id"]) for row in rows_of(tagged, Tag.MATCH)) == matches
    printed = rows_of(tagged, Tag.OUTPUT) + rows_of(tagged, Tag.ERROR)
    assert sorted(str(row["text"]) for row in printed) == outputs
    assert len(rows_of(tagged, Tag.ERROR)) == 1
    assert ledger_of(rows_of(tagged, Tag.LEDGER)) == ledger
    assert len(rows_of(tagged, Tag.DISCARDED)) == discarded


@pytest.mark.parametrize("row", [10, 40, 60, 70, 71, 100])
def test_one_record_alone_arrives_as_it_was(row: int) -> None:
    """Whatever it is; in a batch of one record every column is constant."""
    arrivals = with_system_rows(arrivals_of(200)).take(np.array([row]))
    groups = Program.of(PLAN, buckets=2).groups()
    rows = [unpack_row(data.as_py(), PLAN) for data in pack_arrivals(arrivals, groups, 2).column(1)]
    tables = [part.arrivals.table for packed in rows for part in packed.records]
    counted = sum(packed.ledger.num_rows for packed in rows)
    assert tables or counted
    assert all(table.to_pylist() == arrivals.table.to_pylist() for table in tables)


def test_control_events_wait_for_the_events_that_arrive_before_them() -> None:
    """All of the control stream is read at once, the events in three micro-batches."""
    arrivals = with_system_rows(arrivals_of(2000))
    arrivals = arrivals.take(np.roll(np.arange(2000), -500))  # arrival 500.. first: the controls are those of the end
    arrivals = Arrivals(arrivals.table.set_column(1, "_arrival", [np.sort(arrivals.system("arrival"))]))
    is_control = arrivals.system("kind") == RecordKind.CONTROL
    events, controls = (arrivals.take(np.flatnonzero(rows)) for rows in (~is_control, is_control))
    program = Program.of(PLAN, buckets=3)
    tagged: list[TaggedRow] = []
    states: dict[int, bytes] = {}
    for number, rows in enumerate(np.array_split(np.arange(len(events)), 3)):
        packed = pack_arrivals(events.take(rows), program.groups(), 3).column(1).to_pylist()
        signals = pack_arrivals(controls, program.groups(), 3, is_control=True).column(1).to_pylist()
        for bucket in range(3):
            given = [packed[bucket], signals[bucket]] if number == 0 else [packed[bucket]]
            step = run_step(
                program, bucket, states.get(bucket), given, number, signal=Signal.FLUSH if number == 2 else None
            )
            states[bucket] = step.state
            tagged.extend(step.rows)
    matches, outputs, ledger, discarded = summary(embedded(PLAN, arrivals))
    found = [row for row in rows_of(tagged, Tag.OUTPUT) + rows_of(tagged, Tag.ERROR) if row["kind"] != "control"]
    assert sorted(str(row["match_id"]) for row in rows_of(tagged, Tag.MATCH)) == matches
    assert sorted(str(row["text"]) for row in found) == outputs
    assert ledger_of(rows_of(tagged, Tag.LEDGER)) == ledger
    assert len(rows_of(tagged, Tag.DISCARDED)) == discarded


def test_a_row_tells_where_in_the_order_of_arrival_a_control_event_was_processed() -> None:
    """The first one waits for its time, the second is behind the clock, the third is wrong."""
    events, program = arrivals_of(30), Program.of(PLAN, buckets=2)
    first, last = int(events.system("arrival")[0]), int(events.system("arrival")[-1])
    controls = controls_at([last - 1, first - 5, last - 1], ["SetDelayedEventsLeeway(3.0, 1.0)"] * 2 + ["Nothing()"])
    stream = Stream(program)
    stream.take({"a": events.take(np.arange(20))}, 1)
    reached = int(events.system("arrival")[19])
    stream.take({"control": controls}, 2)
    assert not [row for row in rows_of(stream.tagged, Tag.OUTPUT) if row["time"] > moment(reached)]
    stream.take({"a": events.take(np.arange(20, 30))}, 3)
    rows = [row for row in rows_of(stream.tagged, Tag.OUTPUT) if row["kind"] == "control"]
    assert {(row["query"], row["time"]) for row in rows} == {
        (query.name, moment(place)) for query in PLAN.queries for place in (reached, last - 1)
    }
    assert {row["text"] for row in rows} == {"SetDelayedEventsLeeway(3.0, 1.0)"}


def moment(micros: int) -> object:
    return pa.scalar(micros, pa.int64()).cast(pa.timestamp("us", "UTC")).as_py()


def controls_at(arrivals: list[int], texts: list[str]) -> Arrivals:
    table = arrivals_of(len(texts)).table
    changes = {
        "_kind": pa.array([int(RecordKind.CONTROL)] * len(texts), pa.int16()),
        "_arrival": pa.array(arrivals),
        "_text": pa.array(texts),
    }
    for name, column in changes.items():
        table = table.set_column(table.schema.get_field_index(name), table.schema.field(name), column)
    return Arrivals(table)


def placed(arrivals: Arrivals, place: int) -> Arrivals:
    position = arrivals.table.schema.get_field_index("_place")
    field = arrivals.table.schema.field(position)
    return Arrivals(arrivals.table.set_column(position, field, pa.array([place] * len(arrivals), field.type)))


def test_records_of_equal_coordinates_are_taken_in_the_order_of_their_sources() -> None:
    program = Program.of(PLAN, buckets=1)
    same = arrivals_of(200, keys=1)
    other = Arrivals(same.table.set_column(0, "_kind", pa.array(1 - same.system("kind") % 2, pa.int16())))
    packed = [
        pack_arrivals(placed(part, place), program.groups(), 1, source="ab"[place], rank=place).to_pylist()[0]["data"]
        for place, part in enumerate([same, other])
    ]
    found = [rows_of(list(run_step(program, 0, None, rows, 0).rows), Tag.MATCH) for rows in (packed, packed[::-1])]
    assert found[0]
    assert found[0] == found[1]


def test_state_of_another_bucket_count_is_refused_by_name() -> None:
    packed = pack_arrivals(arrivals_of(100), Program.of(PLAN, buckets=4).groups(), 4).to_pylist()[0]
    state = run_step(Program.of(PLAN, buckets=4), 0, None, [packed["data"]], 0).state
    with pytest.raises(InputError, match=r"written for 4 buckets .* this run has 8"):
        run_step(Program.of(PLAN, buckets=8), 0, state, [], 1)


def test_state_of_another_version_is_refused_by_name() -> None:
    program = Program.of(PLAN, buckets=1)
    state = pack("state", 9, {}, [], is_stored=True)
    with pytest.raises(InputError, match="state value of version 9; this release reads state of version 3"):
        run_step(program, 0, state, [], 1)


def test_a_silent_stream_goes_on_after_the_idle_time() -> None:
    program = Program.of(PLAN, buckets=1, idle=30 * SECOND)
    data = pack_arrivals(arrivals_of(200), program.groups(), 1).to_pylist()[0]["data"]
    first = run_step(program, 0, None, [data], 1_000)
    assert first.wake == 30_001
    early = run_step(program, 0, first.state, [], 31_000)
    assert not rows_of(list(early.rows), Tag.LEDGER)
    again = run_step(program, 0, early.state, [], 41_000)
    assert rows_of(list(again.rows), Tag.LEDGER)


WAITING = querylang.compile_text(
    """event A { string k; integer n; } event B { string k; }
    inputs { A() key k within 20.0; B() key k within 20.0; }
    find A as a -> wait(7.0) as over without B as b"""
).plan


def waiting(program: Program, rows: list[dict[str, object]], state: bytes | None, timestamp: int) -> StepResult:
    """The next micro-batch of a program of one bucket."""
    packed = []
    if rows:
        arrivals = read_records([rows], WAITING).arrivals
        packed = pack_arrivals(arrivals, program.groups(), 1).column(1).to_pylist()
    return run_step(program, 0, state, packed, timestamp)


def points(step: StepResult) -> list[tuple[object, object]]:
    """Each match's `a.n`, and the second at which its wait ended."""
    return [
        (row["members"]["a"]["fields"]["n"], row["points"]["over"].timestamp())  # type: ignore[index]
        for row in rows_of(list(step.rows), Tag.MATCH)
    ]


def test_a_wait_is_kept_over_batches_and_ends_with_records_of_another_key() -> None:
    program = Program.of(WAITING, buckets=1)
    first = waiting(program, [{"at": 100.0, "event": "A", "k": k, "n": n} for n, k in enumerate("xy")], None, 0)
    second = waiting(program, [{"at": 104.0, "event": "B", "k": "y"}], first.state, 1)
    last = waiting(program, [{"at": 107.0, "event": "B", "k": "z"}], second.state, 2)
    assert (points(first), points(second), points(last), first.wake) == ([], [], [(0, 107.0)], None)


def test_a_wait_of_a_silent_stream_wakes_its_bucket() -> None:
    program = Program.of(WAITING, buckets=1, idle=2 * SECOND)
    step, timestamp, calls = waiting(program, [{"at": 100.0, "event": "A", "k": "x", "n": 5}], None, 1_000), 1_000, 0
    while not points(step):
        assert step.wake is not None
        timestamp, calls = timestamp + max(100, step.wake), calls + 1  # Spark runs micro-batches at triggers only
        step = waiting(program, [], step.state, timestamp)
    assert points(step) == [(5, 107.0)]
    assert 10_000 <= timestamp <= 10_300
    assert calls < 50


def test_with_the_clock_processing_a_record_arrives_with_its_batch() -> None:
    program = Program.of(PLAN, buckets=1, clock=Clock.PROCESSING)
    data = pack_arrivals(arrivals_of(200), program.groups(), 1).to_pylist()[0]["data"]
    step = run_step(program, 0, None, [data], 1_000_020_000)
    assert {row["arrival"].timestamp() for row in rows_of(list(step.rows), Tag.DISCARDED)} <= {1_000_020.0}
    matches = rows_of(list(step.rows), Tag.MATCH)
    assert {row["emitted"].timestamp() for row in matches} <= {1_000_020.0}
    assert step.wake is not None


def test_buckets_report_the_matches_that_wait_and_when_the_next_is_due() -> None:
    text = "event A { string k; } query W { inputs { A() key k within 1 hour; } find A as a -> wait(1 minute) }"
    plan = querylang.compile_text(text).plan
    rows = [{"at": second, "k": f"k{second % 7}"} for second in range(100)]
    arrivals = read_records([rows], plan).arrivals
    tagged = run(Program.of(plan, buckets=3), [arrivals], flush=False)
    metrics = rows_of(tagged, Tag.METRIC)
    engine = Engine(plan)
    engine.process(arrivals)
    count, due = engine.waiting()
    assert count
    assert (sum(row["waiting"] for row in metrics), min(row["next_due"] for row in metrics)) == (count, due)
    ended = rows_of(run(Program.of(plan, buckets=3), [arrivals]), Tag.METRIC)
    assert {(row["waiting"], row["next_due"]) for row in ended} == {(0, None)}
