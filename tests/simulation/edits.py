"""What people write into the query file of a simulated job between two runs, which a start with `--apply` takes over."""

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
from job_engine.sources.listing.command_folder import CommandFolder
from runtime.instants import EARLIEST
from tests.torture.answers import BEHIND, Control
from tests.torture.changes import NAMES, random_text

REFUSALS = ("the files have changed since they were last applied",)
"""In errors of a start that does not take over what the file says."""


FIRST = "first"


@dataclass(frozen=True)
class Edits:
    """The query file of a job."""

    deployment: Path
    chooser: random.Random
    _known: dict[str, str] = field(default_factory=dict)

    def write(self) -> None:
        """Replace, add or remove a query or two."""
        types, texts = divided(_file(self.deployment).read_text("utf-8"))
        for _ in range(self.chooser.choice((1, 1, 2))):
            name = self.chooser.choice(NAMES)
            if name in texts and len(texts) > 1 and self.chooser.random() < 0.4:
                del texts[name]
            else:
                texts[name] = f"{random_text(self.chooser, name)}\n"
        _file(self.deployment).write_text(types + "".join(texts.values()), "utf-8")

    @contextmanager
    def noticed(self, outside: Callable[[], AbstractContextManager[None]]) -> Iterator[None]:
        """Keep the text whenever it is written down, or a command to take it over; `outside`: where files can be.

        It is kept before that is done: the process may be killed within.
        """
        send, file_of, write = CommandFolder.send, CommandFolder._file, prepare.write_files
        is_sending = False

        def keep(name: str) -> None:
            with outside():
                self._known[name] = _file(self.deployment).read_text("utf-8")
                self._folder.mkdir(exist_ok=True)
                (self._folder / name).write_text(self._known[name], "utf-8")

        def sending(folder: CommandFolder, text: str, **more: Any) -> Any:
            nonlocal is_sending
            is_sending = text.startswith('{"ApplyFiles"')
            try:
                return send(folder, text, **more)
            finally:
                is_sending = False

        def named(folder: CommandFolder, number: int) -> Any:
            if is_sending:
                keep(str(number))
            return file_of(folder, number)

        def beginning(*given: Any) -> None:
            keep(FIRST)
            write(*given)

        with (
            patch.object(CommandFolder, "send", sending),
            patch.object(CommandFolder, "_file", named),
            patch.object(prepare, "write_files", beginning),
        ):
            yield

    @property
    def _folder(self) -> Path:
        return self.deployment.parent / "taken over"

    def _kept(self) -> dict[str, str]:
        """What was kept: here, where no power cut takes it, or in files, if another process did it."""
        return self._known or {path.name: path.read_text("utf-8") for path in self._folder.glob("*")}

    @property
    def taken(self) -> dict[int, str]:
        """The texts that were taken over, by the number of the command."""
        return {int(name): text for name, text in self._kept().items() if name != FIRST}

    @property
    def first(self) -> str:
        """The text that the job began with."""
        return self._kept()[FIRST]

    @property
    def names(self) -> set[str]:
        """Of all queries that begin or end with an edit."""
        return {name for text in (self.first, *self.taken.values()) for name in divided(text)[1]}

    def whole(self) -> Path:
        """A file with the first text, for a replay."""
        folder = self.deployment.parent / "first text"
        folder.mkdir()
        file = folder / "whole.query"
        file.write_text(self.first, "utf-8")
        return file

    def controls(self) -> tuple[list[Control], list[str]]:
        """What was taken over, as control events at their places, and what is wrong with the answers."""
        folder = CommandFolder(load_deployment(self.deployment).checkpoint)
        taken, (_, running) = self.taken, divided(self.first)
        controls, problems = [], []
        done = sorted(int(path.stem) for path in folder.done.iterdir()) if folder.done.exists() else []
        for number in done:
            outcome = folder.outcome(number)
            if outcome is None or number not in taken:
                continue
            problems += [f"an edit was refused: {error}" for error in outcome.errors]
            _, wanted = divided(taken[number])
            place = EARLIEST if outcome.time is None else outcome.time
            controls += [Control(place, text, f"{number}", BEHIND) for text in _events(running, wanted)]
            running = wanted
        _, last = divided(_file(self.deployment).read_text("utf-8"))
        if last != running:
            problems.append("the last text of the file is not taken over")
        return controls, problems


def divided(text: str) -> tuple[str, dict[str, str]]:
    """The event types of a file, and its queries by name."""
    types, *texts = re.split(r"^(?=query )", text, flags=re.MULTILINE)
    return types, {own.split()[1].rstrip("{"): own for own in texts}


def _events(running: Mapping[str, str], wanted: Mapping[str, str]) -> Iterator[str]:
    """Control events that do the same."""
    for name, text in wanted.items():
        if name not in running:
            yield json.dumps({"DeployQuery": [text]})
        elif running[name] != text:
            yield json.dumps({"ReplaceQuery": [text]})
    for name in running.keys() - wanted.keys():
        yield json.dumps({"UndeployQuery": [name]})


def _file(deployment: Path) -> Path:
    (file,) = deployment.parent.glob("*.query")
    return file
