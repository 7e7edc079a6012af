"""Queries that feed each other and begin with history, against those that have always been there; without Spark."""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import replace
from datetime import datetime
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import querylang
from job_engine.job.history.running import HistoryProgram
from job_engine.job.history.table_run import limits_of, met_sources
from job_engine.job.journal import HistoryCommand, Taking, moment_of_change
from job_engine.job.written_journal import PlainJournal, journal_of_plain, journal_to_plain
from job_engine.operator.history_run import HistoryRun
from job_engine.wire.packed_rows import Signal, pack_arrivals
from job_engine.wire.program import Program, load_program
from job_engine.wire.tagged_rows import Tag
from querylang.errors import InputError
from querylang.plan.model import Plan
from querylang.plan.routing import feeders, receivers
from runtime.columns.arrivals import Arrivals
from runtime.instants import NO_TIME
from runtime.json_reader import json_of_text
from runtime.reading.tables import read_arrivals
from tests.support.books import book, divided
from tests.support.buckets import Stream, rows_of
from tests.support.chained_jobs import (
    SOURCES,
    ChainedJob,
    arrivals_of,
    given,
    in_pieces,
    together,
    with_all_routes,
)
from tests.support.embedded import embedded, ledger_of, summary

ALONE = "query Z { inputs { E0() key h within 9.0; } find E0 as a -> E0 as b }"
"""Neither feeds others nor is fed."""


class HistoryJob(ChainedJob):
    """A job that runs queries over all that it has read so far, and deploys them.

    parts: what it has read, by micro-batch
    read_for: the number of buckets that the job had when histories were read; None = as now
    """

    read_for: int | None = None

    def __init__(self, text: str, events: str, buckets: int, folder: Path, *, crosses: bool = True) -> None:
        super().__init__(text, buckets, crosses=crosses, events=events)
        self.events, self.folder = events, folder
        self.parts: list[dict[str, Arrivals]] = []

    def take(self, parts: dict[str, Arrivals], signal: Signal | None = None) -> None:
        self.parts.append(parts)
        super().take(parts, signal)

    def move(self, buckets: int) -> None:
        """To another number of buckets."""
        if self.stream.states and all(
            epoch.history is None for epoch in self.journal.settled(self.progress, self.batch).epochs
        ):
            self.stream.move(buckets)
            self.base, self.progress = replace(self.base, buckets=buckets), self.progress.of_buckets(buckets)

    def deploy(self, text: str, chance: random.Random, whole: Arrivals | None = None) -> int | str:
        """Deploy queries with their history; the place, or what is wrong.

        whole: all records, of which a table has the first; None = all that was read is read again
        """
        name = f"{self.batch:020d}"
        moment = moment_of_change(self.progress, None)
        taking = Taking(self.batch, moment, self.batch, with_all_routes, SOURCES, self.base.crosses)
        journal = self.journal.settled(self.progress, self.batch)
        journal = journal.joined(HistoryCommand(self.events + text, name), taking, name)
        if journal.taken[-1].errors:
            return journal.taken[-1].errors[0]
        own = HistoryProgram.of(journal, self.base)
        last_program = own.program
        own = replace(own, program=replace(own.program, buckets=self.read_for or own.program.buckets))
        run, read = HistoryRun(own.program, own.titles), self.in_other_batches(chance)
        if whole is not None:
            last = self.over_a_table(run, own, whole, chance)
            read = [{name: later(part, last) for name, part in parts.items()} for parts in read]
        for number, parts in enumerate(read):
            run.step(packed(own, parts), number)
            if chance.random() < 0.2:
                run.write(self.folder / f"{name}-{number}")
                run = HistoryRun.read(own.program, own.titles, str(self.folder / f"{name}-{number}"))
        if self.read_for is not None:
            run.write(self.folder / f"{name} before")
            run = HistoryRun.read(last_program, own.titles, str(self.folder / f"{name} before"))
        run.write(self.folder / name)
        journal = journal.settled(self.progress, self.batch)  # the first start with it may be killed
        self.journal = journal_of_plain(json_of_text(json.dumps(journal_to_plain(journal)), PlainJournal))
        self.stream.program = load_program(self.journal.program(self.base, self.folder).to_text())
        return moment.place

    def in_other_batches(self, chance: random.Random) -> list[dict[str, Arrivals]]:
        found: list[dict[str, Arrivals]] = []
        for own in self.parts:
            before = found.pop() if found and chance.random() < 0.7 else {}
            both = {name: [parts[name] for parts in (before, own) if name in parts] for name in before | own}
            found.append({name: Arrivals.concat(parts) for name, parts in both.items()})
        return found

    def over_a_table(self, run: HistoryRun, own: HistoryProgram, whole: Arrivals, chance: random.Random) -> int:
        """Run over the first records; the arrival up to which the table has them."""
        limits, moments = limits_of(None, own.program, self.progress.clock), whole.system("arrival").tolist()
        last = min(limits.until, chance.choice([limits.until, *moments]))
        for after, until in pairwise(
            sorted({NO_TIME, last, *(at for at in chance.choices(moments, k=2) if at < last)})
        ):
            rows = [number for number, at in enumerate(moments) if after < at <= until]
            part = whole.take(np.array(rows, np.int64))
            places = part.system("place")
            by_source = {
                source.name: part.take(np.flatnonzero(places == place))
                for place, source in enumerate(SOURCES)
                if source.name in met_sources(own.program)
            }
            run.step(packed(own, by_source), 0, Signal.CATCH_UP)
        run.forget_sources()
        return last


