"""Where routed records are in the total order: behind what caused them, depth first.

A *path* names the record or timer at the root of a routed record, and per hop the routing query,
the key, the match and the output. Paths are compared element by element; a path comes before those
that it begins. So all that an event causes is processed before the next event of the same cause.

Within an engine, a path is the number of what caused it. A path means the same in every engine:
those that leave one have all their hops.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Sequence
from decimal import Decimal
from math import isfinite
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from querylang.dataclass import dataclass
from querylang.plan.model import QueryPlan
from runtime.column_types import Integers
from runtime.columns.arrivals import AT_THE_END, PLACE, Arrivals
from runtime.interpreter import order_key
from runtime.json_reader import json_of_text
from runtime.results.outputs import Routed

Hop = tuple[str, str, tuple[Any, ...]]
"""The query, instance and key of a hop."""

OF_TIMER, OF_RECORD, OF_END = 0, 1, 2
"""The kinds of roots, in the order of one moment."""

_COUNTS = struct.Struct("<III")


@dataclass(frozen=True, slots=True)
class Paths:
    """Paths in columns.

    roots: by record in a column: moment in µs, kind, then the place of the record at the root, 0
        without one
    ends: by record, how many hops it and those before it have
    hops: of each record, the root's first, in a column: number among `keys`, match, output; the
        number of a match orders those of one cause and key
    keys: what hops have in common
    """

    roots: Integers
    ends: Integers
    hops: Integers
    keys: Sequence[Hop]

    @staticmethod
    def none() -> Paths:
        """Of no records."""
        return Paths(np.empty((2 + len(PLACE), 0), np.int64), np.empty(0, np.int64), np.empty((3, 0), np.int64), [])

    def __len__(self) -> int:
        return len(self.ends)

    @property
    def depths(self) -> Integers:
        """By record, how many hops it has."""
        return np.diff(self.ends, prepend=0)

    def take(self, rows: Integers) -> Paths:
        """These of them, in this order, with the keys that they need."""
        ends, places = self._hops_of(self.depths[rows], rows)
        used, numbers = np.unique(self.hops[0, places], return_inverse=True)
        hops = np.stack([numbers.reshape(-1), *self.hops[1:, places]])
        return Paths(self.roots[:, rows], ends, hops, [self.keys[number] for number in used.tolist()])

    def _hops_of(self, depths: Integers, rows: Integers) -> tuple[Integers, Integers]:
        """Where the hops of records end in one list of them, and the hops; `depths`: of these."""
        ends = np.cumsum(depths)
        first = self.ends[rows] - depths if len(self) else np.zeros(len(rows), np.int64)
        return ends, np.arange(depths.sum()) + np.repeat(first - (ends - depths), depths)

    def behind(self, parents: Integers, roots: Integers, hops: Integers, keys: Sequence[Hop]) -> Paths:
        """Paths with one hop more.

        parents: by new record, the number of the one that has caused it; -1 = its root has
        roots: of those whose root has
        hops: by new record its own one
        keys: of these hops
        """
        is_caused = parents >= 0
        roots = roots.copy()
        roots[:, is_caused] = self.roots[:, parents[is_caused]]
        depths = np.zeros(len(parents), np.int64)
        depths[is_caused] = self.depths[parents[is_caused]]
        _, places = self._hops_of(depths, np.maximum(parents, 0))
        ends = np.cumsum(depths + 1)
        found = np.empty((3, int(ends[-1]) if len(ends) else 0), np.int64)
        is_own = np.zeros(found.shape[1], np.bool_)
        is_own[ends - 1] = True
        found[:, ~is_own], found[:, is_own] = self.hops[:, places], hops
        found[0, is_own] += len(self.keys)
        return Paths(roots, ends, found, [*self.keys, *keys])

    @staticmethod
    def concat(parts: Sequence[Paths]) -> Paths:
        """All of them."""
        parts = parts or [Paths.none()]
        keys = np.cumsum([0, *(len(part.keys) for part in parts)])
        counts = np.cumsum([0, *(part.hops.shape[1] for part in parts)])
        shifts = np.array([[1], [0], [0]])
        return Paths(
            np.concatenate([part.roots for part in parts], axis=1),
            np.concatenate([part.ends + count for part, count in zip(parts, counts, strict=False)]),
            np.concatenate([part.hops + shifts * first for part, first in zip(parts, keys, strict=False)], axis=1),
            [key for part in parts for key in part.keys],
        )

    def rows(self) -> Integers:
        """Their numbers in total order."""
        columns = [column for column in self._columns() if (column != column[:1]).any()]
        return np.lexsort(columns[::-1]) if columns else np.arange(len(self))

    def _columns(self) -> Iterable[Integers]:
        """What paths are compared by, the first first; -1 behind the end of one."""
        yield from self.roots
        ranks = {key: rank for rank, key in enumerate(sorted(set(self.keys)))}
        of_key = np.array([ranks[key] for key in self.keys], np.int64)
        hops = np.stack([of_key[self.hops[0]], *self.hops[1:]]) if len(self.keys) else self.hops
        depths = self.depths
        for level in range(int(depths.max(initial=0))):
            places = np.where(depths > level, self.ends - depths + level, 0)
            yield from (np.where(depths > level, column[places], -1) for column in hops)

    def to_bytes(self) -> bytes:
        """For a process that reads it at once."""
        text = json.dumps([_plain(key) for key in self.keys]).encode()
        columns = (self.roots, self.ends, self.hops)
        head = _COUNTS.pack(len(text), len(self), self.hops.shape[1])
        return b"".join([head, text, *(np.ascontiguousarray(column, np.int64).tobytes() for column in columns)])

    @staticmethod
    def of_bytes(data: bytes) -> Paths:
        """The inverse of `to_bytes`."""
        length, count, hops = _COUNTS.unpack_from(data)
        text = data[_COUNTS.size : _COUNTS.size + length]
        keys = [_of_plain(key) for key in json_of_text(text, list[Any])]
        numbers = np.frombuffer(data[_COUNTS.size + length :], np.int64)
        roots, ends, own = np.split(numbers, np.cumsum([(2 + len(PLACE)) * count, count]))
        return Paths(roots.reshape(2 + len(PLACE), count), ends, own.reshape(3, hops), keys)


@dataclass(frozen=True, slots=True)
class RoutedRecords:
    """Routed events as records.

    table: as of `Arrivals`
    paths: by record
    """

    table: pa.Table
    paths: Paths

    def take(self, rows: Integers) -> RoutedRecords:
        """These of them, in this order."""
        return RoutedRecords(self.table.take(pa.array(rows, pa.int64())), self.paths.take(rows))

    def to_parts(self) -> tuple[bytes, bytes]:
        """As bytes: records, and paths."""
        return Arrivals(self.table).to_bytes(), self.paths.to_bytes()

    @staticmethod
    def of_parts(table: bytes, paths: bytes) -> RoutedRecords:
        """The inverse of `to_parts`."""
        return RoutedRecords(Arrivals.from_bytes(table).table, Paths.of_bytes(bytes(paths)))

    @staticmethod
    def concat(parts: Sequence[RoutedRecords]) -> RoutedRecords:
        """All of them."""
        table = Arrivals.concat([Arrivals(part.table) for part in parts]).table
        return RoutedRecords(table, Paths.concat([part.paths for part in parts]))


def _plain(value: Any) -> Any:
    """A part of a path as JSON can hold it."""
    match value:
        case tuple():
            return [_plain(item) for item in value]
        case Decimal():
            return {"decimal": str(value)}
        case float() if not isfinite(value):
            return {"float": str(value)}
        case _:
            return value


def _of_plain(value: Any) -> Any:
    match value:
        case list():
            return tuple(map(_of_plain, value))
        case {"decimal": text}:
            return Decimal(text)
        case {"float": text}:
            return float(text)
        case _:
            return value


class Causes(NamedTuple):
    """What has caused routed records, in columns.

    moment, kind: of the root; µs, and as above
    record: the record of the call at the root; 0 = a timer or the end is
    before: how many records of the call come before the routed one
    parent: the number of the routed record that has caused it; -1 = the root itself has
    """

    moment: Integers
    kind: Integers
    record: Integers
    before: Integers
    parent: Integers

    @staticmethod
    def concat(parts: Iterable[Causes]) -> Causes:
        """All of them."""
        return Causes(*(np.concatenate(column) for column in zip(*parts, strict=True)))

    def steps(self) -> Integers:
        """The steps at the roots: records of the call; where another engine has had that, the one
        before it."""
        others = np.where(self.kind == OF_TIMER, -1, AT_THE_END)
        return np.where(self.kind == OF_RECORD, self.before - 1, others)


_NO_CAUSES = Causes(*(np.empty(0, np.int64) for _ in Causes._fields))


class RoutedOrder:
    """The places of what has been routed so far in a call, by number."""

    def __init__(self) -> None:
        self._parts = [_NO_CAUSES]
        self._hops = [np.empty((3, 0), np.int64)]
        self._keys: list[Hop] = []
        self._received = Paths.none()
        self._rows = np.empty(0, np.int64)

    def __len__(self) -> int:
        return len(self.causes.kind)

    @property
    def causes(self) -> Causes:
        """What has caused them."""
        if len(self._parts) > 1:
            self._parts = [Causes.concat(self._parts)]
        return self._parts[0]

    def add(self, query: QueryPlan, routed: Routed, causes: Causes) -> None:
        """Number what a query has routed."""
        keys = [(query.name, query.instance or "", _ordered(key)) for key in routed.keys]
        self._hops.append(np.stack([routed.key + len(self._keys), routed.match, routed.output]))
        self._keys += keys
        self._parts.append(causes)

    def receive(self, paths: Paths, before: Integers) -> None:
        """Number what has been routed in several engines.

        before: as of `Causes`
        """
        nothing = np.zeros(len(paths), np.int64)
        self._parts.append(Causes(paths.roots[0], paths.roots[1], nothing, before, nothing - 1))
        self._received = Paths.concat([self._received, paths])

    def paths(self, query: QueryPlan, routed: Routed, causes: Causes, places: Integers) -> Paths:
        """The paths of what a query has routed to several engines; all before was received.

        places: by event in a column, that of the record at its root
        """
        keys = [(query.name, query.instance or "", _ordered(key)) for key in routed.keys]
        places = np.where(causes.kind == OF_RECORD, places, 0)
        roots = np.concatenate([[causes.moment, causes.kind], places])
        hops = np.stack([routed.key, routed.match, routed.output])
        return self._received.behind(causes.parent, roots, hops, keys)

    def rows(self) -> Integers:
        """Their numbers in total order."""
        if len(self._rows) == len(self):
            return self._rows
        if len(self._received):
            self._rows = self._received.rows()
        else:
            columns = [column for column in self._columns() if (column != column[0]).any()]
            self._rows = np.lexsort(columns[::-1]) if columns else np.arange(len(self))
        return self._rows

    def _columns(self) -> Iterable[Integers]:
        """What paths are compared by, the first first."""
        causes, hops = self.causes, np.concatenate(self._hops, axis=1)
        rank = {key: number for number, key in enumerate(sorted(set(self._keys)))}
        hops[0] = np.array([rank[key] for key in self._keys], np.int64)[hops[0]]
        yield from causes[:3]
        # by depth, from the record itself to the one next to the root: its number; -1 behind that
        line = [np.arange(len(self))]
        while (parents := np.where(line[-1] >= 0, causes.parent[line[-1]], -1)).max(initial=-1) >= 0:
            line.append(parents)
        lines = np.stack(line)
        depth = (lines >= 0).sum(axis=0) - 1
        for level in range(len(lines)):
            at = lines[np.maximum(depth - level, 0), line[0]]
            for column in hops:
                yield np.where(depth >= level, column[at], -1)


def _ordered(key: Any) -> tuple[Any, ...]:
    """A key as keys are ordered."""
    return tuple(map(order_key, key.values()))
