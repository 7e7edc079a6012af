"""Queries that feed each other, in buckets: which of them meet, and that they give what one engine gives."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Collection
from dataclasses import replace

import pyarrow as pa
import pytest

import ensue
import querylang
from job_engine.operator.bucket_state import open_state
from job_engine.operator.step import run_step
from job_engine.sources.listing.command_folder import FORGET, Command
from job_engine.sources.task_reading import packed_commands
from job_engine.wire.clock_sources import Clock
from job_engine.wire.gathering import CHAINS, gathered_together
from job_engine.wire.packed_rows import Signal
from job_engine.wire.program import Program
from job_engine.wire.tagged_rows import Tag
from querylang.plan.model import QueryPlan
from runtime.columns.arrivals import Arrivals
from runtime.reading.tables import read_arrivals
from tests.support.books import KEYS, Row, book
from tests.support.buckets import Stream, rows_of
from tests.support.chained_jobs import EVENTS, SOURCES, ChainedJob, arrivals_of, given, in_pieces, together
from tests.support.embedded import embedded, summary


def compare(seed: int, *, crosses: bool = False, gathers: bool = False) -> bool:
    """Whether queries of a random program are apart, or cross, and its answer is right.

    gathers: what crosses comes into one bucket on the way
    """
    chance = random.Random(seed)
    program = book(chance, chance.choice(KEYS) if seed % 3 and not crosses else None)
    plan = querylang.compile_text(program.text).plan
    parts = arrivals_of(chance, given(chance, program.from_sources, 4), plan)
    stream = Stream(Program.of(plan, buckets=chance.randint(1, 4), sources=SOURCES, crosses=crosses))
    for number, batch in enumerate(in_pieces(chance, parts)):
        stream.take(batch, number)
        if chance.random() < 0.1:
            stream.move(chance.randint(1, 5))
        if gathers and stream.program.crosses and chance.random() < 0.1:
            if stream.program.routing() is None:
                return False
            stream.gather(gathered(stream.program), chance.randint(1, 5))
    stream.take({}, 1000, Signal.FLUSH)
    assert stream.summary() == summary(embedded(plan, together(parts))), (seed, program.text)
    names = [name for name, *_ in stream.program.names.values()]
    if gathers:
        return CHAINS in names
    assert not (crosses and CHAINS in names)
    return stream.program.routing() is not None if crosses else any(name.startswith(f"{CHAINS} ") for name in names)


def gathered(program: Program) -> Program:
    """The program with all that crosses in one bucket."""
    own = gathered_together(program.gathered or (), [(program.plan(), {})], program.sources)
    return replace(program, crosses=False, gathered=own)


@pytest.mark.parametrize("block", range(2))
def test_chains_in_buckets_give_what_one_engine_gives(block: int) -> None:
    assert 2 < sum(compare(seed) for seed in range(10 * block, 10 * block + 10)) < 8


def test_chains_that_cross_buckets_give_what_one_engine_gives() -> None:
    assert sum(compare(seed, crosses=True) for seed in range(40, 52)) > 5


def test_what_crosses_comes_into_one_bucket_and_gives_the_same() -> None:
    assert sum(compare(seed, crosses=True, gathers=True) for seed in range(60, 80)) > 8


def compare_processing(seed: int, *, crosses: bool = False) -> int:
    """Records arrive when they are read, and what they cause has the moment of its cause; the number of matches."""
    chance = random.Random(seed)
    shared = chance.choice(KEYS) if seed % 3 and not crosses else None
    program = book(chance, shared, has_beats=seed % 2 == 0)
    plan = querylang.compile_text(program.text).plan
    parts = arrivals_of(chance, given(chance, program.from_sources, 4), plan)
    buckets = chance.randint(1, 4)
    stream = Stream(Program.of(plan, buckets=buckets, clock=Clock.PROCESSING, sources=SOURCES, crosses=crosses))
    at, read = 0, list[Arrivals]()
    for batch in [item for piece in in_pieces(chance, parts) for item in (piece, {})]:
        at += chance.choice([1, 500, 4000])
        stream.take(batch, at)
        read += [read_at(part, at * 1000) for part in batch.values() if len(part)]
        if chance.random() < 0.1:
            stream.move(chance.randint(1, 5))
    stream.take({}, at + 1, Signal.FLUSH)
    assert stream.summary() == summary(embedded(plan, Arrivals.concat(read))), (seed, program.text)
    return len(stream.summary()[0])


def read_at(part: Arrivals, moment: int) -> Arrivals:
    position = part.table.schema.get_field_index("_arrival")
    moments = pa.array([moment] * len(part), pa.int64())
    return Arrivals(part.table.set_column(position, part.table.schema.field(position), moments))


def test_chains_whose_records_arrive_when_they_are_read() -> None:
    assert sum(compare_processing(seed) for seed in range(8)) > 100
    assert sum(compare_processing(seed, crosses=True) for seed in range(40, 46)) > 100


def test_what_one_moment_causes_in_several_buckets_comes_by_key() -> None:
    """Timers of a moment are in no order of arrival: only their keys say which match comes first."""
    late = "query P { inputs { A() key h within 20.0; } find A as a -> wait(5.0) { route B(0, a.h); } }"
    pairs = "query S { inputs { B() key h within 20.0; } find B as x -> B as y { print y.v.toString(); } }"
    plan = querylang.compile_text(EVENTS + late + pairs).plan
    keys = [7, 3, 11, 0, 9, 5, 1, 10, 2, 8, 4, 6]
    own = [{"at": 1, "event": "A", "h": key, "v": 0} for key in keys]
    stream = Stream(Program.of(plan, buckets=4, sources=SOURCES, crosses=True))
    stream.take({"a": read_arrivals(own, plan, source="a")}, 0)
    stream.take({"a": read_arrivals([{"at": 60, "event": "A", "h": 0, "v": 0}], plan, source="a")}, 1, Signal.FLUSH)
    printed = [int(str(row["text"])) for row in rows_of(stream.tagged, Tag.OUTPUT) if row["kind"] == "print"]
    assert printed == sorted(keys)[1:]


FIRST = "query P { inputs { A() key h within 20.0; } find A as a -> A as b where b.v > a.v { route B(b.h, a.v); } }"
SECOND = (
    "query Q { inputs { B() key h within 20.0; A() key h within 9.0; }"
    " find B as x -> A as y where y.v < x.v { route C(x.h, y.v); } }"
)
THIRD = "query R { inputs { C() key h within 50.0; } find C as one -> C as two { print one.v.toString(); } }"
ACROSS = "query S { inputs { B() key v within 20.0; } find B as x -> B as y { print x.v.toString(); } }"
LONGER = SECOND.replace("within 9.0", "within 12.0")
SET = FIRST.replace("{ inputs", "{ parameters { integer least := 0; } inputs").replace("> a.v {", "> a.v + least {")
QUIET = FIRST.replace("route B(b.h, a.v);", 'print "quiet";')
ELSEWHERE = FIRST.replace("B(b.h,", "B(b.v,")


def told(name: str, *arguments: object) -> str:
    return json.dumps({name: arguments})


def deployed(text: str) -> str:
    return json.dumps({"DeployQuery": [EVENTS + text]})


def replaced(text: str) -> str:
    return json.dumps({"ReplaceQuery": [EVENTS + text]})


CHANGES = {
    "one that makes a chain": (FIRST, [deployed(SECOND), deployed(THIRD)]),
    "the query before": (SECOND + THIRD, [deployed(FIRST)]),
    "one that begins to feed": (QUIET + SECOND, [replaced(FIRST)]),
    "the first one": (FIRST + SECOND + THIRD, [replaced(FIRST.replace("> a.v", "> a.v + 1")), replaced(FIRST)]),
    "the middle one": (FIRST + SECOND + THIRD, [replaced(LONGER), replaced(SECOND)]),
    "the last one": (FIRST + SECOND + THIRD, [replaced(THIRD.replace("50.0", "30.0"))]),
    "the end of one": (FIRST + SECOND + THIRD, ['UndeployQuery("Q")', deployed(SECOND), 'UndeployQuery("P")']),
    "one without a chain": (FIRST, [deployed(SECOND), 'UndeployQuery("P")', replaced(LONGER), deployed(FIRST)]),
    "instances": (
        SET + SECOND + THIRD,
        [
            told("SetParameters", "P", "eu", {"least": 3}),
            told("SetParameters", "P", "", {"least": 1}),
            told("RemoveInstance", "P", "eu"),
            told("SetParameters", "P", "us", {"least": 2}),
        ],
    ),
    "instances across keys": (
        SET + ACROSS,
        [told("SetParameters", "P", "eu", {"least": 3}), replaced(SET.replace("20.0", "9.0")), replaced(FIRST)],
    ),
    "across keys": (FIRST + ACROSS, [deployed(SECOND), 'UndeployQuery("S")', deployed(THIRD), deployed(ACROSS)]),
}


CROSSING = {
    "across keys, made": (FIRST, [deployed(ACROSS), deployed(SECOND), deployed(THIRD)]),
    "across keys, elsewhere": (FIRST + ACROSS, [replaced(ELSEWHERE), deployed(SECOND), 'UndeployQuery("P")']),
    "across keys, joined": (FIRST + THIRD, [deployed(SECOND), replaced(ELSEWHERE)]),
    "along one key, and one across": (
        FIRST + SECOND,
        [deployed(ACROSS), deployed(THIRD), replaced(LONGER), 'UndeployQuery("S")', deployed(ACROSS)],
    ),
    "along one key, then elsewhere": (
        FIRST + SECOND + THIRD,
        [replaced(ELSEWHERE), replaced(SECOND), 'UndeployQuery("R")', deployed(ACROSS)],
    ),
    "along one key, elsewhere and back": (
        FIRST + SECOND + THIRD + ACROSS,
        ['UndeployQuery("S")', replaced(ELSEWHERE), replaced(FIRST), deployed(ACROSS)],
    ),
}
"""Changes that are refused where nothing crosses."""


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize("crosses", [False, True])
def test_chains_that_change_give_what_a_replay_gives(name: str, crosses: bool) -> None:
    change_all(*CHANGES[name], crosses=crosses)


@pytest.mark.parametrize("name", CROSSING)
def test_chains_that_cross_buckets_change(name: str) -> None:
    assert change_all(*CROSSING[name], crosses=True).program.routing() is not None


@pytest.mark.parametrize("name", ["the middle one", "instances across keys", "across keys", *CROSSING])
def test_what_crosses_comes_into_one_bucket_behind_changes(name: str) -> None:
    begun, changes = (CHANGES | CROSSING)[name]
    was_gathered = set[bool]()
    for number in range(1, len(changes) + 1):
        apart = change_all(begun, changes[:number], crosses=True)
        joined = change_all(begun, changes[:number], crosses=True, gathers=number)
        assert joined.summary()[2] == apart.summary()[2]  # the ledger
        was_gathered.add(joined.program != apart.program)
    assert was_gathered == {True} or name not in CROSSING


ROUTED = {"A": ("B", "C", None), "B": ("C", None), "C": (None,)}
"""What a query may route that takes a type; None = it prints."""


def any_query(chance: random.Random, name: str) -> str:
    """A query that takes one or two types by any key, and routes, with its key in any place, or prints."""
    first = chance.choice("ABC")
    second = chance.choice("ABC"[: "ABC".index(first) + 1])
    key, within = chance.choice("hhv"), chance.choice((9, 20, 30))
    inputs = "".join(f"{event}() key {key} within {within}.0; " for event in dict.fromkeys((first, second)))
    routed, values = chance.choice(ROUTED[first]), chance.choice(("x.h, y.v", "y.h, x.v", "x.v, y.h", "y.v, x.h"))
    block = f"route {routed}({values});" if routed else 'print x.h.toString() + " " + y.v.toString();'
    where = f"where y.v {chance.choice(('>', '<', '!='))} x.v"
    return f"query {name} {{ inputs {{ {inputs}}} find {first} as x -> {second} as y {where} {{ {block} }} }} "


@pytest.mark.parametrize(
    ("seed", "gathers"),
    [
        *((seed, None) for seed in range(6)),
        *((seed, 2) for seed in range(6, 9)),
        (83, None),  # while a text hands over, another one of its name is fed
        (134, None),
        (8, 1),  # a query that had crossed with another one, which has ended since
        (26, 4),
    ],
)
def test_chains_of_any_keys_that_change_at_will_give_what_a_replay_gives(seed: int, gathers: int | None) -> None:
    chance = random.Random(seed)
    names = "PQRST"[: chance.choice((2, 3, 5))]
    begun = "".join(any_query(chance, name) for name in names[: chance.choice((1, 2, 3))])
    changes = []
    for _ in range(6):
        name, kind = chance.choice(names), chance.choice((deployed, replaced, replaced, None))
        changes.append(f'UndeployQuery("{name}")' if kind is None else kind(any_query(chance, name)))
    refuses = ["there is no query", "runs already", "must not feed each other"]
    if gathers is not None:
        refuses.append("begin with a new checkpoint")
    change_all(begun, changes, crosses=True, gathers=gathers, refuses=refuses)


def change_all(
    begun: str, changes: list[str], *, crosses: bool, gathers: int | None = None, refuses: Collection[str] = ()
) -> Stream:
    """What a replay gives is given, too, by a job whose queries change between micro-batches.

    gathers: behind so many changes, all that crosses comes into one bucket
    refuses: reasons for which a change may be refused; it is left out then
    """
    chance, at, table = random.Random(begun), 0, list[Row]()
    job = ChainedJob(begun, buckets=3, crosses=crosses)
    for number, text in enumerate([*changes, None]):
        if number == gathers and job.stream.program.routing() is not None:
            job.gather(1 + len(changes) % 4)
        own = []
        for _ in range(60):
            at += chance.choice([1, 1, 2])
            own.append({"at": at, "event": "A", "h": chance.randrange(4), "v": chance.randrange(9)})
        plan = job.stream.program.plan()
        job.take({name: read_arrivals(own[half::2], plan, source=name) for half, name in enumerate("ab")})
        for half, source in enumerate("ab"):
            table += [row | {"source": source} for row in own[half::2]]
        if text is not None:
            errors = job.change(text)
            assert all(any(reason in error for reason in refuses) for error in errors)
            if errors:
                continue
            table.append(dict.fromkeys(own[0]) | {"at": at, "event": text, "source": "~"})
    job.take({}, Signal.FLUSH)
    expected = ensue.replay(EVENTS + begun, table, source_column="source")
    wanted = Counter(str(row["text"]) for row in expected.output_objects() if row["kind"] in ("print", "route"))
    found = rows_of(job.stream.tagged, Tag.OUTPUT)
    assert Counter(str(row["text"]) for row in found if row["kind"] in ("print", "route")) == wanted
    assert wanted.total() > 20 or refuses
    return job.stream


def test_a_flush_ends_a_replaced_text_and_a_change_behind_it_is_reported() -> None:
    job = ChainedJob(FIRST, buckets=2)
    own = [{"at": at, "event": "A", "h": 1, "v": at % 4} for at in range(10)]
    taken = {"a": read_arrivals(own, job.stream.program.plan(), source="a")}
    job.take(taken | {"b": read_arrivals(own, job.stream.program.plan(), source="b")})
    assert job.change(replaced(FIRST.replace("20.0", "9.0"))) == []
    job.take({}, Signal.FLUSH)
    assert job.change(deployed(THIRD)) == []
    assert job.change('UndeployQuery("Nobody")') != []
    job.take({}, Signal.FLUSH)
    told = [row["kind"] for row in rows_of(job.stream.tagged, Tag.OUTPUT) if row["kind"] not in ("print", "route")]
    assert told == ["replaced", "handed_over", "deployed"]
    assert len(rows_of(job.stream.tagged, Tag.ERROR)) == 1
    places = [epoch.begins for epoch in job.journal.epochs if epoch.begins is not None]
    assert places == sorted(places)


@pytest.mark.parametrize(
    ("begun", "change", "reason"),
    [
        (FIRST, deployed(ACROSS), "'P' and 'S' would feed each other, and their keys differ"),
        (FIRST + SECOND, replaced(ELSEWHERE), "'P' and 'Q' would feed each other, and their keys differ"),
        (FIRST + THIRD, deployed(SECOND), "'P', 'R' and 'Q' would feed each other, and their states are in different"),
    ],
)
def test_a_change_that_would_need_other_buckets_is_refused(begun: str, change: str, reason: str) -> None:
    job = ChainedJob(begun, buckets=2)
    (error,) = job.change(change)
    assert reason in error
    assert "begin with a new checkpoint" in error
    assert {name for name, *_ in job.stream.program.names.values()} == {name for name, *_ in job.base.names.values()}


def test_a_key_is_forgotten_by_the_queries_that_have_it() -> None:
    other = ACROSS.replace("key v", "key v as other")
    plan = querylang.compile_text(EVENTS + FIRST.replace("20.0", "900.0") + other.replace("20.0", "900.0")).plan
    stream = Stream(Program.of(plan, buckets=2, sources=SOURCES))
    own = [{"at": at, "event": "A", "h": at % 3, "v": at % 5} for at in range(60)]
    parts = {name: read_arrivals(own[half::2], plan, source=name) for half, name in enumerate("ab")}
    stream.take(parts, 0)
    assert all(kept(stream, query, 1) for query in plan.queries)
    command = Command(7, json.dumps({"key": {"other": 1}}), kind=FORGET)
    packed = list(packed_commands([command], stream.program, 1))
    for bucket in range(2):
        rows = [batch.column(1)[bucket].as_py() for batch in packed]
        stream.states[bucket] = run_step(stream.program, bucket, stream.states[bucket], rows, 1).state
    assert [kept(stream, query, 1) > 0 for query in plan.queries] == [True, False]
    assert kept(stream, plan.query("S"), 0)


def kept(stream: Stream, query: QueryPlan, key: int) -> int:
    """How many events are kept of a key."""
    engines = [open_state(stream.program, bucket, data).engines[0] for bucket, data in stream.states.items()]
    return sum(len(engine.key_contents(query.title, [pa.scalar(key, pa.int64())]).events) for engine in engines)
