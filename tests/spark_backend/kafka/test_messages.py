"""Messages as records: coordinates, arrival, what is not there, what cannot be read; however they are cut into chunks."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest

import querylang
from job_engine.kafka_broker import TopicChoice
from job_engine.operator.step import run_step
from job_engine.sources.reading import Reading
from job_engine.sources.topics import reading as topics_reading
from job_engine.sources.topics.consuming import Chunk, GoneMessages
from job_engine.sources.topics.pieces import Advance, OffsetRange
from job_engine.sources.topics.reading import RangeReader, progress_of
from job_engine.sources.topics.settings import KafkaSource
from job_engine.wire.clock_sources import ClockSource
from job_engine.wire.packed_rows import Signal, pack_progress, pack_signal, unpack_row
from job_engine.wire.program import Program
from job_engine.wire.tagged_rows import Tag
from runtime.columns.arrivals import Arrivals, RecordKind
from runtime.instants import NO_TIME
from tests.support.buckets import rows_of

SECOND = 1_000_000
PLAN = querylang.compile_text(
    """event A { string k; float v; }
    event B { string k; string offset; }
    query Rise { inputs { A() key k within 100.0; B() key k within 100.0; }
      find A as a -> A as b where b.v > a.v }"""
).plan
PROGRAM = Program.of(PLAN, buckets=1, sources=[ClockSource("s", by_topic=True)])

Message = tuple[int, float, bytes | str | None]
"""Offset, timestamp (s) and value."""


ALL = OffsetRange("s", "t", 0, 3, 0, 1000)


class Log:
    """What a broker would bring, in chunks of so many messages; a test says what no longer exists."""

    def __init__(self, messages: Sequence[Message], chunk: int = 100, gone_before: int = 0) -> None:
        self.messages = messages
        self.chunk = chunk
        self.gone_before = gone_before

    def consumed(self, _: object, wanted: OffsetRange, __: float) -> Iterator[Chunk]:
        if wanted.start < self.gone_before:
            raise GoneMessages("gone", self.gone_before)
        chosen = [item for item in self.messages if wanted.start <= item[0] < wanted.until]
        for at in range(0, len(chosen), self.chunk):
            offsets, times, values = zip(*chosen[at : at + self.chunk], strict=True)
            encoded = [value.encode() if isinstance(value, str) else value for value in values]
            yield Chunk(np.array(offsets), np.array([int(time * SECOND) for time in times]), encoded)


def packed(
    monkeypatch: pytest.MonkeyPatch,
    log: Log,
    wanted: OffsetRange = ALL,
    *,
    accepts_loss: bool = False,
    **settings: str,
) -> list[bytes]:
    monkeypatch.setattr(topics_reading, "consumed", log.consumed)
    reading = Reading(name="s", **(settings or {"event": "A"}))  # type: ignore[arg-type]
    reader = RangeReader(PROGRAM, KafkaSource("s", TopicChoice(("t",)), {}), reading, accepts_loss)
    return [row for batch in reader.packed(wanted) for row in batch.column(1).to_pylist()]


def records(rows: Sequence[bytes]) -> list[dict[str, object]]:
    found = [unpack_row(row, PLAN) for row in rows]
    arrivals = Arrivals.concat([part.arrivals for row in found for part in row.records])
    table = arrivals.table.to_pylist()
    return sorted(table, key=lambda row: row["_offset"])


def columns(rows: Sequence[bytes], *names: str) -> list[tuple[object, ...]]:
    return [tuple(row[name] for name in names) for row in records(rows)]


VALUES: list[Message] = [
    (0, 5.0, '{"k": "x", "v": 1.0}'),
    (2, 4.0, '{"k": "x", "v": 2, "offset": 99, "partition": "p", "source": "no", "event": "B", "at": "?"}'),
    (3, 9.0, '{"k": "y"}'),
    (7, 8.0, '{"v": 3.5, "k": "z", "kafka.timestamp": 1}'),
    (9, -0.001, '{"V": 4.5, "k": "z"}'),
]


@pytest.mark.parametrize("chunk", [1, 2, 100])
def test_messages_are_records_with_their_own_coordinates(monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    rows = packed(monkeypatch, Log(VALUES, chunk))
    assert columns(rows, "_source", "_partition", "_offset", "_arrival") == [
        ("t", 3, 0, 5 * SECOND),
        ("t", 3, 2, 5 * SECOND),
        ("t", 3, 3, 9 * SECOND),
        ("t", 3, 7, 9 * SECOND),
        ("t", 3, 9, 9 * SECOND),
    ]
    assert columns(rows, "k:string", "v:float") == [("x", 1.0), ("x", 2.0), ("y", None), ("z", 3.5), ("z", 4.5)]


BROKEN: list[Message] = [
    (0, 1.0, '{"k": "x", "v": 1.0}'),
    (1, 3.0, '{"k": "x", "v'),
    (2, 2.0, None),
    (3, 2.0, ""),
    (4, 2.0, "[1]"),
    (5, 2.0, b'{"k": "\xff", "v": 1}'),
    (6, 2.0, '{"k": "x", "v": "much"}'),
    (7, 2.0, '{"k": "x", "v": 1}\n{"k": "x", "v": 2}'),
    (8, 2.0, '{"k":\n "x", "v": 2.0}'),
    (9, 2.0, '{"AT": 1, "At": 2, "SOURCE": 1, "Source": 2, "k": "x", "v": 2.0}'),
    (10, 4.0, '{"k": "x", "v": 3.0}'),
]


@pytest.mark.parametrize("chunk", [1, 3, 100])
def test_what_cannot_be_decoded_makes_only_itself_malformed(monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    rows = packed(monkeypatch, Log(BROKEN, chunk))
    kinds = dict(columns(rows, "_offset", "_kind"))
    assert [offset for offset, kind in kinds.items() if kind == RecordKind.MALFORMED] == [1, 2, 3, 4, 5, 6, 7]
    texts = {offset: str(text) for offset, text in columns(rows, "_offset", "_text")}
    assert texts[1].startswith("offset 1: not JSON: ")
    assert texts[1].endswith('{"k": "x", "v')
    assert texts[2] == "offset 2: a message without a value: "
    assert texts[6].startswith("offset 6: ")
    assert [row[0] for row in columns(rows, "_arrival")] == [
        moment * SECOND for moment in (1, 3, 3, 3, 3, 3, 3, 3, 3, 3, 4)
    ]
    assert {row[0] for row in columns(rows, "_partition")} == {3}


def test_many_messages_with_a_broken_one_are_read_in_large_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    values: list[Message] = [(number, 1.0, json.dumps({"k": "x", "v": number / 2})) for number in range(900)]
    values[500] = (500, 1.0, "{")
    found = columns(packed(monkeypatch, Log(values, 1000)), "_offset", "_kind", "v:float")
    assert found == [
        (number, RecordKind.MALFORMED if number == 500 else 0, None if number == 500 else number / 2)
        for number in range(900)
    ]


def test_a_field_may_say_the_type_and_may_be_called_as_a_coordinate(monkeypatch: pytest.MonkeyPatch) -> None:
    values: list[Message] = [
        (0, 1.0, '{"kind": "B", "k": "x", "offset": "o"}'),
        (1, 1.0, '{"kind": "A", "k": "x", "v": 1, "offset": "o"}'),
        (2, 1.0, '{"k": "x"}'),
        (3, 1.0, '{"kind": "C"}'),
    ]
    rows = packed(monkeypatch, Log(values), type_field="kind")
    assert columns(rows, "_offset", "_kind", "offset:string") == [
        (0, 1, "o"),
        (1, 0, None),
        (2, RecordKind.MALFORMED, None),
        (3, RecordKind.UNKNOWN_TYPE, None),
    ]


def test_messages_that_are_gone_are_counted_where_that_is_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = packed(monkeypatch, Log(VALUES, gone_before=3), accepts_loss=True)
    assert [offset for (offset,) in columns(rows, "_offset")] == [3, 7, 9]
    found = [unpack_row(row, PLAN) for row in rows]
    assert found[0].ledger.to_pylist() == [{"query": "Rise", "source": "t", "what": "lost", "count": 3}]
    assert [report.example for row in found for report in row.reports] == ["t/3, offsets 0 to 2"]
    with pytest.raises(querylang.InputError, match=r"source 's': t/3: gone.*--accept-loss"):
        packed(monkeypatch, Log(VALUES, gone_before=3))


def test_arrival_is_the_running_maximum_over_ranges_and_restarts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The state of the buckets has the maximum; the order in which Spark brings batches says nothing."""
    random = np.random.default_rng(5)
    values: list[Message] = [
        (number, float(50 + number + random.integers(-9, 9)), json.dumps({"k": "x", "v": float(random.random())}))
        for number in range(60)
    ]

    def matches(bounds: Sequence[int]) -> set[tuple[object, ...]]:
        state, found = None, set()
        for number, (start, until) in enumerate(pairwise(bounds)):
            middle = (start + until) // 2
            rows = [
                row
                for part in (OffsetRange("s", "t", 0, 3, middle, until), OffsetRange("s", "t", 0, 3, start, middle))
                for row in packed(monkeypatch, Log(values, 7), part)
            ]
            step = run_step(PROGRAM, 0, state, rows, 1000 + number)
            repeated = run_step(PROGRAM, 0, state, rows[::-1], 1000 + number)
            assert repeated.state == step.state
            state = step.state
            found |= {(row["match_id"], row["time"]) for row in rows_of(step.rows, Tag.MATCH)}
        last = run_step(PROGRAM, 0, state, pack_signal(1, Signal.FLUSH).column(1).to_pylist(), 2000)
        return found | {(row["match_id"], row["time"]) for row in rows_of(last.rows, Tag.MATCH)}

    whole = matches([0, 60])
    assert len(whole) > 10
    assert matches([0, 7, 20, 21, 60]) == whole


