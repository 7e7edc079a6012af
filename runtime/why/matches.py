"""The matches of one key: what its matcher found, and the rows that were given out.

Both stay columns: a key of a million events has as many matches, and a question is about few.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from querylang.dataclass import dataclass
from querylang.plan.model import QueryPlan
from runtime.column_types import Integers
from runtime.matching.interface import Bindings, as_bindings, relaid, wider
from runtime.results.matched import Coordinates

PLACE_COLUMNS = ("_source", "_partition", "_offset")
"""The coordinates of a record."""


class RowsByPlace:
    """By coordinates the row of a record, the last one if there are several."""

    def __init__(self, records: pa.Table) -> None:
        self._columns = [records.column(name) for name in PLACE_COLUMNS]
        self._by_offset = _Sorted(self._columns[-1].to_numpy())

    def get(self, place: Coordinates) -> int | None:
        """The row; None = there is none."""
        rows = reversed(self._by_offset.rows_of(place[-1]).tolist())
        return next((row for row in rows if self.at(row) == place), None)

    def at(self, row: int) -> Coordinates:
        """The coordinates of a row."""
        source, partition, offset = (column[row].as_py() for column in self._columns)
        return source, partition, offset


class _Sorted:
    """Numbers of rows, searched by value."""

    def __init__(self, values: Integers, rows: Integers | None = None) -> None:
        """rows: by value its row; None = in their order"""
        self._values, self._rows = values, rows
        if (values[1:] < values[:-1]).any():
            order = np.argsort(values, kind="stable")
            self._values, self._rows = values[order], order if rows is None else rows[order]

    def rows_of(self, value: int) -> Integers:
        """The rows with a value, in their order."""
        begin, end = (int(np.searchsorted(self._values, value, side)) for side in ("left", "right"))
        return np.arange(begin, end) if self._rows is None else self._rows[begin:end]


@dataclass(frozen=True, slots=True)
class FoundPart:
    """What a matcher found in one call, a row a match.

    run: the number of the engine's call
    latest: the position of its latest event
    rank: the same in the engine's call
    members, widths: as of `runtime.matching.interface.Found`
    """

    run: int
    latest: Integers
    rank: Integers
    members: Integers
    widths: Sequence[int]

    def moved(self, position: Integers) -> FoundPart:
        """With other positions."""
        members = np.where(self.members >= 0, position[self.members], -1)
        return FoundPart(self.run, position[self.latest], self.rank, members, self.widths)


class FoundMatches:
    """What a matcher found."""

    def __init__(self, parts: Sequence[FoundPart], query: QueryPlan) -> None:
        """parts: with their matches of one latest event the oldest first"""
        parts = [part for part in parts if len(part.latest)]
        self._terms = len(query.terms)
        self._widths: Sequence[int] = reduce(wider, (part.widths for part in parts)) if parts else ()
        members = [relaid(part.members, part.widths, self._widths, -1) for part in parts]
        latest = np.concatenate([np.empty(0, np.int64), *(part.latest for part in parts)])
        order = np.argsort(latest, kind="stable")
        self._latest = latest[order]
        self._members = np.concatenate(members)[order] if members else np.empty((0, self._terms), np.int64)
        runs = {part.run for part in parts}
        self._ranked = {run: _last_ranks([part for part in parts if part.run == run]) for run in runs}

    def at(self, latest: int) -> list[Bindings]:
        """What matches with a latest event bind, the oldest first; a `find every` binds nothing."""
        begin, end = np.searchsorted(self._latest, [latest, latest + 1])
        rows = self._members[begin:end].tolist()
        return [as_bindings(row, self._widths, self._terms) if row else {} for row in rows]

    def latest_with(self, position: int) -> list[int]:
        """The latest events of the matches that an event is part of, in their order."""
        found: list[int] = np.unique(self._latest[(self._members == position).any(axis=1)]).tolist()
        return found

    def last_between(self, begin: int, end: int) -> int | None:
        """The last position in a range with which a match ends; None = there is none."""
        before = int(np.searchsorted(self._latest, end))
        return int(self._latest[before - 1]) if before and self._latest[before - 1] >= begin else None

    def ranks_at(self, latest: int) -> Iterator[tuple[int, int]]:
        """The engine's calls and the ranks in them of the matches with a latest event."""
        for run, (ranks, positions) in self._ranked.items():
            yield from ((run, rank) for rank in ranks[positions == latest].tolist())

    def ranked(self, run: int, rank: int) -> int | None:
        """The latest event of a match of an engine's call; None = it is of another key."""
        ranks, positions = self._ranked.get(run, (np.empty(0, np.int64), np.empty(0, np.int64)))
        at = int(np.searchsorted(ranks, rank))
        return int(positions[at]) if at < len(ranks) and ranks[at] == rank else None


