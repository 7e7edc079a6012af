"""Stores, as pyarrow opens them: S3, Google's, Azure's, HDFS. Only S3 is tested.

pyarrow repeats requests that a store refuses for a moment: limits of rates, mistakes of servers.
"""

from __future__ import annotations

import errno
import functools
import os
import re
import shutil
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
from pyarrow import fs

from job_engine.errors import RETRY, Outage
from querylang.dataclass import dataclass
from querylang.printable import warn


@dataclass(frozen=True, slots=True)
class RemoteStat:
    """What a store tells of a file, named as in `os.stat_result`.

    A store has no inodes. Times are whole seconds: S3 lists no more, and some servers list more
    than they tell of a single object.
    """

    st_size: int
    st_mtime_ns: int
    st_mode: int = stat.S_IFREG
    st_ino: int = 0
    st_dev: int = 0


ATTEMPTS = 7
"""Of a request that may succeed later; the pauses between them double, to 20 s."""

CHUNK = 1 << 20
SECOND = 1_000_000_000

_Result = TypeVar("_Result")


class Store:
    """One bucket, or one file system; paths are below its root.

    patience: seconds that it is asked again when it does not answer
    """

    def __init__(self, root: str, opened: fs.FileSystem, prefix: str, patience: float = 0.0) -> None:
        self._root = root
        self._patience = patience
        self._files = opened
        self._prefix = prefix

    def stat(self, path: str) -> RemoteStat:
        """See `RemotePath`."""
        info = self._run(path, self._files.get_file_info)
        if info.type == fs.FileType.NotFound:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), self._shown(path))
        return _stat_of(info)

    def entries(self, path: str, *, is_recursive: bool) -> Iterator[tuple[str, RemoteStat]]:
        """See `RemotePath`."""
        found = self._run(
            path,
            lambda key: self._files.get_file_info(fs.FileSelector(key, allow_not_found=True, recursive=is_recursive)),
        )
        cut = len(self._prefix) + 1 if self._prefix else 0
        for info in found:
            if info.type == fs.FileType.File or not is_recursive:
                yield info.path[cut:].strip("/"), _stat_of(info)

    def read(self, path: str, most: int | None = None) -> bytes:
        """The content of a file, or its first bytes."""

        def read(key: str) -> bytes:
            with self._files.open_input_stream(key, compression=None) as stream:
                return bytes(stream.read(most))

        return self._run(path, read)

    def write(self, path: str, data: bytes) -> None:
        """Replace the content of a file."""

        def write(key: str) -> None:
            with self._files.open_output_stream(key, compression=None) as stream:
                stream.write(data)

        self._run(path, write)

    def remove(self, path: str, *, missing_ok: bool) -> None:
        """Remove a file."""
        try:
            self._run(path, self._files.delete_file)
        except FileNotFoundError:
            if not missing_ok:
                raise

    def move(self, path: str, target: str) -> None:
        """Copy and remove; a file at the target is replaced."""
        is_again = False

        def move(key: str) -> None:
            nonlocal is_again
            try:
                self._files.move(key, self._key(target))
            except FileNotFoundError:
                if not is_again or self.stat(target) is None:
                    raise  # else the answer to the attempt before was lost, and it had moved it
            except (OSError, pa.ArrowException):
                is_again = True
                raise

        self._run(path, move)

    def download(self, path: str, file: Path) -> None:
        """Copy a file to a local one."""

        def download(key: str) -> None:
            with self._files.open_input_stream(key, compression=None) as stream, file.open("wb") as local:
                shutil.copyfileobj(stream, local, CHUNK)

        self._run(path, download)

    def upload(self, file: Path, path: str) -> None:
        """Copy a local file here."""

        def upload(key: str) -> None:
            with file.open("rb") as local, self._files.open_output_stream(key, compression=None) as stream:
                shutil.copyfileobj(local, stream, CHUNK)

        self._run(path, upload)

    def _run(self, path: str, action: Callable[[str], _Result]) -> _Result:
        outage = Outage(self._patience, warn)
        while True:
            try:
                found = action(self._key(path))
            except (OSError, pa.ArrowException) as error:
                plain = plain_error(error, self._shown(path))
                if not isinstance(plain, ConnectionError):
                    raise plain from error
                outage.wait_for_store(plain)
            else:
                outage.over(self._root)
                return found

    def _key(self, path: str) -> str:
        return "/".join(filter(None, (self._prefix, path))) if not self._prefix.endswith("/") else self._prefix + path

    def _shown(self, path: str) -> str:
        return f"{self._root}/{path}" if path else self._root


@functools.cache
def open_store(root: str, options: tuple[tuple[str, str], ...]) -> Store:
    """The store of a root, opened once per process; raises OSError."""
    scheme, _, name = root.partition("://")
    own = dict(options)
    patience = float(own.pop(RETRY, 0.0))
    try:
        opened, prefix = _OPENERS[scheme](name, root, own)
    except (OSError, pa.ArrowException, ImportError, ValueError) as error:
        raise plain_error(error, root) from error
    return Store(root, opened, prefix.strip("/") if prefix != "/" else "/", patience)


