"""Values that are stored with their times; `new by`, which asks when equal ones came last, and
`at most`, which counts them.

Values are those of a partition key and of some columns beside it; a null equals a null, and NaN
equals NaN. A call takes the values that its own rows have, and stores them again with their times.
All others stay in sorted runs (`runtime.columns.rows`), so a call costs what its own rows cost.
Expired times are removed whenever the values have doubled, so they are bounded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from querylang.dataclass import dataclass
from querylang.plan.expression import type_of
from querylang.plan.model import Plan, QueryPlan, known
from querylang.plan.text import INPUT_NAMES, Names, expression_text
from runtime.admission import Released
from runtime.column_types import Integers, arrow_type, one_chunk
from runtime.columns.expressions import as_array
from runtime.columns.keys import filled, group_rows, hash_keys, is_of_key, key_types, number_values
from runtime.columns.rows import ColdRows, Hashes
from runtime.compiling.compiled import borrowing
from runtime.engine.snapshot import fitted, refuse_nulls
from runtime.instants import NO_TIME

LEAST = 4_096
"""So many values are stored before expired ones are looked for."""

VALUES_VERSION = 1
"""Of tables of values in saved states."""

TIME = pa.field("_time", pa.int64())
"""The column of the latest time of a value, µs."""


@dataclass(frozen=True, slots=True)
class Numbered:
    """The rows of a call by value, behind what was stored of these values.

    known: what was stored of them before, and is not any more
    columns: the partition key and the values, of `known` and of the rows
    number: by row, of `known` first, the number of its values, from 0
    count: how many numbers there are
    """

    known: pa.Table
    columns: Sequence[pa.Array]
    number: Integers
    count: int

    @property
    def of_known(self) -> Integers:
        """The numbers of what was stored, each once."""
        return self.number[: len(self.known)]

    @property
    def of_rows(self) -> Integers:
        """The numbers of the rows of the call."""
        return self.number[len(self.known) :]


class StoredValues:
    """Values, each with its latest time and what else a clause stores of it; one row per value.

    clause: of which clause they are, for people
    keys: the columns of the partition key
    values: by their text, the columns beside it
    own: what is stored beside `_time`, the latest time, µs
    length: how long after `_time` a value matters, µs
    """

    def __init__(
        self,
        clause: str,
        keys: Sequence[pa.DataType],
        values: Sequence[tuple[str, pa.DataType]],
        own: Sequence[pa.Field],
        length: int,
    ) -> None:
        self.clause, self.names, self.length = clause, [name for name, _ in values], length
        self._keys = [pa.field(f"key{place}", type_) for place, type_ in enumerate(keys)]
        self._compared = [*self._keys, *(pa.field(f"value{place}", type_) for place, (_, type_) in enumerate(values))]
        self._empty = pa.schema([*self._compared, TIME, *own]).empty_table()
        self._own = [field.name for field in own]
        self._stored, self._most = ColdRows(self._empty), LEAST

    def __len__(self) -> int:
        """How many values are stored; some may have expired."""
        return len(self._stored)

    def take(self, columns: Sequence[pa.Array], length: int) -> Numbered:
        """Takes what is stored of the values of some rows; `store` has to follow.

        columns: the partition key and the values, by row
        """
        columns = [_as(column, field.type) for column, field in zip(columns, self._compared, strict=True)]
        known = self._stored.take(_different(_hashes(columns, length))) if len(self._stored) else self._empty
        if len(known):
            columns = [pa.concat_arrays(pair) for pair in zip(self._of(known), columns, strict=True)]
        return Numbered(known, columns, *number_values(columns, len(known) + length))

    def store(self, numbered: Numbered, own: Sequence[pa.Array]) -> None:
        """Stores the values that `take` has given.

        own: by number, the latest time, µs, and what else is stored
        """
        if numbered.count:
            row = np.empty(numbered.count, np.int64)
            row[numbered.number] = np.arange(len(numbered.number))
            taken = pa.array(row)
            compared = [column.take(taken) for column in numbered.columns]
            self.add(pa.table([*compared, *own], schema=self._empty.schema))

    @property
    def schema(self) -> pa.Schema:
        """Of a table of values."""
        return self._empty.schema

    def add(self, table: pa.Table) -> None:
        """Stores values, none of which is stored."""
        self._stored.add(table, _hashes(self._of(table), len(table)), table.column(TIME.name).to_numpy() + self.length)

    def _of(self, table: pa.Table) -> list[pa.Array]:
        return [one_chunk(table.column(field.name)) for field in self._compared]

    def evict(self, reached: Callable[[], int], *, everything: bool = False) -> None:
        """Removes expired values, once there are many.

        reached: gives the moment before which no row has a time any more, µs
        everything: however many there are
        """
        if len(self._stored) <= (0 if everything else self._most):
            return
        limit = reached()
        expired = self._stored.expired_keys(limit)
        if len(expired):
            taken = self._stored.take(_different(expired))
            left = taken.filter(pc.greater(taken.column(TIME.name), pa.scalar(limit - self.length, pa.int64())))
            if len(left):  # a value with the same hash
                self.add(left.combine_chunks())
        self._most = max(LEAST, 2 * len(self._stored))

    def table(self) -> pa.Table:
        """All values in an order that does not depend on how they came."""
        table = self._stored.take_all()
        if len(table):
            table = table.take(pa.array(np.argsort(_hashes(self._of(table), len(table)), kind="stable")))
            self.add(table)
        return table

    def restore(self, table: pa.Table, name: str) -> None:
        """Replaces all values by saved ones; raises ValueError if they do not fit."""
        table = fitted(table, self._empty.schema, name).combine_chunks()
        refuse_nulls(table, [TIME.name, *self._own], name)
        for column in map(one_chunk, table.itercolumns()):
            if pa.types.is_list(column.type):
                is_empty = column.value_lengths().to_numpy() == 0
                if column.flatten().null_count or is_empty.any():
                    raise ValueError(f"'{name}' has a value without its times")
        self._stored = ColdRows(self._empty)
        if len(table):
            self.add(table)

    def of_key(self, key: Sequence[pa.Scalar]) -> list[tuple[tuple[object, ...], int]]:
        """The values of a partition key, each with its latest time, µs; by time."""
        table = self.table()
        own = table.filter(pa.array(self._is_of(table, key))).sort_by(TIME.name)
        columns = [own.column(f"value{place}").to_pylist() for place in range(len(self.names))]
        values = zip(*columns, strict=True) if columns else [()] * len(own)
        return list(zip(values, own.column(TIME.name).to_pylist(), strict=True))

    def forget(self, key: Sequence[pa.Scalar]) -> None:
        """Removes all values of a partition key."""
        table = self.table()
        self._stored = ColdRows(self._empty)
        left = table.filter(pa.array(~self._is_of(table, key))).combine_chunks()
        if len(left):
            self.add(left)

    def _is_of(self, table: pa.Table, key: Sequence[pa.Scalar]) -> NDArray[np.bool_]:
        if not key or not len(table):
            return np.ones(len(table), np.bool_)
        return is_of_key([one_chunk(table.column(field.name)) for field in self._keys], key)


def _hashes(columns: Sequence[pa.Array], length: int) -> Hashes:
    """Of values; a null may have the hash of another value."""
    return hash_keys([filled(column) for column in columns]) if columns else np.zeros(length, np.uint64)


def _different(hashes: Hashes) -> Hashes:
    """Each hash once, in order; numpy's `unique` takes several times as long."""
    ordered = np.sort(hashes)
    return ordered[np.append(True, ordered[1:] != ordered[:-1])] if len(ordered) else ordered


