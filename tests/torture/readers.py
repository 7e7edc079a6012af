"""Read all sinks again and again while a job runs and is killed: whole files only, and no match twice.

Where files are compacted, it reads as `docs/jobs.md` advises.
"""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import pyarrow as pa
import pyarrow.parquet
from deltalake import DeltaTable


@dataclass(frozen=True, slots=True)
class _File:
    """A file as it was read; `stamp`: inode, size and time of modification."""

    stamp: tuple[int, int, int]
    rows: int
    ids: tuple[str, ...]


def visible_files(folder: Path, sink: str = "parquet") -> list[Path]:
    """The files that sinks show: all whole ones, or those in the logs of Delta tables."""
    if sink == "delta":
        tables = sorted({log.parents[1] for log in folder.rglob("_delta_log/*.json")})
        return sorted(Path(uri) for table in tables for uri in DeltaTable(str(table)).file_uris())
    return sorted(path for path in folder.rglob("*.parquet") if path.name[0] not in "._")


class _Removed(Exception):
    """A file was listed, and was removed before it was read."""


class ConcurrentReader:
    """A thread that reads; `problems`: what it has seen that may not be; `scans`: how often it read everything."""

    def __init__(self, folder: Path, *, is_compacted: bool = False, sink: str = "parquet") -> None:
        self.problems: list[str] = []
        self.scans = 0
        self._folder = folder
        self._is_compacted = is_compacted
        self._sink = sink
        self._seen: dict[Path, _File] = {}
        self._ids: set[str] = set()
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
        try:
            for path in self._files():
                ids.update(self._read(path))
        except _Removed as removed:
            if not self._is_compacted:
                self.problems.append(f"{removed} was visible and is gone")
            return
        missing = self._ids - set(ids)
        if missing:
            self.problems.append(f"{len(missing)} matches were there and are gone")
        self._ids |= set(ids)
        twice = [match for match, count in ids.items() if count > 1]
        if twice:
            self.problems.append(f"{len(twice)} matches were there twice")

    def _files(self) -> list[Path]:
        """Files in which each row is once."""
        if self._sink == "delta":
            return visible_files(self._folder, self._sink)
        while True:
            found, again = (set(self._folder.rglob("*")) for _ in range(2))
            if not self._is_compacted or (found == again and not any(path.suffix == ".plan" for path in found)):
                return sorted(path for path in found if path.suffix == ".parquet" and path.name[0] not in "._")

    def _read(self, path: Path) -> tuple[str, ...]:
        """The matches of a file, which is read again if it has changed."""
        known = self._seen.get(path)
        try:
            written = path.stat()
            stamp = written.st_ino, written.st_size, written.st_mtime_ns
            if known is not None and known.stamp == stamp:
                return known.ids
            table = pa.parquet.ParquetFile(path).read()
        except FileNotFoundError as error:
            raise _Removed(path.name) from error
        except pa.ArrowInvalid as error:
            self.problems.append(f"{path.name} is not a whole file: {error}")
            return ()
        if known is not None and known.rows != len(table):
            self.problems.append(f"{path.name} had {known.rows} rows, has {len(table)}")
        has_ids = "matches" in path.parts and "match_id" in table.column_names
        found = _File(stamp, len(table), tuple(table.column("match_id").to_pylist()) if has_ids else ())
        self._seen[path] = found
        return found.ids
