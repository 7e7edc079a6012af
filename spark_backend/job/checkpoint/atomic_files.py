"""Running totals beside a checkpoint: a file per micro-batch, so that repeats are safe."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from querylang.errors import InputError
from spark_backend.job_file import JobFile, numbers_in
from spark_backend.places.place import Place

_WAY_OUT = "Restore it from a copy; without it, delete it, and its micro-batch is missing in counts and status"


@dataclass(frozen=True, slots=True)
class BatchFiles:
    """Running totals, one JSON file per micro-batch.

    Each file is computed from the one before it, never from one of its own number. So a repeated
    micro-batch is counted once.

    folder: where the files are
    kept: number of latest files that are not removed
    shape: of the data
    check: raises DamagedJson for data that cannot be
    """

    folder: Place
    kept: int = 10
    shape: Any = object
    check: Callable[[Any], object] = id

    def latest(self, before: int | None = None) -> tuple[int, Any] | None:
        """The latest micro-batch and its data; None = there is none.

        before: only micro-batches of lower number; None = all

        Raises InputError for a damaged file.
        """
        numbers = [number for number in self.numbers() if before is None or number < before]
        return None if not numbers else (max(numbers), self._read(max(numbers)))

    def readable(self) -> tuple[tuple[int, Any] | None, list[str]]:
        """The latest micro-batch whose file can be read, and what is wrong with later ones."""
        mistakes: list[str] = []
        for number in reversed(self.numbers()):
            try:
                return (number, self._read(number)), mistakes
            except InputError as error:
                mistakes.append(str(error))
        return None, mistakes

    def numbers(self) -> list[int]:
        """The micro-batches that have a file, ascending."""
        return numbers_in(self.folder)

    def write(self, batch: int, data: Any) -> None:
        """Write a micro-batch's data, and remove files that are now too old."""
        self._file(batch).write(data)
        for number in self.numbers():
            if number <= batch - self.kept:
                self._file(number).remove()

    def _read(self, batch: int) -> Any:
        file = self._file(batch)
        data = file.needed()  # it may have been removed since it was listed
        with file.checking():
            self.check(data)
        return data

    def _file(self, batch: int) -> JobFile[Any]:
        return JobFile(self.folder / f"{batch:010d}.json", self.shape, _WAY_OUT)
