"""Look for new commands of a job, as often as its sources are listed."""

from __future__ import annotations

from collections.abc import Callable, Collection

from job_engine.places.place import Place
from job_engine.places.remote_path import RemotePath
from job_engine.sources.listing.command_folder import CHANGE, Command, CommandFolder

PAUSE = 5_000_000_000
"""ns between two looks at a store, where each look is a request."""


class CommandWatch:
    """The commands of a checkpoint, as the lister sees them.

    now: the wall clock, ns since 1970
    """

    def __init__(self, checkpoint: Place, now: Callable[[], int]) -> None:
        self._folder = CommandFolder(checkpoint)
        self._now = now
        self._pause = PAUSE if isinstance(checkpoint, RemotePath) else 0
        self._next_look = 0
        self.has_change = False  # a change of the queries waits: nothing more is read before it is done

    def pending(self) -> list[int]:
        """The numbers of commands whose files are there."""
        return self._folder.pending()

    def new(self, taken: Collection[int]) -> tuple[Command, ...]:
        """The commands that were not taken yet, in order.

        A change of the queries is not for the lister: nothing behind it is taken before it is done.
        """
        if self._pause:
            now = self._now()
            if now < self._next_look:
                return ()
            self._next_look = now + self._pause
        found: list[Command] = []
        for number in self._folder.pending():
            command = None if number in taken else self._folder.read(number)
            if command is not None and command.kind == CHANGE:
                self.has_change = True
                return tuple(found)
            if command is not None:
                found.append(command)
        self.has_change = False
        return tuple(found)

    def remove_answered(self, taken: Collection[int]) -> None:
        """Remove the files that a run was killed before it removed them."""
        for number in self._folder.pending():
            if number in taken and self._folder.outcome(number) is not None:
                self._folder.withdraw(number)
