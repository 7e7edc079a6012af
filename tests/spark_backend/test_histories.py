"""Queries deployed with history, against queries that have always been there; without Spark."""

from __future__ import annotations

import json
from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import querylang
from job_engine.job.history.table_run import limits_of, met_sources
from job_engine.job.journal import HistoryCommand, JournalEpoch, Taking, moment_of_change
from job_engine.operator.history_run import HistoryRun
from job_engine.wire.clock_sources import ClockSource
from job_engine.wire.packed_rows import Signal, pack_arrivals
from job_engine.wire.program import Program
from job_engine.wire.tagged_rows import Tag
from querylang.parameters import NOTHING, with_instances
from querylang.plan.model import Plan
from runtime.columns.arrivals import Arrivals, RecordKind, place_of
from runtime.engine.engine import Engine
from runtime.instants import NO_TIME
from runtime.replay.replay import read_records
from runtime.results.ledger import ledger_table
from tests.support.buckets import rows_of
from tests.support.changing_job import (
    FALLING,
    OTHER,
    OWN_TYPES,
    READING,
    SOURCES,
    WAITING,
    WHOLE,
    ChangingJob,
    by_themselves,
    change_of,
    read_unevenly,
    refused_of,
    tables,
)
from tests.support.embedded import ledger_of

LATE = """query Late {
  inputs { A() key k within 15 seconds; B() key k within 15 seconds; }
  find A:a -> B:b -> wait(6.0) { print b.v.toString(); }
}"""
CLOCKED = """query Clocked {
  inputs { A() key k within 12 seconds wait 3 seconds; }
  find A:a -> A:b where b.v > a.v
}"""
HEIRS = {
    "Falling": FALLING,
    "Whole": WHOLE,
    "Other": OTHER,
    "Late": LATE,
    "Clocked": CLOCKED,
    "Waits": WAITING.replace("query Waiting", "query Waits"),
}


class HistoryJob(ChangingJob):
    """A job that runs queries over all that it has read so far, and deploys them."""

    def __init__(self, buckets: int, folder: Path, sources: tuple[ClockSource, ...]) -> None:
        super().__init__(buckets, sources)
        self.parts: list[dict[str, Arrivals]] = []
        self.folder = self.histories = folder

    def step(self, parts: dict[str, Arrivals], signal: Signal | None = None) -> None:
        self.parts.append(parts)
        super().step(parts, signal)

    def deploy(self, name: str, random: np.random.Generator, table: Arrivals | None = None) -> int:
        """Deploy a query with its history; the place.

        table: has what arrived first, and more; None = all is read again
        """
        program = Program.of(plan_of(name), buckets=self.base.buckets, sources=self.base.sources)
        titles = [query.title for query in program.plan().queries]
        run, read = HistoryRun(program, titles), self.together(random)
        if table is not None:
            read = self.behind_a_table(run, program, read, table, random)
        for number, parts in enumerate(read):
            packed = [
                pack_arrivals(part, program.groups(), program.buckets, source=source)
                for source, part in parts.items()
                if len(part)
            ]
            run.step(packed, number)
            if random.random() < 0.3:
                run.write(self.folder / f"{name}{number}")
                run = HistoryRun.read(program, titles, str(self.folder / f"{name}{number}"))
        number = f"{self.batch:010d}{self.journal.next_notice:010d}"
        run.write(self.folder / number)
        journal = self.journal.settled(self.progress, self.batch)
        moment = moment_of_change(self.progress, None)
        asked = HistoryCommand(load_text(HEIRS[name]), number)
        journal = journal.joined(asked, Taking(self.batch, moment, self.batch, lambda plan: plan), number)
        assert not journal.taken[-1].errors, journal.taken[-1].errors
        self.go_on_with(journal)
        return moment.place

    def behind_a_table(
        self,
        run: HistoryRun,
        program: Program,
        read: list[dict[str, Arrivals]],
        table: Arrivals,
        random: np.random.Generator,
    ) -> list[dict[str, Arrivals]]:
        """What a run over the first records of a table, which has all, leaves to be read again."""
        limits = limits_of(None, program, self.progress.clock)
        moments = np.sort(table.system("arrival"))
        last = limits.until if random.random() < 0.5 else int(min(limits.until, random.choice(moments)))
        rows = table.take(np.flatnonzero(table.system("arrival") <= last))
        source, edges = rows.system("place"), np.append(moments[random.integers(len(moments), size=3)], last)
        for number, (after, until) in enumerate(pairwise([NO_TIME, *np.unique(edges[edges <= last]).tolist()])):
            is_now = (rows.system("arrival") > after) & (rows.system("arrival") <= until)
            chosen = [
                (name, is_now & (source == place)) for place, name in own_places(self) if name in met_sources(program)
            ]
            parts = [(name, rows.take(np.flatnonzero(some))) for name, some in chosen]
            packed = [
                pack_arrivals(part, program.groups(), program.buckets, source=name) for name, part in parts if len(part)
            ]
            run.step(packed, number, Signal.CATCH_UP)
        run.forget_sources()
        return [
            {name: part.take(np.flatnonzero(part.system("arrival") > last)) for name, part in parts.items()}
            for parts in read
        ]

    def together(self, random: np.random.Generator) -> list[dict[str, Arrivals]]:
        """What was read, in other micro-batches."""
        found: list[dict[str, Arrivals]] = []
        for parts in self.parts:
            if found and random.random() < 0.8:
                before = found[-1]
                found[-1] = {
                    name: Arrivals.concat([item[name] for item in (before, parts) if name in item])
                    for name in {**before, **parts}
                }
            else:
                found.append(parts)
        return found


