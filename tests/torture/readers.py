"""Read all sinks again and again while a job runs and is killed: whole files only, and no match twice."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import pyarrow as pa
import pyarrow.parquet


@dataclass(frozen=True, slots=True)
class _File:
    """A file as it was read; `stamp`: inode, size and time of modification."""

    stamp: tuple[int, int, int]
    rows: int
    ids: tuple[str, ...]


class ConcurrentReader:
    """A thread that reads; `problems`: what it has seen that may not be; `scans`: how often it read everything."""

    def __init__(self, folder: Path) -> None:
        self.problems: list[str] = []
        self.scans = 0
        self._folder = folder
        self._seen: dict[Path, _File] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(0.2):
            try:
                self._scan()
            except Exception as error:  # noqa: BLE001 - a thread's errors are lost otherwise
                self.problems.append(f"{type(error).__name__}: {error}")
            self.scans += 1

    def _scan(self) -> None:
        ids: Counter[str] = Counter()
        for path in sorted(self._folder.rglob("*.parquet")):
            if path.name[0] not in "._":
                ids.update(self._read(path))
        twice = [match for match, count in ids.items() if count > 1]
        if twice:
            self.problems.append(f"{len(twice)} matches were there twice")

    def _read(self, path: Path) -> tuple[str, ...]:
        """The matches of a file, which is read again if it has changed."""
        known = self._seen.get(path)
        try:
            written = path.stat()
            stamp = written.st_ino, written.st_size, written.st_mtime_ns
            if known is not None and known.stamp == stamp:
                return known.ids
            table = pa.parquet.ParquetFile(path).read()
        except FileNotFoundError:
            self.problems.append(f"{path.name} was visible and is gone")
            return ()
        except pa.ArrowInvalid as error:
            self.problems.append(f"{path.name} is not a whole file: {error}")
            return ()
        if known is not None and known.rows != len(table):
            self.problems.append(f"{path.name} had {known.rows} rows, has {len(table)}")
        has_ids = "matches" in path.parts and "match_id" in table.column_names
        found = _File(stamp, len(table), tuple(table.column("match_id").to_pylist()) if has_ids else ())
        self._seen[path] = found
        return found.ids
