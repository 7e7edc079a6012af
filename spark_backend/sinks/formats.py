"""The formats that a job's sinks can have, and what a job asks of each: exactly-once results.

A new format is a file with its `SinkFormat`, and a line in FORMATS. Its module is imported on
first use, so that `ensue check` reads deployment files without Spark and Arrow.
"""

from __future__ import annotations

import importlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol

from spark_backend.places.place import Place, place_of_plain, place_to_plain
from spark_backend.sinks.kafka.kafka_sink import KafkaSink

if TYPE_CHECKING:
    import pyarrow as pa

MATCHES = "matches"
SINKS = (MATCHES, "output", "discarded", "ledger")
"""The names of sinks, each for one kind of result."""


DAY = "day"
"""The partition column of Delta tables that results do not have: the day of their time."""

PARTITION_COLUMNS: Mapping[str, tuple[str, ...]] = {
    "matches": (DAY, "instance"),
    "output": (DAY, "query", "kind", "channel"),
    "discarded": (DAY, "query", "reason", "event"),
    "ledger": ("query", "what"),
}
"""By sink, the columns that its Delta tables can be partitioned by."""


class Formulas(StrEnum):
    """What happens to text that a spreadsheet would run as a formula."""

    KEEP = "keep"
    ESCAPE = "escape"


class Layout(StrEnum):
    """How matches are divided among tables."""

    QUERY = "query"
    ONE = "one"


@dataclass(frozen=True, slots=True)
class Sink:
    """Where one kind of result goes.

    format: one of FORMATS
    path: a folder; of Kafka there is none
    shared: whether other jobs may write there, too
    formulas: what happens in CSV to text that a spreadsheet would run as a formula
    partition_by: columns that Delta tables are partitioned by
    kafka: what only a topic has; None = it is a folder
    table: of a Delta table its name in a catalog; "" = the path says where it is
    layout: whether each query has a table of its matches, or all have one
    """

    format: str
    path: Place
    shared: bool = False
    formulas: Formulas = Formulas.KEEP
    partition_by: tuple[str, ...] = ()
    kafka: KafkaSink | None = None
    table: str = ""
    layout: Layout = Layout.QUERY

    def to_plain(self) -> dict[str, Any]:
        """What workers need of it, as JSON can hold it; nothing secret of brokers."""
        return {
            "format": self.format,
            "path": place_to_plain(self.path),
            "formulas": self.formulas,
            "partition_by": self.partition_by,
            "kafka": None if self.kafka is None else self.kafka.to_plain(),
            "layout": self.layout,
        }

    @staticmethod
    def from_plain(data: Mapping[str, Any]) -> Sink:
        """The inverse of `to_plain`."""
        return Sink(
            data["format"],
            place_of_plain(data["path"]),
            formulas=Formulas(data["formulas"]),
            partition_by=tuple(data["partition_by"]),
            kafka=None if data["kafka"] is None else KafkaSink.from_plain(data["kafka"]),
            layout=Layout(data["layout"]),
        )


@dataclass(frozen=True, slots=True)
class Result:
    """What one micro-batch wrote to one place of a sink: its checkpoint's identity, its number."""

    identity: str
    batch: int
    place: str


@dataclass(frozen=True, slots=True)
class Draft:
    """What a task has written and nobody sees yet.

    path: the file that it is in; "" = it passes through Spark
    place: the place that it is for
    details: what its format has to know of it to publish it
    data: its content, if it passes through Spark
    """

    path: str
    place: str
    details: str = ""
    data: bytes | None = None


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

    def refuse_unwritable(self, sink: Sink, parts: Mapping[str, pa.Schema]) -> None:
        """Raise InputError if results cannot be written there; writes nothing.

        parts: the schemas of what is written, by part as in `TaskWriter.write`
        """

    def open(self, sink: Sink, batch: str, task: int, attempt: int) -> TaskWriter:
        """A writer for one task, on its worker; `batch`: names checkpoint and micro-batch."""

    def publish(self, batch: str, drafts: Sequence[tuple[Sink, Sequence[Draft]]]) -> None:
        """Make the drafts of a micro-batch visible, on the driver; all sinks of the format."""

    def results(self, sink: Sink) -> Iterator[Result]:
        """The results that a sink holds, whoever wrote them."""

    def remove_leftovers(self, sink: Sink, batch: str, written: Collection[str]) -> None:
        """Remove what interrupted attempts at a micro-batch left, except for `written`."""


_FILES = "spark_backend.sinks.files"

FORMATS: Mapping[str, str] = {
    "parquet": _FILES,
    "json": _FILES,
    "csv": _FILES,
    "delta": "spark_backend.sinks.delta_tables",
    "kafka": "spark_backend.sinks.kafka.topics",
}
"""By the name that a deployment file uses, the module that has its SinkFormat in `FORMATS`."""


def sink_format(name: str) -> SinkFormat:
    """The format of that name."""
    formats: Mapping[str, SinkFormat] = importlib.import_module(FORMATS[name]).FORMATS
    return formats[name]
