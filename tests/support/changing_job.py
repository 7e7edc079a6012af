"""Jobs whose queries change, without Spark, and what each of their queries gives by itself."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import querylang
from job_engine.job.checkpoint.progress import JobProgress
from job_engine.job.journal import Journal, JournalEpoch, Taking, moment_of_change
from job_engine.job.written_journal import PlainJournal, asked_of_text, journal_of_plain, journal_to_plain
from job_engine.wire.clock_sources import ClockSource
from job_engine.wire.packed_rows import Signal
from job_engine.wire.program import Program, load_program
from job_engine.wire.tagged_rows import Tag
from querylang.parameters import NOTHING, with_instances
from querylang.plan.model import Plan
from querylang.running import Running
from runtime.columns.arrivals import Arrivals, as_known
from runtime.engine.engine import Engine
from runtime.json_reader import json_of_text
from runtime.results.ledger import Account
from tests.support.buckets import Stream

EVENTS = """
event A { float ts; integer k; float v; }
event B { float ts; integer k; float v; }
"""
RISING = """query Rising {
  parameters { float least := 0.5; }
  inputs { A() key k within 20 seconds; B() key k within 20 seconds; }
  find A:a -> B:b where b.v > a.v + least
}"""
WAITING = """query Waiting {
  inputs { A() key k within 15 seconds; B() key k within 15 seconds; }
  find A:a -> wait(4.0):w without B:b
}"""
FALLING = """query Falling {
  parameters { float most := 2.0; }
  inputs { A() key v within 10 seconds; }
  find A:a -> A:b where b.k > a.k
}"""
WHOLE = """query Whole {
  parameters { float most := 1.0; }
  inputs { B() within 8 seconds; }
  find B:a -> B:b where b.v > a.v + most
}"""
OTHER = """event C { float ts; integer k; float v; }
query Other { inputs { C() key k within 30 seconds; A() key k within 30 seconds; } find C:c -> A:a }"""
START = querylang.compile_text(EVENTS + RISING + WAITING).plan
INSTANCES = with_instances(START, NOTHING)
SOURCES = (ClockSource("a"), ClockSource("b"))
OWN_TYPES = (ClockSource("a", "B"), ClockSource("b"))
"""Queries that read no B do not wait for the first source."""
READING = querylang.compile_text(EVENTS + OTHER).plan


def tables(random: np.random.Generator, count: int, sources: tuple[ClockSource, ...]) -> list[list[dict[str, object]]]:
    """Sources in order of arrival; C is not known at the start, D never; some records cannot be read."""
    found = []
    for source in sources:
        at = np.sort(random.integers(0, count // 2, count)) + 1000
        found.append(
            [
                {"at": float(moment), "event": source.event or "AABBCD"[random.integers(6)], "ts": float(moment)}
                | {"k": int(random.integers(3)), "v": float(random.integers(6)) if random.random() < 0.95 else "much"}
                for moment in at
            ]
        )
    return found


def controls(random: np.random.Generator, count: int) -> list[dict[str, object]]:
    """A control stream that goes with `tables`."""
    leeway = {"event": "SetDelayedEventsLeeway(3.0, 1.0)"} | dict.fromkeys(("ts", "k", "v"))
    return [{"at": 1000.5 + moment} | leeway for moment in sorted(random.integers(0, count // 2, 3).tolist())]


def read_unevenly(
    random: np.random.Generator, arrivals: Arrivals, left: list[NDArray[np.int64]]
) -> Iterator[dict[str, Arrivals]]:
    """Micro-batches of records by source; `left`: the rows of each source, in order of arrival."""
    while any(map(len, left)):
        taken = [int(random.integers(0, 60)) * int(random.random() < 0.7) for _ in left]
        yield {"ab"[n]: arrivals.take(rows[:count]) for n, (rows, count) in enumerate(zip(left, taken, strict=True))}
        left = [rows[count:] for rows, count in zip(left, taken, strict=True)]


def change_of(random: np.random.Generator) -> str:
    """A control event, often a wrong one."""
    texts = {"Rising": RISING, "Waiting": WAITING, "Falling": FALLING, "Whole": WHOLE, "Other": OTHER}
    name = str(random.choice(list(texts)))
    match random.integers(6):
        case 0 | 1:
            return json.dumps({"DeployQuery": [texts[name]]})
        case 2:
            return f'UndeployQuery("{name}")'
        case 3:
            least = int(random.integers(4))
            return f'SetParameters("{name}", "", {{"{"least" if name == "Rising" else "most"}": {least}.0}})'
        case 4:
            return f'RemoveInstance("{name}", "")'
        case _:
            longer = texts[name].replace("15 seconds", "25 seconds").replace("+ least", "+ least + 1.0")
            return json.dumps({"ReplaceQuery": [longer, *(["now"] if random.random() < 0.3 else [])]})


class ChangingJob:
    """Buckets without Spark whose sources are read unevenly, and changed between micro-batches."""

    def __init__(self, buckets: int, sources: tuple[ClockSource, ...] = SOURCES) -> None:
        self.base = Program.of(INSTANCES, buckets=buckets, sources=sources)
        self.stream = Stream(self.base)
        self.progress = JobProgress()
        self.batch = 0
        self.journal = Journal.begin(Running.of(START, INSTANCES), INSTANCES)
        self.histories = Path()

    def step(self, parts: dict[str, Arrivals], signal: Signal | None = None) -> None:
        self.batch += 1
        events = self.stream.program.plan().events
        known = {event.name for event in events}
        own = {name: Arrivals(as_known(part.table, READING.events, known)) for name, part in parts.items() if len(part)}
        steps = self.stream.take(own, self.batch, signal)
        rows = [(row.tag, row.table) for step in steps for row in step.rows]
        measured = [row for row in rows if row[0] in (Tag.METRIC, Tag.SOURCE, Tag.TIMELINE)]
        self.progress = self.progress.after(measured, records=0, matches=0)

    def change(self, text: str, at: int | None = None) -> None:
        """Take a change; `at`: as it is asked for, µs."""
        journal = self.journal.settled(self.progress, self.batch)
        moment = moment_of_change(self.progress, at)
        journal = journal.changed(
            asked_of_text(text), Taking(self.batch, moment, self.batch, lambda plan: plan, epoch=self.progress.epoch)
        )
        self.go_on_with(journal)

    def go_on_with(self, journal: Journal) -> None:
        """Take a journal over, as its file keeps it."""
        self.journal = journal_of_plain(json_of_text(json.dumps(journal_to_plain(journal)), PlainJournal))
        self.stream.program = load_program(self.ahead().program(self.base, self.histories).to_text())

    def move(self, buckets: int) -> None:
        """Between two runs, to another number of buckets."""
        self.base = replace(self.base, buckets=buckets)
        self.stream.move(buckets)
        self.progress = self.progress.of_buckets(buckets)

    def ahead(self) -> Journal:
        """With the ends of handovers that are known."""
        return self.journal.handed_over(None, self.batch, lambda plan: plan)


def refused_of(rows: list[dict[str, object]]) -> list[tuple[object, ...]]:
    """The coordinates of the records among discarded rows that no query can read."""
    return [(row["source"], row["offset"]) for row in rows if row["reason"] in ("malformed", "unknown_type")]


def by_themselves(
    arrivals: Arrivals, epochs: list[JournalEpoch]
) -> tuple[Counter[tuple[str, str]], Account, set[tuple[object, ...]]]:
    """The matches, accounts and `refused_of` engines that have one query each, epoch by epoch."""
    plans = [epoch.plan for epoch in epochs] or [INSTANCES]
    matches: Counter[tuple[str, str]] = Counter()
    account: Account = Counter()
    refused: set[tuple[object, ...]] = set()
    at = arrivals.system("arrival")
    for name in {query.name for plan in plans for query in plan.queries}:
        own = [Plan(READING.events, tuple(query for query in plan.queries if query.name == name)) for plan in plans]
        engine, results = Engine(own[0]), []
        for number, plan in enumerate(own):
            begins = epochs[number].begins if number else -1
            ends = epochs[number + 1].begins if number + 1 < len(own) else None
            if number:
                engine = engine.followed_by(plan, dict(epochs[number].heirs))[0]
            rows = (at > begins) & ((at <= ends) if ends is not None else True)
            known = {event.name for event in plans[number].events}
            part = arrivals.take(np.flatnonzero(rows)).table
            results.append(engine.process(Arrivals(as_known(part, READING.events, known)), now=ends))
        results.append(engine.flush())
        account.update(engine.account)
        for result in results:
            if result.discarded is not None:
                refused.update(refused_of(result.discarded.to_pylist()))
            for table in result.matches.values():
                matches.update((row["query"], row["match_id"]) for row in table.to_pylist())
    return matches, account, refused
