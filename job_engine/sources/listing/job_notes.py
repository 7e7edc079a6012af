"""What the lister has to know of the job's progress, from the job's own files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypedDict

from job_engine.durable_files import JobFile
from job_engine.places.place import Place, names_in


@dataclass(frozen=True, slots=True)
class JobNotes:
    """Notes of the last micro-batch.

    brought: the sources that have brought a record since the checkpoint began. Only before that
        does a file that is not a table stop the job: then a setting is wrong, not the file
    needs_catch_up: whether a source partition is behind another, or records are held
    """

    brought: frozenset[str] = frozenset()
    needs_catch_up: bool = False


class _Progress(TypedDict):
    notes: JobNotes


class _Batch(TypedDict):
    progress: _Progress


def job_notes(checkpoint: Place) -> JobNotes:
    """The notes of the last micro-batch whose results were written.

    It may be one that is repeated. That changes nothing for `brought`: its first attempt has ended
    well, so it had a file that is a table before every one that is not.
    """
    folder = checkpoint / "ensue" / "progress"
    for name in sorted((name for name in names_in(folder) if name.endswith(".json")), reverse=True):
        found = JobFile(folder / name, _Batch).readable()
        if found is not None:  # what cannot be read the job itself reports
            return found["progress"]["notes"]
    return JobNotes()