def packed(own: HistoryProgram, parts: dict[str, Arrivals]) -> list[pa.RecordBatch]:
    groups, buckets = own.program.groups(), own.program.buckets
    return [pack_arrivals(part, groups, buckets, source=name) for name, part in parts.items() if len(part)]


def later(part: Arrivals, last: int) -> Arrivals:
    return part.take(np.flatnonzero(part.system("arrival") > last))


def a_job(
    chance: random.Random, folder: Path, *, crosses: bool, is_idle: bool, has_beats: bool
) -> tuple[HistoryJob, str, Plan, dict[str, Arrivals]]:
    """A job, the queries that it gets later, the plan of all of them, and what its sources bring."""
    program = book(chance, has_beats=has_beats)
    events = program.text.partition("query ")[0]
    new = divided(querylang.compile_text(program.text).plan, chance)
    later_texts, texts = (
        [text for text in program.queries if (text.split()[1] in new) is own] for own in (True, False)
    )
    if not texts or chance.random() < 0.3:
        texts.append(ALONE)
    always = querylang.compile_text("\n".join([events, *texts, *later_texts])).plan
    parts = arrivals_of(chance, given(chance, program.from_sources, 5), always)
    if is_idle:
        parts["b"] = Arrivals.empty(always)
    job = HistoryJob("\n".join(texts), events, chance.choice([1, 2, 5]), folder, crosses=crosses)
    return idle(job) if is_idle else job, "\n".join(later_texts), always, parts


def idle(job: HistoryJob) -> HistoryJob:
    """The same, where time advances without the second source."""
    job.base = job.stream.program = replace(job.base, sources=(SOURCES[0], replace(SOURCES[1], idle=1500)))
    return job


def compare(
    seed: int, folder: Path, *, crosses: bool = True, is_idle: bool = False, read_for: int | None = None
) -> int:
    """Whether new queries of a random program give what they give if they were always there; how many matches.

    is_idle: one source brings nothing, and time advances without it: but not in the history
    read_for: as of `HistoryJob`
    """
    chance = random.Random(seed)
    job, new, always, parts = a_job(chance, folder, crosses=crosses, is_idle=is_idle, has_beats=seed % 5 == 0)
    job.read_for = read_for
    whole, pieces = together({name: part for name, part in parts.items() if len(part)}), in_pieces(chance, parts)
    beside = Stream(replace(Program.of(always, buckets=2, sources=SOURCES, crosses=True), sources=job.base.sources))
    at = chance.randint(0, len(pieces))
    later = {query.name for query in always.queries} - {query.name for query in job.base.plan().queries}
    ended = ending(chance, always, later, at) if seed % 4 == 1 else {}
    for number, batch in enumerate([*pieces, {}]):
        for name in ended.get(number, ()):
            assert not job.change(f'UndeployQuery("{name}")')
        if number == at:
            has_table = seed % 3 == 0 and all(own.arrival != NO_TIME for own in job.progress.clock.sources) and number
            place = job.deploy(new, chance, whole if has_table else None)
            if isinstance(place, str):
                assert "begin with a new checkpoint" in place, (seed, place)
                return 0
        elif chance.random() < 0.1:
            job.move(chance.randint(1, 5))
        job.take(batch)
        beside.take(batch, job.batch)
    job.take({}, Signal.FLUSH)
    beside.take({}, 1000, Signal.FLUSH)
    gone = with_fed(always, {name for names in ended.values() for name in names})
    for tag in (Tag.MATCH, Tag.OUTPUT, Tag.DISCARDED):
        expected = [row for row in rows_of(beside.tagged, tag) if row["query"] not in later or moment_of(row) > place]
        found = [row for row in rows_of(job.stream.tagged, tag) if row.get("kind") not in ("deployed", "undeployed")]
        own, wanted = (Counter(told(row) for row in rows if row["query"] not in gone) for rows in (found, expected))
        assert own == wanted, (seed, tag, place)
    own, wanted = (ledger_of(rows_of(item.tagged, Tag.LEDGER)) for item in (job.stream, beside))
    assert not [item for item in own.items() ^ wanted.items() if item[0][0] not in gone], (seed, place)
    if not is_idle:
        assert beside.summary() == summary(embedded(always, whole)), seed
    crossing = job.stream.program.routing()
    found = [row for row in rows_of(job.stream.tagged, Tag.MATCH) if row["query"] in later]
    return len(found) if crossing is not None and later & crossing.crossing.levels.keys() else 0


