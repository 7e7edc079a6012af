"""Paths in stores: the part of the interface of `pathlib.Path` that a job uses.

An object appears when it is complete, all of it at once. Names are literal: `%` and `#` have no
meaning in them. Every error is an OSError in plain words, with the path as its file name.
"""

from __future__ import annotations

import posixpath
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from job_engine.places.remote_stat import RemoteStat

if TYPE_CHECKING:
    from job_engine.places.stores import Store

StoreOptions = Mapping[str, str]
"""How a store is reached, by the names of its settings: endpoint, region, credentials."""


@dataclass(frozen=True, slots=True)
class RemotePath:
    """A file or folder in a store.

    root: scheme and bucket, such as `s3://bucket`
    path: the names below it, with `/` between; "" = the root itself
    options: may hold credentials, so they are never shown
    """

    root: str
    path: str = ""
    options: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    def __str__(self) -> str:
        return f"{self.root}/{self.path}" if self.path else self.root

    def __truediv__(self, names: str) -> RemotePath:
        inner = names.strip("/")
        return replace(self, path=f"{self.path}/{inner}" if self.path and inner else self.path or inner)

    @property
    def name(self) -> str:
        """The last name."""
        return posixpath.basename(self.path)

    @property
    def suffix(self) -> str:
        """How the last name ends, from its last `.` on."""
        return posixpath.splitext(self.name)[1]

    @property
    def stem(self) -> str:
        """The last name without its suffix."""
        return posixpath.splitext(self.name)[0]

    @property
    def parent(self) -> RemotePath:
        """The folder that it lies in; the root's is the root."""
        return replace(self, path=posixpath.dirname(self.path))

    def with_name(self, name: str) -> RemotePath:
        """The same place with another last name."""
        return self.parent / name

    def resolve(self) -> RemotePath:
        """The path itself: it is absolute, and stores have no links."""
        return self

    def is_relative_to(self, other: RemotePath) -> bool:
        """Whether it is the other path, or lies in it."""
        return self.root == other.root and f"{self.path}/".startswith(f"{other.path}/" if other.path else "")

    def stat(self) -> RemoteStat:
        """Size and time; raises FileNotFoundError."""
        return self._store().stat(self.path)

    def exists(self) -> bool:
        """Whether there is such a file, or a file below it."""
        try:
            self.stat()
        except FileNotFoundError:
            return False
        return True

    def is_dir(self) -> bool:
        """Whether there are files below it."""
        return self._has_mode(stat.S_IFDIR)

    def is_file(self) -> bool:
        """Whether there is such a file."""
        return self._has_mode(stat.S_IFREG)

    def iterdir(self) -> Iterator[RemotePath]:
        """Files and folders in it; none if there is no such folder."""
        return (path for path, _ in self.entries())

    def entries(self, *, is_recursive: bool = False) -> Iterator[tuple[RemotePath, RemoteStat]]:
        """Files and folders in it, with what is known of them; `is_recursive`: all files below."""
        for path, found in self._store().entries(self.path, is_recursive=is_recursive):
            yield replace(self, path=path), found

    def read_text(self, encoding: str = "utf-8") -> str:
        """The content; raises FileNotFoundError."""
        return self._store().read(self.path).decode(encoding)

    def read_bytes(self, most: int | None = None) -> bytes:
        """The content, or its first bytes; raises FileNotFoundError."""
        return self._store().read(self.path, most)

    def write_text(self, text: str) -> None:
        """Replace the content, all of it at once."""
        self._store().write(self.path, text.encode("utf-8"))

    def unlink(self, *, missing_ok: bool = False) -> None:
        """Remove the file."""
        self._store().remove(self.path, missing_ok=missing_ok)

    def replace(self, target: RemotePath) -> None:
        """Copy the file within its store, then remove it here."""
        self._store().move(self.path, target.path)

    def download(self, file: Path) -> None:
        """Copy the content to a local file."""
        self._store().download(self.path, file)

    def upload(self, file: Path) -> None:
        """Copy a local file here."""
        self._store().upload(file, self.path)

    def _has_mode(self, mode: int) -> bool:
        try:
            return stat.S_IFMT(self.stat().st_mode) == mode
        except FileNotFoundError:
            return False

    def _store(self) -> Store:
        from job_engine.places.stores import open_store  # Arrow, which most jobs' listers do not need

        return open_store(self.root, self.options)
