"""Books: programs of many queries, each of which few records concern. Loading, and a run from a table to tables of matches.

Processor time of one thread, as a multiple of that of one query over the same records in the same run. Then the same in a job.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count, pairwise
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import ensue
from benchmarks.embedded import significant
from benchmarks.memory import processor_time
from ensue.data_options import DataOptions
from ensue.embedded import read
from job_engine.job.job import run
from runtime.engine import Engine
from runtime.replay import Records

FIELDS, TYPES, VALUES = 40, 20, 200
"""Of the events that rules are about: fields, event types, and values of a field."""

_KEYS = 1_000
_COUNTED = 20_000
_EVENT = "event E { string k; integer code; float v; }"


@dataclass(frozen=True, slots=True)
class Book:
    """A program and its records.

    text: all queries
    one: the first of them
    table: the records
    parameters: of all queries; the first runs with its defaults
    as_one: one query that wants every record, and finds what all of these find; None = there is none
    """

    text: str
    one: str
    table: pa.Table
    parameters: Mapping[str, Any] = field(default_factory=dict)
    as_one: Book | None = None


_Make = Callable[[int, int], Book]
"""Makes a book of so many queries and events."""


@dataclass(frozen=True, slots=True)
class Size:
    """How much is measured: records, and by the kind of book how many queries.

    events: of rules and copies, and in jobs
    events_apart: of books whose queries want records of their own: disjoint ones and instances
    in_job: books that are run in a job, too: kind, number of queries, `layout` of the sink
    batches: its micro-batches, each with all records
    """

    events: int
    events_apart: int
    disjoint: tuple[int, ...]
    rules: tuple[int, ...]
    copies: tuple[int, ...]
    instances: tuple[int, ...]
    rounds: int = 3
    in_job: Sequence[tuple[str, int, str]] = ()
    batches: int = 6


@dataclass(frozen=True, slots=True)
class InJob:
    """A book in a job of `engine: local`. `layout`: of its sink; `seconds`: processor time of all its processes in a micro-batch; `times`: of one query's;
    `embedded`: the same without a job, in this run; `ratio`: of both."""

    book: str
    queries: int
    events: int
    layout: str
    seconds: float
    times: float
    embedded: float
    ratio: float


@dataclass(frozen=True, slots=True)
class Measured:
    """A book. `loading`: seconds for all queries, from text to the answer for one record; `times`: of one query's run;
    `times_as_one`: of that of `Book.as_one`; `looked_at`: the share of pairs of a query and a record."""

    book: str
    queries: int
    events: int
    loading: float
    seconds: float
    times: float
    times_as_one: float | None
    matches: int
    looked_at: float


def disjoint(count: int, events: int, find: str = "find") -> Book:
    """Queries about two codes of their own."""
    queries = [
        f"query Q{n} {{ inputs {{ E(code = {2 * n} or code = {2 * n + 1}) key k within 60.0; }} "
        f"{find} E as a -> E as b where a.code = {2 * n} and b.code = {2 * n + 1} and b.v > a.v + 0.9 }}"
        for n in range(count)
    ]
    as_one = "a.code % 2 = 0 and b.code % 2 = 1 and b.v > a.v + 0.9"
    return _with_one(_book([_EVENT], queries, _codes(events, 2 * count)), 2, as_one)


def copies(count: int, events: int) -> Book:
    """One query, with other thresholds."""
    queries = [
        f"query Q{n} {{ inputs {{ E() key k within 60.0; }} find E as a -> E as b where b.v > a.v + {0.9 + 0.09 * n / count} }}"
        for n in range(count)
    ]
    return _book([_EVENT], queries, _codes(events, 100))


def instances(count: int, events: int) -> Book:
    """One query with instances, each about keys of its own."""
    query = (
        "query Q { parameters { integer least := 0; integer most := 99; } "
        "inputs { E(code >= least and code <= most) key k within 60.0; } find E as a -> E as b where b.v > a.v + 0.9 }"
    )
    made = _with_one(_book([_EVENT], [query], _codes(events, 100 * count)), 100, "b.v > a.v + 0.9")
    own = {f"i{n}": {"least": n * 100, "most": n * 100 + 99} for n in range(count)}
    return replace(made, parameters={"Q": own} if count > 1 else {})


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule as it is drawn, for the languages that say it.

    kind: number of the event type
    field: number of the field that is asked; the one behind it, too, if `condition` is "lengths"
    condition: "equal", "list" and "like" ask for values by their numbers, "range" for a size over `least`, "lengths" for
        two long fields, which cannot be looked up
    form: "single" events, a "threshold" of five events of a key within a minute, or a "sequence"
    steps: of a sequence; all events of one host within a minute, the first two with equal `f0`
    """

    kind: int
    field: int
    condition: str
    values: Sequence[int]
    least: float
    form: str
    steps: int

    def text(self, number: int, reached: str = "= 5", find: str = "find") -> str:
        """The query. `reached`: when a threshold is; `find`: how sequences are asked for."""
        event, start = f"T{self.kind}", f"query R{number} {{ inputs {{ T{self.kind}({self._wanted()})"
        match self.form:
            case "single":
                return f"{start} retain 1; }} find {event} as e }}"
            case "threshold":
                every = f"find every {event} as e within 60.0 select count() as many having count() {reached}"
                return f"{start} key host within 60.0; }} {every} }}"
            case _:
                found = " -> ".join(f"{event} as e{n}" for n in range(self.steps))
                return f"{start} key host within 60.0; }} {find} {found} where e0.f0 = e1.f0 }}"

    def _wanted(self) -> str:
        field, values = f"f{self.field}", [f'"{value(self.field, number)}"' for number in self.values]
        match self.condition:
            case "equal":
                return f"{field} = {values[0]}"
            case "list":
                return f"{field} in [{', '.join(sorted(set(values)))}]"
            case "like":
                return f'{field}.like("*part{self.field}/v{self.values[0]}.*")'
            case "range":
                return f"size > {self.least}"
            case _:
                return f"{field}.length() + f{(self.field + 1) % FIELDS}.length() > 46"


