"""What a job has read, cut into pieces that are read again, in the order of each source."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from querylang.errors import InputError, counted, listed
from runtime.columns.timestamps import format_time
from runtime.instants import NO_TIME
from spark_backend.job.checkpoint.checkpoint_record import all_sources
from spark_backend.job.history.marks import Mark
from spark_backend.job.history.messages_again import message_pieces
from spark_backend.job.history.pieces import MOST_BYTES, MOST_FILES, Piece, in_proportion
from spark_backend.job.history.table_end import TableEnd
from spark_backend.job.history.tables_again import table_pieces
from spark_backend.job.listed_sources import listed_sources
from spark_backend.settings.deployment import Deployment
from spark_backend.sources.delta.delta_source import DeltaSource
from spark_backend.sources.delta.table_units import TableFirsts
from spark_backend.sources.kafka.kafka_source import KafkaSource
from spark_backend.sources.listing.file_tasks import FileTask
from spark_backend.sources.listing.input_planner import FirstArrivals, unread_of
from spark_backend.sources.listing.listed_source import ListedSource
from spark_backend.sources.listing.manifests import TakenFile, WaitingFile
from spark_backend.sources.listing.read_files import ReadFile, ReadFiles


def mark_of(read: ReadFiles, titles: Sequence[str], events: Sequence[str]) -> Mark:
    """How far it is once all of it has been read again."""
    files = {source: frozenset(paths) for source, paths in read.files.items()}
    return Mark(tuple(titles), tuple(events), files, read.positions, read.tables)


def pieces_between(
    deployment: Deployment,
    before: Mark | None,
    read: ReadFiles,
    since: int | None,
    *,
    accepts_gap: bool,
    table: TableEnd | None = None,
    firsts: FirstArrivals | None = None,
    firsts_in_tables: TableFirsts | None = None,
) -> list[list[Piece]]:
    """What is read in each step, in order.

    before: what has been read again already; None = nothing
    since: as of `HistoryCommand`
    table: what a history table has of it; None = there is none
    firsts, firsts_in_tables: tell when the records of files arrive; None = their order says nothing

    Raises InputError if something that was read is no longer there.
    """
    found, gaps = _found(deployment, before, read, since, table, firsts, firsts_in_tables)
    if gaps and not accepts_gap:
        raise InputError(f"the history has a gap: {'; '.join(gaps)}. `--accept-gap` deploys without what is missing")
    return in_proportion(found)


def _found(
    deployment: Deployment,
    before: Mark | None,
    read: ReadFiles,
    since: int | None,
    table: TableEnd | None,
    firsts: FirstArrivals | None,
    firsts_in_tables: TableFirsts | None,
) -> tuple[dict[str, list[Piece]], list[str]]:
    """The pieces of each source, and what is missing."""
    found: dict[str, list[Piece]] = {}
    gaps: list[str] = []
    for source in listed_sources(all_sources(deployment)):
        known = frozenset() if before is None else before.files.get(source.name, frozenset())
        found[source.name], gap = _file_pieces(source, known, read, table, firsts)
        gaps += gap
    for own in all_sources(deployment):
        name = own.name
        if isinstance(own.own, KafkaSource) and name in read.positions:
            start = None if before is None else before.positions.get(name)
            found[name], gap = message_pieces(own.own, start, read.positions[name], since, is_whole=table is not None)
            gaps += gap
        if isinstance(own.own, DeltaSource) and name in read.tables:
            count = read.counts[name].files if name in read.counts else 0
            done = None if before is None else before.tables.get(name)
            found[name], gap = table_pieces(own.own, done, read.tables[name], count, firsts_in_tables)
            gaps += gap
    if table is not None:
        gaps += table.gaps(found)
    return found, gaps


def _file_pieces(
    source: ListedSource,
    known: frozenset[str],
    read: ReadFiles,
    table: TableEnd | None,
    firsts: FirstArrivals | None,
) -> tuple[list[Piece], list[str]]:
    """The pieces of a source of files, and what is missing."""
    files = read.of(source.name)
    waiting = [item.item for item in read.waiting_of(source.name).values()]
    count = read.counts[source.name].files - len(waiting) if source.name in read.counts else len(files)
    first = count - len(files) + 1  # those that the list has forgotten were the first ones, or so
    dropped = max(0, first - 1) if not known else 0
    missing: list[tuple[str, ReadFile]] = []
    there: list[tuple[TakenFile, bool]] = []
    for number, (path, file) in enumerate(files.items(), max(1, first)):
        if path in known:
            continue
        where = _where(source, path, file)
        if where and not there and table is not None:
            # what came before it the table has: arrival does not go back along a source; if it
            # begins too late, that is a gap by itself
            missing, dropped = [], 0
        taken = TakenFile(source.name, file.number or number, path, file.stamp)
        there.append((taken, where == "archive")) if where else missing.append((path, file))
    if firsts is None or not source.has_clock or (not waiting and len(list(_grouped(source.name, there))) < 2):
        return list(_grouped(source.name, there)), _gap(source, missing, dropped)
    ordered = _by_arrival(source, there, read, firsts)
    pieces = _grouped(source.name, [(item.file, is_archived) for item, is_archived in ordered])
    return _with_unread(pieces, [item for item, _ in ordered], waiting), _gap(source, missing, dropped)


def _by_arrival(
    source: ListedSource, there: Sequence[tuple[TakenFile, bool]], read: ReadFiles, firsts: FirstArrivals
) -> list[tuple[WaitingFile, bool]]:
    """The files in the order of their first records: all of them are there, as for a replay."""
    found: list[tuple[WaitingFile, bool]] = []
    (archived,) = archived_sources([source])
    before = NO_TIME
    for file, is_archived in there:
        waited = read.of(source.name)[file.path].waited
        (first,) = firsts(archived if is_archived else source, [file]) if waited is None else (waited.item.first,)
        before = before if first is None else first
        found.append((WaitingFile(file, before), is_archived))
    return sorted(found, key=lambda item: item[0].order)


def _with_unread(
    pieces: Iterable[Piece], ordered: Sequence[WaitingFile], waiting: Sequence[WaitingFile]
) -> list[Piece]:
    """The pieces, each with what is left behind it; `waiting`: files that the job has not read."""
    found: list[Piece] = []
    done = 0
    for piece in pieces:
        done += len(piece.task.files)
        left = unread_of(sorted((*ordered[done:], *waiting), key=lambda item: item.order))
        found.append(replace(piece, task=replace(piece.task, unread={piece.source: left})))
    return found


def _where(source: ListedSource, path: str, file: ReadFile) -> str | None:
    """Where a file is as it was when it was read; None = nowhere."""
    places = {"folder": source.file(path)}
    if source.archive is not None:
        places["archive"] = source.archived(path)
    for name, place in places.items():
        try:
            found = place.stat()
        except OSError:
            continue
        if found.st_size == file.stamp.size and (name == "archive" or found.st_mtime_ns == file.stamp.modified):
            return name
    return None


def _gap(source: ListedSource, missing: Sequence[tuple[str, ReadFile]], dropped: int) -> list[str]:
    if not missing and not dropped:
        return []
    count = counted(len(missing) + dropped, "file")
    if not missing:
        return [f"source '{source.name}': {count} that the job has read {_are(dropped)} gone"]
    times = [file.stamp.modified // 1000 for _, file in missing]
    names = listed(f"'{path}'" for path, _ in missing[:3]) + (", …" if len(missing) > 3 else "")
    bounds = f"written from {format_time(min(times))} to {format_time(max(times))}"
    return [
        (
            f"source '{source.name}': {count} that the job has read {_are(len(missing) + dropped)} gone or changed:"
            f" {names}, {bounds}"
        )
    ]


def _are(count: int) -> str:
    return "is" if count == 1 else "are"


def _grouped(source: str, files: Sequence[tuple[TakenFile, bool]]) -> Iterator[Piece]:
    """Pieces of files that are read together."""
    own: list[TakenFile] = []
    place, size = False, 0
    for file, is_archived in files:
        if own and (is_archived != place or size >= MOST_BYTES or len(own) == MOST_FILES):
            yield Piece(source, size, FileTask(tuple(own), is_repeated=True), is_archived=place)
            own, size = [], 0
        own.append(file)
        place, size = is_archived, size + file.stamp.size
    if own:
        yield Piece(source, size, FileTask(tuple(own), is_repeated=True), is_archived=place)


def archived_sources(sources: Sequence[ListedSource]) -> list[ListedSource]:
    """The sources as they are in their archives."""
    return [source if source.archive is None else replace(source, folder=source.archive) for source in sources]