def _last_ranks(parts: Sequence[FoundPart]) -> tuple[Integers, Integers]:
    """The ranks of an engine's call, ascending, and the last position that has each."""
    ranks, positions = (np.concatenate([getattr(part, name) for part in parts])[::-1] for name in ("rank", "latest"))
    ranks, first = np.unique(ranks, return_index=True)
    return ranks, positions[first]


def _coordinates(members: Mapping[str, Any]) -> frozenset[tuple[str, Coordinates]]:
    """The names and coordinates of a match's members."""
    found = [
        (name, (event["source"], event["partition"], event["offset"]))
        for name, member in members.items()
        for event in (member if isinstance(member, list) else [member])
        if event is not None
    ]
    return frozenset(found)


class GivenMatches:
    """The rows of matches that were given out, those of other keys among them.

    A match is known by its members; one of a `find every`, which keeps none, by its latest event. A
    trailing wait that is due several times gives several rows of one match.
    """

    def __init__(self, query: QueryPlan, tables: Sequence[pa.Table], found: FoundMatches, places: RowsByPlace) -> None:
        """tables: by call of the engine, its matches; places: of the events"""
        self._query, self._found, self._places = query, found, places
        self._tables = [table.combine_chunks() for table in tables]

    def of(self, latest: int, bound: Bindings) -> list[dict[str, Any]]:
        """The rows of what the matcher found; none = it was not given out."""
        if self._query.every is not None:
            ranks = self._found.ranks_at(latest)
            return [row for run, rank in ranks for row in self._rows(run, self._by_rank[run].rows_of(rank))]
        wanted = frozenset(
            (self._query.terms[term].name, self._places.at(position))
            for term, positions in bound.items()
            for position in positions
        )
        return [row for row in self._with(latest) if _coordinates(row["members"]) == wanted]

    def ends_with(self, position: int) -> bool:
        """Whether the latest event of a match is this one."""
        if self._query.every is not None:
            return bool(self.of(position, {}))
        return any(self.position_of(row) == position for row in self._with(position))

    def position_of(self, row: Mapping[str, Any]) -> int | None:
        """The position of the latest event of a match that was given out; None = it is not here."""
        if self._query.every is None:
            places = [self._places.get(place) for _, place in _coordinates(row["members"])]
            return max((place for place in places if place is not None), default=None)
        for run, table in enumerate(self._tables):
            own = table.filter(pc.equal(table.column("match_id"), row["match_id"])).column("_rank").to_pylist()
            found = (self._found.ranked(run, rank) for rank in own)
            position = next((item for item in found if item is not None), None)
            if position is not None:
                return position
        return None

    def between(self, after: int, until: int) -> list[dict[str, Any]]:
        """The rows of matches after a moment and until another one, µs."""
        found = list[dict[str, Any]]()
        for run, table in enumerate(self._tables):
            time = table.column("time").cast(pa.int64()).to_numpy()
            found += self._rows(run, np.flatnonzero((time > after) & (time <= until)))
        return found

    def _with(self, position: int) -> Iterator[dict[str, Any]]:
        """The rows of which an event may be a member: those that have one of its offset."""
        offset = self._places.at(position)[-1]
        for run, by_offset in enumerate(self._by_offset):
            yield from self._rows(run, np.unique(by_offset.rows_of(offset)))

    def _rows(self, run: int, rows: Integers) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._tables[run].take(pa.array(rows)).to_pylist(maps_as_pydicts="lossy")
        return found

    @cached_property
    def _by_rank(self) -> list[_Sorted]:
        return [_Sorted(table.column("_rank").to_numpy()) for table in self._tables]

    @cached_property
    def _by_offset(self) -> list[_Sorted]:
        return [_Sorted(*_offsets_of_members(table)) for table in self._tables]


def _offsets_of_members(table: pa.Table) -> tuple[Integers, Integers]:
    """The offsets of all members of matches, and their rows."""
    offsets, rows = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for name in [item.name for item in table.schema.field("members").type]:
        column = pc.struct_field(table.column("members"), name)
        row: NDArray[np.int64] = np.arange(len(table))
        if pa.types.is_list(column.type):
            row = pc.list_parent_indices(column).to_numpy()
            column = pc.list_flatten(column)
        column = pc.struct_field(column, "offset")
        is_there = column.is_valid().to_numpy()
        offsets.append(column.drop_null().to_numpy())
        rows.append(row[is_there])
    return np.concatenate(offsets), np.concatenate(rows)