def drawn(count: int) -> tuple[np.random.Generator, list[Rule]]:
    """So many rules, and the generator as they leave it."""
    random = np.random.default_rng(7)
    return random, [_rule(random) for _ in range(count)]


def rules(count: int, events: int, reached: str = "= 5", find: str = "find", keys: int = _KEYS) -> Book:
    """Rules with the shape of public packs, over events of many fields and types; see `Rule.text`."""
    random, made = drawn(count)
    types = [
        f"event T{n} {{ string host; {' '.join(f'string f{place};' for place in range(FIELDS))} float size; }}"
        for n in range(TYPES)
    ]
    kinds = random.integers(0, TYPES, events)
    columns: dict[str, Any] = {
        "at": np.arange(events) * 0.001,
        "event": pa.array([f"T{n}" for n in range(TYPES)]).take(pa.array(kinds)),
        "host": pa.array([f"h{n}" for n in range(keys)]).take(pa.array(random.integers(0, keys, events))),
    }
    for place in range(FIELDS):
        values = pa.array([value(place, n) for n in range(VALUES)])
        columns[f"f{place}"] = values.take(pa.array(random.integers(0, VALUES, events)))
    texts = [rule.text(number, reached, find) for number, rule in enumerate(made)]
    return _book(types, texts, pa.table(columns | {"size": random.random(events)}))


def value(field: int, number: int) -> str:
    """A value of a field of the events that rules are about."""
    return f"/usr/lib/part{field}/v{number}.exe"


def _rule(random: np.random.Generator) -> Rule:
    """60 % an equality, 20 % a list, 10 % a text pattern, 5 % a range, 5 % nothing to look up."""
    shape, field = random.random(), int(random.integers(0, FIELDS))
    values, least = [int(n) for n in random.integers(0, VALUES, 3)], 0.0
    kind = int(random.integers(0, TYPES))
    if shape < 0.6:
        condition = "equal"
    elif shape < 0.8:
        condition = "list"
    elif shape < 0.9:
        condition, values = "like", [int(random.integers(0, VALUES))]
    elif shape < 0.95:
        condition, least = "range", 0.99 + 0.0099 * random.random()
    else:
        condition = "lengths"
    share = random.random()
    form = "single" if share < 0.6 else "threshold" if share < 0.9 else "sequence"
    steps = int(random.integers(2, 5)) if form == "sequence" else 1
    return Rule(kind, field, condition, values, least, form, steps)


def _codes(events: int, codes: int) -> pa.Table:
    random = np.random.default_rng(1)
    keys = pa.array([f"k{n}" for n in range(100)])
    return pa.table(
        {
            "at": np.arange(events) * 0.001,
            "event": pa.array(["E"]).take(pa.array(np.zeros(events, np.int64))),
            "k": keys.take(pa.array(random.integers(0, 100, events))),
            "code": random.integers(0, codes, events),
            "v": random.random(events),
        }
    )


def _with_one(book: Book, codes: int, where: str) -> Book:
    """The book, whose queries are about so many codes each, with one query in which their number is a key."""
    event = "event E { string k; integer code; float v; integer owner; }"
    text = f"{event} query All {{ inputs {{ E() key k, owner within 60.0; }} find E as a -> E as b where {where} }}"
    table = book.table.append_column("owner", pc.divide(book.table.column("code"), codes))
    return replace(book, as_one=Book(text, text, table))


def _book(types: list[str], queries: list[str], table: pa.Table) -> Book:
    return Book("\n".join([*types, *queries]), "\n".join([*types, queries[0]]), table)