def own_places(job: HistoryJob) -> list[tuple[int, str]]:
    """The places of the sources' records, and their names."""
    return [(place_of(number), source.name) for number, source in enumerate(job.base.sources)]


def always_ledger(name: str, arrivals: Arrivals) -> dict[tuple[str, str, str], int]:
    engine = Engine(plan_of(name))
    engine.process(arrivals)
    engine.flush()
    return ledger_of(engine.ledger().to_pylist())


def account(ledger: dict[tuple[str, str, str], int], name: str) -> dict[tuple[str, str], int]:
    """The counts of a query. It does not matter when an event type becomes known."""
    found: Counter[tuple[str, str]] = Counter()
    for (title, source, word), count in ledger.items():
        if title.partition("#")[0] == name:
            found[source, "unrelated" if word == "unknown_type" else word] += count
    return {key: count for key, count in found.items() if count}


def malformed(arrivals: Arrivals) -> list[tuple[object, object]]:
    """The coordinates of records that cannot be read."""
    rows = arrivals.take(np.flatnonzero(arrivals.system("kind") == RecordKind.MALFORMED)).table
    return list(zip(rows.column("_source").to_pylist(), rows.column("_offset").to_pylist(), strict=True))


def plan_of(name: str) -> Plan:
    """One of the queries, for the event types of all."""
    plan = with_instances(querylang.compile_text(load_text(HEIRS[name])).plan, NOTHING)
    return Plan(READING.events, plan.queries)


def always(name: str, arrivals: Arrivals, place: int) -> list[dict[str, object]]:
    """What a query that is there from the beginning gives behind a place."""
    engine = Engine(plan_of(name))
    results = [engine.process(arrivals), engine.flush()]
    rows = [row for result in results for table in result.matches.values() for row in table.to_pylist()]
    return [row for row in rows if row["emitted"].timestamp() * 1e6 > place]


def load_text(text: str) -> str:
    """With the event types as they are known."""
    fields = "{ float ts; integer k; float v; }"
    return (
        "".join(f"event {name} {fields}\n" for name in "ABC") + text.partition("query")[1] + text.partition("query")[2]
    )


@pytest.mark.parametrize("seed", range(5))
def test_the_first_records_may_come_from_a_table(seed: int, tmp_path: Path) -> None:
    random = np.random.default_rng(100 + seed)
    job = HistoryJob(1 + 2 * (seed % 2), tmp_path, OWN_TYPES if seed % 3 == 2 else SOURCES)
    arrivals = read_records(tables(random, 300, job.base.sources), READING).arrivals
    sources = arrivals.system("place")
    left = [np.flatnonzero(sources == place) for place, _ in own_places(job)]
    waiting, places = [str(name) for name in random.permutation(list(HEIRS))], dict[str, int]()
    for parts in read_unevenly(random, arrivals, left):
        job.step(parts)
        is_known = all(item.arrival != NO_TIME for item in job.progress.clock.sources)
        if waiting and is_known and random.random() < 0.4:
            name = waiting.pop()
            places[name] = job.deploy(name, random, arrivals)
    job.step({}, Signal.FLUSH)
    found = [row for row in rows_of(job.stream.tagged, Tag.MATCH) if row["query"] in places]
    expected = Counter(
        (name, row["match_id"], row["emitted"])
        for name, place in places.items()
        for row in always(name, arrivals, place)
    )
    assert Counter((row["query"], row["match_id"], row["emitted"]) for row in found) == expected
    assert len(expected) > 20
    ledger = ledger_of(rows_of(job.stream.tagged, Tag.LEDGER))
    for name in places:  # records of sources that a query does not meet count from its place on
        if job.base.sources is SOURCES:
            assert account(ledger, name) == account(always_ledger(name, arrivals), name)


