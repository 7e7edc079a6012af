"""Machine code of kernels, made by numba, once per machine.

Compiled code is stored on disk beside the module, or in the user's cache folder if the installation
is read-only. If neither can be written, every process compiles again. Numba's cache entry is valid
until the function's own file changes; but the code also contains the kernels that the function
calls and constants of other modules. So the function's name gets a digest of all these sources.
"""

from __future__ import annotations

import fcntl
import gc
import os
import pickle
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from hashlib import sha256
from math import inf
from pathlib import Path
from time import time
from types import FunctionType
from typing import Any

from numba.core import caching, types
from numba.core.registry import CPUDispatcher

from querylang.printable import warn
from querylang.system_errors import reason_of
from runtime.compiling import files
from runtime.compiling.pipeline import KernelCompiler

# Compiled kernels on disk: private to their owner, and checked before they are loaded. Numba's
# entries are pickles, and loading a pickle can run any code. So an entry is loaded only from a
# folder that nobody else may write. Each file begins with a digest of what follows, because a file
# may be damaged by a power cut. A damaged file is removed, and its kernel is compiled anew.
#
# A kernel that is written removes its older versions. Beside the module they are of no use to
# anyone. In a user's folder they may belong to another container with the same paths: there they
# are removed once they have not been used for KEPT_DAYS.

_DIGEST = 32
"""Bytes of a digest."""

KEPT_DAYS = 30

_VERSION = re.compile(r"_[0-9a-f]{16}-")
"""In the name of a file: the digest of the kernel's sources."""


class _Private:
    """Of a locator: it is used only if its folder is private; a missing folder is made so."""

    def ensure_cache_path(self) -> None:
        path = Path(self.get_cache_path())  # type: ignore[attr-defined]
        for missing in reversed([place for place in (path, *path.parents) if not place.exists()]):
            missing.mkdir(mode=0o700, exist_ok=True)
        if not files.is_private(path.resolve()):
            raise PermissionError(f"{path}: others may write there")
        super().ensure_cache_path()  # type: ignore[misc]


class _Shipped(_Private, caching.UserWideCacheLocator):  # type: ignore[misc]
    """The folder of shipped kernels: wherever this release is installed, its kernels fit."""

    def __init__(self, function: Any, file: str) -> None:
        super().__init__(function, file)
        self._cache_path = str(files.shipped_folder(files.cache_of_user()))

    def get_source_stamp(self) -> str:
        return files.digest_of_kernels()

    @classmethod
    def from_function(cls, function: Any, file: str) -> Any:
        return (
            super().from_function(function, file) if files.shipped_folder(files.cache_of_user()) is not None else None
        )


class _Given(_Private, caching.UserProvidedCacheLocator):  # type: ignore[misc]
    """The folder that NUMBA_CACHE_DIR names."""


class _Installed(_Private, caching.InTreeCacheLocator):  # type: ignore[misc]
    """Beside the module."""


class _OfUser(_Private, caching.UserWideCacheLocator):  # type: ignore[misc]
    """The user's cache folder."""

    def __init__(self, function: Any, file: str) -> None:
        super().__init__(function, file)
        self._cache_path = str(files.cache_of_user() / self.get_suitable_cache_subpath(file))


class _Kernels(caching.CompileResultCacheImpl):  # type: ignore[misc]
    _locator_classes = [_Shipped, _Given, _Installed, _OfUser]  # noqa: RUF012  as in the base class


class KernelCache(caching.FunctionCache):  # type: ignore[misc]
    """The cache of one kernel. Raises RuntimeError if no folder is private and can be written."""

    _impl_class = _Kernels

    def __init__(self, function: Any) -> None:
        super().__init__(function)
        locator = self._impl.locator
        self._cache_file = _CheckedFiles(self._cache_path, self._impl.filename_base, locator.get_source_stamp())
        self._cache_file.is_shared = not isinstance(locator, _Installed)

    def signatures(self, codegen: Any) -> list[Any]:
        """The types of arguments for which there is machine code of this processor."""
        known = self._cache_file._load_index()  # noqa: SLF001  of the class below
        return [key[0] for key in known if key == self._index_key(key[0], codegen)]

    def load_overload(self, signature: Any, context: Any) -> Any:
        """What is on disk; a warning if an archive was named and does not have it."""
        found = super().load_overload(signature, context)
        if found is None and files.has_archive():
            name = self._py_func.__name__.strip("_")
            _warn(
                f"{os.environ[files.VARIABLE]}: no code of '{name}' for this release and processor; it is compiled",
                files.VARIABLE,
            )
        return found

    def save_overload(self, signature: Any, data: Any) -> None:
        """Store it; a warning if that fails, as on a full disk: the kernel runs all the same."""
        try:
            super().save_overload(signature, data)
        except OSError as error:
            _warn(
                f"{self._cache_path}: compiled kernels cannot be stored: {reason_of(error)}."
                " They are compiled again next time",
                "not stored",
            )


