"""What one task of a micro-batch reads, as JSON text from the lister to a worker."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from spark_backend.sources.listing.folder_listing import FileStamp
from spark_backend.sources.listing.manifests import Manifest, TakenFile
from spark_backend.sources.listing.task_split import split


@dataclass(frozen=True, slots=True)
class FileTask:
    """What one task reads.

    files: in order
    is_repeated: whether an earlier run may have read them too
    earlier: by source that has not brought a record yet: its files of this micro-batch
    signal: sent to every bucket; None = none
    reports: as in `Manifest`
    """

    files: tuple[TakenFile, ...] = ()
    is_repeated: bool = False
    earlier: Mapping[str, tuple[TakenFile, ...]] | None = None
    signal: str | None = None
    reports: tuple[tuple[str, str, int, str], ...] = ()

    def to_text(self) -> str:
        """The task as JSON text."""
        return json.dumps(asdict(self))

    @staticmethod
    def of_text(text: str) -> FileTask:
        """The inverse of `to_text`."""
        data = json.loads(text)
        return FileTask(
            files=_files(data["files"]),
            is_repeated=data["is_repeated"],
            earlier={source: _files(files) for source, files in (data["earlier"] or {}).items()},
            signal=data["signal"],
            reports=tuple((cause, source, count, example) for cause, source, count, example in data["reports"]),
        )


def _files(rows: list[dict[str, Any]]) -> tuple[TakenFile, ...]:
    return tuple(TakenFile(**row | {"stamp": FileStamp(**row["stamp"])}) for row in rows)


def tasks_of(manifest: Manifest, count: int, unproven: Collection[str], *, is_repeated: bool) -> list[FileTask]:
    """At most `count` tasks; signal and reports have one of their own.

    unproven: the sources that have not brought a record before
    """
    earlier = {
        source: files
        for source in sorted(unproven)
        if (files := tuple(file for file in manifest.files if file.source == source))
    }
    tasks = [FileTask(tuple(files), is_repeated, earlier) for files in split(manifest.files, count)]
    if manifest.signal is not None or manifest.reports:
        tasks.append(FileTask(signal=manifest.signal, reports=manifest.reports))
    return tasks
