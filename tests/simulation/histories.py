"""Queries that are deployed over what a simulated job has read already, and queries that are ended around it."""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet

import querylang
from job_engine.deployment_file import load_deployment
from job_engine.job.commands import send_command
from job_engine.job.history.running import send_with_history
from job_engine.sources.listing.command_folder import CHANGE, CommandFolder
from querylang.plan.routing import receivers
from runtime.instants import EARLIEST
from tests.support.books import divided
from tests.torture.answers import BEHIND, Answers, Comparable, Control, place
from tests.torture.streams import SECOND, START, Source, cells_of_record

Replay = Callable[..., Answers]
"""Gives the answers of queries to all that was read, and to control events, behind rows of the past."""

REFUSALS = (
    "no job has run on this checkpoint yet",
    "; replace or undeploy first",
    "which has run without it",
    "has changed while the job ran",
    "and that text is not kept",
    "that has ended are still to be processed",
    "the job has read nothing of table",
    "has not brought a record yet",  # of a history that begins with a table
    "begin with a new checkpoint",
    "deployed since the history was read",
    "Input/output error",  # the disk, while the job takes the command
    "the disk is full",
    "the broker cannot be reached",
)
"""In errors of a command that are as they should be."""

DEPLOYED = re.compile(r"'(\w+)' is deployed")


@dataclass(frozen=True, slots=True)
class Done:
    """A change that was done: queries deployed with history, or one that has ended.

    number: of its command
    place: in the order of arrival, µs
    """

    number: int
    place: int
    deployed: frozenset[str] = frozenset()
    ended: str | None = None

    @property
    def control(self) -> Control:
        """It in a replay."""
        return Control(self.place, _undeploy(self.ended or ""), f"{self.number}", BEHIND)


def _undeploy(name: str) -> str:
    return json.dumps({"UndeployQuery": [name]})


@dataclass(frozen=True, slots=True)
class Past:
    """A table of records from before a job's own: its rows in order of arrival, as a replay has them."""

    rows: tuple[dict[str, object], ...]

    @staticmethod
    def beside(path: Path, chooser: random.Random, sources: Sequence[Source]) -> Past:
        """Write the table, and its name into the deployment file."""
        rows, at = [], START - chooser.choice((1, 40)) * SECOND
        for number in range(chooser.choice((1, 10, 30))):
            source = chooser.choice(sources)
            cells = cells_of_record(chooser, source, 1_000_000 + number, at)
            cells["v"] = None if cells["v"] == "oops" else cells["v"]
            rows.append({**cells, **place(f"{source.name}/{PAST}", number)})
            at = min(at + chooser.choice((0, 1, SECOND)), START - 1)
        columns = {name: [row[name] for row in rows] for name in rows[0]}
        table = pa.table({name: pa.array(cells, _OF_TABLE.get(name)) for name, cells in columns.items()})
        (path.parent / PAST).mkdir()
        cut = chooser.randrange(len(rows))
        for number, part in enumerate((table.slice(0, cut), table.slice(cut))):
            pa.parquet.write_table(part, path.parent / PAST / f"{number}.parquet")
        with path.open("a", encoding="utf-8") as file:
            file.write(f"history: {{format: parquet, path: {PAST}, source_time: ts}}\n")
        return Past(tuple(rows))


PAST = "past"
"""The folder of the table."""

_OF_TABLE = {"at": pa.float64(), "ts": pa.float64(), "k": pa.string(), "v": pa.int64(), "n": pa.int64()}