def _as(column: pa.Array, type_: pa.DataType) -> pa.Array:
    return column if column.type == type_ else column.cast(type_)


# `new by`: which released events count for the pattern, because no equal one came shortly before.
# An event is judged at its release, in the total order of its key. One that is not new has moved
# clocks and bounds as any other has, and extends the time of its values; it is in no window.

NONE_OLD = np.empty(0, np.bool_)
"""Of a call in which each released event counts."""


def seen_values(plan: Plan, query: QueryPlan) -> dict[int, StoredValues]:
    """By input with `new by`, room for the values of its events."""
    if all(item.new is None for item in query.inputs):
        return {}
    keys = key_types(plan, query)
    return {
        index: StoredValues(
            f"`new by` of {item.name}",
            keys,
            [(expression_text(value, INPUT_NAMES), arrow_type(type_of(value), plan)) for value in item.new.values],
            [],
            known(item.new.within),
        )
        for index, item in enumerate(query.inputs)
        if item.new is not None
    }


def old_events(
    plan: Plan,
    query: QueryPlan,
    seen: Mapping[int, StoredValues],
    table: pa.Table,
    keys: list[pa.Array],
    released: Released,
) -> NDArray[np.bool_]:
    """By position of released events, whether it is not new; empty if all are new.

    Stores the times of the new positions.

    table: the events' columns, by row
    keys: the key columns, by row
    """
    if not seen:
        return NONE_OLD
    old = np.zeros(len(released.order), np.bool_)
    fresh = _fresh(released)
    for index, values in seen.items():
        new, positions = query.inputs[index].new, fresh[released.input[fresh] == index]
        if new is None or not len(positions):
            continue
        rows = pa.array(released.order[positions])
        event, its_rows = plan.event(query.inputs[index].event), table.take(rows)
        columns = [column.take(rows) for column in keys]
        columns += [as_array(value, its_rows, plan, event, query) for value in new.values]
        numbered = values.take(columns, len(positions))
        last = np.full(numbered.count, NO_TIME, np.int64)
        last[numbered.of_known] = one_chunk(numbered.known.column(TIME.name)).to_numpy()
        is_old = np.zeros(len(positions), np.bool_)
        mark_old(numbered.of_rows, released.time[positions], known(new.within), last, is_old)
        old[positions] = is_old
        values.store(numbered, [pa.array(last)])
    return old if old.any() else NONE_OLD