def with_fed(plan: Plan, names: set[str]) -> set[str]:
    """With the queries that get less once these have ended, since these feed them."""
    edges, found, waiting = receivers(plan.queries), set[str](), [*names]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += edges.get(name, [])
    return found


def ending(chance: random.Random, plan: Plan, later: set[str], at: int) -> dict[int, list[str]]:
    """Queries that end by then, by micro-batch: none of those that are deployed later, or that feed them."""
    stay, found = later | feeders(plan.queries, later), dict[int, list[str]]()
    for query in plan.queries:
        if query.name not in stay and chance.random() < 0.8:
            found.setdefault(chance.choice([at, chance.randint(0, at)]), []).append(query.name)
    return found


def told(row: dict[str, object]) -> tuple[object, ...]:
    names = ("query", "match_id", "kind", "text", "emitted", "source", "offset", "reason")
    return tuple(row.get(name) for name in names)


def moment_of(row: dict[str, object]) -> float:
    """When it was given out, µs."""
    moment = row.get("emitted", row.get("arrival"))
    assert isinstance(moment, datetime)
    return moment.timestamp() * 1e6


@pytest.mark.parametrize(("seed", "is_idle"), [(21, False), (11, True)])
def test_what_crosses_buckets_begins_as_if_it_had_always_been_there(seed: int, is_idle: bool, tmp_path: Path) -> None:
    assert compare(seed, tmp_path, is_idle=is_idle) > 10


@pytest.mark.parametrize("seed", [9, 45])
def test_a_chain_begins_in_a_job_whose_queries_have_all_ended(seed: int, tmp_path: Path) -> None:
    assert compare(seed, tmp_path) > 0


@pytest.mark.parametrize("read_for", [1, 7])
def test_a_history_that_was_read_for_other_buckets_is_moved(read_for: int, tmp_path: Path) -> None:
    assert compare(21, tmp_path, read_for=read_for) > 10


def test_what_was_read_for_queries_in_other_groups_is_refused(tmp_path: Path) -> None:
    plan = HistoryJob(ALONE, "event E0 { integer h; }\n", 2, tmp_path, crosses=False).base.plan()
    HistoryRun(Program.of(plan, buckets=2, sources=SOURCES), ()).write(tmp_path / "read")
    now = Program.of(plan, buckets=2, sources=SOURCES[:1])
    with pytest.raises(InputError, match="other queries were deployed since the history was read; deploy again"):
        HistoryRun.read(now, (), str(tmp_path / "read"))


def test_what_arrived_at_the_clock_of_a_job_without_a_silent_source_counts_once(tmp_path: Path) -> None:
    chance, events = random.Random(1), "event E0 { integer h; }\n"
    job = idle(HistoryJob(ALONE, events, 2, tmp_path, crosses=False))
    plan, both = job.base.plan(), ALONE + ALONE.replace("query Z", "query Y")
    rows = [{"at": at, "event": "E0", "h": at % 2} for at in range(1, 21)]
    arrivals = read_arrivals(rows, plan, source="a")
    for number in (0, 1, 2):
        job.take({"a": arrivals.take(np.arange(4 * number, 4 * number + 4))})
    assert job.deploy(both.replace(ALONE, ""), chance) == 12_000_000
    job.take({"a": arrivals.take(np.arange(12, 20))})
    job.take({}, Signal.FLUSH)
    found = Counter((row["query"], moment_of(row) // 10**6) for row in rows_of(job.stream.tagged, Tag.MATCH))
    assert found == Counter([("Z", at) for at in range(3, 21)] + [("Y", at) for at in range(13, 21)])
    ledger = ledger_of(rows_of(job.stream.tagged, Tag.LEDGER))
    assert ledger == {(name, "a", word): 20 for name in "YZ" for word in ("received", "used")}
