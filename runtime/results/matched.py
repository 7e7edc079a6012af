"""Matches before they are a table: times and the numbers of the members' rows; order and
identity.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from functools import lru_cache, reduce
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from querylang.dataclass import dataclass, field, replace
from querylang.plan.model import Plan, QueryPlan
from querylang.plan.routing import ROUTE_SOURCE
from runtime.column_types import Integers
from runtime.columns.arrivals import AT_THE_END
from runtime.columns.keys import FNV_FACTOR, FNV_START, MIX_FIRST, MIX_SECOND, MIX_STEP, sort_columns
from runtime.columns.rows import stable_order, taken_rows
from runtime.interpreter import Value
from runtime.matching.interface import relaid, wider

# The guaranteed order of matches: by step, then key, match time, and candidate (oldest first).

MOST_TIES = 16
"""One match in so many may share its moment with another before steps are sorted as columns."""


def match_order(
    emitted: Integers, step: Integers, time: Integers, rank: Integers, keys_of: Callable[[Integers], Sequence[pa.Array]]
) -> Integers:
    """The matches' indexes in their order; by match: as in `runtime.results.schemas.ORDER`, µs.

    keys_of: the key columns of some matches, given by index
    """
    return ordered_steps(emitted, step, time, rank, keys_of)[0]


def ordered_steps(
    emitted: Integers, step: Integers, time: Integers, rank: Integers, keys_of: Callable[[Integers], Sequence[pa.Array]]
) -> tuple[Integers, Integers, Integers]:
    """As `match_order`, and `emitted` and `step` in this order.

    Few matches share a moment with another. So keys are looked up, and compared, for those only.
    """
    order = np.arange(len(emitted))
    is_same = emitted[1:] == emitted[:-1]
    if ((emitted[1:] < emitted[:-1]) | is_same & (step[1:] < step[:-1])).any():
        order = stable_order(emitted)
        ordered = taken_rows(emitted, order)
        is_same = ordered[1:] == ordered[:-1]
        if MOST_TIES * np.count_nonzero(is_same) > len(order):  # moments are coarse
            order = stable_order(emitted, step)
            is_same &= step[order[1:]] == step[order[:-1]]
        emitted, step = ordered, taken_rows(step, order)
    else:
        is_same &= step[1:] == step[:-1]
    if not is_same.any():
        return order, emitted, step
    is_tied = np.append(is_same, False)
    is_tied[1:] |= is_same
    tied = np.flatnonzero(is_tied)
    rows = order[tied]
    columns = [emitted[tied], step[tied], *sort_columns(keys_of(rows)), time[rows], rank[rows]]
    by = pa.table({str(place): column for place, column in enumerate(columns)})
    chosen = pc.sort_indices(by, sort_keys=[(name, "ascending") for name in by.column_names])
    order[tied] = rows[chosen.to_numpy()]
    step = step.copy()
    step[tied] = columns[1][chosen.to_numpy()]
    return order, emitted, step


def _none() -> Integers:
    return np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class Matched:
    """Matches, one entry each; times in µs.

    latest: the row of its latest event
    members: (match, term), the rows of its members; -1 = unset. A `find every` has a column for
        each select that is an event instead, and so in all that is by term. A run has several
        columns (`widths`)
    time: the time of the match
    definitive: the watermark of the query and key when it was found
    emitted: the moment at which it was found
    waited: what its release waited for (`Waited`)
    step: the record that caused it, -1 = a timer
    rank: orders the matches of one step and key
    times: (match, term), when its members happened
    source_times: (match, term), the times that their sources gave them, as the query takes them
    arrivals: (match, term), when they arrived, by the clock
    offsets: (match, term), their offsets in their sources
    reasons: (match, term), why the times of its members were adjusted; without terms if none can be
    selected: of a `find every`, a column for each select that is not an event
    widths: how many columns each term has (`runtime.matching.interface`)
    suppressed: of a query with `at most`, how many matches were suppressed since the one before;
        otherwise empty
    """

    latest: Integers
    members: Integers
    time: Integers
    definitive: Integers
    emitted: Integers
    waited: NDArray[np.int8]
    step: Integers
    rank: Integers
    times: Integers
    source_times: Integers
    arrivals: Integers
    offsets: Integers
    reasons: NDArray[np.int8]
    selected: tuple[pa.Array, ...] = ()
    widths: tuple[int, ...] = ()
    suppressed: Integers = field(default_factory=_none)

    _COLUMNS: ClassVar = (
        *("latest", "members", "time", "definitive", "emitted", "waited", "step", "rank"),
        *("times", "source_times", "arrivals", "offsets", "reasons"),
    )

    @staticmethod
    def joined(parts: Sequence[Matched]) -> Matched:
        """The matches of all parts, of at least one."""
        if len(parts) == 1:
            return parts[0]
        widths = reduce(wider, (part.widths for part in parts))
        parts = [part.widened(widths) for part in parts]
        columns = {
            name: np.concatenate([getattr(part, name).T for part in parts], axis=-1).T for name in Matched._COLUMNS
        }
        selected = zip(*(part.selected for part in parts), strict=True)
        suppressed = np.concatenate([part.suppressed for part in parts])
        whole = tuple(pa.concat_arrays(columns) for columns in selected)
        return Matched(**columns, selected=whole, widths=widths, suppressed=suppressed)

    def widened(self, widths: tuple[int, ...]) -> Matched:
        """The same with more columns for runs."""
        if widths == self.widths:
            return self
        columns: dict[str, Any] = {
            name: relaid(getattr(self, name), self.widths, widths, -1 if name == "members" else 0)
            for name in ("members", "times", "source_times", "arrivals", "offsets", "reasons")
        }
        return replace(self, **columns, widths=widths)

    def order(self, keys: Sequence[pa.Array]) -> Integers:
        """The matches' indexes in the order of `match_order`; `keys`: the key columns, by row."""
        return match_order(
            self.emitted, self.step, self.time, self.rank, lambda matches: taken_columns(keys, self.latest[matches])
        )

    def by_step(self, keys: Sequence[pa.Array]) -> Matched:
        """The same in the order of `match_order`; `keys`: the key columns, by row."""
        order = self.order(keys)
        return self if (order[1:] > order[:-1]).all() else self.take(order)

    def take(self, matches: Integers) -> Matched:
        """The matches with these indexes, in this order."""
        columns = {name: _taken(getattr(self, name), matches) for name in self._COLUMNS}
        suppressed = self.suppressed[matches] if len(self.suppressed) else self.suppressed
        selected = tuple(taken_columns(self.selected, matches))
        return Matched(**columns, selected=selected, widths=self.widths, suppressed=suppressed)

    def part(self, matches: slice) -> Matched:
        """The matches of a range, without a copy."""
        if matches == slice(0, len(self)):
            return self
        columns = {name: getattr(self, name)[matches] for name in self._COLUMNS}
        selected = tuple(column[matches] for column in self.selected)
        return Matched(**columns, selected=selected, widths=self.widths, suppressed=self.suppressed[matches])

    def behind(self, rows: int) -> Matched:
        """The same with numbers of rows that have so many others before them."""
        if not rows:
            return self
        members = np.where(self.members.T < 0, -1, self.members.T + rows).T
        return replace(self, latest=self.latest + rows, members=members)

    def with_steps(self, records: Integers, end: int) -> Matched:
        """The same with other numbers of steps; timers keep their negative ones.

        records: by record, its new number
        end: is added to the number of the end of the input
        """
        if len(self.step) and int(self.step.max()) < 0:
            return self  # timers have released all of them
        is_record = (self.step >= 0) & (self.step < AT_THE_END)
        moved = np.where(self.step < AT_THE_END, self.step, self.step + end)
        if len(records):
            moved = np.where(is_record, records[np.where(is_record, self.step, 0)], moved)
        return replace(self, step=moved)

    def __len__(self) -> int:
        return len(self.latest)