def measure(size: Size) -> list[Measured]:
    """Each book, its rounds alternating with those of its first query."""
    books: list[tuple[str, _Make, tuple[int, ...], int]]
    books = [("disjoint", disjoint, size.disjoint, size.events_apart), ("rules", rules, size.rules, size.events)]
    books += [("copies", copies, size.copies, size.events), ("instances", instances, size.instances, size.events_apart)]
    return [
        _measured(name, number, make(number, events), size)
        for name, make, numbers, events in books
        for number in numbers
    ]


def measure_in_jobs(folder: Path, size: Size) -> list[InJob]:
    """Books in jobs; rounds alternate with those of their first query, and with those without a job."""
    makes: Mapping[str, _Make] = {"disjoint": disjoint, "rules": rules, "copies": copies, "instances": instances}
    return [
        _in_job(folder / f"{name}-{layout}", name, number, layout, makes[name](number, size.events), size)
        for name, number, layout in size.in_job
    ]


_TICK = 0.01
"""Seconds: the system counts the processor time of processes in such."""


def _in_job(folder: Path, name: str, number: int, layout: str, book: Book, size: Size) -> InJob:
    one, places = replace(book, text=book.one, parameters={}), count()
    (folder / "in").mkdir(parents=True)
    step = pa.scalar(size.events * 0.001)
    for batch in range(size.batches):
        later = pc.add(book.table.column("at"), pc.multiply(step, float(batch)))
        pq.write_table(book.table.set_column(0, "at", later), folder / "in" / f"{batch}.parquet")
    in_job: dict[bool, list[float]] = {True: [], False: []}
    alone: dict[bool, list[float]] = {True: [], False: []}
    _run(one)  # kernels
    for _ in range(size.rounds):
        for is_book, own in ((False, one), (True, book)):
            in_job[is_book] += _batch_seconds(folder / str(next(places)), folder / "in", own, layout)
            alone[is_book].append(_run(own)[1])
    times, embedded = (median(own[True]) / median(own[False]) for own in (in_job, alone))
    seconds, ratio = median(in_job[True]), times / embedded
    return InJob(name, number, size.events, layout, seconds, significant(times), significant(embedded), ratio)


def _batch_seconds(folder: Path, data: Path, book: Book, layout: str) -> list[float]:
    """Processor time of each micro-batch, a tick or more.

    The first of them, which loads the queries, and the last, which ends, do not count.
    """
    folder.mkdir()
    (folder / "book.query").write_text(book.text, encoding="utf-8")
    deployment = {
        "name": "book",
        "engine": "local",
        "queries": ["book.query"],
        "parameters": dict(book.parameters),
        "sources": {"table": {"format": "parquet", "path": str(data), "options": {"maxFilesPerTrigger": 1}}},
        "sinks": {"matches": {"format": "parquet", "path": "matches", "layout": layout}},
        "buckets": 1,
        "checkpoint": "state",
        "trigger": "0 seconds",
    }
    file = folder / "book.yaml"
    file.write_text(json.dumps(deployment), encoding="utf-8")
    spent: list[float] = []
    run(file, once=True, progress=lambda batch: spent.append(processor_time(os.getpid())) if batch.records else None)
    return [max(end - start, _TICK) for start, end in pairwise(spent)][1:-1]


def _measured(name: str, number: int, book: Book, size: Size) -> Measured:
    one = replace(book, text=book.one, parameters={})
    _run(one)  # kernels
    loading, spent, alone, as_one, matches = list[float](), list[float](), list[float](), list[float](), 0
    for _ in range(size.rounds):
        alone.append(_run(one)[1])
        load, seconds, matches = _run(book)
        loading.append(load)
        spent.append(seconds)
        if book.as_one is not None:
            _, seconds, same = _run(book.as_one)
            assert same == matches, "one query finds what all of them find"
            as_one.append(seconds)
    times = significant(median(spent) / median(alone))
    times_as_one = significant(median(spent) / median(as_one)) if as_one else None
    seconds, events = median(spent), len(book.table)
    return Measured(name, number, events, median(loading), seconds, times, times_as_one, matches, _looked_at(book))


def _looked_at(book: Book) -> float:
    """The share of pairs of a query and a record that are looked at, of the first records."""
    few = read(ensue.load(book.text), book.table.slice(0, _COUNTED), DataOptions(parameters=book.parameters))
    engine = Engine(few.plan)
    assert isinstance(few.records, Records)
    engine.process(few.records.arrivals)
    return engine.looked_at.looked_at / engine.looked_at.count


def _run(book: Book) -> tuple[float, float, int]:
    """Seconds to load a program, to the answer for one record; to run it once it is loaded; and its matches."""
    options = DataOptions(parameters=book.parameters)
    started = process_time()
    queries = ensue.load(book.text)
    few = read(queries, book.table.slice(0, 1), options)
    few.replay()
    loading = process_time() - started
    whole = replace(few, records=read(queries, book.table, options).records)
    started = process_time()
    answer = whole.replay()
    spent = process_time() - started
    return loading, spent, sum(map(len, answer.results.matches.values()))
