"""What people write into the query file of a simulated job between two runs, which a start with `--apply` takes over."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

from job_engine.deployment_file import load_deployment
from job_engine.sources.listing.command_folder import CommandFolder
from runtime.instants import EARLIEST
from tests.torture.answers import BEHIND, Control
from tests.torture.changes import NAMES, random_text

REFUSALS = ("the files have changed since they were last applied",)
"""In errors of a start that does not take over what the file says."""


@dataclass
class Edits:
    """The query file of a job.

    first: its text before anybody changed it
    """

    deployment: Path
    chooser: random.Random
    first: str

    @staticmethod
    def of(path: Path, chooser: random.Random) -> Edits:
        """Of a job that has not run."""
        return Edits(path, chooser, _file(path).read_text("utf-8"))

    def write(self) -> None:
        """Replace, add or remove a query or two; before the first run the file stays as it is."""
        if not (load_deployment(self.deployment).checkpoint / "ensue.json").exists():
            return
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
        """Keep the text whenever a command to take it over is sent; `outside`: where files can be written."""
        send = CommandFolder.send

        def noting(folder: CommandFolder, text: str, **more: Any) -> Any:
            command = send(folder, text, **more)
            if text.startswith('{"ApplyFiles"'):
                with outside():
                    self._taken.mkdir(exist_ok=True)
                    (self._taken / f"{command.number}").write_text(_file(self.deployment).read_text("utf-8"), "utf-8")
            return command

        with patch.object(CommandFolder, "send", noting):
            yield

    @property
    def _taken(self) -> Path:
        return self.deployment.parent / "taken over"

    @property
    def taken(self) -> dict[int, str]:
        """The texts that were taken over, by the number of the command."""
        return {int(path.name): path.read_text("utf-8") for path in self._taken.glob("*")}

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