@pytest.mark.parametrize("seed", range(6))
def test_from_its_place_on_a_query_answers_as_if_it_had_always_been_there(seed: int, tmp_path: Path) -> None:
    random = np.random.default_rng(seed)
    job = HistoryJob(1 + 2 * (seed % 2), tmp_path, OWN_TYPES if seed % 4 == 3 else SOURCES)
    arrivals = read_records(tables(random, 300, job.base.sources), READING).arrivals
    sources = arrivals.system("place")
    left = [np.flatnonzero(sources == place) for place in np.unique(sources)]
    waiting = [str(name) for name in random.permutation(list(HEIRS))[:3]]
    places: dict[str, int] = {}
    epochs: dict[int, JournalEpoch] = {}
    for parts in read_unevenly(random, arrivals, left):
        job.step(parts)
        epochs = {**epochs, **{epoch.number: epoch for epoch in job.journal.epochs}}
        if random.random() < 0.3:
            job.change(change_of(random).replace("Falling", "Gone").replace("Whole", "Gone").replace("Other", "Gone"))
        if waiting and random.random() < 0.3:
            name = waiting.pop()
            places[name] = job.deploy(name, random)
        epochs = {**epochs, **{epoch.number: epoch for epoch in job.journal.epochs}}
    job.step({}, Signal.FLUSH)
    assert len(places) == 3 or seed
    found = [row for row in rows_of(job.stream.tagged, Tag.MATCH) if row["query"] in places]
    expected = Counter(
        (name, row["match_id"], row["emitted"])
        for name, place in places.items()
        for row in always(name, arrivals, place)
    )
    assert Counter((row["query"], row["match_id"], row["emitted"]) for row in found) == expected
    ledger = ledger_of(rows_of(job.stream.tagged, Tag.LEDGER))
    for name in places:
        assert account(ledger, name) == account(always_ledger(name, arrivals), name)
    epochs = {**epochs, **{epoch.number: epoch for epoch in job.ahead().epochs}}
    furthest = int(arrivals.system("arrival").max())
    matches, counts, _ = by_themselves(arrivals, [item for item in epochs.values() if (item.begins or 0) <= furthest])
    others = {"Rising", "Waiting"}
    own = Counter((row["query"], row["match_id"]) for row in rows_of(job.stream.tagged, Tag.MATCH))
    assert {key: count for key, count in own.items() if key[0] in others} == {
        key: count for key, count in matches.items() if key[0] in others
    }
    discarded = [row for row in rows_of(job.stream.tagged, Tag.DISCARDED) if row["reason"] == "malformed"]
    assert Counter(refused_of(discarded)) == Counter(malformed(arrivals))
    for name in others:
        assert account(ledger, name) == account(ledger_of(ledger_table(counts).to_pylist()), name)
    prints = [
        row for row in rows_of(job.stream.tagged, Tag.OUTPUT) if row["kind"] == "print" and row["query"] == "Late"
    ]
    assert len(prints) == len([row for row in found if row["query"] == "Late"])


def test_records_that_are_held_are_counted_once_by_each_of_two_histories(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(HEIRS, "Others", OTHER.replace("query Other", "query Others"))
    random = np.random.default_rng(5)
    job = HistoryJob(2, tmp_path, SOURCES)
    arrivals = read_records(tables(random, 120, SOURCES), READING).arrivals
    sources = arrivals.system("place")
    first, second = (arrivals.take(np.flatnonzero(sources == place)) for place in np.unique(sources))
    job.step({"a": first.take(np.arange(60))})  # time waits for the other source
    names = ("Other", "Others")  # of an event type that nobody has needed
    for name in names:
        job.deploy(name, random)
    job.step({"a": first.take(np.arange(60, len(first))), "b": second})
    job.step({}, Signal.FLUSH)
    ledger = ledger_of(rows_of(job.stream.tagged, Tag.LEDGER))
    for name in names:
        assert account(ledger, name) == account(always_ledger(name, arrivals), name)


def test_a_history_does_not_overtake_a_change_that_waits_for_its_time(tmp_path: Path) -> None:
    random = np.random.default_rng(3)
    job = HistoryJob(2, tmp_path, SOURCES)
    arrivals = read_records(tables(random, 300, SOURCES), READING).arrivals
    later = 1100 * 1_000_000
    sources = arrivals.system("place")
    parts = read_unevenly(random, arrivals, [np.flatnonzero(sources == place) for place in np.unique(sources)])
    while (job.progress.furthest or 0) < later - 60_000_000:
        job.step(next(parts))
    job.change(json.dumps({"DeployQuery": [WHOLE]}), later)
    job.deploy("Falling", random)
    for part in parts:
        job.step(part)
    job.step({}, Signal.FLUSH)
    assert [epoch.begins for epoch in job.journal.epochs[-2:]] == [later, later]
    rows = rows_of(job.stream.tagged, Tag.MATCH)
    found = Counter((row["match_id"], row["emitted"]) for row in rows if row["query"] == "Falling")
    assert found == Counter((row["match_id"], row["emitted"]) for row in always("Falling", arrivals, later))
    assert min(row["emitted"].timestamp() * 1e6 for row in rows if row["query"] == "Whole") > later
