"""Where routed records are in the total order: behind what caused them, depth first.

A *path* names the record or timer at the root of a routed record, and per hop the routing query,
the key, the match and the output. Paths are compared element by element; a path comes before those
that it begins. So all that an event causes is processed before the next event of the same cause.

Within an engine, paths are columns of numbers. A path means the same in every engine: those that
leave one are tuples.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from decimal import Decimal
from math import isfinite
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from querylang.dataclass import dataclass
from querylang.plan.model import QueryPlan
from runtime.column_types import Integers
from runtime.columns.arrivals import AT_THE_END, Arrivals
from runtime.interpreter import order_key
from runtime.json_reader import json_of_text
from runtime.results.outputs import Routed

Path = tuple[tuple[Any, ...], ...]
"""The root (moment in µs, kind, place of the record), then by hop (query, instance, key, match,
output). The number of a match orders those of one cause and key."""

OF_TIMER, OF_RECORD, OF_END = 0, 1, 2
"""The kinds of roots, in the order of one moment."""


@dataclass(frozen=True, slots=True)
class RoutedRecords:
    """Routed events as records.

    table: as of `Arrivals`
    paths: by record
    """

    table: pa.Table
    paths: Sequence[Path]

    def take(self, rows: Sequence[int]) -> RoutedRecords:
        """These of them, in this order."""
        return RoutedRecords(self.table.take(pa.array(rows, pa.int64())), [self.paths[row] for row in rows])

    def to_parts(self) -> tuple[bytes, bytes]:
        """As bytes: records, and paths."""
        return Arrivals(self.table).to_bytes(), json.dumps([_plain(path) for path in self.paths]).encode()

    @staticmethod
    def of_parts(table: bytes, paths: bytes) -> RoutedRecords:
        """The inverse of `to_parts`."""
        found = map(_of_plain, json_of_text(paths, list[Any]))
        return RoutedRecords(Arrivals.from_bytes(table).table, list(found))

    @staticmethod
    def concat(parts: Sequence[RoutedRecords]) -> RoutedRecords:
        """All of them."""
        table = Arrivals.concat([Arrivals(part.table) for part in parts]).table
        return RoutedRecords(table, [path for part in parts for path in part.paths])


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
        self._keys: list[tuple[str, str, tuple[Any, ...]]] = []
        self._received: list[Path] = []
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

    def receive(self, paths: Sequence[Path], before: Sequence[int]) -> None:
        """Number what has been routed in several engines.

        before: as of `Causes`
        """
        nothing = np.zeros(len(paths), np.int64)
        moment, kind = (np.array([path[0][number] for path in paths], np.int64) for number in (0, 1))
        self._parts.append(Causes(moment, kind, nothing, np.array(before, np.int64), nothing - 1))
        self._received += paths

    def paths(self, query: QueryPlan, routed: Routed, causes: Causes, places: Sequence[Any]) -> list[Path]:
        """The paths of what a query has routed to several engines; all before was received.

        places: by event, that of the record at its root
        """
        ranks = [_ordered(key) for key in routed.keys]
        hops = zip(routed.key.tolist(), routed.match.tolist(), routed.output.tolist(), strict=True)
        roots = zip(*(column.tolist() for column in causes[:2]), places, causes.parent.tolist(), strict=True)
        found = list[Path]()
        for (moment, kind, place, parent), (key, match, output) in zip(roots, hops, strict=True):
            root = ((moment, kind, place if kind == OF_RECORD else ()),)
            of_cause = self._received[parent] if parent >= 0 else root
            found.append((*of_cause, (query.name, query.instance, ranks[key], match, output)))
        return found

    def rows(self) -> Integers:
        """Their numbers in total order."""
        if len(self._rows) == len(self):
            return self._rows
        if self._received:
            self._rows = np.array(sorted(range(len(self)), key=self._received.__getitem__), np.int64)
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
