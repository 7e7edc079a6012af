"""What one task of a micro-batch reads, as JSON text from the lister to a worker."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, TypedDict

from job_engine.sources.kinds import FORMATS, planning_of
from job_engine.sources.listing.command_folder import Command
from job_engine.sources.listing.manifests import Manifest
from job_engine.sources.listing.unread import Unread
from runtime.json_reader import json_of_text, shaped

if TYPE_CHECKING:
    from job_engine.sources.reading import Reading
    from job_engine.wire.program import Program

SOURCES = "secret_sources"
"""The option of our data source for its sources. Spark shows no value of such a name."""


@dataclass(frozen=True, slots=True)
class ToldSource:
    """A source as the lister and workers have to know it; `own`: what its kind has to know."""

    format: str
    own: Any


@dataclass(frozen=True, slots=True)
class Task:
    """What one task reads.

    work: by source
    news: by source, for every bucket
    is_repeated: whether an earlier run may have read the same
    signal: sent to every bucket; None = none
    reports: as in `Manifest`
    commands: for every bucket
    unread: as in `Manifest`, for every bucket
    """

    work: Mapping[str, Any] = field(default_factory=dict)
    news: Mapping[str, Any] = field(default_factory=dict)
    is_repeated: bool = False
    signal: str | None = None
    reports: tuple[tuple[str, str, int, str], ...] = ()
    commands: tuple[Command, ...] = ()
    unread: Mapping[str, Unread | None] = field(default_factory=dict)

    def to_text(self) -> str:
        """The task as JSON text."""
        return json.dumps(asdict(self))

    @staticmethod
    def of_text(text: str, sources: Mapping[str, ToldSource]) -> Task:
        """The inverse of `to_text`."""
        task = json_of_text(text, Task)
        work = {name: shaped(own, planning_of(sources[name].format).work_type) for name, own in task.work.items()}
        news = {name: shaped(own, planning_of(sources[name].format).news_type) for name, own in task.news.items()}
        return Task(work, news, task.is_repeated, task.signal, task.reports, task.commands, task.unread)


def tasks_of(
    manifest: Manifest,
    count: int,
    sources: Mapping[str, ToldSource],
    *,
    unproven: Collection[str] = (),
    is_repeated: bool = False,
) -> list[Task]:
    """At most `count` tasks for each kind; what is for all buckets has one.

    unproven: the sources that have not brought a record before
    """
    tasks: list[Task] = []
    news: dict[str, Any] = {}
    for format_, names in by_kind(sources).items():
        planning = planning_of(format_)
        pieces = {name: manifest.by_source[name].piece for name in names if name in manifest.by_source}
        own = {name: sources[name].own for name in names}
        tasks += [Task(work, is_repeated=is_repeated) for work in planning.tasks(pieces, own, count, unproven)]
        news.update({name: told for name, piece in pieces.items() if (told := planning.news(piece)) is not None})
    if manifest.signal is not None or manifest.reports or news or manifest.commands or manifest.unread:
        tasks.append(
            Task(
                news=news,
                is_repeated=is_repeated,
                signal=manifest.signal,
                reports=manifest.reports,
                commands=manifest.commands,
                unread=manifest.unread,
            )
        )
    return tasks


def by_kind(sources: Mapping[str, ToldSource]) -> dict[str, list[str]]:
    """The names of sources of the same kind, by a format of that kind."""
    found: dict[str, list[str]] = {}
    first: dict[str, str] = {}
    for name, source in sources.items():
        found.setdefault(first.setdefault(FORMATS[source.format], source.format), []).append(name)
    return found


class _SourceRow(TypedDict):
    format: str
    own: object


def sources_to_text(sources: Mapping[str, ToldSource]) -> str:
    """Sources and kinds as JSON text; it may be secret."""
    own = {name: {"format": source.format, "own": asdict(source.own)} for name, source in sources.items()}
    return json.dumps({"kinds": FORMATS, "sources": own})


class _Sources(TypedDict):
    kinds: dict[str, str]
    sources: dict[str, _SourceRow]


def sources_of_text(text: str) -> dict[str, ToldSource]:
    """The inverse of `sources_to_text`; from then on this process knows the same kinds."""
    data = json_of_text(text, _Sources)
    FORMATS.update(data["kinds"])
    return {
        name: ToldSource(row["format"], shaped(row["own"], planning_of(row["format"]).own_type))
        for name, row in data["sources"].items()
    }


def reading_options(
    sources: Mapping[str, ToldSource],
    readings: Mapping[str, Reading],
    program: Program,
    *,
    accepts_loss: bool = False,
) -> dict[str, str]:
    """What whoever reads a task has to know; parameters as of `packed_stream`."""
    return {
        "program": program.to_text(),
        SOURCES: sources_to_text(sources),
        "readings": json.dumps({name: reading.to_text() for name, reading in readings.items()}),
        "accept_loss": str(accepts_loss).lower(),
    }
