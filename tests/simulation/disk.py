"""A disk that fails: real files in one folder, behind calls that can be struck, and what power loss leaves of them.

What was written is safe once its file is synced, and what a folder has (new, renamed and removed names) once the folder
is. When power is lost, each folder keeps the first so many of its changes that were not synced, and each file that was
not synced has its old content, its new content, or a part of it.
"""

from __future__ import annotations

import builtins
import errno
import io
import os
import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Self
from unittest.mock import patch

from tests.simulation.faults import CRASHES, Fault, Faults
from tests.simulation.scheduler import Ended, Scheduler

REAL = {
    name: getattr(os, name)
    for name in (
        *("open", "close", "fdopen", "fsync", "stat", "lstat", "scandir", "listdir", "mkdir", "rmdir", "unlink"),
        *("remove", "replace", "rename", "link", "chmod", "utime"),
    )
}
_OPEN = io.open
_POWER = (Fault.POWER_BEFORE, Fault.POWER_AFTER)
_ERRORS = {Fault.FULL: errno.ENOSPC, Fault.BROKEN: errno.EIO}


@dataclass
class _Change:
    """A change of a folder that is not on the disk yet, and how it is undone."""

    folder: str
    undo: Callable[[], None]


class Disk:
    """The files below `root`; `power_is_lost` after a crash that has lost what was not synced."""

    def __init__(self, root: Path, scheduler: Scheduler, faults: Faults, chooser: random.Random) -> None:
        self.root, self._name = f"{root}/", str(root)
        self.scheduler, self.faults, self._chooser = scheduler, faults, chooser
        self._changes: list[_Change] = []
        self._old: dict[int, bytes] = {}
        """By the number of a file that was written and not synced, the content that is on the disk."""
        self._lost: set[int] = set()
        self._grave = f"{root}.grave"
        self._graves = 0
        self._paths: dict[int, str] = {}
        self._files: list[_File] = []
        self.has_lost_power = False
        REAL["mkdir"](self._grave)

    # Calls

    def has(self, path: object) -> bool:
        """Whether a path is on this disk, and the caller in this world."""
        text = path if isinstance(path, str) else os.fspath(path) if isinstance(path, os.PathLike) else None
        if not isinstance(text, str) or not text.startswith(self._name):
            return False
        return (len(text) == len(self._name) or text[len(self._name)] == "/") and self.scheduler.is_inside

    def call(self, operation: str, path: str, do: Callable[[], Any]) -> Any:
        """Do something with a path, unless it is struck."""
        self.scheduler.step()
        fault = self.faults.draw(operation)
        if fault is None:
            return do()
        if fault in _ERRORS:
            raise OSError(_ERRORS[fault], os.strerror(_ERRORS[fault]), path)
        if fault is Fault.LATE:
            self.scheduler.wait(lambda: False, self._chooser.choice((0.5, 3.0, 30.0)))
        if fault in (Fault.KILL_AFTER, Fault.POWER_AFTER):
            do()
        if fault in CRASHES:
            self.crash(fault)
        return do()

    def crash(self, fault: Fault) -> None:
        """End the world."""
        self.has_lost_power = fault in _POWER
        self.scheduler.stop(Ended(fault))
        raise Ended(fault)

    def changed(self, path: str, undo: Callable[[], None]) -> None:
        """Note a change of the folder of a path."""
        self._changes.append(_Change(os.path.dirname(path), undo))

    def dirty(self, path: str, *, is_new: bool) -> None:
        """Note that a file is written."""
        found = REAL["stat"](path)
        if found.st_ino not in self._old:
            with _OPEN(path, "rb") as file:
                self._old[found.st_ino] = b"" if is_new else file.read()

    @contextmanager
    def written_below(self, folder: str) -> Iterator[None]:
        """Note what somebody writes below a folder who passes none of these calls: nothing of it is synced."""
        before = _below(folder)
        try:
            yield
        finally:
            for path, number in _below(folder).items():
                if path not in before:
                    self.changed(path, partial(_undone, path))
                    if number:
                        self.dirty(path, is_new=True)
                elif before[path] != number:  # another file has this name now
                    self.dirty(path, is_new=True)

    def synced_below(self, folder: str) -> None:
        """Note that somebody else has synced a folder and all below it."""
        numbers = set(_below(folder).values())
        self._old = {number: data for number, data in self._old.items() if number not in numbers}
        self._changes = [change for change in self._changes if not f"{change.folder}/".startswith(f"{folder}/")]

    def _buried(self, path: str) -> str | None:
        """A second name of a file that is to be removed; None = there is no file."""
        self._graves += 1
        grave = f"{self._grave}/{self._graves}"
        try:
            REAL["link"](path, grave, follow_symlinks=False)
        except FileNotFoundError:
            return None
        return grave

    # What stands for functions of `os`

    def mkdir(self, path: Any, mode: int = 0o777, **more: Any) -> None:
        def do() -> None:
            REAL["mkdir"](path, mode, **more)
            self.changed(str(path), lambda: shutil.rmtree(path, ignore_errors=True))

        self.call("mkdir", str(path), do)

    def rmdir(self, path: Any, **more: Any) -> None:
        def do() -> None:
            REAL["rmdir"](path, **more)
            self.changed(str(path), lambda: REAL["mkdir"](path))

        self.call("rmdir", str(path), do)

    def unlink(self, path: Any, **more: Any) -> None:
        def do() -> None:
            grave = self._buried(str(path))
            REAL["unlink"](path, **more)
            if grave is not None:
                self.changed(str(path), lambda: _again(grave, str(path)))

        self.call("unlink", str(path), do)

    def replace(self, path: Any, target: Any, **more: Any) -> None:
        def do() -> None:
            grave = self._buried(str(target))
            number = REAL["lstat"](path).st_ino
            REAL["replace"](path, target, **more)

            def undo() -> None:
                with suppress(FileNotFoundError):
                    if REAL["lstat"](target).st_ino == number:
                        REAL["replace"](target, path)
                if grave is not None:
                    _again(grave, str(target))

            self.changed(str(target), undo)

        self.call("replace", str(path), do)

    def link(self, path: Any, target: Any, **more: Any) -> None:
        def do() -> None:
            REAL["link"](path, target, **more)
            self.changed(str(target), lambda: _without(str(target)))

        self.call("link", str(target), do)

    def open_number(self, path: Any, flags: int, mode: int = 0o777, **more: Any) -> int:
        is_written = bool(flags & (os.O_WRONLY | os.O_RDWR))

        def do() -> int:
            is_new = not _is_there(path)
            number = int(REAL["open"](path, flags, mode, **more))
            if is_written:
                self._begin(str(path), is_new=is_new)
            self._paths[number] = str(path)
            return number

        found: int = self.call("create" if is_written else "open", str(path), do)
        return found

    def close_number(self, number: int) -> None:
        self._paths.pop(number, None)
        REAL["close"](number)

    def fsync(self, number: int) -> None:
        path = self._paths[number]
        found = REAL["stat"](path)

        def do() -> None:
            self._old.pop(found.st_ino, None)
            self._changes = [change for change in self._changes if change.folder != path]

        try:
            self.call("sync", path, do)
        except OSError:
            if found.st_ino in self._old:
                self._lost.add(found.st_ino)  # the system forgets what it could not write
            raise

    def fdopen(self, number: int, mode: str = "r", *given: Any, encoding: str | None = None, **more: Any) -> Any:
        if not more.get("closefd", True):
            return _OPEN(number, mode, *given, encoding=encoding, **more)
        path = self._paths.pop(number)
        if not set(mode) & set("wa+x"):
            return _OPEN(number, mode, *given, encoding=encoding, **more)
        return self._opened(number, path, mode, encoding)

    def open(
        self,
        path: Any,
        mode: str = "r",
        buffering: int = -1,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
        **more: Any,
    ) -> Any:
        if not set(mode) & set("wa+x"):
            return self.call("open", str(path), lambda: _OPEN(path, mode, buffering, encoding, errors, newline, **more))
        flags = {"w": os.O_CREAT | os.O_TRUNC, "x": os.O_CREAT | os.O_EXCL, "a": os.O_CREAT | os.O_APPEND}
        flag = next((flag for letter, flag in flags.items() if letter in mode), 0)
        number = self.open_number(path, flag | (os.O_RDWR if "+" in mode else os.O_WRONLY), 0o666)
        self._paths.pop(number)
        return self._opened(number, str(path), mode, encoding)

    def _begin(self, path: str, *, is_new: bool) -> None:
        if is_new:
            self.changed(path, lambda: _without(path))
        self.dirty(path, is_new=is_new)

    def _opened(self, number: int, path: str, mode: str, encoding: str | None) -> Any:
        raw = _File(self, number, path, mode)
        self._files = [*(file for file in self._files if not file.closed), raw]
        buffered: Any = io.BufferedRandom(raw) if "+" in mode else io.BufferedWriter(raw)
        return buffered if "b" in mode else io.TextIOWrapper(buffered, encoding or "utf-8")

    # What is left

    def after_crash(self) -> None:
        """Close what was open, as the system does, and let power loss take what was not synced."""
        for file in self._files:
            file.close()
        for number in list(self._paths):
            with suppress(OSError):
                self.close_number(number)
        self._files, self._paths = [], {}
        if self.has_lost_power:
            self._lose()
            self._forget()
        self.has_lost_power = False

    def _lose(self) -> None:
        kept: dict[str, int] = {}
        for folder in dict.fromkeys(change.folder for change in self._changes):
            count = sum(change.folder == folder for change in self._changes)
            kept[folder] = self._chooser.choice((0, 0, count, self._chooser.randint(0, count)))
        undone = []
        for change in self._changes:
            kept[change.folder] -= 1
            if kept[change.folder] < 0:
                undone.append(change)
        for change in reversed(undone):
            with suppress(OSError):
                change.undo()
        for folder, _, names in os.walk(self.root):
            for name in sorted(names):
                self._spoil(f"{folder}/{name}")

    def _spoil(self, path: str) -> None:
        number = REAL["lstat"](path).st_ino
        if number not in self._old and number not in self._lost:
            return
        with _OPEN(path, "rb") as file:
            new = file.read()
        old = self._old.get(number, b"")
        cut = self._chooser.randint(0, len(new))
        left = self._chooser.choice((old, new, new[:cut], b"", new[:cut] + bytes(len(new) - cut)))
        with _OPEN(path, "wb") as file:
            file.write(left)

    def _forget(self) -> None:
        """What is there now is on the disk."""
        self._changes, self._old, self._lost = [], {}, set()
        for name in REAL["listdir"](self._grave):
            REAL["unlink"](f"{self._grave}/{name}")


