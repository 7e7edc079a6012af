"""Queries that feed each other, against each query alone, which gets what others route one event after the other.

The oracle knows the order by recursion only: timers of a moment first, then a record in all queries, then what each of
them has routed, each event with all that it causes before the next.
"""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pytest

import ensue
import querylang
from querylang.plan.model import Plan
from querylang.plan.routing import taken_types
from runtime.columns.arrivals import Arrivals, arrivals_schema, column_name
from runtime.engine import families
from runtime.engine.engine import Engine
from runtime.interpreter import text_of
from runtime.reading.tables import read_arrivals
from runtime.replay.replay import read_all, replay_records
from runtime.replay.steps import ChunkedSteps, StepByStep, replay_steps
from runtime.results.for_users import plain_matches
from runtime.results.schemas import Results, in_order
from tests.support.books import Book, Row, book, rows

SECOND = 1_000_000


@dataclass
class Alone:
    """Each query by itself, fed by hand.

    found: by query what it gives, in order
    given: the same as tables
    delivered: what has been routed, in order, with the number of matches that each has caused by query
    """

    plan: Plan
    engines: dict[str, Engine] = field(default_factory=dict)
    found: list[tuple[str, Any]] = field(default_factory=list)
    given: list[pa.Table] = field(default_factory=list)
    delivered: list[tuple[str, Row, Counter[str]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        apart = self.plan.without_routes()
        for query in sorted(apart.queries, key=lambda query: query.name):
            self.engines[query.name] = Engine(Plan(apart.events, (query,)))

    def begin(self, name: str, plan: Plan, at: int) -> None:
        """A query begins."""
        self.engines[name] = Engine(plan)
        self.engines[name].process(nothing(plan), now=at * SECOND)
        self.engines = dict(sorted(self.engines.items()))

    def run(self, arrivals: Arrivals) -> None:
        for place in range(len(arrivals)):
            self.run_one(Arrivals(arrivals.table.slice(place, 1)))
        self.timers(None)

    def run_one(self, record: Arrivals) -> None:
        (moment,) = record.system("arrival").tolist()
        self.timers(moment)
        self.deliver(record, moment)

    def timers(self, until: int | None) -> None:
        """All timers up to a moment, moment by moment; None = until none is left."""
        while True:
            due = {name: moment for name, engine in self.engines.items() if (moment := engine.next_wake()) is not None}
            if not due or (until is not None and min(due.values()) > until):
                break
            now = min(due.values())
            caused = [
                (name, self.engines[name].process(nothing(self.plan), now=now))
                for name, moment in due.items()
                if moment == now
            ]
            for name, results in caused:
                self.give(name, results, now)

    def deliver(self, record: Arrivals, moment: int, told: Row | None = None) -> None:
        """A record in all queries that take it, then what they have routed, each with all that it causes."""
        (kind,) = record.system("kind").tolist()
        caused = [
            (name, engine.process(record, now=moment))
            for name, engine in self.engines.items()
            if self.plan.events[kind].name in taken_types(engine.plan.queries[0])
        ]
        if told is not None:
            counts = Counter(name for name, results in caused for _ in matches_of(results, name))
            self.delivered.append((told["type"], told["fields"], counts))
        for name, results in caused:
            self.give(name, results, moment)

    def give(self, name: str, results: Results, moment: int) -> None:
        self.found += [(name, shown) for shown in matches_of(results, name)]
        self.given += results.matches.values()
        for kind, channel, event in outputs_of(self.engines[name].plan, results):
            if kind == "route" or channel == "com.apama.queries":
                told = json.loads(event)
                self.deliver(as_record(self.plan, told["type"], told["fields"], moment), moment, told)

    def facts(self) -> list[str]:
        """What all matches say, as of a replay."""
        return [facts_of(plain) for table in self.given for plain in plain_matches(table, lambda *_: None)]


def nothing(plan: Plan) -> Arrivals:
    return Arrivals.empty(plan)


def outputs_of(plan: Plan, results: Results) -> list[tuple[str, str | None, str]]:
    if not len(results.outputs):
        return []
    table = in_order(plan, results).outputs.select(["kind", "channel", "event"])
    return [(row["kind"], row["channel"], row["event"]) for row in table.to_pylist()]


def matches_of(results: Results, name: str) -> list[str]:
    """What matches say, but for coordinates and identities."""
    found = []
    for row in results.matches[name].to_pylist() if name in results.matches else []:
        members = {
            term: None if one is None else (one["event"], str(one["time"]), str(one["fields"]))
            for term, one in row["members"].items()
        }
        found.append(str((row["key"], row["time"], row["definitive"], row["emitted"], members)))
    return found


def as_record(plan: Plan, event: str, fields: Row, moment: int) -> Arrivals:
    """A routed event as a record that was read: it is definitive at once, or out of order."""
    kinds = {item.name: kind for kind, item in enumerate(plan.events)}
    row: Row = {
        "_kind": kinds[event],
        "_arrival": moment,
        "_source": "r",
        "_partition": 0,
        "_offset": next(OFFSETS),
        "_source_time": moment,
        "_place": 0,
        **{column_name(item.name, item.type): fields[item.name] for item in plan.event(event).fields},
    }
    schema = arrivals_schema(plan)
    return Arrivals(pa.table({name: pa.array([value], schema.field(name).type) for name, value in row.items()}))


OFFSETS = iter(range(10**9))


def in_engine(plan: Plan, arrivals: Arrivals, chance: random.Random) -> list[tuple[str, Any]]:
    """All queries in one engine, in calls of any size, with states that are saved between them."""
    engine, at, found = Engine(plan), 0, list[tuple[str, Any]]()

    def add(results: Results) -> None:
        ordered = in_order(plan, results)
        found.extend((query.name, shown) for query in plan.queries for shown in matches_of(ordered, query.name))

    while at < len(arrivals):
        size = chance.choice([1, 2, 5, 100])
        add(engine.process(Arrivals(arrivals.table.slice(at, size))))
        at += size
        if chance.random() < 0.2:
            engine = Engine.restore(plan, engine.snapshot())
    add(engine.flush())
    return found


def with_alike(program: Book, chance: random.Random) -> Book:
    """More queries such as the first one, which nothing feeds: they differ in constants and feed the same queries."""
    first, copies = program.queries[0], list[str]()
    for number in range(chance.choice([4, 6])):
        copy = re.sub(r"query (\w+)", rf"query \g<1>{chance.choice('ab')}{number}", first)
        wanted = chance.choice([f"v > {-1 - number}", f"v > {-1 - number}", f"v > 0 and v > {-number}"])
        copy = re.sub(r"E0\([^)]*\)( key|;| within| retain)", rf"E0({wanted})\1", copy, count=1)
        copies.append(re.sub(r"\.v \+ \d", f".v + {chance.randint(0, 2)}", copy))
    return replace(program, queries=[*program.queries, *copies])


def compare(seed: int, *, has_alike: bool = False) -> int:
    chance = random.Random(seed)
    program = book(chance, has_beats=seed % 3 == 0)
    if has_alike:
        program = with_alike(program, chance)
    given, text = rows(chance, program.from_sources), program.text
    plan = querylang.compile_text(text).plan
    arrivals = read_arrivals(given, plan)
    alone = Alone(querylang.compile_text(program.text_alone).plan)
    alone.run(arrivals)
    together = in_engine(plan, arrivals, chance)
    for query in plan.queries:
        expected = [shown for name, shown in alone.found if name == query.name]
        got = [shown for name, shown in together if name == query.name]
        assert Counter(got) == Counter(expected), (seed, query.name, text, given)
    return len(alone.found)


@pytest.mark.parametrize("block", range(10))
def test_books_give_what_each_query_gives_alone(block: int) -> None:
    assert sum(compare(seed) for seed in range(62 * block, 62 * block + 62)) > 150


def test_queries_of_one_shape_feed_others_as_each_does_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(families, "FEWEST", 2)
    made = list[families.FamilyRunner]()

    class Watched(families.FamilyRunner):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            made.append(self)

    monkeypatch.setattr(families, "FamilyRunner", Watched)
    assert sum(compare(seed, has_alike=True) for seed in range(1_000, 1_012)) > 100
    assert sum(bool(member.feeds) for family in made for member in family.members) > 50


def compare_steps(seed: int) -> None:
    """Steps from many records at once are those from one record after the other."""
    chance = random.Random(seed)
    program = book(chance)
    given = rows(chance, program.from_sources)
    plan = querylang.compile_text(program.text).plan
    records = read_all([given], plan)
    one_by_one = [step.to_plain() for step in StepByStep(plan, records, "auto").steps(None, flush=True)]
    assert [step.to_plain() for step in ChunkedSteps(plan, records, "auto").steps(None, flush=True)] == one_by_one, seed
    known = replay_records(plan, records)
    assert [
        step.to_plain() for step in ChunkedSteps(plan, records, "auto", known).steps(None, flush=True)
    ] == one_by_one


def compare_order(seed: int) -> int:
    """What is routed is a step behind its cause, depth first, with the matches that it causes."""
    chance = random.Random(seed)
    program = book(chance, has_beats=seed % 3 == 0)
    given = rows(chance, program.from_sources)
    plan = querylang.compile_text(program.text).plan
    alone = Alone(querylang.compile_text(program.text_alone).plan)
    alone.run(read_arrivals(given, plan))
    steps = [step for step in replay_steps(plan, read_all([given], plan)) if step.source is not None]
    taken = frozenset[str]().union(*map(taken_types, plan.queries))
    expected = [item for item in alone.delivered if item[0] in taken]
    found = [(step.event, step.text, Counter(match["query"] for match in step.matches)) for step in steps]
    assert found == [
        (name, f"{name}({','.join(map(text_of, fields.values()))})", counts) for name, fields, counts in expected
    ], (seed, program.text)
    assert all(step.row is None and (step.source or "").startswith("route:Q") for step in steps)
    return sum(counts.total() for *_, counts in expected)


def test_routed_events_are_steps_in_total_order() -> None:
    assert sum(map(compare_order, range(16))) > 4


@pytest.mark.parametrize("block", range(2))
def test_steps_of_chains_are_those_of_single_records(block: int) -> None:
    for seed in range(20 * block, 20 * block + 20):
        compare_steps(seed)


@pytest.mark.parametrize("seed", [200204, 201512])
def test_what_a_routed_event_releases_at_the_moment_of_a_timer_is_no_step_of_timers(seed: int) -> None:
    compare_steps(seed)


def one_text(program: Book, query: str, *, alone: bool) -> str:
    return replace(program, queries=[query]).text_alone if alone else replace(program, queries=[query]).text


def compare_changes(seed: int) -> int:
    """Queries of a chain that begin and end while events arrive."""
    chance = random.Random(seed)
    program = book(chance)
    given = rows(chance, program.from_sources)
    names = [re.search(r"query (\w+)", query)[1] for query in program.queries]  # type: ignore[index]
    begun = [name for name in names if chance.random() < 0.7] or names[:1]
    texts = dict(zip(names, program.queries, strict=True))
    began = replace(program, queries=[texts[name] for name in begun])
    alone, table, running = Alone(querylang.compile_text(began.text_alone).plan), list[Row](), set(begun)
    whole = querylang.compile_text(program.text).plan
    for row in given:
        if chance.random() < 0.25:
            name = chance.choice(names)
            at = table[-1]["at"] if table else 0
            alone.timers(at * SECOND)
            if name in running:
                running.discard(name)
                del alone.engines[name]
                told = f'UndeployQuery("{name}")'
            else:
                running.add(name)
                plan = querylang.compile_text(one_text(program, texts[name], alone=True)).plan
                alone.begin(name, plan, at)
                told = json.dumps({"DeployQuery": [one_text(program, texts[name], alone=False)]})
            table.append(dict.fromkeys(row) | {"at": at, "event": told})
        table.append(row)
        alone.run_one(read_arrivals([row], whole))
    alone.timers(None)
    result = ensue.replay(began.text, table)
    assert not [row for row in result.output_objects() if row["kind"] == "error"], seed
    got = Counter(facts_of(match) for match in result.match_objects())
    expected = Counter(alone.facts())
    assert got == expected, (seed, got - expected, expected - got, program.text, table)
    return expected.total()


def facts_of(match: Row) -> str:
    members = {name: one and (one["event"], one["time"], one["fields"]) for name, one in match["members"].items()}
    return str((match["query"], match["key"], match["time"], match["emitted"], members))


@pytest.mark.parametrize("block", range(2))
def test_queries_of_a_chain_begin_and_end(block: int) -> None:
    assert sum(compare_changes(seed) for seed in range(20 * block, 20 * block + 20)) > 50


@pytest.mark.parametrize("seed", range(6))
def test_open_queries_give_what_a_replay_gives(seed: int) -> None:
    chance = random.Random(seed)
    program = book(chance)
    given = rows(chance, program.from_sources)
    live = ensue.open(program.text)
    answers = [live.send([row]) for row in given]
    looked = [len(answer) for answer in answers if chance.random() < 0.5]  # what waits is processed at each look
    answers.append(live.flush())
    found = [facts_of(match) for answer in answers for match in answer.match_objects()]
    assert Counter(found) == Counter(facts_of(match) for match in ensue.replay(program.text, given).match_objects())
    assert len(looked) < len(answers)


EVENTS = "event A { integer k; integer v; } event S { integer k; integer v; } "
TAKER = "query R { inputs { S() key k within 30.0; } find S as s { print s.v.toString(); } }"


def feeder(least: int, length: float) -> str:
    return (
        f"{EVENTS}query P {{ inputs {{ A() key k within {length}; }}"
        f" find A as a -> A as b where b.v > a.v + {least} {{ route S(b.k, b.v); }} }}"
    )


@pytest.mark.parametrize("seed", range(8))
def test_a_query_that_is_replaced_routes_each_match_once(seed: int) -> None:
    chance, at, table = random.Random(seed), 0.0, list[Row]()
    for number in range(60):
        at += chance.choice([0, 0.5, 1, 2])
        if number in (20, 40):
            text = feeder(chance.randint(0, 3), chance.choice([4.0, 8.0]))
            table.append({"at": at, "event": json.dumps({"ReplaceQuery": [text, chance.random() < 0.3]})})
        table.append({"at": at, "event": "A", "k": chance.randint(0, 1), "v": chance.randint(0, 9)})
    result = ensue.replay(feeder(1, 6.0) + TAKER, table)
    routed = [row["event"]["fields"]["v"] for row in result.output_objects() if row["kind"] == "route"]
    taken = [int(row["text"]) for row in result.output_objects() if row["kind"] == "print"]
    assert taken == routed
    assert len(routed) == sum(match["query"] == "P" for match in result.match_objects()) > 5


def test_what_a_query_of_many_routes_stands_behind_its_record() -> None:
    """With an index over filters a query sees its own records only: places are those among all of them."""
    pair = (
        "query P { inputs { A(v > 5) key k within 9.0; } find A as a { route S(a.k, a.v); } } "
        "query Q { inputs { S() within 30.0; A(v > 1) within 30.0; } find S as s -> A as a { print a.v.toString(); } }"
    )
    others = "".join(f"query O{n} {{ inputs {{ A(v = {n}) within {n + 1}.0; }} find A as a }} " for n in range(6))
    chance = random.Random(4)
    table = [{"at": at, "event": "A", "k": chance.randrange(2), "v": chance.randrange(9)} for at in range(60)]
    found, wanted = (
        [row["text"] for row in ensue.replay(EVENTS + text, table).output_objects() if row["kind"] == "print"]
        for text in (pair + others, pair)
    )
    assert found == wanted
    assert len(found) > 20


def test_routed_heartbeats_reach_their_query_beside_another_that_takes_the_same_events() -> None:
    text = (
        'event A { integer k; float ts; } @TimeFrom("ts") event S { integer k; float ts; } '
        "event Alive { integer k; float since; } "
        "query P { inputs { A() key k within 9.0; } find A as a { route S(a.k, a.ts); route Alive(a.k, 1.0); } } "
        "query Q { inputs { S() key k within 9.0; } find S as s } "
        "query R { inputs { S() key k within 9.0 wait 5.0 or Alive; } find S as s }"
    )
    table = [{"at": at, "event": "A", "k": 1, "ts": float(at)} for at in range(3)]
    found = ensue.replay(text, table).match_objects()
    assert {match["emitted"] == match["time"] for match in found if match["query"] == "R"} == {True}
    assert len(found) == 9