def test_timestamps_of_the_far_future_are_refused_before_the_running_maximum(monkeypatch: pytest.MonkeyPatch) -> None:
    """A producer's wrong clock moves neither other arrivals nor the clock, however chunks are cut."""
    values: list[Message] = [
        (0, 9e6, '{"k": "x", "v": 8.0}'),
        (1, 5.0, '{"k": "x", "v": 1.0}'),
        (2, 9e9, '{"k": "x", "v": 9.0}'),
        (3, 9e9, "broken"),
        (4, 4.0, '{"k": "x", "v": 2.0}'),
        (5, 6.0, '{"k": "x", "v": 3.0}'),
    ]
    program = Program.of(PLAN, buckets=1, sources=[ClockSource("s", by_topic=True, ahead=SECOND)])
    monkeypatch.setattr(f"{__name__}.PROGRAM", program)
    found = []
    for chunk in (1, 2, 100):
        rows = packed(monkeypatch, Log(values, chunk), replace(ALL, latest=100 * SECOND))
        step = run_step(program, 0, None, rows, 1)
        last = run_step(program, 0, step.state, pack_signal(1, Signal.FLUSH).column(1).to_pylist(), 2)
        refused = {
            (row["offset"], row["reason"], pd.Timestamp(row["arrival"]).timestamp())
            for row in rows_of(step.rows, Tag.DISCARDED)
        }
        matches = {
            pd.Timestamp(row["time"]).timestamp() for done in (step, last) for row in rows_of(done.rows, Tag.MATCH)
        }
        clock = {row["arrival"] for row in rows_of(step.rows, Tag.SOURCE)}
        found.append((refused, matches, clock))
    refusals = {(0, "ahead", 9e6), (2, "ahead", 9e9), (3, "malformed", 5.0)}
    assert found == [(refusals, {5.0, 6.0}, {6 * SECOND})] * 3


