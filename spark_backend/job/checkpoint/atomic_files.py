"""Running totals beside a checkpoint: a file per micro-batch, so that repeats are safe."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from querylang.errors import InputError
from runtime.json_reader import part_of, read_json
from spark_backend.durable_files import make_kept_folder, write_durably
from spark_backend.places.place import Place, names_in

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
        for number in sorted(self.numbers(), reverse=True):
            try:
                return (number, self._read(number)), mistakes
            except InputError as error:
                mistakes.append(str(error))
        return None, mistakes

    def numbers(self) -> list[int]:
        """The micro-batches that have a file, in any order."""
        stems = [name.removesuffix(".json") for name in names_in(self.folder) if name.endswith(".json")]
        return [int(stem) for stem in stems if stem.isascii() and stem.isdigit()]

    def write(self, batch: int, data: Any) -> None:
        """Write a micro-batch's data, and remove files that are now too old."""
        make_kept_folder(self.folder)
        write_durably(self._path(batch), json.dumps(data))
        for number in self.numbers():
            if number <= batch - self.kept:
                self._path(number).unlink(missing_ok=True)

    def _read(self, batch: int) -> Any:
        path = self._path(batch)
        try:
            data = read_json(path, self.shape, way_out=_WAY_OUT)
        except FileNotFoundError as error:  # removed since it was listed
            raise InputError(f"{path}: is missing") from error
        with part_of(path, _WAY_OUT):
            self.check(data)
        return data

    def _path(self, batch: int) -> Place:
        return self.folder / f"{batch:010d}.json"
