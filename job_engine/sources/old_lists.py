"""What releases before kinds of sources have written of what was read.

Manifests of versions 1 and 2, and lists of those versions, have keys for files, topics and tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, NotRequired, TypedDict

from job_engine.sources.folder import pieces
from job_engine.sources.folder.listing import FileStamp
from job_engine.sources.kinds import Part, Remembered
from job_engine.sources.table.pieces import TableMemory, TablePiece, TablePosition, TableUnit
from job_engine.sources.topics.pieces import Advance, OffsetRange, Positions, TopicsMemory, TopicsPiece
from runtime.json_reader import shaped
from runtime.json_shapes import ROW, Count

_FOLDER, _TOPICS, _TABLE = "parquet", "kafka", "delta"
"""A format of each kind; those of folders are alike here."""

_Inode = Annotated[int, range(2**64)]
_FileRow = tuple[str, Count, str, Count, int, _Inode]
_WaitingRow = tuple[str, Count, str, Count, int, _Inode, int]
_Counts = Mapping[str, Annotated[pieces.SourceCount, ROW]]


class _Offsets(TypedDict):
    ranges: NotRequired[tuple[Annotated[OffsetRange, ROW], ...]]
    advances: NotRequired[tuple[Annotated[Advance, ROW], ...]]
    positions: NotRequired[Positions]


class _Tables(TypedDict):
    units: NotRequired[tuple[TableUnit, ...]]
    positions: NotRequired[Mapping[str, TablePosition]]


class _Manifest(TypedDict):
    """What is left of a manifest without what all versions have."""

    files: list[_FileRow]
    counts: _Counts
    changed: list[_FileRow]
    offsets: NotRequired[_Offsets]
    tables: NotRequired[_Tables]
    waiting: NotRequired[list[_WaitingRow]]
    dropped: NotRequired[tuple[tuple[str, str], ...]]


def old_parts(plain: Mapping[str, Any]) -> dict[str, Part]:
    """What a manifest has of each source; raises DamagedJson."""
    data = shaped(plain, _Manifest)
    counts, offsets, tables = data["counts"], data.get("offsets", _Offsets()), data.get("tables", _Tables())
    files, changed = ([_file(row) for row in rows] for rows in (data["files"], data["changed"]))
    waiting = list(map(_waiting, data.get("waiting", ())))
    units, positions = tables.get("units", ()), tables.get("positions", {})
    named = {file.source for file in (*files, *changed)}.union(counts) - positions.keys()
    found = {
        source: Part(
            _FOLDER,
            pieces.FolderPiece(
                counts.get(source, pieces.SourceCount()),
                tuple(file for file in files if file.source == source),
                tuple(file for file in changed if file.source == source),
                tuple(item for item in waiting if item.file.source == source),
                tuple(path for name, path in data.get("dropped", ()) if name == source),
            ),
        )
        for source in sorted(named)
    }
    for source, position in positions.items():
        own = tuple(unit for unit in units if unit.source == source)
        found[source] = Part(_TABLE, TablePiece(position, counts.get(source, pieces.SourceCount()).files, own))
    for source, topics in offsets.get("positions", {}).items():
        found[source] = Part(
            _TOPICS,
            TopicsPiece(
                topics,
                tuple(item for item in offsets.get("ranges", ()) if item.source == source),
                tuple(item for item in offsets.get("advances", ()) if item.source == source),
            ),
        )
    return found


_ReadRow = tuple[str, Count, int, _Inode] | tuple[str, Count, int, _Inode, Count]


class _List(TypedDict):
    """What is left of a list without what all versions have."""

    counts: _Counts
    files: dict[str, list[_ReadRow]]
    gone: dict[str, set[str]]
    positions: NotRequired[Positions]
    tables: NotRequired[Mapping[str, TablePosition]]
    waiting: NotRequired[list[_WaitingRow]]


def old_memories(plain: Mapping[str, Any]) -> dict[str, Remembered]:
    """What a list has of each source; raises DamagedJson."""
    data = shaped(plain, _List)
    counts, tables = data["counts"], data.get("tables", {})
    waiting = list(map(_waiting, data.get("waiting", ())))
    found: dict[str, Remembered] = {}
    for source in sorted({*data["files"], *data["gone"], *counts} - tables.keys()):
        own = {item.file.path: pieces.Waited(item, 0) for item in waiting if item.file.source == source}
        files = {row[0]: pieces.read_long_ago(*row[1:]) for row in data["files"].get(source, ())}
        memory = pieces.FolderMemory(
            source, files, counts.get(source, pieces.SourceCount()), data["gone"].get(source, set()), own
        )
        found[source] = Remembered(_FOLDER, memory)
    for source, position in tables.items():
        found[source] = Remembered(
            _TABLE, TableMemory(source, position, counts.get(source, pieces.SourceCount()).files)
        )
    for source, topics in data.get("positions", {}).items():
        found[source] = Remembered(_TOPICS, TopicsMemory(source, topics))
    return found


def _file(row: _FileRow) -> pieces.TakenFile:
    source, number, path, *stamp = row
    return pieces.TakenFile(source, number, path, FileStamp(*stamp))


def _waiting(row: _WaitingRow) -> pieces.WaitingFile:
    return pieces.WaitingFile(_file(row[:-1]), row[-1])
