"""Places: local paths, or paths in stores. What both can do needs no difference above.

Every name that is read from a file, a log, a message or a column, and that becomes a path which is
read, written or removed, comes through `below` or `inside`.
"""

from __future__ import annotations

import os
import posixpath
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import unquote

from job_engine.errors import RETRY
from job_engine.local_path import LocalPath, temporary_file, temporary_folder
from querylang.dataclass import dataclass, field, replace
from querylang.errors import InputError

if TYPE_CHECKING:
    from job_engine.stores import RemoteStat, Store


# Paths in stores: the part of the interface of `pathlib.Path` that a job uses.
#
# An object appears when it is complete, all of it at once. Names are literal: `%` and `#` have no
# meaning in them. Every error is an OSError in plain words, with the path as its file name.

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
        from job_engine.stores import open_store  # Arrow, which most jobs' listers do not need

        return open_store(self.root, self.options)


Place = LocalPath | RemotePath
"""Where a file or folder is."""

Stat: TypeAlias = "os.stat_result | RemoteStat"

SCHEMES = {
    **dict.fromkeys(("s3", "s3a", "s3n"), "s3"),
    **dict.fromkeys(("gs", "gcs"), "gs"),
    **dict.fromkeys(("abfs", "abfss"), "abfss"),
    "hdfs": "hdfs",
}
"""The schemes of stores, and the one that stands for all of their kind."""

SHOWN = "a URI that begins with `s3://`, `gs://`, `abfss://`, `hdfs://` or `file:`"
"""What messages say of URIs."""

_URI = re.compile(r"([A-Za-z][\w+.-]+):(/.*)", re.DOTALL)
_FILE = re.compile(r"file:(?://(?:localhost)?(?=/))?(/.*)", re.DOTALL | re.IGNORECASE)


class UnknownScheme(ValueError):
    """A URI of a kind that nobody here opens."""


def place_of(text: str, base: Path | None = None, options: StoreOptions | None = None) -> Place:
    """The place that a text names: a path, a `file:` URI, or a URI of a store.

    base: the folder of relative paths
    options: of its store
    Raises UnknownScheme.
    """
    local = _FILE.fullmatch(text)
    if local is not None:
        return LocalPath(unquote(local[1]))
    uri = _URI.fullmatch(text)
    here = LocalPath() if base is None else LocalPath.of(base)
    if uri is None or (here / text).exists():
        return here / text
    scheme, rest = scheme_of(text), uri[2]
    if scheme is None or not rest.startswith("//"):
        raise UnknownScheme(uri[1])
    root, _, path = rest[2:].partition("/")
    if not root and scheme != "hdfs":
        raise UnknownScheme(f"{uri[1]}, without a bucket")
    return RemotePath(f"{scheme}://{root}", path.strip("/"), tuple(sorted((options or {}).items())))


def scheme_of(text: object) -> str | None:
    """The scheme of a URI of a store, the one that stands for its kind; None = it is not one."""
    uri = _URI.fullmatch(text) if isinstance(text, str) else None
    return None if uri is None else SCHEMES.get(uri[1].lower())


def asked_again(place: Place, retry: float | None) -> Place:
    """The same place, whose store is asked again for so many seconds if it does not answer."""
    if retry is None or not isinstance(place, RemotePath):
        return place
    return replace(place, options=tuple(sorted((dict(place.options) | {RETRY: str(retry)}).items())))


def retry_of(place: Place) -> float | None:
    """Seconds that the store of a place is asked again; None = as its client does."""
    found = dict(place.options).get(RETRY) if isinstance(place, RemotePath) else None
    return None if found is None else float(found)


def place_to_plain(place: Place) -> list[Any]:
    """A place in full, as JSON can hold it: its text, and how its store is reached."""
    return [str(place.resolve()), dict(place.options) if isinstance(place, RemotePath) else {}]


def place_of_plain(data: Sequence[Any]) -> Place:
    """The inverse of `place_to_plain`."""
    text, options = data
    return LocalPath(text) if text.startswith("/") else place_of(text, options=options)


def is_within(inner: Place, outer: Place) -> bool:
    """Whether a place is another one, or lies in it; links, `..` and mounts are resolved."""
    own, *_ = marks_of(outer)
    return any(not own.isdisjoint(marks) for marks in marks_of(inner))


def marks_of(place: Place) -> list[frozenset[Mark]]:
    """What tells a place from others; then the same of each place that it lies in.

    Places are the same if they have a mark in common; links, `..` and mounts are resolved.
    """
    if isinstance(place, RemotePath):
        parts = place.path.split("/") if place.path else []
        above = ("/".join(parts[:count]) for count in range(len(parts), -1, -1))
        return [frozenset({(place.root, path)}) for path in above]
    real = LocalPath.of(place).real()
    return [_marks_of_local(path) for path in (real, *real.parents)]