class _File(io.FileIO):
    """A file that is open for writing."""

    def __init__(self, disk: Disk, number: int, path: str, mode: str) -> None:
        super().__init__(number, mode.replace("b", "").replace("t", "").replace("x", "w"))
        self.disk, self.path = disk, path

    def write(self, data: Any) -> int:
        size = len(data)

        def do() -> int:
            if _is_there(self.path):
                self.disk.dirty(self.path, is_new=False)
            return super(_File, self).write(data) or 0

        scheduler, faults = self.disk.scheduler, self.disk.faults
        if scheduler.end is not None:
            return size  # the world has ended: nothing is written, and nobody learns of it
        if not scheduler.is_inside:
            return do()
        scheduler.step()
        fault = faults.draw("write")
        if fault is None:
            return do()
        part = self.disk._chooser.randint(0, size)
        if fault is Fault.SHORT:
            data = bytes(data)[: max(part, 1)]
            return do()
        if fault not in (Fault.KILL_BEFORE, Fault.POWER_BEFORE):
            data = bytes(data)[:part]
            do()
        if fault in _ERRORS:
            raise OSError(_ERRORS[fault], os.strerror(_ERRORS[fault]))
        self.disk.crash(fault)
        raise AssertionError("a crash returns to nobody")


def _below(folder: str) -> dict[str, int]:
    """The numbers of the files and folders below a folder, by their paths; a folder comes before what is in it."""
    found: dict[str, int] = {}
    try:
        with REAL["scandir"](folder) as entries:
            for entry in sorted(entries, key=lambda entry: str(entry.name)):
                is_folder = entry.is_dir(follow_symlinks=False)
                found[entry.path] = 0 if is_folder else entry.inode()
                found |= _below(entry.path) if is_folder else {}
    except FileNotFoundError:
        pass
    return found