def test_an_advance_moves_the_clock_of_a_partition_of_any_topic() -> None:
    advances = [Advance("s", 0, 0, 9 * SECOND, 4), Advance("s", 1, 0, NO_TIME, 0)]
    rows = pack_progress(1, [progress_of(item, Reading(name="s", rank=2)) for item in advances])
    step = run_step(PROGRAM, 0, None, rows.column(1).to_pylist(), 1000)
    found = [(row["partition"], row["arrival"]) for row in rows_of(step.rows, Tag.SOURCE)]
    assert found == [(0, 9 * SECOND), (1 << 32, NO_TIME)]


def test_partitions_of_one_number_in_several_topics_have_clocks_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Records of a topic that was read further are held until the other one has caught up."""

    def step(state: bytes | None, *read: tuple[int, float, float]) -> tuple[bytes, int, list[tuple[object, object]]]:
        rows = []
        for topic, offset, moment in read:
            log = Log([(int(offset), moment, json.dumps({"k": "x", "v": moment}))])
            rows += packed(monkeypatch, log, OffsetRange("s", f"t{topic}", topic, 0, int(offset), int(offset) + 1))
        done = run_step(PROGRAM, 0, state, rows, 1000)
        (held,) = [row["held"] for row in rows_of(done.rows, Tag.METRIC)]
        clocks = [(row["partition"], row["arrival"]) for row in rows_of(done.rows, Tag.SOURCE)]
        assert isinstance(held, int)
        return done.state, held, clocks

    state, held, clocks = step(None, (0, 0, 5.0), (1, 0, 1.0))
    assert (held, clocks) == (1, [(0, 5 * SECOND), (1 << 32, 1 * SECOND)])
    state, held, clocks = step(state, (1, 1, 9.0), (0, 1, 4.0))
    assert (held, clocks) == (1, [(0, 5 * SECOND), (1 << 32, 9 * SECOND)])
