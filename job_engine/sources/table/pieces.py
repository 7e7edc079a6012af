"""What a micro-batch reads of Delta tables, and what was read of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from job_engine.sources.source import Unread
from job_engine.sources.table.settings import DeltaSource
from querylang.dataclass import asdict, dataclass, field
from runtime.json_shapes import Count


@dataclass(frozen=True, slots=True)
class TableFile:
    """A data file.

    path: below the table's folder, or in full
    size: in bytes
    rows: how many it has, if the log says so
    partition: values by partition column, as the log has them; None = null
    """

    path: str
    size: int
    rows: int | None = None
    partition: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ListedFile:
    """A data file as the log lists it.

    least: values by column, as its statistics have them. What they do not say is not there
    """

    file: TableFile
    least: Mapping[str, Any] = field(default_factory=dict)


TableFirsts = Callable[[DeltaSource, Sequence[ListedFile], Mapping[str, str]], Sequence[int | None]]
"""Gives the least arrival time, µs, of the records of each data file; None = it can bring none.

The types of the table's columns are the last parameter.
"""


@dataclass(frozen=True, slots=True)
class TableUnit:
    """Data files that are read together: those of a commit. Their records are ordered by arrival.

    first: the number of its first file among those of its source, from 1
    columns: types by column of the table, as JSON text
    """

    source: str
    first: int
    files: tuple[TableFile, ...]
    columns: Mapping[str, str]

    @property
    def size(self) -> int:
        """Bytes of all its files."""
        return sum(file.size for file in self.files)


@dataclass(frozen=True, slots=True)
class TablePosition:
    """How far a table has been read.

    identity: of the table: one that is made again has another
    version: of its last commit that was read
    units_read: how many units of the table at that version were read; None = all
    columns: as in `TableUnit`
    began: the version behind which commits are read, since the job began; None = it is not known
    is_whole: whether all that the table had at that version was read, too
    has_unread: whether the clock waits for what is listed behind it, and is read later
    """

    identity: str
    version: int
    units_read: int | None
    columns: Mapping[str, str]
    began: int | None = None
    is_whole: bool = False
    has_unread: bool = False


@dataclass(frozen=True, slots=True)
class TableReads:
    """What is read of sources next.

    positions: after it, by source
    unread: as in `Manifest`
    """

    units: tuple[TableUnit, ...] = ()
    positions: Mapping[str, TablePosition] = field(default_factory=dict)
    unread: Mapping[str, Unread | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TablePiece:
    """What a manifest has of a source.

    position: after it; None = nothing was read yet
    files: how many data files have been read after it
    """

    position: TablePosition | None = None
    files: Count = 0
    units: tuple[TableUnit, ...] = ()


@dataclass(slots=True)
class TableMemory:
    """What was read of a source; fields as in `TablePiece`."""

    source: str
    position: TablePosition | None = None
    files: int = 0

    def __len__(self) -> int:
        return 1

    def add(self, number: int, piece: TablePiece) -> None:  # noqa: ARG002
        """As `Memory.add`."""
        self.position, self.files = piece.position, piece.files

    def still(self) -> TablePiece:
        """As `Memory.still`."""
        return TablePiece(self.position, self.files)

    def to_plain(self, until: int, piece: TablePiece) -> dict[str, Any]:  # noqa: ARG002
        """As `Memory.to_plain`: a piece has the position behind it."""
        return {"position": piece.position and asdict(piece.position), "files": piece.files}


@dataclass(frozen=True, slots=True)
class TableWork:
    """What one task reads of a source."""

    units: tuple[TableUnit, ...]


def unit_tasks(units: Sequence[TableUnit], tasks: int) -> list[tuple[TableUnit, ...]]:
    """At most `tasks` lists, none empty, each in the order of `units`: equal sizes."""
    shares: list[list[int]] = [[] for _ in range(min(tasks, len(units)))]
    loads = [0] * len(shares)
    for place in sorted(range(len(units)), key=lambda place: (-units[place].size, place)):
        least = loads.index(min(loads))
        shares[least].append(place)
        loads[least] += units[place].size + 1
    return [tuple(units[place] for place in sorted(share)) for share in shares]