@dataclass(slots=True)
class Histories:
    """What is deployed with history, and what was ended.

    types: the texts of event types
    queries: the texts of all queries, by name
    groups: names of queries that are deployed together
    sent: queries that were ended, by the number of their command
    past: the table that each history begins with; None = there is none
    deletes: whether the job removes files that it has read
    """

    deployment: Path
    types: str
    queries: dict[str, str]
    groups: list[frozenset[str]]
    sent: dict[int, str] = field(default_factory=dict)
    past: Past | None = None
    deletes: bool = False

    @staticmethod
    def of(path: Path, chooser: random.Random) -> Histories | None:
        """Leave out queries of a deployment, which are deployed later; None = it has only one."""
        (file,) = path.parent.glob("*.query")
        text = file.read_text("utf-8")
        types, *texts = re.split(r"^(?=query )", text, flags=re.MULTILINE)
        queries = {own.split()[1].rstrip("{"): f"{own.rstrip()}\n" for own in texts}
        plan = querylang.compile_text(text).plan
        later = divided(plan, chooser)
        if len(later) == len(queries):  # one that nobody feeds stays
            fed = {name for some in receivers(plan.queries).values() for name in some}
            later -= {next((name for name in queries if name not in fed), next(iter(queries)))}
        if not later:
            return None
        last = divided(plan, chooser) & later if chooser.random() < 0.4 else set[str]()
        groups = [frozenset(some) for some in (later - last, last) if some]
        file.write_text(types + "".join(own for name, own in queries.items() if name not in later), "utf-8")
        return Histories(path, types, queries, groups)

    @property
    def later(self) -> frozenset[str]:
        """The names of the queries that are deployed with history."""
        return frozenset().union(*self.groups)

    def is_refused(self, error: str) -> bool:
        """Whether an error of a command is as it should be."""
        return any(part in error for part in REFUSALS) or (self.deletes and "the history has a gap" in error)

    def deploy(self, chooser: random.Random) -> None:
        """Deploy some of them, as the command does it; raises InputError."""
        names = chooser.choice(self.groups)
        text = self.types + "".join(own for name, own in self.queries.items() if name in names)
        has_table = self.past is not None
        send_with_history(
            load_deployment(self.deployment),
            text,
            wait=False,
            uses_table=has_table,
            accepts_gap=has_table and not self.deletes,  # between the table and the first records
        )

    def send(self, chooser: random.Random) -> None:
        """End a query, and do not wait for it. Before the first start nothing is sent."""
        deployment = load_deployment(self.deployment)
        if (deployment.checkpoint / "ensue.json").exists():
            name = chooser.choice([*self.queries, *self.later])
            number = send_command(deployment, _undeploy(name), kind=CHANGE, wait=False).command.number
            self.sent[number] = name

    def done(self) -> tuple[list[Done], list[str]]:
        """What was done, in order, and what is wrong with the answers."""
        folder, found = CommandFolder(load_deployment(self.deployment).checkpoint), list[Done]()
        problems = [f"a change has no outcome: {number}" for number in folder.pending()]
        numbers = sorted(
            {*self.sent, *(int(path.stem) for path in folder.done.iterdir())} if folder.done.exists() else ()
        )
        for number in numbers:
            outcome = folder.outcome(number)
            if outcome is None:
                problems.append(f"the end of '{self.sent[number]}' has no outcome")
            elif not outcome.errors:
                place = EARLIEST if outcome.time is None else outcome.time
                if number in self.sent:
                    found.append(Done(number, place, ended=self.sent[number]))
                else:
                    (answer,) = outcome.answers.values()
                    found.append(Done(number, place, frozenset(DEPLOYED.findall(answer.text)) & self.later))
            elif number not in self.sent and not self.is_refused(outcome.errors[0]):
                problems.append(f"a history was refused: {outcome.errors[0]}")
        return found, problems

    def expected(self, replay: Replay, done: Sequence[Done]) -> Answers:
        """What the job has to give: all queries have been there from the beginning, but say nothing before their place."""
        always, past = self.queries.keys() - self.later, () if self.past is None else self.past.rows
        ends = [item for item in done if item.ended in always]
        total = _of(self._replayed(always, ends, partial(replay, past=())), {*always, ""}, EARLIEST)
        for item in done:
            if item.deployed:
                running = self._running(done, item)
                ends = [other for other in done if other.ended is not None and other.number > item.number]
                found = self._replayed(running, ends, partial(replay, past=past))
                total = _sum(total, _of(found, item.deployed, item.place))
        return total

    def _running(self, done: Sequence[Done], last: Done) -> set[str]:
        """The queries that run behind a change."""
        running = self.queries.keys() - self.later
        for item in done:
            if item.number <= last.number:
                running = (running | item.deployed) - {item.ended or ""}
        return running

    def _replayed(self, names: Collection[str], ends: Sequence[Done], replay: Replay) -> Answers:
        folder = self.deployment.parent / f"texts {len([*self.deployment.parent.iterdir()])}"
        folder.mkdir()
        file = folder / "whole.query"
        file.write_text(self.types + "".join(text for name, text in self.queries.items() if name in names), "utf-8")
        return replay(file, [item.control for item in ends])


def said(answers: Answers) -> Answers:
    """What is given without telling of changes."""
    return Answers(answers.matches, _matched(answers.outputs), answers.discarded, answers.ledger)


def _matched(outputs: Comparable) -> Comparable:
    return Counter({row: count for row, count in outputs.items() if dict(row)["match_id"] is not None})


def _of(answers: Answers, names: Collection[str], place: int) -> Answers:
    """What queries give behind a place, and their whole ledger."""
    rows = {row: dict(row) for row in answers.matches}
    matches = {
        row: count
        for row, count in answers.matches.items()
        if rows[row]["query"] in names and _moment(rows[row]["emitted"]) > place
    }
    ids = {rows[row]["match_id"] for row in matches}
    outputs = {row: count for row, count in answers.outputs.items() if dict(row)["match_id"] in ids}
    discarded = {
        row: count
        for row, count in answers.discarded.items()
        if dict(row)["query"] in names and _moment(dict(row)["arrival"]) > place
    }
    ledger = {key: count for key, count in answers.ledger.items() if key[0] in names}
    return Answers(Counter(matches), Counter(outputs), Counter(discarded), Counter(ledger))


def _moment(value: object) -> float:
    """A time as µs."""
    assert isinstance(value, datetime)
    return round(value.timestamp() * SECOND)


def _sum(one: Answers, other: Answers) -> Answers:
    return Answers(
        one.matches + other.matches,
        one.outputs + other.outputs,
        one.discarded + other.discarded,
        one.ledger + other.ledger,
    )