def _fresh(released: Released) -> Integers:
    """The new positions, by key and in order."""
    if not len(released.fresh):
        return np.empty(0, np.int64)
    first = np.repeat(released.fresh, np.diff(released.start))
    return np.flatnonzero(np.arange(len(released.order)) >= first)


@borrowing
def mark_old(number: Integers, time: Integers, length: int, last: Integers, is_old: NDArray[np.bool_]) -> None:
    """Fills `is_old`, and `last` with the latest times.

    number, time: by event, in total order per number
    last: by number, the latest time of the values; NO_TIME = they did not come yet
    """
    for event in range(len(number)):
        before = last[number[event]]
        is_old[event] = before != NO_TIME and time[event] - before < length
        last[number[event]] = max(before, time[event])


def without_old(released: Released, old: NDArray[np.bool_]) -> Released:
    """What is released without the events that do not count; `old`: by position, empty = none."""
    if not len(old):
        return released
    left = np.flatnonzero(~old)
    before = np.concatenate([[0], np.cumsum(~old)])
    columns = {
        name: getattr(released, name)[left]
        for name in ("order", "time", "input", "emitted", "definitive", "waited", "record")
    }
    return released._replace(start=before[released.start], fresh=before[released.fresh], **columns)


# `at most n per d by ...`: which matches are given, and how many were suppressed before each. Of
# matches with equal values, in the same key, those are given before which fewer than n were given
# in the time d. The times of the last n are stored by value, and how many matches were suppressed
# since the last one.

_OWN = (pa.field("_times", pa.list_(pa.int64())), pa.field("_suppressed", pa.int64()))
"""What is stored beside the time of the last match that was given, µs.

_times: of the last ones, at most n, oldest first
_suppressed: how many matches were suppressed since the last one
"""