@dataclass(frozen=True, slots=True)
class OrderedMatches:
    """The matches of one call for one query, in order; their table is gathered later.

    table: the rows of the call
    keys: the key columns, by row
    like: of a family, the query that stands for all of its members; None = it is in none
    """

    plan: Plan
    query: QueryPlan
    table: pa.Table
    keys: Sequence[pa.Array]
    matched: Matched
    like: QueryPlan | None = None


FindsMatches = Callable[[], OrderedMatches]
"""Puts the matches of a call into order, which takes a while."""


def already_found(matches: OrderedMatches) -> FindsMatches:
    """Matches that are in order."""
    return lambda: matches


def found_with_steps(finding: FindsMatches, records: Integers, end: int) -> FindsMatches:
    """The same with other numbers of steps, as `Matched.with_steps`."""

    def later() -> OrderedMatches:
        found = finding()
        return replace(found, matched=found.matched.with_steps(records, end))

    return later


def taken_columns(columns: Sequence[pa.Array], rows: Integers) -> list[pa.Array]:
    """These rows of all columns."""
    chosen = pa.array(rows)
    return [column.take(chosen) for column in columns]


def _taken(values: NDArray[Any], matches: Integers) -> NDArray[Any]:
    """The values of these matches; those of a term stay neighbours in memory."""
    if values.ndim == 1:
        return values.take(matches)
    return np.array([term.take(matches) for term in values.T], values.dtype).reshape(-1, len(matches)).T


