"""Say that another release has written a checkpoint until now, while a backup can still be made.

Each run notes its release, and the versions of what it writes: `<checkpoint>/ensue/release.json`.
Every release reads a checkpoint whether it has this file or not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from importlib import metadata
from typing import TypedDict

from job_engine.durable_files import JobFile
from job_engine.job.checkpoint.checkpoint_record import RECORD_VERSION, SPARK_VERSION
from job_engine.job.journal.written import JOURNAL_VERSION
from job_engine.operator.bucket_state import STATE_VERSION
from job_engine.places.place import Place
from job_engine.settings.deployment import Deployment
from job_engine.sources.listing.batch_log import RECORD
from job_engine.sources.listing.manifests import LIST_VERSION, MANIFEST_VERSION
from job_engine.wire.packed_rows import PACKED_VERSION
from querylang.plan.model import PLAN_VERSION
from runtime.engine.snapshot import STATE_VERSION as ENGINE_VERSION


@dataclass(frozen=True, slots=True)
class Release:
    """What writes a checkpoint.

    release: of Ensue; None = an earlier one than those that note it
    formats: the newest version that it writes, by what has versions
    """

    release: str | None
    formats: Mapping[str, int]

    def in_words(self, other: Release) -> str:
        """`Ensue 0.2.0 (plan 6)`: with the versions that another one has, and that differ."""
        known = self.formats.keys() & other.formats.keys()
        differing = [name for name in self.formats if name in known and self.formats[name] != other.formats[name]]
        name = "an earlier version of Ensue" if self.release is None else f"Ensue {self.release}"
        return name + (f" ({', '.join(f'{it} {self.formats[it]}' for it in differing)})" if differing else "")


class _Note(TypedDict):
    release: str
    formats: dict[str, int]


class _Record(TypedDict):
    version: int


def this_release(checkpoint: Place) -> Release:
    """What writes a checkpoint now."""
    has = JobFile(checkpoint / RECORD, _Record).readable()
    is_newest = has is not None and has["version"] == RECORD_VERSION
    formats = {
        "record": RECORD_VERSION if is_newest else SPARK_VERSION,
        "state": STATE_VERSION,
        "engine": ENGINE_VERSION,
        "rows": PACKED_VERSION,
        "plan": PLAN_VERSION,
        "manifest": MANIFEST_VERSION,
        "list": LIST_VERSION,
        "journal": JOURNAL_VERSION,
    }
    return Release(metadata.version("ensue"), formats)


def other_release(deployment: Deployment) -> Iterator[str]:
    """A line if another release has written the checkpoint until now; none for a new one."""
    before, own = _last_release(deployment.checkpoint), this_release(deployment.checkpoint)
    if before is not None and before != own:
        yield (
            f"{deployment.checkpoint}: was written by {before.in_words(own)} until now. Once {own.in_words(before)} has"
            f" run on it, the other may not read it any more: `ensue backup {deployment.file} DIR` before that keeps a"
            " way back"
        )


def note_release(checkpoint: Place) -> None:
    """Note that this release writes the checkpoint."""
    own = this_release(checkpoint)
    if _last_release(checkpoint) != own:
        _note(checkpoint).write(asdict(own))


def _last_release(checkpoint: Place) -> Release | None:
    """The release that has written a checkpoint; None = none has."""
    note = _note(checkpoint).readable()
    if note is not None:
        return Release(note["release"], note["formats"])
    record = JobFile(checkpoint / RECORD, _Record).readable()
    return None if record is None else Release(None, {"record": record["version"]})


def _note(checkpoint: Place) -> JobFile[_Note]:
    return JobFile(checkpoint / "ensue" / "release.json", _Note)