def _s3(bucket: str, _root: str, options: dict[str, str]) -> tuple[fs.FileSystem, str]:
    settings: dict[str, Any] = dict(options)
    for key in ("anonymous", "force_virtual_addressing"):
        if key in settings:
            settings[key] = settings[key].lower() == "true"
    for key in ("connect_timeout", "request_timeout"):
        if key in settings:
            settings[key] = float(settings[key])
    endpoint = settings.get("endpoint_override") or os.environ.get("AWS_ENDPOINT_URL_S3")
    endpoint = endpoint or os.environ.get("AWS_ENDPOINT_URL")
    if endpoint:
        settings["endpoint_override"] = endpoint
    region = settings.get("region") or os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    if not region:
        region = "us-east-1" if endpoint else fs.resolve_s3_region(bucket)
    retries = fs.AwsStandardS3RetryStrategy(max_attempts=_attempts())
    opened = fs.S3FileSystem(**settings | {"region": region}, retry_strategy=retries, allow_delayed_open=True)
    return opened, bucket


def _attempts() -> int:
    """How often a request is made at most; AWS_MAX_ATTEMPTS says so for other tools, too."""
    chosen = os.environ.get("AWS_MAX_ATTEMPTS", "")
    return int(chosen) if chosen.isdecimal() and int(chosen) else ATTEMPTS


def _gs(bucket: str, _root: str, options: dict[str, str]) -> tuple[fs.FileSystem, str]:
    settings: dict[str, Any] = dict(options)
    if "anonymous" in settings:
        settings["anonymous"] = settings["anonymous"].lower() == "true"
    return fs.GcsFileSystem(**settings), bucket


def _abfss(name: str, root: str, options: dict[str, str]) -> tuple[fs.FileSystem, str]:
    """Of `container@account.dfs.core.windows.net`; without options as pyarrow reads the URI."""
    container, is_with_account, host = name.partition("@")
    if not options or not is_with_account:
        return _of_uri(root, options)
    account, _, authority = host.partition(".")
    own = {} if authority == "dfs.core.windows.net" else {"dfs_storage_authority": f".{authority}"}
    return fs.AzureFileSystem(account_name=account, **own, **options), container


def _hdfs(name: str, root: str, options: dict[str, str]) -> tuple[fs.FileSystem, str]:
    if not options or not name:
        return _of_uri(root, options)
    user, _, address = name.rpartition("@")
    host, _, port = address.partition(":")
    settings = ({"user": user} if user else {}) | options
    return fs.HadoopFileSystem(host, int(port) if port else 0, **settings), "/"


def _of_uri(root: str, options: dict[str, str]) -> tuple[fs.FileSystem, str]:
    if options:
        raise ValueError(f"its URI has no name of the machine or account that {', '.join(sorted(options))} belong to")
    opened, prefix = fs.FileSystem.from_uri(f"{root}/")
    return opened, prefix


_OPENERS: dict[str, Callable[[str, str, dict[str, str]], tuple[fs.FileSystem, str]]] = {
    "s3": _s3,
    "gs": _gs,
    "abfss": _abfss,
    "hdfs": _hdfs,
}


def _stat_of(info: fs.FileInfo) -> RemoteStat:
    if info.type == fs.FileType.Directory:
        return RemoteStat(0, 0, stat.S_IFDIR)
    return RemoteStat(info.size, (info.mtime_ns or 0) // SECOND * SECOND)


_PASSING = ("INTERNAL_FAILURE", "SERVICE_UNAVAILABLE", "THROTTLING", "SLOW_DOWN", "REQUEST_TIMEOUT")
"""AWS's words for errors after which the same may work."""

_AWS = re.compile(r"AWS Error (\w+)(?: \(HTTP status (\d+)\))? during \w+ operation: (.*)", re.DOTALL)


def plain_error(error: Exception, place: str) -> OSError:
    """What a store refused, in plain words."""
    text = str(error)
    found = _AWS.search(text)
    word, status = (found[1], found[2]) if found is not None else ("", None)
    if word in ("ACCESS_DENIED", "INVALID_ACCESS_KEY_ID", "SIGNATURE_DOES_NOT_MATCH") or status in ("401", "403"):
        return PermissionError(errno.EACCES, "the store refuses access: check credentials and permissions", place)
    if word == "NO_SUCH_BUCKET" or "bucket does not exist" in text.lower():
        return FileNotFoundError(errno.ENOENT, "there is no such bucket", place)
    if isinstance(error, FileNotFoundError) or word == "NO_SUCH_KEY" or status == "404":
        return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), place)
    if word == "NETWORK_CONNECTION":
        return ConnectionError(errno.EHOSTUNREACH, "the store cannot be reached", place)
    is_passing = word in _PASSING or (status or "").startswith("5")
    return (ConnectionError if is_passing else OSError)(
        errno.EIO, f"the store failed: {' '.join((found[3] if found else text).split())[:200]}", place
    )
