"""A file of JSON that a job keeps: where it is, its shape and versions, what to do about damage.

Every such file is read and written here, so each is checked, is refused in the same words, and is
on the disk once it is written. Imports are few, because the process that lists files has to start
fast.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from job_engine.durable_files import create_durably, make_kept_folder, write_durably
from job_engine.places.place import Place, names_in
from querylang.errors import InputError
from runtime.json_reader import DamagedJson, part_of, read_json

RESTORE = "Restore it from a copy"
"""The way out for a file that nothing can replace."""

Shape = TypeVar("Shape")


@dataclass(frozen=True, slots=True)
class JobFile(Generic[Shape]):
    """One file, which may be there.

    shape: of what it holds, without its field `version`
    way_out: a sentence that says what to do about a damaged file; "" = nobody needs to hear of it
    versions: those of its field `version` that this release reads; () = it has none
    error: what is raised for a damaged file, and by `needed` for a missing one
    missing: what `needed` says of a missing one
    text: how it is written
    """

    place: Place
    shape: type[Shape]
    way_out: str = ""
    versions: Collection[int] = ()
    error: type[InputError] = DamagedJson
    missing: str = "is missing"
    text: Callable[[Any], str] = json.dumps

    def read(self) -> Shape | None:
        """What it holds; None = it is not there.

        Raises `error`; ConnectionError passes: a store that is away says nothing about the file.
        """
        try:
            return read_json(self.place, self.shape, versions=self.versions, way_out=self.way_out)
        except FileNotFoundError:
            return None
        except DamagedJson as error:
            if self.error is DamagedJson:
                raise
            raise self.error(str(error)) from error

    def needed(self) -> Shape:
        """What it holds; the rest as of `read`. Raises `error` if it is not there, too."""
        found = self.read()
        if found is None:
            raise self.error(f"{self.place}: {self.missing}. {self.way_out}")
        return found

    def readable(self) -> Shape | None:
        """What it holds; None = it is not there, or is damaged."""
        try:
            return self.read()
        except self.error:
            return None

    def checking(self) -> AbstractContextManager[None]:
        """Say of the file what is found to be wrong with a part of it; raises DamagedJson."""
        return part_of(self.place, self.way_out)

    def write(self, plain: Any) -> None:
        """Replace it, with folders that are missing; it survives a power cut.

        plain: what it is to hold, with the version of that
        """
        make_kept_folder(self.place.parent)
        write_durably(self.place, self._text_of(plain))

    def create(self, plain: Any) -> bool:
        """As `write`, if there is none; False = there is one, which stays."""
        make_kept_folder(self.place.parent)
        return create_durably(self.place, self._text_of(plain))

    def remove(self) -> None:
        """Remove it, if it is there."""
        self.place.unlink(missing_ok=True)

    def _text_of(self, plain: Any) -> str:
        assert not self.versions or plain["version"] in self.versions, "a release reads what it writes"
        return self.text(plain)


def indented(plain: Any) -> str:
    """JSON that people may read, too."""
    return json.dumps(plain, indent=1) + "\n"


_NUMBER = re.compile("[0-9]+")


def numbers_in(folder: Place, form: re.Pattern[str] = _NUMBER) -> list[int]:
    """The numbers that names of JSON files of a folder are, ascending; `form`: of these names."""
    stems = [name.removesuffix(".json") for name in names_in(folder) if name.endswith(".json")]
    return sorted(int(stem) for stem in stems if form.fullmatch(stem))
