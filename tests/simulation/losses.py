"""Files that somebody removes before a job reads them, although it has written down that it will."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa

from job_engine.deployment_file import load_deployment
from job_engine.job.checkpoint.job_folder import JobFolder
from job_engine.sources.folder.pieces import FolderPiece
from job_engine.sources.folder.reading import _FileReader
from job_engine.sources.listing.batch_log import batches_of, manifest_of
from job_engine.sources.listing.manifests import ManifestFolder
from tests.torture.answers import Answers
from tests.torture.streams import Source


@dataclass
class Losses:
    """What was removed from the folders of a job, each file as `source/name`.

    removed: before it was read; the job has to stop, and to count it if that is accepted
    counted: the job has counted it as lost
    read: a worker has read it: until that is committed, the job has to be able to read it again
    forgotten: power was lost behind the removal, and with it what the job had written down, maybe
    """

    chooser: random.Random
    removed: set[str] = field(default_factory=set)
    counted: set[str] = field(default_factory=set)
    read: set[str] = field(default_factory=set)
    forgotten: set[str] = field(default_factory=set)

    @contextmanager
    def noticed(self) -> Iterator[None]:
        """Note what jobs of this process do."""
        packed = _FileReader.packed

        def notes(reader: _FileReader, file: Any, *, is_repeated: bool) -> Iterator[pa.RecordBatch]:
            name = f"{reader.source.name}/{file.path}"
            for batch in packed(reader, file, is_repeated=is_repeated):
                (self.counted if name in self.removed else self.read).add(name)
                yield batch

        with patch.object(_FileReader, "packed", notes):
            yield

    def remove(self, deployment: Path) -> None:
        """Remove files of the micro-batches that are begun and not committed, which nobody has read."""
        checkpoint = load_deployment(deployment).checkpoint
        batches = batches_of(checkpoint)
        if batches.open is None:
            return
        first, last = manifest_of(checkpoint, batches.ended) + 1, manifest_of(checkpoint, batches.open)
        for number in range(first, last + 1):
            for source, part in ManifestFolder.of(checkpoint).read(number).by_source.items():
                is_control = source == "control"  # what was asked for stays
                for file in part.piece.files if isinstance(part.piece, FolderPiece) and not is_control else ():
                    name = f"{source}/{file.path}"
                    path = deployment.parent / name
                    if name not in self.read and path.exists() and self.chooser.random() < 0.5:
                        os.remove(path)
                        self.removed.add(name)

    def left(self, sources: list[Source]) -> list[Source]:
        """The sources without what was removed."""
        return [
            replace(source, files=[own for own in source.files if f"{source.name}/{own[0]}" not in self.removed])
            for source in sources
        ]

    def with_lost(self, answers: Answers, found: Answers, deployment: Path, changed: set[str]) -> Answers:
        """A replay of what is left gives these; a job counts a file that is lost as one, for all that run then.

        A micro-batch that has found it so may be planned anew: then the file waits, and is only reported.

        found: what the job gives
        changed: the names of queries that may have begun or ended around the losses
        """
        manifests = ManifestFolder.of(load_deployment(deployment).checkpoint)
        parts = [manifests.read(number).by_source.items() for number in manifests.numbers()]
        pieces = [(source, part.piece) for own in parts for source, part in own if isinstance(part.piece, FolderPiece)]
        planned = {f"{source}/{file.path}" for source, piece in pieces for file in piece.files}
        count = len(self.counted & planned)
        titles = {title for title, _ in (*answers.ledger, *found.ledger) if title}
        ran = {title: title.partition("#")[0].partition("/")[0] not in changed for title in titles}
        lost = {(title, "lost"): count if ran[title] else min(count, found.ledger[title, "lost"]) for title in titles}
        return replace(answers, ledger=+(answers.ledger + Counter(lost)))

    def problems(self, deployment: Path) -> list[str]:
        """Whether a job has reported less than it should: a file that waits is missed, too."""
        reports = JobFolder(load_deployment(deployment).checkpoint).last_progress().reports
        reported = sum(report.count for report in reports if report.cause == "lost")
        certain = self.removed - self.forgotten
        if reported >= len(certain):
            return []
        return [f"{reported} files are reported as lost of {sorted(certain)}, which were removed before they were read"]
