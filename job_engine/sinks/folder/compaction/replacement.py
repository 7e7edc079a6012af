"""Replace files by one that has their rows; a crash at any moment loses and doubles nothing.

The new file is written under a hidden name. Then a plan, hidden too, says which files it replaces.
Then it gets its name, the replaced files are removed, and at last the plan. Whoever finds a plan
finishes what it says. Readers that find one know that rows may be there twice.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, TypedDict

from job_engine.durable_files import AT_ONCE, RESTORE, JobFile, rename, sync
from job_engine.places.place import Place, RemotePath
from job_engine.sinks.file_names import RESULT_FILE
from querylang.errors import InputError
from runtime.threads import in_threads

_BEGIN = ".compact-"
"""Of hidden names: readers skip them, and so does a job that removes drafts of its own."""

_PLAN = ".plan"
_DRAFT = ".draft"


@dataclass(frozen=True, slots=True)
class Replacement:
    """Files of a folder, and the one that replaces them.

    new, old: names
    """

    folder: Place
    new: str
    old: tuple[str, ...]

    @property
    def draft(self) -> Place:
        """Where the new file is until it gets its name."""
        return self.folder / f"{_BEGIN}{self.new}{_DRAFT}"

    def begin(self) -> None:
        """Write the plan; the draft has to be on the disk."""
        _plan_file(self._plan).write({"new": self.new, "old": self.old})

    def finish(self) -> None:
        """Do what the plan says, as far as it is not done; then remove the plan."""
        if self.draft.exists():
            rename([(self.draft, self.folder / self.new)])
        if (self.folder / self.new).exists():
            _remove([self.folder / name for name in self.old])
            sync(self.folder)
        elif not all((self.folder / name).exists() for name in self.old):
            raise InputError(
                f"{self._plan}: the file that it names is missing, and so are some that it replaces."
                " Restore the folder from a copy"
            )
        self._plan.unlink(missing_ok=True)

    @property
    def _plan(self) -> Place:
        return self.folder / f"{_BEGIN}{self.new}{_PLAN}"


def interrupted(files: Collection[Place], identity: str) -> Iterator[Replacement]:
    """The replacements of a checkpoint that were begun and not finished."""
    for file in files:
        if file.name.startswith(f"{_BEGIN}{identity}-") and file.name.endswith(_PLAN):
            yield _read(file, identity)


def remove_drafts(files: Collection[Place], identity: str) -> None:
    """Remove what interrupted compactions of a checkpoint have written without a plan."""
    begin = f"{_BEGIN}{identity}-".lstrip(".")
    _remove([file for file in files if file.name.lstrip(".").startswith(begin) and file.name.endswith(_DRAFT)])


_ResultName = Annotated[str, RESULT_FILE]


class _Plan(TypedDict):
    new: _ResultName
    old: tuple[_ResultName, ...]


def _read(file: Place, identity: str) -> Replacement:
    """What a plan says: it names results of its checkpoint, in its own folder."""
    plan = _plan_file(file).needed()
    found = Replacement(file.parent, plan["new"], plan["old"])
    is_own = all(name.startswith(f"{identity}-") for name in (found.new, *found.old))
    if not is_own or found.new in found.old or file.name != f"{_BEGIN}{found.new}{_PLAN}":
        raise InputError(f"{file}: is damaged: it does not name results of its checkpoint. {RESTORE}")
    if isinstance(found.draft, Path) and found.draft.is_symlink():
        raise InputError(f"{found.draft}: is a link, and not a file of results; remove it")
    return found


def _plan_file(file: Place) -> JobFile[_Plan]:
    return JobFile(file, _Plan, RESTORE)


def _remove(files: Sequence[Place]) -> None:
    if any(isinstance(file, RemotePath) for file in files):
        in_threads(lambda file: file.unlink(missing_ok=True), files, AT_ONCE)
        return
    for file in files:
        file.unlink(missing_ok=True)
