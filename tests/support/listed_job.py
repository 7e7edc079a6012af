"""A checkpoint and folders of sources whose files a planner lists, without Spark."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from job_engine.sources.folder.settings import ListedSource
from job_engine.sources.listing.lister import InputPlanner, RunSettings
from job_engine.sources.listing.manifests import Manifest
from tests.support.manifests import files_in, of_files

LATER = 4_000_000_000_000_000_000
"""ns, in the year 2096: folders that tests have just made count as settled."""


@dataclass(slots=True)
class Job:
    """A checkpoint and folders of sources; a stand-in for Spark asks, writes its logs, and may be killed."""

    folder: Path
    settings: dict[str, object] = field(default_factory=dict)
    sources: tuple[str, ...] = ("a",)
    planner: InputPlanner | None = None
    end: int = 0
    changes: int = 0

    def add(self, *paths: str, source: str = "a", text: str = "x", modified: int = 1) -> None:
        for path in paths:
            file = self.folder / source / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
            os.utime(file, (modified, modified))
            self.changes += 1  # the clock of a file system is too coarse for what tests do in a row
            os.utime(file.parent, (self.changes, self.changes))

    def start(
        self,
        *,
        at_start: str | None = None,
        at_end: str | None = None,
        is_once: bool = False,
        only_repeats: bool = False,
    ) -> None:
        """Begin a run: what the last one did not write to Spark's log is unknown to it."""
        sources = []
        for name in self.sources:
            (self.folder / name).mkdir(exist_ok=True)
            sources.append(ListedSource(name, str(self.folder / name), (".csv",), **self.settings))  # type: ignore[arg-type]
        run = RunSettings(str(self.folder / "state"), at_start, at_end, only_repeats=only_repeats)
        times = iter(range(LATER, LATER * 2, 1_000_000_000))
        self.planner = InputPlanner(of_files(*sources), run, lambda: next(times))
        if is_once:
            self.planner.fix_end()

    def ask(self) -> Manifest | None:
        """The next manifest, which Spark does not write down."""
        assert self.planner is not None
        number = self.planner.latest(self.end)
        return None if number == self.end else self.planner.read(number)

    def step(self) -> Manifest | None:
        """One micro-batch from beginning to end."""
        manifest = self.ask()
        if manifest is not None:
            self.end = manifest.number
            for log in ("offsets", "commits"):
                path = self.folder / "state" / log / str(self.end - 1)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text("v1\n{}\n" + json.dumps({"manifest": self.end}))
        return manifest

    def steps(self) -> Iterator[Manifest]:
        while (manifest := self.step()) is not None:
            yield manifest

    def note(self, *, needs_catch_up: bool) -> None:
        folder = self.folder / "state" / "ensue" / "progress"
        folder.mkdir(parents=True, exist_ok=True)
        notes = {"brought": ["a"], "needs_catch_up": needs_catch_up}
        (folder / "0000000000.json").write_text(json.dumps({"progress": {"notes": notes}}))


def paths(manifest: Manifest | None) -> list[str]:
    return [] if manifest is None else [file.path for file in files_in(manifest)]
