"""The formats that a job's sinks can have, and what a job asks of each: exactly-once results.

A new format is a file with its `SinkFormat`, and a line in FORMATS. Its module is imported on
first use, so that `ensue check` reads deployment files without Spark and Arrow.
"""

from __future__ import annotations

import importlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import pyarrow as pa

SINKS = ("matches", "output", "discarded", "ledger")
"""The names of sinks, each for one kind of result."""


class Formulas(StrEnum):
    """What happens to text that a spreadsheet would run as a formula."""

    KEEP = "keep"
    ESCAPE = "escape"


@dataclass(frozen=True, slots=True)
class Sink:
    """Where one kind of result goes.

    format: one of FORMATS
    path: a local folder
    shared: whether other jobs may write there, too
    formulas: what happens in CSV to text that a spreadsheet would run as a formula
    """

    format: str
    path: Path
    shared: bool = False
    formulas: Formulas = Formulas.KEEP

    def to_plain(self) -> dict[str, str]:
        """What workers need of it, as JSON can hold it."""
        return {"format": self.format, "path": str(self.path.resolve()), "formulas": self.formulas}

    @staticmethod
    def from_plain(data: Mapping[str, str]) -> Sink:
        """The inverse of `to_plain`."""
        return Sink(data["format"], Path(data["path"]), formulas=Formulas(data["formulas"]))


@dataclass(frozen=True, slots=True)
class Result:
    """What one micro-batch wrote to one place of a sink: its checkpoint's identity, its number."""

    identity: str
    batch: int
    place: str


@dataclass(frozen=True, slots=True)
class Draft:
    """What a task has written and nobody sees yet: where it is, and the place that it is for."""

    path: str
    place: str


class TaskWriter(Protocol):
    """The results of one task of one micro-batch for one sink, on a worker."""

    def write(self, part: str, table: pa.Table) -> str:
        """Add a table; `part`: the part of the sink that it belongs to, "" = the sink itself.

        Gives the name of the place that it will be in once it is published.
        """

    def finish(self) -> Sequence[Draft]:
        """Complete what was written, so that it survives a power cut; nobody sees it yet."""

    def abort(self) -> None:
        """Remove everything: nothing of it may become visible."""


class SinkFormat(Protocol):
    """Sinks of one format.

    Contract: exactly once. Tasks write drafts, and the driver publishes them once all tasks have
    ended, so that attempts that failed leave nothing visible. Spark may repeat a micro-batch after
    a crash; the repeated one must replace what the interrupted one published.
    """

    def open(self, sink: Sink, batch: str, task: int, attempt: int) -> TaskWriter:
        """A writer for one task, on its worker; `batch`: names checkpoint and micro-batch."""

    def publish(self, sink: Sink, drafts: Sequence[Draft]) -> None:
        """Make the drafts of a micro-batch visible, on the driver."""

    def results(self, path: Path) -> Iterator[Result]:
        """The results that a folder holds, whoever wrote them."""

    def remove_leftovers(self, path: Path, batch: str, written: Collection[str]) -> None:
        """Remove what interrupted attempts at a micro-batch left, except for `written`."""


_FILES = "spark_backend.sinks.files"

FORMATS: Mapping[str, str] = {"parquet": _FILES, "json": _FILES, "csv": _FILES}
"""By the name that a deployment file uses, the module that has its SinkFormat in `FORMATS`."""


def sink_format(name: str) -> SinkFormat:
    """The format of that name."""
    formats: Mapping[str, SinkFormat] = importlib.import_module(FORMATS[name]).FORMATS
    return formats[name]
