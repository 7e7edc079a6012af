"""A key that a job forgets: nothing of it is kept, all is counted, and other keys give what they gave."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import querylang
from job_engine.job.journal import Journal, Taking
from job_engine.job.written_journal import asked_of_text
from job_engine.operator.bucket_state import open_state
from job_engine.operator.step import run_step
from job_engine.sources.listing.command_folder import FORGET, Command
from job_engine.sources.task_reading import packed_commands
from job_engine.wire.clock_sources import ClockSource
from job_engine.wire.packed_rows import pack_arrivals
from job_engine.wire.program import Program
from job_engine.wire.tagged_rows import Tag, TaggedRow
from querylang.changes import Moment
from querylang.errors import InputError
from querylang.running import Running
from runtime.columns.keys import GivenKey
from tests.spark_backend.samples import SEVERAL, arrivals_of
from tests.support.buckets import rows_of

SOURCES = [ClockSource(name, None, None) for name in ("s", "slow")]
WAITING = """
event A { string k; float v; float ts; }
event B { string k; float v; float ts; }
event C { string k; float v; float ts; }
query Silence { inputs { A() key k within 60 seconds; } find A as x -> wait(30.0) without A as y }
"""


@pytest.mark.parametrize("has_held", [False, True])
def test_nothing_of_the_key_is_kept_and_all_is_counted(has_held: bool) -> None:
    program = Program.of(SEVERAL, buckets=3, sources=SOURCES if has_held else ())
    states, first = run(program, {}, parts(program)[:1])
    keys = {row["key"]["k"] for row in rows_of(first, Tag.MATCH) if row["key"]} or {"k3"}
    key = min(keys)
    before = kept(program, states, key)
    states, rows = run(program, states, [forgetting(program, key)])
    assert before
    assert kept(program, states, key) == 0
    answers = rows_of(rows, Tag.ANSWER)
    assert sum(answer["count"] for answer in answers) == before
    assert [answer["of"] for answer in answers] == [3] * 4
    _, last = run(program, states, parts(program)[1:])
    total = Counter[tuple[str, str]]()
    for row in rows_of([*first, *rows, *last], Tag.LEDGER):
        total[row["query"], row["what"]] += row["count"]
    for query in SEVERAL.queries:
        beside = ("received", "forgotten_events", "before_clock")
        assert total[query.title, "received"] == 600
        assert (
            sum(count for (title, what), count in total.items() if title == query.title and what not in beside) == 600
        )
    assert total["Rise", "forgotten"] + total["Rise", "forgotten_events"] > 0
    assert total["All", "forgotten"] == 0


def test_other_keys_give_what_they_gave() -> None:
    program = Program.of(SEVERAL, buckets=3)
    (first, second), key = parts(program), "k3"
    _, plain = run(program, {}, [first, second])
    _, forgot = run(program, {}, [first, forgetting(program, key), second])
    assert others(plain, key) == others(forgot, key)
    assert len(rows_of(forgot, Tag.MATCH)) < len(rows_of(plain, Tag.MATCH))


def test_pending_matches_of_the_key_end_and_are_counted() -> None:
    plan = querylang.compile_text(WAITING).plan
    program = Program.of(plan, buckets=2)
    arrivals = arrivals_of(200, plan=plan)
    batch = [pack_arrivals(arrivals, program.groups(), 2)]
    states, _ = run(program, {}, [batch])
    waits = {key: open_waits(program, states, key) for key in ("k3", "k4")}
    assert all(waits.values())
    states, rows = run(program, states, [forgetting(program, "k3")])
    assert (open_waits(program, states, "k3"), open_waits(program, states, "k4")) == (0, waits["k4"])
    counted = [row["count"] for row in rows_of(rows, Tag.LEDGER) if row["what"] == "forgotten_waits"]
    assert counted == [waits["k3"]]


def test_held_records_are_counted_as_forgotten_for_the_queries_of_their_epoch() -> None:
    start = querylang.compile_text(WAITING).plan
    other = "query Other { inputs { A() key k within 60 seconds; } find A as x -> A as y }"
    first = Program.of(start, buckets=2, sources=SOURCES)
    arrivals = arrivals_of(200, plan=start)
    place = int(np.median(arrivals.system("arrival")))
    journal = Journal.begin(Running.of(start, start), first.plan())
    deployed = journal.changed(
        asked_of_text(json.dumps({"DeployQuery": [other]})), Taking(1, Moment(place, place), 0, lambda plan: plan)
    )
    program = deployed.program(first, Path())
    states, rows = run(program, {}, [[pack_arrivals(arrivals, program.groups(), 2)]])
    held = [
        arrival
        for bucket, data in states.items()
        for item in open_state(program, bucket, data).held
        for arrival, key in zip(
            item.arrivals.system("arrival"), item.arrivals.table.column("k:string").to_pylist(), strict=True
        )
        if key == "k3"
    ]
    _, more = run(program, states, [forgetting(program, "k3")])
    total = Counter[tuple[str, str]]()
    for row in rows_of([*rows, *more], Tag.LEDGER):
        total[row["query"], row["what"]] += row["count"]
    later = sum(arrival > place for arrival in held)
    assert 0 < later < len(held)
    assert (total["Silence", "forgotten"], total["Other", "forgotten"]) == (len(held), later)
    assert total["Silence", "received"] == 200
    assert total["Other", "received"] == np.count_nonzero(arrivals.system("arrival") > place)


def test_keys_are_given_as_value_as_parts_and_as_json() -> None:
    rise = SEVERAL.queries[0]
    for texts in (["k3"], ["k=k3"], ['{"k": "k3"}']):
        values = GivenKey.of_texts(texts, SEVERAL).values_for(SEVERAL, rise)
        assert [value.as_py() for value in values or ()] == ["k3"]
    assert GivenKey.of_texts(["a=b"], SEVERAL).parts == {"": "a=b"}
    for texts in (["k=1", "j=2"], ["{"], ['{"j": 1}']):
        with pytest.raises(InputError):
            GivenKey.of_texts(texts, SEVERAL)


def forgetting(program: Program, key: str) -> list[pa.RecordBatch]:
    return list(packed_commands([Command(7, json.dumps({"key": {"k": key}}), kind=FORGET)], program, 1))


def parts(program: Program) -> list[list[pa.RecordBatch]]:
    arrivals = arrivals_of(600, plan=SEVERAL)
    halves = [arrivals.take(rows) for rows in np.array_split(np.arange(600), 2)]
    return [[pack_arrivals(half, program.groups(), program.buckets)] for half in halves]


def kept(program: Program, states: dict[int, bytes], key: str) -> int:
    """Events, pending ones and held records of a key."""
    count = 0
    for bucket, data in states.items():
        state = open_state(program, bucket, data)
        for group, engine in zip(program.groups(), state.engines, strict=True):
            keyed = [query for query in group.plan.queries if query.keys]
            count += sum(len(engine.key_contents(query.title, [pa.scalar(key)]).events) for query in keyed)
            held = [item for item in state.held if item.group == group.number and keyed]
            count += sum(item.arrivals.table.column("k:string").to_pylist().count(key) for item in held)
    return count


def open_waits(program: Program, states: dict[int, bytes], key: str) -> int:
    engines = [open_state(program, bucket, data).engines[0] for bucket, data in states.items()]
    return sum(engine.key_contents("Silence", [pa.scalar(key)]).wait_count for engine in engines)


def others(rows: list[TaggedRow], key: str) -> list[str]:
    return sorted(row["match_id"] for row in rows_of(rows, Tag.MATCH) if row["key"] and row["key"] != {"k": key})


def run(
    program: Program, states: dict[int, bytes], batches: list[list[pa.RecordBatch]]
) -> tuple[dict[int, bytes], list[TaggedRow]]:
    states, out = dict(states), list[TaggedRow]()
    for packed in batches:
        rows = [row for batch in packed for row in batch.to_pylist()]
        for bucket in range(program.buckets):
            own = [row["data"] for row in rows if row["bucket"] == bucket]
            step = run_step(program, bucket, states.get(bucket), own, 1)
            states[bucket] = step.state
            out.extend(step.rows)
    return states, out