def _undone(path: str) -> None:
    """As if it had never been there."""
    if os.path.isdir(path):
        shutil.rmtree(path, ignore_errors=True)
    else:
        _without(path)


def _again(grave: str, path: str) -> None:
    if not _is_there(path):
        REAL["link"](grave, path)


def _is_there(path: object) -> bool:
    try:
        REAL["lstat"](path)
    except FileNotFoundError:
        return False
    return True


def _without(path: str) -> None:
    with suppress(FileNotFoundError):
        REAL["unlink"](path)


@contextmanager
def simulated_files(disk: Disk) -> Iterator[None]:
    """Let all that this world does with files below the root of a disk pass it."""

    def passed(name: str, on_disk: Callable[..., Any]) -> Callable[..., Any]:
        real = REAL[name]

        def function(path: Any, *given: Any, **more: Any) -> Any:
            return on_disk(path, *given, **more) if disk.has(path) else real(path, *given, **more)

        return function

    def looked(name: str, operation: str) -> Callable[..., Any]:
        real = REAL[name]

        def function(path: Any, *given: Any, **more: Any) -> Any:
            if not disk.has(path):
                return real(path, *given, **more)
            return disk.call(operation, str(path), lambda: real(path, *given, **more))

        return function

    def scanned(path: Any = ".") -> Any:
        if not disk.has(path):
            return REAL["scandir"](path)
        with REAL["scandir"](path) as entries:
            found = sorted(entries, key=lambda entry: str(entry.name))
        return disk.call("list", str(path), lambda: _Scan(found))

    def listed(path: Any = ".") -> list[str]:
        if not disk.has(path):
            return list(REAL["listdir"](path))
        return list(disk.call("list", str(path), lambda: sorted(REAL["listdir"](path))))

    def of_number(name: str, on_disk: Callable[..., Any]) -> Callable[..., Any]:
        real = REAL[name]

        def function(number: int, *given: Any, **more: Any) -> Any:
            return on_disk(number, *given, **more) if number in disk._paths else real(number, *given, **more)

        return function

    def opened(path: Any, *given: Any, **more: Any) -> Any:
        return disk.open(path, *given, **more) if disk.has(path) else _OPEN(path, *given, **more)

    functions: dict[str, Callable[..., Any]] = {
        "open": passed("open", disk.open_number),
        "close": of_number("close", disk.close_number),
        "fdopen": of_number("fdopen", disk.fdopen),
        "fsync": of_number("fsync", disk.fsync),
        "scandir": scanned,
        "listdir": listed,
        "stat": looked("stat", "stat"),
        "lstat": looked("lstat", "stat"),
        "chmod": looked("chmod", "chmod"),
        "utime": looked("utime", "utime"),
        "mkdir": passed("mkdir", disk.mkdir),
        "rmdir": passed("rmdir", disk.rmdir),
        "unlink": passed("unlink", disk.unlink),
        "remove": passed("remove", disk.unlink),
        "replace": passed("replace", disk.replace),
        "rename": passed("rename", disk.replace),
        "link": passed("link", disk.link),
    }
    with (
        patch.multiple(os, **functions),
        patch.object(io, "open", opened),
        patch.object(builtins, "open", opened),
        patch.object(shutil, "_use_fd_functions", new=False),  # so that each name is removed by a call of its own
    ):
        yield


class _Scan:
    """What `os.scandir` gives."""

    def __init__(self, entries: list[Any]) -> None:
        self._entries = iter(entries)

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        return next(self._entries)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def close(self) -> None:
        pass