Mark = tuple[str, str] | tuple[int, int]
"""A root and a path, or the numbers of a device and of a file on it."""


def _marks_of_local(path: LocalPath) -> frozenset[Mark]:
    named: Mark = ("", str(path))
    if not path.exists():
        return frozenset({named})
    found = path.stat()
    return frozenset({named, (found.st_dev, found.st_ino)})


def in_same_system(place: Place, text: str) -> Place:
    """The place of a text that `str` gave, in the file system of another one."""
    return replace(place, path=text[len(place.root) + 1 :]) if isinstance(place, RemotePath) else LocalPath(text)


def is_same_system(one: Place, other: Place) -> bool:
    """Whether a file of one can be moved to the other."""
    roots = [place.root if isinstance(place, RemotePath) else None for place in (one, other)]
    return roots[0] == roots[1]


def names_in(folder: Place) -> list[str]:
    """The names in a folder, in any order; none if it does not exist."""
    return [path.name for path in folder.iterdir()] if folder.is_dir() else []


def files_below(folder: Place) -> Iterator[Place]:
    """All files in a folder and in those below it; none if it does not exist."""
    if isinstance(folder, RemotePath):
        yield from (path for path, _ in folder.entries(is_recursive=True))
        return
    for inner, _, names in LocalPath.of(folder).walk_below():
        yield from (inner / name for name in names)


def files_with_sizes(folder: Place) -> Iterator[tuple[Place, int]]:
    """All files in a folder and in those below it, with their bytes; removed ones are left out."""
    if isinstance(folder, RemotePath):
        yield from ((path, found.st_size) for path, found in folder.entries(is_recursive=True))
        return
    for file in files_below(folder):
        with suppress(FileNotFoundError):
            yield file, file.stat().st_size


def is_taken(place: Place) -> bool:
    """Whether something has this name, even a link to nowhere."""
    return place.exists() if isinstance(place, RemotePath) else LocalPath.of(place).is_taken()


def has_same_content(one: Place, other: Place) -> bool:
    """Whether two files of one file system have the same content."""
    if isinstance(one, Path) and isinstance(other, Path):
        return other.is_file() and LocalPath.of(one).has_content_of(other)
    with local_copy(one) as first, local_copy(other) as second:
        return first.has_content_of(second)


@contextmanager
def local_copy(place: Place) -> Iterator[LocalPath]:
    """A local file with the content of a place: itself, or a copy that is removed afterwards.

    The copy ends like the place, so readers know its format.
    """
    if isinstance(place, Path):
        yield LocalPath.of(place)
        return
    with temporary_folder() as folder:
        copy = folder / f"table{''.join(re.findall(r'[.][A-Za-z0-9]+', place.name)[-2:])}"
        place.download(copy)
        yield copy


def writable(place: Place) -> LocalPath:
    """The local file to write: the place itself, or one that `complete` copies there."""
    if isinstance(place, Path):
        return LocalPath.of(place)
    return temporary_file()


def refuse_missing_bucket(place: Place) -> None:
    """Raise InputError if the bucket does not exist, OSError if the store does not say."""
    if not isinstance(place, RemotePath) or place.root.endswith("://"):
        return
    with suppress(PermissionError):  # of the bucket; what is asked of its folders may still be allowed
        if not replace(place, path="").exists():
            raise InputError(f"{place}: there is no such bucket")


_NO_TEXT = re.compile("[\ud800-\udc7f\udd00-\udfff]")
"""Halves of surrogate pairs, apart from those that stand for a byte of a name that is not UTF-8."""


class OutsidePath(InputError):
    """A name leads out of the folder that it belongs to."""


def below(root: Place, name: str) -> Place:
    """The place of a name below a root, where links may lead elsewhere: sources may have them.

    Raises OutsidePath for a name that is empty or absolute, has `..` or NUL, or is not text.
    """
    is_wrong = name.startswith("/") or "\0" in name or ".." in name.split("/")
    if not name or is_wrong or _NO_TEXT.search(name) is not None:
        raise OutsidePath(f"{root}: {name!r} is not the name of a file in it")
    return root / name


def inside(root: Place, name: str) -> Place:
    """The place of a name below a root; links on the way are resolved.

    Raises OutsidePath as `below`, and for a link that leads out.
    """
    place = below(root, name)
    if not is_within(place, root):
        raise OutsidePath(f"{place}: leads out of {root}")
    return place
