"""A store of objects in a simulated world: what stands for pyarrow's file systems below `job_engine.stores`.

It is a machine of its own. An object appears when it is complete, is listed at once, and survives whatever happens to
the process of a job. Calls are struck as those of the broker are: the store is away for some time, or does what it is
asked to and its answer is lost. An object that is moved may be there twice: it is copied, then removed.
"""

from __future__ import annotations

import io
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TypeVar
from unittest.mock import patch

from pyarrow import fs

from job_engine import durable_files, stores
from job_engine.sinks.folder import compaction
from job_engine.sources import reading
from job_engine.sources.folder import running
from job_engine.threads import begun
from tests.simulation.disk import Disk
from tests.simulation.faults import CRASHES, Fault
from tests.simulation.scheduler import START

Found = TypeVar("Found")

BUCKET = "bucket"
ABSENCES = (0.1, 0.3, 3.0, 20.0, 100.0)
"""Seconds that the store is away; a job asks again for a minute unless its `retry` says another time."""


class Store:
    """The objects of one bucket, by their names with the bucket's before: content, and time of change in ns."""

    def __init__(self, disk: Disk, chooser: random.Random) -> None:
        self.disk, self.chooser = disk, chooser
        self.objects: dict[str, tuple[bytes, int]] = {}
        self._back = 0.0

    @property
    def now(self) -> float:
        """Seconds of the world."""
        return self.disk.scheduler.now

    def is_away(self) -> bool:
        """Whether nobody reaches it."""
        return self.now < self._back

    def come_back(self) -> None:
        """Whoever reaches it from now on is answered."""
        self._back = self.now

    def called(self, do: Callable[[], Found]) -> Found:
        """Ask the store; raises OSError as pyarrow does."""
        scheduler = self.disk.scheduler
        if not scheduler.is_inside:
            return do()
        scheduler.step()
        fault = self.disk.faults.draw("store")
        if fault is Fault.AWAY:
            self._back = self.now + self.chooser.choice(ABSENCES)
        if fault is Fault.LATE:
            scheduler.wait(lambda: False, self.chooser.choice((0.5, 3.0, 30.0)))
        if self.is_away():
            scheduler.wait(lambda: False, 0.05)
            raise _unreachable()
        if fault in (Fault.KILL_BEFORE, Fault.POWER_BEFORE):
            self.disk.crash(fault)
        found = do()
        if fault is Fault.LOST:
            raise _unreachable()
        if fault in CRASHES:
            self.disk.crash(fault)
        return found

    def put(self, key: str, data: bytes, moment: float | None = None) -> None:
        """Write an object; `moment`: seconds since 1970, None = now."""
        self.objects[key] = data, int((START + self.now if moment is None else moment) * 1e9)

    def copy_below(self, name: str, folder: Path) -> None:
        """Write the objects below a name to a folder."""
        begin = f"{BUCKET}/{name}/"
        for key, (data, _) in self.objects.items():
            if key.startswith(begin):
                path = folder / key.removeprefix(begin)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data)


def _unreachable() -> OSError:
    return OSError("When asking for an object: AWS Error NETWORK_CONNECTION during PutObject operation: curl: 28")


class _Upload(io.BytesIO):
    """An object that is written; it is there once it is closed without an error."""

    def __init__(self, done: Callable[[bytes], None]) -> None:
        super().__init__()
        self._done = done

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        data = self.getvalue()
        super().close()
        if kind is None:
            self._done(data)


class FileSystem:
    """As a file system of pyarrow, with what `job_engine.stores` asks of one."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def get_file_info(self, asked: Any) -> Any:
        return self._store.called(
            lambda: self._listed(asked) if isinstance(asked, fs.FileSelector) else self._of(asked)
        )

    def _of(self, key: str) -> fs.FileInfo:
        known = self._store.objects.get(key)
        if known is not None:
            return fs.FileInfo(key, fs.FileType.File, size=len(known[0]), mtime_ns=known[1])
        is_folder = key == BUCKET or any(name.startswith(f"{key}/") for name in self._store.objects)
        return fs.FileInfo(key, fs.FileType.Directory if is_folder else fs.FileType.NotFound)

    def _listed(self, asked: fs.FileSelector) -> list[fs.FileInfo]:
        begin = f"{asked.base_dir}/"
        below = [name for name in sorted(self._store.objects) if name.startswith(begin)]
        if asked.recursive:
            return [self._of(name) for name in below]
        return [self._of(begin + name) for name in dict.fromkeys(key[len(begin) :].split("/")[0] for key in below)]

    def open_input_stream(self, key: str, compression: None) -> io.BytesIO:
        def do() -> io.BytesIO:
            if key not in self._store.objects:
                raise FileNotFoundError(f"Path does not exist '{key}'")
            return io.BytesIO(self._store.objects[key][0])

        return self._store.called(do)

    def open_output_stream(self, key: str, compression: None) -> _Upload:
        return _Upload(lambda data: self._store.called(lambda: self._store.put(key, data)))

    def delete_file(self, key: str) -> None:
        def do() -> None:
            if self._store.objects.pop(key, None) is None:
                raise FileNotFoundError(f"Path does not exist '{key}'")

        self._store.called(do)

    def move(self, key: str, target: str) -> None:
        def copy() -> None:
            if key not in self._store.objects:
                raise FileNotFoundError(f"Path does not exist '{key}'")
            self._store.put(target, self._store.objects[key][0])

        self._store.called(copy)
        self._store.called(lambda: self._store.objects.pop(key, None))


def at_once(function: Callable[[Any], Any], items: Sequence[Any], _: int) -> list[Any]:
    """As `in_threads`, in threads of the world."""
    answers = [begun(lambda item=item: function(item), "at once") for item in items]  # type: ignore[misc]
    return [answer.result() for answer in answers]


@contextmanager
def simulated_store(store: Store) -> Iterator[None]:
    """Let a job of this world ask the store."""
    stores.open_store.cache_clear()
    with ExitStack() as stack:
        stack.enter_context(patch.dict(stores._OPENERS, {"s3": lambda bucket, *_: (FileSystem(store), bucket)}))
        if store.objects:
            for module in (durable_files, compaction, reading, running):
                stack.enter_context(patch.object(module, "in_threads", at_once))
        yield
    stores.open_store.cache_clear()
