"""What people write into the files of a simulated job between two runs, which a start with `--apply` takes over.

Queries may be changed while the job runs, too: what the files say is then taken over three-way.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

from job_engine.deployment_file import load_deployment
from job_engine.job.stages import prepare
from job_engine.job.written_journal import running_to_plain
from job_engine.sources.listing.command_folder import CommandFolder
from runtime.instants import EARLIEST
from tests.simulation.merging import Texts, done_by, events_of, merged, name_of, texts_of
from tests.torture.answers import BEHIND, OF_JOBS, Control
from tests.torture.changes import Changes

REFUSALS = ("the files have changed since they were last applied", *OF_JOBS)
"""In errors of a start that does not take over what the files say, or cannot."""

FIRST = "first"


@dataclass(frozen=True, slots=True)
class Said:
    """What the files said.

    queries: the text of the query file
    parameters: of the deployment file
    plain: the same as a checkpoint has it
    before: what they had said, as a checkpoint has it; "" = nothing
    """

    queries: str
    parameters: dict[str, Any]
    plain: str
    before: str = ""

    @property
    def texts(self) -> Texts:
        """The queries with their instances."""
        return texts_of(divided(self.queries)[1], self.parameters)


@dataclass(frozen=True)
class Edits:
    """The files of a job.

    change: chooses a control event that begins, replaces or ends a query; what it asks for is written into the file
    """

    deployment: Path
    chooser: random.Random
    change: Callable[[random.Random], str]
    _known: dict[str, Said] = field(default_factory=dict)

    def write(self) -> None:
        """Replace, add or remove a query or two, or give parameters other values."""
        types, texts = divided(self._queries)
        for _ in range(self.chooser.choice((1, 1, 2))):
            ((name, given),) = json.loads(self.change(self.chooser)).items()
            match name:
                case "UndeployQuery" if len(texts) > 1:
                    texts.pop(given[0], None)
                case "DeployQuery" | "ReplaceQuery":
                    texts |= divided(given[0])[1]
        wanted = {name: own for name, own in self._parameters.items() if name in texts}
        for name, own in texts.items():
            if self.chooser.random() < 0.4:
                wanted.pop(name, None)
                given = {kind: self._given(own) for kind in self.chooser.choice((("",), ("eu",), ("eu", "a-b")))}
                if self.chooser.random() < 0.6:
                    wanted[name] = given.get("", given)
        wanted = {name: _known(texts[name], own) for name, own in wanted.items()}
        self._write(types + "".join(texts.values()), {name: own for name, own in wanted.items() if own})

    def take_back(self) -> None:
        """Let the files say what they said when they were last taken over."""
        last = self._kept()
        if last:
            said = last[max(last, key=lambda name: -1 if name == FIRST else int(name))]
            self._write(said.queries, said.parameters)

    def _given(self, text: str) -> dict[str, Any]:
        return {name: self.chooser.choice(values) for name, values in _VALUES.items() if f" {name} := " in text}

    def _write(self, queries: str, parameters: Mapping[str, Any]) -> None:
        _file(self.deployment).write_text(queries, "utf-8")
        text = re.sub(r"(?m)^parameters: .*\n", "", self.deployment.read_text("utf-8"))
        line = f"parameters: {json.dumps(parameters)}\n" if parameters else ""
        self.deployment.write_text(text + line, "utf-8")

    @property
    def _queries(self) -> str:
        return _file(self.deployment).read_text("utf-8")

    @property
    def _parameters(self) -> dict[str, Any]:
        found = re.search(r"(?m)^parameters: (.*)$", self.deployment.read_text("utf-8"))
        return {} if found is None else json.loads(found[1])

    @contextmanager
    def noticed(self, outside: Callable[[], AbstractContextManager[None]]) -> Iterator[None]:
        """Keep what files say whenever it is written down, or a command to take it over; `outside`: where files can be.

        It is kept before that is done: the process may be killed within.
        """
        send, file_of, write = CommandFolder.send, CommandFolder._file, prepare.write_files
        sending: list[dict[str, Any]] = []

        def keep(name: str, files: Any, before: Any) -> None:
            with outside():
                said = Said(self._queries, self._parameters, json.dumps(files), json.dumps(before) if before else "")
                self._known[name] = said
                self._folder.mkdir(exist_ok=True)
                own = {name: getattr(said, name) for name in Said.__slots__}
                (self._folder / name).write_text(json.dumps(own), "utf-8")

        def keeping(folder: CommandFolder, text: str, **more: Any) -> Any:
            if text.startswith('{"ApplyFiles"'):
                sending.append(json.loads(text)["ApplyFiles"])
            try:
                return send(folder, text, **more)
            finally:
                sending.clear()

        def named(folder: CommandFolder, number: int) -> Any:
            if sending:
                keep(str(number), sending[0]["files"], sending[0]["before"])
            return file_of(folder, number)

        def beginning(checkpoint: Any, files: Any) -> None:
            keep(FIRST, json.loads(json.dumps(running_to_plain(files))), None)
            write(checkpoint, files)

        with (
            patch.object(CommandFolder, "send", keeping),
            patch.object(CommandFolder, "_file", named),
            patch.object(prepare, "write_files", beginning),
        ):
            yield

    @property
    def _folder(self) -> Path:
        return self.deployment.parent / "taken over"

    def _kept(self) -> dict[str, Said]:
        """What was kept: here, where no power cut takes it, or in files, if another process did it."""
        files = self._folder.glob("*")
        return self._known or {path.name: Said(**json.loads(path.read_text("utf-8"))) for path in files}

    @property
    def first(self) -> Said:
        """What the job began with."""
        return self._kept()[FIRST]

    def names(self, changes: Changes) -> set[str]:
        """Of all queries that begin or end."""
        return changes.names.union(*(said.texts for said in self._kept().values()))

    def whole(self) -> Path:
        """A file with the first text, for a replay."""
        folder = self.deployment.parent / "first text"
        folder.mkdir()
        file = folder / "whole.query"
        file.write_text(self.first.queries, "utf-8")
        return file

    def controls(self, changes: Changes) -> tuple[list[Control], list[str]]:
        """All that was done, as control events at their places, and what is wrong with the answers.

        changes: what was sent beside
        """
        folder, kept = CommandFolder(load_deployment(self.deployment).checkpoint), self._kept()
        known = {said.plain: said.texts for said in kept.values()}
        last, running, controls, problems = self.first, self.first.texts, list[Control](), list[str]()
        done = sorted(int(path.stem) for path in folder.done.iterdir()) if folder.done.exists() else []
        for number in done:
            outcome, is_edit = folder.outcome(number), number not in changes.sent
            if outcome is None or (is_edit and str(number) not in kept):
                continue
            if is_edit:
                problems += [f"an edit was refused: {error}" for error in outcome.errors]
                last = kept[str(number)]
                events = list(merged(known[last.before], last.texts, running))
            else:
                events = [] if outcome.errors else list(events_of(changes.sent[number], running))
            place = EARLIEST if outcome.time is None else outcome.time
            controls += [Control(place, text, f"{number}", BEHIND) for text in events]
            running = done_by(events, running)
        if last.texts != texts_of(divided(self._queries)[1], self._parameters):
            problems.append("what the files say last is not taken over")
        return controls, problems


_VALUES = {"least": (0, 1, 2, 5, 40), "length": (3.0, 20.0), "delay": (1.5, 6.0)}
"""What parameters may be."""


def with_one_default(change: Callable[[random.Random], str]) -> Callable[[random.Random], str]:
    """The same, where a parameter has one default in all texts: no control event takes a value away."""
    return lambda chooser: change(chooser).replace("least := 20", "least := 0")


def _known(text: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Of what is given for a query, what its text knows: by instance, or for the only one."""
    if any(isinstance(own, dict) for own in given.values()):
        found = {instance: _known(text, own) for instance, own in given.items()}
        return {instance: own for instance, own in found.items() if own}
    return {name: value for name, value in given.items() if f" {name} := " in text}


def divided(text: str) -> tuple[str, dict[str, str]]:
    """The event types of a file, and its queries by name."""
    types, *texts = re.split(r"^(?=query )", text, flags=re.MULTILINE)
    return types, {name_of(own): own.rstrip("\n") + "\n" for own in texts}


def _file(deployment: Path) -> Path:
    (file,) = deployment.parent.glob("*.query")
    return file
