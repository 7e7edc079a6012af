"""A table beside the stream of a simulated job: its owner replaces the file now and then."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from job_engine.deployment_file import load_deployment
from job_engine.job.lookup_files import KeptTable, read_tables
from querylang.plan.text import VALID
from tests.torture.project import QUERIES
from tests.torture.streams import KEYS

NAME = "Level"
LOOKUPS = QUERIES.replace("query Rise", f"table {NAME} {{ key string k; integer least; string word; }}\n\nquery Rise")
for _before, _after in (
    ("b.v > a.v {", f"b.v > a.v + {NAME}.getOrDefault(a.k).least {{"),
    ("print a.n.toString()", f"print {NAME}.getOrDefault(b.k).word + a.n.toString()"),
    ("A(v > 20)", f"A(v > {NAME}.getOrDefault(k).least)"),
):
    assert _before in LOOKUPS
    LOOKUPS = LOOKUPS.replace(_before, _after)

_Rows = frozenset[tuple[str, int, str]]


@dataclass
class Levels:
    """The file of the table.

    written: the rows of its versions, in order
    forgotten: a key whose rows the job may have removed from what it keeps
    """

    deployment: Path
    written: list[_Rows] = field(default_factory=list)
    forgotten: str | None = None

    @staticmethod
    def beside(deployment: Path, chooser: random.Random) -> Levels:
        """Let a job over files look up something, too."""
        (queries,) = deployment.parent.glob("*.query")
        queries.write_text(LOOKUPS, "utf-8")
        found = Levels(deployment)
        found.replace(chooser)
        refresh = chooser.choice(("1 second", "1 second", "5 seconds", "1 minute"))
        with deployment.open("a", encoding="utf-8") as file:
            file.write(f"tables: {{{NAME}: {{path: levels.csv, refresh: {refresh}}}}}\n")
        return found

    def replace(self, chooser: random.Random) -> None:
        """Write the next version; its name is that of the file once it is complete."""
        version = len(self.written)
        keys = [key for key in KEYS[chooser.randrange(3) :] if key]  # one that loses most of its rows is not taken
        rows = [(key, chooser.choice((0, 20, 60)), f"{version}:") for key in keys]
        self.written.append(frozenset(rows))
        draft = self.deployment.with_name(".levels.draft")
        draft.write_text("k,least,word\n" + "".join(f"{key},{least},{word}\n" for key, least, word in rows), "utf-8")
        draft.rename(self.deployment.with_name("levels.csv"))

    @property
    def is_kept(self) -> bool:
        """Whether the job has the versions still: it does not once no query looks anything up."""
        return bool(self._kept())

    def given(self) -> dict[str, Path]:
        """What a replay gets, which is what the job keeps."""
        (own,) = self._kept()
        return {NAME: self._folder / own.file}

    @property
    def _folder(self) -> Path:
        return Path(str(load_deployment(self.deployment).checkpoint)) / "ensue" / "lookups"

    def _kept(self) -> tuple[KeptTable, ...]:
        return read_tables(load_deployment(self.deployment).checkpoint)

    def problems(self, *, is_asked: bool) -> Iterator[str]:
        """What is wrong with what a job keeps: each version is one that was written, whole, in order, to the last.

        is_asked: whether queries look something up until the end: nobody reads the file otherwise
        """
        for own in self._kept():
            rows = pa.ipc.open_file(self._folder / own.file).read_all().to_pylist()
            numbers = [self._number(rows, version.place) for version in own.versions]
            if numbers != sorted(numbers) or -1 in numbers or (is_asked and numbers[-1] != len(self.written) - 1):
                yield f"'{own.name}' has versions {numbers} of {len(self.written)}"
            if own.problem:
                yield f"table '{own.name}': {own.problem}"

    def _number(self, rows: list[dict[str, Any]], place: int | None) -> int:
        """The number of the version that holds behind a place; -1 = it is not whole."""
        held = frozenset((row["k"], row["least"], row["word"]) for row in rows if _holds_behind(row, place))
        return next(
            (number for number, own in enumerate(self.written) if self._kept_of(own) == self._kept_of(held)), -1
        )

    def _kept_of(self, rows: _Rows) -> _Rows:
        return frozenset(row for row in rows if row[0] != self.forgotten)


def _holds_behind(row: dict[str, Any], place: int | None) -> bool:
    since, until = (None if row[name] is None else round(row[name].timestamp() * 1e6) for name in VALID)
    if place is None:
        return since is None
    return (since is None or since <= place + 1) and (until is None or until > place + 1)
