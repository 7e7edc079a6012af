"""Buckets without Spark whose queries feed each other, and change between micro-batches; and rows for them."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

import querylang
from job_engine.job.checkpoint.progress import JobProgress
from job_engine.job.journal import Journal, Taking, moment_of_change
from job_engine.job.written_journal import PlainJournal, asked_of_text, journal_of_plain, journal_to_plain
from job_engine.wire.clock_sources import ClockSource
from job_engine.wire.packed_rows import Signal
from job_engine.wire.program import Program, load_program
from job_engine.wire.tagged_rows import Tag
from querylang.parameters import Given, with_instances
from querylang.plan.model import Plan
from querylang.plan.routing import with_routes
from querylang.running import Running
from runtime.columns.arrivals import Arrivals, arrivals_schema
from runtime.json_reader import json_of_text
from runtime.reading.tables import read_arrivals
from tests.support.books import Row, rows
from tests.support.buckets import Stream

SOURCES = (ClockSource("a"), ClockSource("b"))
EVENTS = "event A { integer h; integer v; } event B { integer h; integer v; } event C { integer h; integer v; } "

ACROSS_KEYS = """\
@TimeFrom("ts")
@OutOfOrder()
event Reading { string sensor; float value; float ts; }
@TimeFrom("ts")
event Risen { string sensor; float by; float ts; }
event Pair { string sensor; float by; }

query Rise {
    inputs { Reading() key sensor within 20.0 wait 5.0; }
    find Reading as first -> Reading as second where second.value > first.value + 50.0 {
        route Risen(second.sensor, second.value - first.value, second.ts);
    }
}
query Both {
    inputs { Risen() within 10.0 wait 9.0; }
    find Risen as a -> Risen as b where a.sensor != b.sensor and b.by > 60.0 { route Pair(b.sensor, a.by); }
}
query Again {
    inputs { Pair() key sensor within 60.0; Reading(value > 20.0) key sensor within 30.0 wait 20.0; }
    find Pair as p -> Reading as r { print r.sensor; }
}
"""
"""Over the readings of `tests.support.sensors`: three queries that feed each other, of three keys."""


def given(chance: random.Random, events: list[str], pieces: int) -> list[Row]:
    found: list[Row] = []
    for _ in range(pieces):
        begin = found[-1]["at"] if found else 0
        found += [row | {"at": row["at"] + begin} for row in rows(chance, events)]
    return found


def arrivals_of(chance: random.Random, table: list[Row], plan: Plan) -> dict[str, Arrivals]:
    """The rows of each source; those of `b` come behind those of `a` that arrived with them."""
    own: dict[str, list[Row]] = {"a": [], "b": []}
    for row in table:
        own[chance.choice("ab")].append(row)
    found = {name: read_arrivals(part, plan, source=name).table for name, part in own.items() if part}
    position = arrivals_schema(plan).get_field_index("_place")
    places = {name: pa.array([int(name == "b")] * len(part), pa.int64()) for name, part in found.items()}
    return {name: Arrivals(part.set_column(position, "_place", places[name])) for name, part in found.items()}


def together(parts: dict[str, Arrivals]) -> Arrivals:
    whole = Arrivals.concat(list(parts.values()))
    places = list(
        zip(*(whole.table.column(name).to_pylist() for name in ("_arrival", "_source", "_offset")), strict=True)
    )
    return whole.take([number for _, number in sorted((place, number) for number, place in enumerate(places))])


def in_pieces(chance: random.Random, parts: dict[str, Arrivals]) -> list[dict[str, Arrivals]]:
    """Micro-batches that take of each source as much as chance says."""
    left, found = dict(parts), []
    while any(map(len, left.values())):
        counts = {name: chance.choice([0, 1, 3, 8]) for name in left}
        found.append({name: Arrivals(part.table.slice(0, counts[name])) for name, part in left.items()})
        left = {name: Arrivals(part.table.slice(counts[name])) for name, part in left.items()}
    return found


class ChainedJob:
    """Buckets whose queries change between micro-batches, with the settings that a job gives their plans."""

    def __init__(self, text: str, buckets: int, *, crosses: bool = False, events: str = EVENTS) -> None:
        template = querylang.compile_text(events + text).plan
        plan = with_instances(template, Given({}))
        self.base = Program.of(plan, buckets=buckets, sources=SOURCES, crosses=crosses)
        self.stream = Stream(self.base)
        self.progress = JobProgress()
        self.batch = 0
        self.journal = Journal.begin(Running.of(template, plan), plan, self.base.gathered)

    def take(self, parts: dict[str, Arrivals], signal: Signal | None = None) -> None:
        self.batch += 1
        rows = [(row.tag, row.table) for step in self.stream.take(parts, self.batch, signal) for row in step.rows]
        measured = [row for row in rows if row[0] in (Tag.METRIC, Tag.SOURCE, Tag.TIMELINE)]
        self.progress = self.progress.after(measured, records=0, matches=0)

    def change(self, text: str) -> list[str]:
        """What is wrong with a change; it is taken over as its file keeps it."""
        moment = moment_of_change(self.progress, None)
        taking = Taking(
            self.batch, moment, self.batch, with_all_routes, SOURCES, self.base.crosses, self.progress.epoch
        )
        journal = self.journal.settled(self.progress, self.batch).gathered_in(self.base)
        journal = journal.changed(asked_of_text(text), taking)
        self.journal = journal_of_plain(json_of_text(json.dumps(journal_to_plain(journal)), PlainJournal))
        self.stream.program = self._program()
        return journal.taken[-1].errors

    def gather(self, buckets: int) -> None:
        """Nothing crosses any more; so many buckets."""
        self.journal = replace(self.journal, gathered=self.journal.gathered or ())
        self.base = replace(self.base, crosses=False)
        program = self._program()
        self.stream.gather(program, buckets)
        self.base = replace(self.base, buckets=buckets, gathered=program.gathered)

    def _program(self) -> Program:
        ahead = self.journal.handed_over(None, self.batch, with_all_routes)
        return load_program(ahead.program(self.base, Path()).to_text())


def with_all_routes(plan: Plan) -> Plan:
    return replace(plan, queries=with_routes(plan.queries, plan.events))
