"""What one task of a micro-batch reads, as JSON text from the lister to a worker."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field, replace

from runtime.json_reader import json_of_text
from spark_backend.sources.delta.table_units import TableUnit, unit_tasks
from spark_backend.sources.kafka.offsets import Advance, OffsetRange
from spark_backend.sources.kafka.range_tasks import range_tasks
from spark_backend.sources.listing.command_folder import Command
from spark_backend.sources.listing.manifests import Manifest, TakenFile
from spark_backend.sources.listing.task_split import split
from spark_backend.sources.listing.unread import Unread


@dataclass(frozen=True, slots=True)
class FileTask:
    """What one task reads.

    files: in order
    is_repeated: whether an earlier run may have read them too
    earlier: by source that has not brought a record yet: its files of this micro-batch
    signal: sent to every bucket; None = none
    reports: as in `Manifest`
    ranges: of Kafka sources
    units: of Delta sources
    advances: of Kafka sources, for every bucket
    commands: for every bucket
    unread: as in `Manifest`, for every bucket
    """

    files: tuple[TakenFile, ...] = ()
    is_repeated: bool = False
    earlier: Mapping[str, tuple[TakenFile, ...]] | None = None
    signal: str | None = None
    reports: tuple[tuple[str, str, int, str], ...] = ()
    ranges: tuple[OffsetRange, ...] = ()
    advances: tuple[Advance, ...] = ()
    units: tuple[TableUnit, ...] = ()
    commands: tuple[Command, ...] = ()
    unread: Mapping[str, Unread | None] = field(default_factory=dict)

    def to_text(self) -> str:
        """The task as JSON text."""
        return json.dumps(asdict(self))

    @staticmethod
    def of_text(text: str) -> FileTask:
        """The inverse of `to_text`."""
        return json_of_text(text, FileTask)


def tasks_of(
    manifest: Manifest,
    count: int,
    unproven: Collection[str],
    *,
    is_repeated: bool,
    least: Mapping[str, int | None] | None = None,
) -> list[FileTask]:
    """At most `count` tasks for files; signal, reports, advances, commands, unread have one.

    unproven: the sources that have not brought a record before
    least: as in `range_tasks`
    """
    earlier = {
        source: files
        for source in sorted(unproven)
        if (files := tuple(file for file in manifest.files if file.source == source))
    }
    tasks = [FileTask(tuple(files), is_repeated, earlier) for files in split(manifest.files, count)]
    offsets = manifest.offsets
    tasks += [FileTask(ranges=ranges) for ranges in range_tasks(offsets.ranges, count, least or {})]
    tasks += [FileTask(units=units) for units in unit_tasks(manifest.tables.units, count)]
    if manifest.signal is not None or manifest.reports or offsets.advances or manifest.commands or manifest.unread:
        own = FileTask(signal=manifest.signal, reports=manifest.reports, advances=offsets.advances)
        tasks.append(replace(own, commands=manifest.commands, unread=manifest.unread))
    return tasks
