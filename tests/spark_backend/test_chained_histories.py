"""Queries that feed each other and begin with history, against those that have always been there; without Spark."""

from __future__ import annotations

import json
import random
from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import querylang
from job_engine.job.history.running import HistoryProgram
from job_engine.job.history.table_run import limits_of, met_sources
from job_engine.job.journal.journal import HistoryCommand, Taking, moment_of_change
from job_engine.job.journal.written import PlainJournal, journal_of_plain, journal_to_plain
from job_engine.operator.history_run import HistoryRun
from job_engine.wire.packed_rows import Signal, pack_arrivals
from job_engine.wire.program import load_program
from job_engine.wire.tagged_rows import Tag
from querylang.plan.model import Plan
from querylang.plan.routing import receivers
from runtime.columns.arrivals import Arrivals
from runtime.instants import NO_TIME
from runtime.json_reader import json_of_text
from tests.support.books import book
from tests.support.buckets import rows_of
from tests.support.embedded import embedded, ledger_of
from tests.spark_backend.test_chained_buckets import (
    SOURCES,
    ChainedJob,
    arrivals_of,
    given,
    in_pieces,
    together,
    with_all_routes,
)

ALONE = "query Z { inputs { E0() key h within 9.0; } find E0 as a -> E0 as b }"
"""Neither feeds others nor is fed."""


class HistoryJob(ChainedJob):
    """A job that runs queries over all that it has read so far, and deploys them.

    parts: what it has read, by micro-batch
    """

    def __init__(self, text: str, events: str, buckets: int, folder: Path, *, crosses: bool = True) -> None:
        super().__init__(text, buckets, crosses=crosses, events=events)
        self.events, self.folder = events, folder
        self.parts: list[dict[str, Arrivals]] = []

    def take(self, parts: dict[str, Arrivals], signal: Signal | None = None) -> None:
        self.parts.append(parts)
        super().take(parts, signal)

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
        run, read = HistoryRun(own.program, own.titles), self.in_other_batches(chance)
        if whole is not None:
            last = self.over_a_table(run, own, whole, chance)
            read = [{name: later(part, last) for name, part in parts.items()} for parts in read]
        for number, parts in enumerate(read):
            run.step(packed(own, parts), number)
            if chance.random() < 0.2:
                run.write(self.folder / f"{name}-{number}")
                run = HistoryRun.read(own.program, own.titles, str(self.folder / f"{name}-{number}"))
        run.write(self.folder / name)
        self.journal = journal_of_plain(json_of_text(json.dumps(journal_to_plain(journal)), PlainJournal))
        self.stream.program = load_program(self.journal.program(self.base, self.folder).to_text())
        return moment.place

    def in_other_batches(self, chance: random.Random) -> list[dict[str, Arrivals]]:
        found: list[dict[str, Arrivals]] = []
        for parts in self.parts:
            if found and chance.random() < 0.7:
                both = found.pop(), parts
                parts = {
                    name: Arrivals.concat([own[name] for own in both if name in own]) for name in both[0] | both[1]
                }
            found.append(parts)
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


def divided(plan: Plan, chance: random.Random) -> set[str]:
    """The names of queries that are deployed with history: none of them feeds others that are not."""
    edges, new = receivers(plan.queries), set[str]()
    names = [query.name for query in plan.queries]
    waiting = chance.sample(names, chance.randint(1, len(names)))
    while waiting:
        name = waiting.pop()
        if name not in new:
            new.add(name)
            waiting += edges.get(name, [])
    return new


def compare(seed: int, folder: Path, *, crosses: bool = True) -> int:
    """Whether a random program with a history that crosses gives what it gives if it was always there; how many matches."""
    chance = random.Random(seed)
    program = book(chance, has_beats=seed % 5 == 0)
    events = "\n".join(program.text.split("\nquery ")[0].split("\n")) + "\n"
    plan = querylang.compile_text(program.text).plan
    new = divided(plan, chance)
    by_name = {text.split()[1]: text for text in program.queries}
    old_texts = [ALONE] * (chance.random() < 0.3) + [text for name, text in by_name.items() if name not in new]
    old_texts = old_texts or [ALONE]
    new_texts = [text for name, text in by_name.items() if name in new]
    always = querylang.compile_text(events + "\n".join([*old_texts, *new_texts])).plan
    parts = arrivals_of(chance, given(chance, program.from_sources, 5), always)
    whole = together(parts)
    job = HistoryJob("\n".join(old_texts), events, chance.choice([1, 2, 5]), folder, crosses=crosses)
    pieces = in_pieces(chance, parts)
    at, place = chance.randint(0, len(pieces)), None
    for number, batch in enumerate([*pieces, {}]):
        if number == at:
            is_known = all(item.arrival != NO_TIME for item in job.progress.clock.sources) and number
            place = job.deploy("\n".join(new_texts), chance, whole if is_known and seed % 3 == 0 else None)
            assert isinstance(place, int), (seed, place)
        if number < len(pieces):
            job.take(batch)
        if chance.random() < 0.1 and number != at:
            moved = chance.randint(1, 5)
            job.stream.move(moved)
            job.base = job.base.__class__(
                **{**{f: getattr(job.base, f) for f in job.base.__dataclass_fields__}, "buckets": moved}
            )
            job.progress = job.progress.of_buckets(moved)
    job.take({}, Signal.FLUSH)
    assert isinstance(place, int)
    expected = embedded(always, whole)
    matches = Counter(
        (row["query"], row["match_id"], row["emitted"])
        for table in expected.matches.values()
        for row in table.to_pylist()
        if row["query"] not in new or row["emitted"].timestamp() * 1e6 > place
    )
    outputs = Counter(
        told(row)
        for row in expected.outputs.to_pylist()
        if row["query"] not in new or row["emitted"].timestamp() * 1e6 > place
    )
    found = rows_of(job.stream.tagged, Tag.MATCH)
    assert Counter((row["query"], row["match_id"], row["emitted"]) for row in found) == matches, (seed, place)
    given_out = [row for row in rows_of(job.stream.tagged, Tag.OUTPUT) if row["kind"] in ("print", "route", "send")]
    assert Counter(map(told, given_out)) == outputs, (seed, place)
    assert ledger_of(rows_of(job.stream.tagged, Tag.LEDGER)) == ledger_of(expected.ledger.to_pylist()), (seed, place)
    routing = job.stream.program.routing()
    return sum(count for (name, *_), count in matches.items() if name in new) if routing is not None else 0


def told(row: dict[str, object]) -> tuple[object, ...]:
    return row["query"], row["kind"], row["text"], row["emitted"]
