"""The driver asks whether there is such a file, how much of it is unread, and for what was read."""

from __future__ import annotations

from pathlib import Path

from job_engine.place import Place
from job_engine.sources.kinds import SourceRunning
from job_engine.sources.source import Again, PieceAgain, PiecesAgain, Source, SourceBacklog
from querylang.errors import InputError
from tests.support.journal_source.planning import Lines, LinesRead
from tests.support.journal_source.settings import Journal


class RunningJournal(SourceRunning):
    def refuse_unreadable(self, source: Source) -> None:
        if not Path(source.own.file).is_file():
            raise InputError(f"{source.own.file}: no such file")

    def backlog(self, own: Journal, memory: LinesRead, checkpoint: Place) -> SourceBacklog:
        return SourceBacklog(own.name, messages=len(own.lines()) - memory.next)

    def done(self, memory: LinesRead) -> int:
        return memory.next

    def again(self, own: Journal, memory: LinesRead, asked: Again) -> PiecesAgain:
        lines = Lines(asked.before or 0, memory.next)
        return PiecesAgain([PieceAgain(own.name, len(lines), lines)] if len(lines) else [])


RUNNING = RunningJournal()
