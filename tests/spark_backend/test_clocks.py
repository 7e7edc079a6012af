"""One clock for all sources: records are released in order of arrival, however unevenly the sources are read."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from job_engine.operator.bucket_state import open_state
from job_engine.operator.clocks import GroupClock, JobClock, SourceWatermark
from job_engine.wire.clock_sources import Clock, ClockSource, IdleTimes
from job_engine.wire.packed_rows import Signal
from job_engine.wire.program import Program
from job_engine.wire.reports import SourceProgress
from job_engine.wire.tagged_rows import Tag
from runtime.columns.arrivals import Arrivals, RecordKind
from runtime.engine.engine import Engine
from tests.spark_backend.samples import PLAN, SECOND, SEVERAL, arrivals_of, places
from tests.support.buckets import Stream, rows_by_place, rows_of, unevenly
from tests.support.embedded import embedded, ledger_of, summary


@pytest.mark.parametrize("seed", range(4))
def test_uneven_reading_gives_what_all_records_merged_by_arrival_give(seed: int) -> None:
    arrivals = places(3000)
    stream = Stream(Program.of(SEVERAL, buckets=2))
    batches = unevenly(arrivals, seed)
    for number, parts in enumerate(batches):
        stream.take(parts, number, Signal.FLUSH if number == len(batches) - 1 else None)
    assert len(batches) > 5
    assert stream.summary() == summary(embedded(SEVERAL, arrivals))


def test_the_account_balances_after_every_micro_batch_and_tells_what_waits_as_pending() -> None:
    arrivals = places(2000)
    stream = Stream(Program.of(SEVERAL, buckets=2))
    waited = received = 0
    for number, parts in enumerate(unevenly(arrivals, 1)):
        stream.take(parts, number)
        received += sum(map(len, parts.values()))
        for query in ("Rise", "High", "All"):
            account = {what: 0 for _, _, what in stream.summary()[2]}
            for (name, _, what), count in stream.summary()[2].items():
                account[what] += count if name == query else 0
            assert account.pop("received") == received == sum(account.values())
        waited = max(waited, *(row["held"] for row in rows_of(stream.tagged, Tag.METRIC)))  # type: ignore[call-overload]
    assert waited > 0


def test_what_waits_is_taken_when_all_that_was_there_is_read() -> None:
    arrivals = places(600)
    rows = rows_by_place(arrivals)
    parts = {"a": arrivals.take(rows["a", 0]), "b": arrivals.take(rows["b", 0][:40])}
    stream = Stream(Program.of(SEVERAL, buckets=1))
    stream.take(parts, 0)
    stream.take({}, 1, Signal.CATCH_UP)
    engine = Engine(SEVERAL)
    engine.process(Arrivals.concat(list(parts.values())))
    assert ledger_of(rows_of(stream.tagged, Tag.LEDGER)) == ledger_of(engine.ledger().to_pylist())
    again = Stream(Program.of(SEVERAL, buckets=1))
    again.take(parts, 0, Signal.CATCH_UP)
    assert again.summary() == stream.summary()


def test_control_events_have_their_turn_among_sources_read_unevenly() -> None:
    query = PLAN.queries[0]
    plan = replace(
        PLAN, queries=(replace(query, inputs=tuple(replace(item, out_of_order=False) for item in query.inputs)),)
    )
    arrivals = places(1000, partitions=1)
    rows = rows_by_place(arrivals)
    table = arrivals.take(rows["b", 0][[200]]).table
    for name, value in [
        ("_kind", RecordKind.CONTROL),
        ("_text", "SetDelayedEventsLeeway(0.5, 1.0)"),
        ("_offset", 10**9),
    ]:
        place = table.schema.get_field_index(name)
        table = table.set_column(place, table.schema.field(place), pa.array([value], table.schema.field(place).type))
    control = Arrivals(table)
    stream = Stream(Program.of(plan, buckets=2))
    stream.take({"a": arrivals.take(rows["a", 0]), "b": arrivals.take(rows["b", 0][:100]), "control": control}, 0)
    stream.take({"b": arrivals.take(rows["b", 0][100:])}, 1, Signal.FLUSH)
    found = stream.summary()[0]
    assert found == summary(embedded(plan, Arrivals.concat([arrivals, control])))[0]
    assert found != summary(embedded(plan, arrivals))[0]


def test_one_source_alone_never_waits_and_holds_nothing() -> None:
    stream = Stream(Program.of(PLAN, buckets=1))
    stream.take({"s": arrivals_of(500)}, 0)
    assert open_state(stream.program, 0, stream.states[0]).held == ()
    assert rows_of(stream.tagged, Tag.METRIC)[0]["held"] == 0


def clock_of(rows: list[tuple[str, float, float]], seconds: float, idle: dict[str, float]) -> GroupClock:
    """The clock at a moment; rows: source, last arrival, since when it is silent; all in seconds."""
    clocks = JobClock(tuple(SourceWatermark(name, 0, int(at * SECOND), int(since * 1000)) for name, at, since in rows))
    times = IdleTimes({name: int(length * SECOND) for name, length in idle.items()})
    return clocks.of(None, int(seconds * 1000), times)


def test_while_a_source_is_silent_time_waits_for_it_unless_the_user_says_otherwise() -> None:
    rows = [("a", 130, 20), ("b", 90, 1)]
    assert clock_of(rows, 10**6, {}).now == clock_of(rows, 11, {"b": 10}).now == 90 * SECOND
    assert clock_of(rows, 11.001, {"b": 10}).now == clock_of(rows, 10**6, {"b": 10}).now == 130 * SECOND


def test_when_all_are_silent_time_goes_on_from_the_furthest_arrival_at_the_pace_of_the_wall_clock() -> None:
    rows, idle = [("a", 130, 20), ("b", 90, 1)], {"a": 2, "b": 10}
    found = [clock_of(rows, at, idle).now for at in (21, 22, 22.001, 30)]
    assert found == [130 * SECOND, 130 * SECOND, 130 * SECOND + 1_000, 138 * SECOND]


def test_silence_calls_every_bucket_at_the_same_moments_whatever_it_holds() -> None:
    program = Program.of(PLAN, buckets=4, idle=30 * SECOND)
    stream = Stream(program)
    assert {step.wake for step in stream.take({"a": arrivals_of(1)}, 1_000)} == {30_001}
    assert {step.wake for step in stream.take({}, 31_001)} == {938}
    assert {step.wake for step in stream.take({}, 1_000_000)} == {31_219}


def test_records_of_a_fast_source_are_released_when_the_slow_one_has_been_silent_for_too_long() -> None:
    stream, arrivals = Stream(Program.of(PLAN, buckets=1, idle=2 * SECOND)), arrivals_of(100)
    first, last = (Arrivals(arrivals.table.slice(at, 50)) for at in (0, 50))
    stream.take({"b": first}, 1_000)
    stream.take({"a": last}, 2_000)
    stream.take({}, 3_000)
    stream.take({}, 3_001)
    assert [row["held"] for row in rows_of(stream.tagged, Tag.METRIC)] == [0, 49, 49, 0]


def test_time_waits_for_a_declared_source_that_has_brought_nothing_yet() -> None:
    program = Program.of(PLAN, buckets=1, sources=[ClockSource("a"), ClockSource("b", idle=5 * SECOND)])
    stream = Stream(program)
    stream.take({"a": arrivals_of(50)}, 1_000)
    assert rows_of(stream.tagged, Tag.METRIC)[-1]["held"] == 49
    stream.take({}, 6_001)
    assert rows_of(stream.tagged, Tag.METRIC)[-1]["held"] == 0


def test_time_between_two_runs_is_no_silence() -> None:
    program = Program.of(PLAN, buckets=1, idle=5 * SECOND)
    stream, arrivals = Stream(program), arrivals_of(60)
    stream.take({"a": arrivals}, 1_000)
    stream.take({}, 900_000, Signal.START)
    assert rows_of(stream.tagged, Tag.TIMELINE)[-1]["arrival"] == arrivals.system("arrival").max()


def test_an_old_record_of_a_new_source_partition_is_taken_at_the_clock_and_counted() -> None:
    stream, arrivals = Stream(Program.of(PLAN, buckets=1)), arrivals_of(100)
    first, last = (Arrivals(arrivals.table.slice(at, 50)) for at in (0, 50))
    stream.take({"a": last}, 1_000)
    stream.take({"b": first}, 2_000)
    (row,) = (row for row in rows_of(stream.tagged, Tag.LEDGER) if row["what"] == "before_clock")
    assert (row["source"], row["count"]) == ("s", 49)  # one of the fifty is of a type that no query takes


def test_an_arrival_that_goes_back_does_not_take_its_source_back() -> None:
    clocks = JobClock().advanced([SourceProgress("a", 0, 100)], 0).advanced([SourceProgress("a", 0, 60)], 1)
    assert clocks.of(None, 1, IdleTimes({})).now == 100


def test_unreadable_records_make_no_partition_of_their_own() -> None:
    arrivals = places(100)
    kinds = arrivals.system("kind").copy()
    kinds[:3] = RecordKind.MALFORMED
    partition = arrivals.system("partition") + 1
    partition[:3] = 0
    table = arrivals.table.set_column(0, "_kind", pa.array(kinds)).set_column(3, "_partition", pa.array(partition))
    stream = Stream(Program.of(PLAN, buckets=1))
    stream.take({"a": Arrivals(table)}, 0)
    assert [row["partition"] for row in rows_of(stream.tagged, Tag.SOURCE)] == [1, 2]


def test_with_the_clock_processing_nothing_waits() -> None:
    stream, arrivals = Stream(Program.of(PLAN, buckets=1, clock=Clock.PROCESSING)), arrivals_of(100)
    stream.take({"a": arrivals, "b": Arrivals(arrivals.table.slice(0, 50))}, 1_000_000_000)
    assert open_state(stream.program, 0, stream.states[0]).held == ()


def test_the_clocks_of_all_buckets_are_one() -> None:
    arrivals = places(400)
    stream = Stream(replace(Program.of(SEVERAL, buckets=3), idle=0))
    for number, parts in enumerate(unevenly(arrivals, 2)):
        stream.take(parts, 1_000 * number)
    clocks = [open_state(stream.program, bucket, state).clock for bucket, state in stream.states.items()]
    assert clocks[0] == clocks[1] == clocks[2]