def given_times(plan: Plan, query: QueryPlan) -> StoredValues | None:
    """Room for the times of matches that are given; None = all are."""
    if query.at_most is None:
        return None
    names = Names.of(query)
    return StoredValues(
        "`at most`",
        key_types(plan, query),
        [(expression_text(value, names), arrow_type(type_of(value), plan)) for value in query.at_most.values],
        _OWN,
        known(query.at_most.duration),
    )


def limited(
    query: QueryPlan, stored: StoredValues, compared: Sequence[pa.Array], time: Integers
) -> tuple[NDArray[np.bool_], Integers]:
    """By match, whether it is given, and how many were suppressed since the one before.

    compared: the key and the values, by match in the order of matches
    time: by match, µs
    """
    assert query.at_most is not None, "there is a limit"
    numbered = stored.take(compared, len(time))
    start, rows = group_rows(numbered.of_rows, numbered.count)
    begin, end, times, since = _known(numbered)
    kept_end, kept = np.zeros(numbered.count, np.int64), np.empty(len(times) + len(time), np.int64)
    is_given, suppressed = np.zeros(len(time), np.bool_), np.zeros(len(time), np.int64)
    count, length = known(query.at_most.count), known(query.at_most.duration)
    give(start, rows, time, count, length, begin, end, times, since, kept_end, kept, is_given, suppressed)
    if numbered.count:
        offsets = np.concatenate([[0], kept_end]).astype(np.int32)
        lists = pa.ListArray.from_arrays(pa.array(offsets), pa.array(kept[: offsets[-1]]))
        stored.store(numbered, [pa.array(kept[kept_end - 1]), lists, pa.array(since)])
    return is_given, suppressed


def _known(numbered: Numbered) -> tuple[Integers, Integers, Integers, Integers]:
    """What was stored: by number the begin and end of its times; all times; by number how many were
    suppressed."""
    begin, end, since = (np.zeros(numbered.count, np.int64) for _ in range(3))
    lists = one_chunk(numbered.known.column("_times"))
    offsets = lists.offsets.to_numpy()
    begin[numbered.of_known], end[numbered.of_known] = offsets[:-1], offsets[1:]
    since[numbered.of_known] = one_chunk(numbered.known.column("_suppressed")).to_numpy()
    return begin, end, lists.values.to_numpy(), since


@borrowing
def give(
    start: Integers,
    rows: NDArray[np.int32],
    time: Integers,
    count: int,
    length: int,
    begin: Integers,
    end: Integers,
    times: Integers,
    since: Integers,
    kept_end: Integers,
    kept: Integers,
    is_given: NDArray[np.bool_],
    suppressed: Integers,
) -> None:
    """Fills `is_given`, `suppressed`, `since`, and by number the times that are kept.

    start, rows: by number, its matches in order; their times ascend
    begin, end, times: by number, the times that were stored, oldest first
    since: by number, how many matches were suppressed since the last one that was given
    kept_end, kept: as `end` and `times`; each number begins where the one before ends
    """
    out = 0
    for number in range(len(start) - 1):
        # 1. The times that were stored; those from `first` on are younger than `length`.
        bottom = first = out
        for place in range(begin[number], end[number]):
            kept[out] = times[place]
            out += 1
        # 2. Each match is given if fewer than `count` of the times are that young.
        for place in range(start[number], start[number + 1]):
            match = rows[place]
            while first < out and kept[first] <= time[match] - length:
                first += 1
            if out - first < count:
                suppressed[match] = since[number] if out > first else 0
                since[number] = 0
                is_given[match] = True
                kept[out] = time[match]
                out += 1
            else:
                since[number] += 1
        # 3. Older times than the last `count` never matter again.
        first = max(first, out - count)
        for place in range(first, out):
            kept[bottom + place - first] = kept[place]
        out = bottom + out - first
        kept_end[number] = out