class _CheckedFiles(caching.IndexDataCacheFile):  # type: ignore[misc]
    """The files of one kernel: an index, and one file per signature.

    is_shared: other installations may keep theirs in the same folder
    """

    is_shared = True

    def save(self, key: Any, data: Any) -> None:
        """Adds a signature; others of the same kernel may be added by other processes meanwhile.

        Both would read the index, give the same name to their files, and lose one of the two.
        """
        with _alone_in(Path(self._index_path).parent):
            super().save(key, data)

    def _load_index(self) -> dict[Any, str]:
        content = _checked(Path(self._index_path))
        if content is None:
            return {}
        version, stamp, names = content
        is_current = version == self._version and stamp == self._source_stamp
        return dict(names) if is_current else {}

    def _save_index(self, overloads: dict[Any, str]) -> None:
        self._write(self._index_path, (self._version, self._source_stamp, overloads))
        with suppress(OSError):
            self._remove_older_versions()

    def _remove_older_versions(self) -> None:
        index = Path(self._index_path)
        own = _VERSION.search(index.name)
        if own is None:
            return
        oldest = time() - KEPT_DAYS * 86_400 if self.is_shared else inf
        for path in index.parent.glob(f"{index.name[: own.start()]}_*"):
            found = _VERSION.search(path.name, own.start())
            is_older = found is not None and found.start() == own.start() and found[0] != own[0]
            if is_older and path.suffix in {".nbi", ".nbc"} and path.stat().st_mtime < oldest:
                path.unlink(missing_ok=True)

    def _load_data(self, name: str) -> Any:
        content = _checked(Path(self._data_path(name)))
        if content is None:
            raise FileNotFoundError(name)  # the caller compiles, and writes the file again
        if self.is_shared:
            for path in (self._index_path, self._data_path(name)):
                with suppress(OSError):
                    os.utime(path)  # it is in use
        return content

    def _save_data(self, name: str, data: Any) -> None:
        self._write(self._data_path(name), data)

    def _write(self, path: str, content: Any) -> None:
        data = self._dump(content)
        with self._open_for_write(path) as file:
            os.fchmod(file.fileno(), 0o600)
            file.write(sha256(data).digest() + data)


@contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """No other process is in such a block of the same folder, where the file system has locks."""
    handle = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        with suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _checked(path: Path) -> Any:
    """The content of a file; None = there is none, or it was damaged and is removed."""
    try:
        if not files.is_private(path.resolve(strict=True)):
            return None
        written = path.read_bytes()
    except OSError:
        return None
    digest, data = written[:_DIGEST], written[_DIGEST:]
    if sha256(data).digest() == digest:
        return pickle.loads(data)  # noqa: S301  written by this user, see above
    _warn(f"{path}: a compiled kernel is damaged; it is removed, and the kernel is compiled anew", "damaged")
    path.unlink(missing_ok=True)
    return None


_warned: set[str] = set()


def _warn(text: str, about: str) -> None:
    """Warn of the first such file; there may be hundreds."""
    if about not in _warned:
        warn(text)
    _warned.add(about)


class _Dispatcher(CPUDispatcher):
    """Numba's dispatcher. It compiles no version of its own for constants among the arguments."""

    def compile(self, signature: Any) -> Any:
        with _without_collection():
            return super().compile(signature)

    def get_call_template(self, arguments: Any, named: Any) -> Any:
        return super().get_call_template(tuple(map(types.unliteral, arguments)), named)


def entry(function: FunctionType, options: Mapping[str, Any]) -> Any:
    """What runs the machine code of a function that Python calls.

    Its globals hold what `called` has made of the kernels that it calls. It compiles when it is
    called, or loads what is on disk.
    """
    function.__qualname__ = files.name_on_disk(function)
    made = _dispatcher(function, options)
    with suppress(RuntimeError):  # no folder for the cache is private and can be written
        made._cache = KernelCache(function)  # noqa: SLF001  what `cache=True` does, with numba's own cache
    return made


def load(entry: Any) -> None:
    """Load what is on disk for this processor, whatever the types of its arguments."""
    if isinstance(entry._cache, KernelCache):  # noqa: SLF001  as above
        for signature in entry._cache.signatures(entry.targetctx.codegen()):  # noqa: SLF001
            entry.compile(signature)


def called(function: FunctionType, options: Mapping[str, Any]) -> Any:
    """The same for a function that other kernels call: its machine code is part of theirs."""
    return _dispatcher(function, {"no_cpython_wrapper": True, **options})


@contextmanager
def _without_collection() -> Iterator[None]:
    """Python collects no garbage meanwhile: it would look at the compiler's objects many times."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _dispatcher(function: FunctionType, options: Mapping[str, Any]) -> Any:
    # Other threads run meanwhile: kernels touch only the arrays that they are given.
    options = {
        "nogil": True,
        "nopython": True,
        "boundscheck": False,
        "error_model": "numpy",
        "no_cfunc_wrapper": True,
        **options,
    }
    return _Dispatcher(function, targetoptions=options, pipeline_class=KernelCompiler)
