"""The package of Delta tables in a simulated world: the real one, behind calls that can be struck.

It writes to the disk by itself. What it has written for a job is noted as not synced, so a power cut takes it as it
takes other files. What other writers commit is on the disk at once, with all that the log had before.
"""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any, TypeVar
from unittest.mock import patch

import deltalake

from job_engine import delta_publishing
from tests.simulation.disk import Disk
from tests.simulation.faults import CRASHES, Fault

Found = TypeVar("Found")

_TEXTS = {
    Fault.FULL: f"Unable to copy data to file\n{os.strerror(errno.ENOSPC)} (os error {errno.ENOSPC})",
    Fault.BROKEN: f"Unable to open file\n{os.strerror(errno.EIO)} (os error {errno.EIO})",
}
"""The package tells of the system's errors as text; see `_failed`."""

CHECKPOINTS = (2, 5, 100)
"""Commits between two checkpoints of the log."""


class Tables:
    """The tables on a disk; `others`: lets another writer commit to one, given its folder."""

    def __init__(self, disk: Disk, chooser: random.Random) -> None:
        self.disk, self.chooser = disk, chooser
        self.others: Callable[[str], None] = lambda _: None
        self.every = chooser.choice(CHECKPOINTS)

    def called(self, operation: str, folder: str, do: Callable[[], Found]) -> Found:
        """Let the package do something with a table, unless that is struck."""
        scheduler = self.disk.scheduler
        scheduler.step()
        fault = self.disk.faults.draw(operation)
        if fault in (Fault.FULL, Fault.BROKEN):
            raise _failed(fault)
        if fault is Fault.LATE:
            scheduler.wait(lambda: False, self.chooser.choice((0.5, 3.0, 30.0)))
        if fault in (Fault.KILL_BEFORE, Fault.POWER_BEFORE):
            self.disk.crash(fault)
        with self.disk.written_below(folder) if operation == "checkpoint" else nullcontext():
            found = do()
        if fault in CRASHES:
            self.disk.crash(fault)
        if fault is Fault.OTHER:
            with scheduler.outside():
                self.others(folder)
            self.disk.synced_below(folder)
        return found


def _failed(fault: Fault) -> OSError:
    return OSError(f"Generic LocalFileSystem error\n{_TEXTS[fault]}")


def _table_class(tables: Tables) -> type[deltalake.DeltaTable]:
    def called(operation: str, table: deltalake.DeltaTable, do: Callable[[], Found]) -> Found:
        folder = table.table_uri.removeprefix("file://").rstrip("/")
        return tables.called(operation, folder, do) if tables.disk.has(folder) else do()

    class Table(deltalake.DeltaTable):
        def __init__(self, table_uri: Any, *given: Any, **more: Any) -> None:
            def do() -> None:
                super(Table, self).__init__(table_uri, *given, **more)

            if tables.disk.has(table_uri):
                tables.called("table", str(table_uri), do)
            else:
                do()

        def create_checkpoint(self, *given: Any, **more: Any) -> None:
            own = super().create_checkpoint
            called("checkpoint", self, lambda: own(*given, **more))

        def cleanup_metadata(self) -> None:
            called("checkpoint", self, super().cleanup_metadata)

    return Table


@contextmanager
def simulated_tables(tables: Tables) -> Iterator[None]:
    """Let a job of this world ask the package through calls that can be struck."""
    with ExitStack() as stack:
        for module, name, value in (
            (deltalake, "DeltaTable", _table_class(tables)),
            (delta_publishing, "CHECKPOINT_EVERY", tables.every),
        ):
            stack.enter_context(patch.object(module, name, value))
        yield
