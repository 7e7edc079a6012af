"""Files beside a checkpoint: written atomically; one per micro-batch, so that repeats are safe."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spark_backend.durable_files import write_durably


@dataclass(frozen=True, slots=True)
class BatchFiles:
    """Running totals, one JSON file per micro-batch.

    Each file is computed from the one before it, never from one of its own number. So a repeated
    micro-batch is counted once.

    folder: where the files are
    kept: number of latest files that are not removed
    """

    folder: Path
    kept: int = 10

    def latest(self, before: int | None = None) -> tuple[int, Any] | None:
        """The latest micro-batch and its data; None = there is none.

        before: only micro-batches of lower number; None = all
        """
        numbers = [int(path.stem) for path in self.folder.glob("*.json") if before is None or int(path.stem) < before]
        if not numbers:
            return None
        return max(numbers), json.loads(self._path(max(numbers)).read_text("utf-8"))

    def write(self, batch: int, data: Any) -> None:
        """Write a micro-batch's data, and remove the file that is now too old."""
        self.folder.mkdir(parents=True, exist_ok=True)
        write_durably(self._path(batch), json.dumps(data))
        self._path(batch - self.kept).unlink(missing_ok=True)

    def _path(self, batch: int) -> Path:
        return self.folder / f"{batch:010d}.json"