# The identity of one match in plain Python; `runtime.results.match_table` makes those of many.

Coordinates = tuple[str, int, int]
"""Where an event was read: source, partition, offset."""

_WORD = 2**64 - 1
_NAN = 0x7FF8000000000000


@lru_cache(maxsize=4096)
def text_hash(text: str) -> int:
    """FNV-1a over the bytes of a text."""
    value = FNV_START
    for byte in text.encode():
        value = (value ^ byte) * FNV_FACTOR & _WORD
    return value


def seeds_of(query: QueryPlan) -> tuple[int, int]:
    """The words with which the two halves of a query's identities begin."""
    first, second = (text_hash(f"{lane}\0{query.name}\0{query.instance}") for lane in "ab")
    return first, second


def match_id(seeds: tuple[int, int], key: Sequence[Value], members: Sequence[Coordinates | None]) -> str:
    """The identity of a match.

    seeds: `seeds_of` its query
    key: its parts are booleans, integers, floats and strings
    members: None = a name that is unset
    """
    start = 0
    for part in key:
        start = _mixed(start ^ _word(part))
    words = [_mixed(seed ^ start) for seed in seeds]
    for member in members:
        if member is None:
            words = [_mixed(~word & _WORD) for word in words]
        else:
            source, partition, offset = member
            place, number = _place(source, partition), offset & _WORD
            words = [_mixed(_mixed(word ^ place) ^ number) for word in words]
    return "".join(f"{word:016x}" for word in words)


def routed_place(query: str, identity: str, output: int) -> Coordinates:
    """Where a routed event is, in place of where a record was read.

    query: the name of the query that has routed it
    identity: of its match
    output: its number among the outputs of the block
    """
    return f"{ROUTE_SOURCE}{query}", _signed(int(identity[:16], 16)), _signed(int(identity[16:], 16) + output)


def routed_places(query: str, identities: Sequence[str], outputs: Integers) -> tuple[str, Integers, Integers]:
    """The same of many events: the source, and by event the partition and the offset."""
    words = np.frombuffer(bytes.fromhex("".join(identities)), ">u8").astype(np.uint64).reshape(-1, 2)
    offsets = words[:, 1] + outputs.astype(np.uint64)
    return f"{ROUTE_SOURCE}{query}", words[:, 0].view(np.int64), offsets.view(np.int64)


def _signed(word: int) -> int:
    word &= _WORD
    return word - _WORD - 1 if word > _WORD >> 1 else word


@lru_cache(maxsize=1024)
def _place(source: str, partition: int) -> int:
    return _mixed(_mixed(text_hash(source)) ^ (partition & _WORD))


def _word(value: Value) -> int:
    """As `runtime.columns.keys.hash_keys` has it for a column of such values."""
    match value:
        case str():
            return text_hash(value)
        case float():
            bits: int = struct.unpack("<Q", struct.pack("<d", value + 0.0))[0]
            return _NAN if math.isnan(value) else bits
        case int():
            return value & _WORD
    raise AssertionError(f"{value!r} is not part of such a key")


def _mixed(word: int) -> int:
    """`runtime.columns.keys.mix` of one word."""
    word = word + MIX_STEP & _WORD
    word = (word ^ word >> 30) * MIX_FIRST & _WORD
    word = (word ^ word >> 27) * MIX_SECOND & _WORD
    return word ^ word >> 31
