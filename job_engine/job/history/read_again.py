"""What a job has read, cut into pieces that are read again, in the order of each source."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict

import pyarrow as pa

from job_engine.clock import wall_ns
from job_engine.deployment import Deployment
from job_engine.durable_files import JobFile
from job_engine.job.journal import HistoryCommand
from job_engine.job.written_journal import history_of_text
from job_engine.local_path import LocalPath
from job_engine.place import Place, files_below, names_in
from job_engine.sources.kinds import running_of
from job_engine.sources.listing.command_folder import Command
from job_engine.sources.listing.manifests import ReadList
from job_engine.sources.source import Again, PieceAgain
from job_engine.wire.packed_rows import unpack_row
from job_engine.wire.program import Program
from querylang.dataclass import dataclass
from querylang.errors import InputError
from runtime.json_reader import DamagedJson, json_of_text, shaped
from runtime.timestamps import format_time

# Where a history table ends, and whether the sources of a job reach back to there.

Pieces = Mapping[str, Sequence[PieceAgain]]


@dataclass(frozen=True, slots=True)
class TableEnd:
    """What a history table has, which the sources need not bring again.

    last: the arrival, µs, up to which it counts
    sources: those whose records the queries can need
    of: the only source whose records it has; None = it may have those of all
    topics: those of `sources` whose offsets tell themselves what is missing
    program: reads first records; its progress tells the least arrival
    packed: reads a piece, whenever its records arrived
    """

    last: int
    sources: tuple[str, ...]
    of: str | None
    topics: frozenset[str]
    program: Program
    packed: Callable[[PieceAgain], Iterable[pa.RecordBatch]]

    def gaps(self, pieces: Pieces) -> Iterator[str]:
        """What neither the table nor the sources have; `pieces`: of each source."""
        last = format_time(self.last)
        for source in self.sources:
            if self.of not in (None, source):
                yield f"source '{source}': the history has no records of it, so there are none up to {last}"
            elif source not in self.topics:
                first = self._first_arrival(pieces.get(source, ()))
                if first is None or first > self.last:
                    until = "" if first is None else f" to {format_time(first)}, where what can be read again begins"
                    yield f"source '{source}': from {last}, where the history ends,{until or ' on'}"

    def _first_arrival(self, pieces: Iterable[PieceAgain]) -> int | None:
        """The earliest arrival in the first piece that has records, µs; None = none has."""
        plan = self.program.plan()
        for piece in pieces:
            rows = [unpack_row(batch.column(1)[0].as_py(), plan) for batch in self.packed(piece)]
            moments = [min((item.arrival, *item.lower)) for row in rows for item in row.progress]
            if moments:
                return min(moments)
        return None


# The folders of a checkpoint that states of histories are in, and how far those have read.
#
# `ensue/history/<number>` has the states of buckets, and beside them a mark.

DAY = 86_400_000_000
"""µs; so long a folder stays that nothing refers to: somebody may just be writing it."""


def histories(checkpoint: Place) -> Place:
    """Where all of them are."""
    return checkpoint / "ensue" / "history"


def new_folder(checkpoint: Place) -> Place:
    """One that is not there yet, by the time in µs."""
    return histories(checkpoint) / f"{wall_ns() // 1000:020d}"


def joined_folder(checkpoint: Place, command: int) -> Place:
    """The folder that buckets take over, of a command that was done."""
    return histories(checkpoint) / f"{command:020d}-joined"


def remove_unused(checkpoint: Place, used: Collection[str], waiting: Iterable[Command]) -> None:
    """Remove what a deployment has left that was refused, killed or is long done.

    used: names of folders that stay
    waiting: commands whose folders stay, too
    """
    names = names_in(histories(checkpoint))
    if not names:  # nearly always
        return
    asked = (_asked_history(command.text) for command in waiting)
    stay = {*used, *(history.folder for history in asked if history is not None)}
    for name in names:
        number = name.partition("-")[0]
        is_new = number.isdecimal() and "-" not in name and int(number) > wall_ns() // 1000 - DAY
        if name not in stay and not is_new:
            _remove(histories(checkpoint) / name)


def remove_done(checkpoint: Place, text: str) -> None:
    """Remove what a command has left that was done or refused; `text`: of any command."""
    command = _asked_history(text)
    if command is not None:
        _remove(histories(checkpoint) / command.folder)


def _asked_history(text: str) -> HistoryCommand | None:
    """The command that a text is; None = another one, or a damaged one, which was answered."""
    try:
        return history_of_text(text)
    except DamagedJson:
        return None


def _remove(place: Place) -> None:
    if isinstance(place, Path):
        LocalPath.of(place).remove_tree()
        return
    for file in list(files_below(place)):
        file.unlink(missing_ok=True)


MARK_VERSION = 2
"""Version 1 has files, topics and tables in keys of their own."""


@dataclass(frozen=True, slots=True)
class HistoryMark:
    """How far the sources of a job have been read again.

    titles: of the queries
    events: the names of the event types that were known, in order
    by_source: as `SourceRunning.done` gives it
    """

    titles: tuple[str, ...]
    events: tuple[str, ...]
    by_source: Mapping[str, Any]


class _Common(TypedDict):
    """What marks of all versions have."""

    titles: tuple[str, ...]
    events: tuple[str, ...]


def write_mark(folder: Place, mark: HistoryMark) -> None:
    """Write down how far it is; it survives a power cut."""
    plain = {"version": MARK_VERSION, "titles": mark.titles, "events": mark.events, "sources": mark.by_source}
    _mark_file(folder).write(plain)


def read_mark(folder: Place) -> HistoryMark:
    """The inverse of `write_mark`; raises InputError."""
    file = _mark_file(folder)
    data = file.needed()
    with file.checking():
        common = shaped({key: data.pop(key) for key in _Common.__annotations__ if key in data}, _Common)
        done = shaped(data["sources"], dict[str, Any]) if "sources" in data else _done_before(data)
        return HistoryMark(common["titles"], common["events"], done)


class _FirstMark(TypedDict):
    files: Mapping[str, list[str]]
    positions: Mapping[str, Any]
    tables: Mapping[str, Any]


def _done_before(plain: Mapping[str, Any]) -> dict[str, Any]:
    """What a mark of version 1 has of each source, as `SourceRunning.done` gives it."""
    data = shaped(plain, _FirstMark)
    return {**data["files"], **data["positions"], **data["tables"]}


def _mark_file(folder: Place) -> JobFile[dict[str, Any]]:
    missing = "what the history has left is missing"
    return JobFile(folder / "mark.json", dict[str, Any], "Deploy again", (1, MARK_VERSION), missing=missing)


def mark_of(deployment: Deployment, read: ReadList, titles: Sequence[str], events: Sequence[str]) -> HistoryMark:
    """How far it is once all has been read again; the same as one that is read from the disk."""
    done = {
        source.name: running_of(source).done(read.of(source.name, source.format)) for source in deployment.all_sources
    }
    return HistoryMark(tuple(titles), tuple(events), json_of_text(json.dumps(done), dict[str, Any]))


WITH_A_GAP = "`--accept-gap` deploys without what is missing"
"""The way out for who deploys with history."""


def pieces_between(
    deployment: Deployment,
    before: HistoryMark | None,
    read: ReadList,
    since: int | None,
    *,
    accepts_gap: bool,
    table: TableEnd | None = None,
    firsts: Mapping[str, str] | None = None,
    way_out: str = WITH_A_GAP,
) -> list[list[PieceAgain]]:
    """What is read in each step, in order.

    before: what has been read again already; None = nothing
    since: as of `HistoryCommand`
    table: what a history table has of it; None = there is none
    firsts: as in `PlannedRun`
    way_out: what is said behind a gap

    Raises InputError if something that was read is no longer there.
    """
    found: dict[str, Sequence[PieceAgain]] = {}
    gaps: list[str] = []
    for source in deployment.all_sources:
        done = None if before is None else before.by_source.get(source.name)
        asked = Again(done, since, has_table=table is not None, firsts=firsts)
        own = running_of(source).again(source.own, read.of(source.name, source.format), asked)
        found[source.name] = own.pieces
        gaps += own.gaps
    if table is not None:
        gaps += table.gaps(found)
    if gaps and not accepts_gap:
        raise Gap(gaps, way_out)
    return in_proportion(found)


class Gap(InputError):
    """A history lacks something that the job has read."""

    def __init__(self, gaps: Sequence[str], way_out: str) -> None:
        super().__init__(f"the history has a gap: {'; '.join(gaps)}. {way_out}")


class GapMeanwhile(Gap):
    """It was there when its pieces were chosen: the job may have deleted or archived it since."""


def in_proportion(pieces: Mapping[str, Sequence[PieceAgain]]) -> list[list[PieceAgain]]:
    """Steps in which all sources get on at the same pace, so that few records are held."""
    total = {source: max(1, sum(piece.size for piece in own)) for source, own in pieces.items()}
    left = {source: list(own) for source, own in pieces.items() if own}
    done = dict.fromkeys(left, 0)
    steps: list[list[PieceAgain]] = []
    while left:
        # each step takes a piece of the source that is furthest behind, and of those as far behind
        least = min(done[source] / total[source] for source in left)
        step = []
        for source in [name for name in left if done[name] / total[name] <= least]:
            piece = left[source].pop(0)
            done[source] += max(1, piece.size)
            step.append(piece)
            if not left[source]:
                del left[source]
        steps.append(step)
    return steps
