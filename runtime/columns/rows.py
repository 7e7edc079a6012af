"""Rows of columns: sorted, taken, counted; kept in sorted runs, which many may share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from runtime.column_types import Integers, different_numbers, has_column, one_chunk
from runtime.compiling.compiled import kernel
from runtime.instants import NEVER, NO_TIME

BITS = 63
"""The bits of an int64 that is not negative."""

DIGIT = 11
"""Bits of a digit of a radix sort: its counts fit into the processor's nearest cache."""

_MOST_DIGITS, _LEAST_ROWS = 5, 1 << 15
"""Where a radix sort is faster: with few digits, and enough rows to be worth its counts."""


def stable_order(*columns: Integers) -> Integers:
    """The rows' indexes in ascending order by these columns, the first one most significant.

    If the ranges of the columns and the row index fit into 63 bits together, they are packed into
    one integer per row, which is sorted: several times faster than `lexsort`, and stable because
    the row index is in the lowest bits. Where they do not, the last columns are sorted first.
    """
    rows = np.arange(len(columns[0]))
    if len(rows) < 2 or (len(columns) == 1 and (columns[0][:-1] <= columns[0][1:]).all()):
        return rows
    ranges = [_range(column) for column in columns]
    widths = [(most - least).bit_length() for least, most in ranges]
    first = len(rows).bit_length()
    if first + sum(widths) > BITS:
        if len(columns) == 1:
            return np.argsort(columns[0], kind="stable")
        order = stable_order(*columns[1:])
        return order[stable_order(columns[0][order])]
    words, bits = rows, first
    for column, (least, _), width in reversed(list(zip(columns, ranges, widths, strict=True))):
        if width:
            words = words | (column.astype(np.int64, copy=False) - least) << bits
        bits += width
    digits = -(-(bits - first) // DIGIT)
    if digits <= _MOST_DIGITS and len(rows) >= _LEAST_ROWS:
        words = _by_digits(words, first, digits)
    else:
        words.sort()
    return words & ((1 << first) - 1)


def _range(column: Integers) -> tuple[int, int]:
    return int(column.min()), int(column.max())


@kernel
def _by_digits(words: Integers, first: int, digits: int) -> Integers:
    """A radix sort by the digits from the bit `first` on, the least one first.

    words: not negative; in ascending order of what is below that bit; overwritten
    """
    count, values, spare = len(words), words, np.empty(len(words), np.int64)
    for digit in range(digits):
        shift, start = first + DIGIT * digit, np.zeros((1 << DIGIT) + 1, np.int64)
        for row in range(count):
            start[((values[row] >> shift) & ((1 << DIGIT) - 1)) + 1] += 1
        for place in range(1 << DIGIT):
            start[place + 1] += start[place]
        # Stable: words with the same digit keep the order that what is below has given them.
        for row in range(count):
            place = (values[row] >> shift) & ((1 << DIGIT) - 1)
            spare[start[place]] = values[row]
            start[place] += 1
        values, spare = spare, values
    return values


_UNCHECKED = pc.TakeOptions(boundscheck=False)
_MOST_BYTES = 2**31
"""The text of a column of strings is shorter."""
_SHARED = 16
"""So many texts, numbers and offsets are kept for the next call, until the process ends."""


_FEW = 10_000
"""Rows that numpy has taken before Arrow begins."""


def taken_rows(values: NDArray[Any], rows: NDArray[Any]) -> NDArray[Any]:
    """`values[rows]`, read-only; the rows are not negative, and exist.

    Arrow takes many rows in half the time that numpy needs; it begins later.
    """
    if len(rows) < _FEW:
        return values.take(rows)
    return np.asarray(pc.call_function("take", [pa.array(values), pa.array(rows)], _UNCHECKED).to_numpy())


_FEW_ITEMS = 8


def is_any_of(values: NDArray[Any], items: Sequence[int]) -> NDArray[np.bool_]:
    """`np.isin(values, items)`, of a few items without what that costs before it begins."""
    if len(items) > _FEW_ITEMS:
        return np.isin(values, items)
    found = np.zeros(len(values), np.bool_)
    for item in items:
        found |= values == item
    return found


def taken_cells(column: pa.Array, rows: pa.Array) -> pa.Array:
    """`column.take(rows)`, of rows that exist or are null; shared cells are copied to each."""
    if isinstance(column, pa.DictionaryArray):
        column, rows = column.dictionary, taken_cells(column.indices, rows)
    return pc.call_function("take", [column, rows], _UNCHECKED)


def shared_cells(column: pa.Array, rows: NDArray[np.int32]) -> pa.Array:
    """These rows of a column, which share its cells."""
    return pa.DictionaryArray.from_arrays(pa.array(rows), column, safe=False)


def plain_cells(table: pa.Table) -> pa.Table:
    """The same with cells that rows share copied to each; names of sources are left shared."""
    for place, field in enumerate(table.schema):
        if pa.types.is_dictionary(field.type) and field.name != "_source":
            column = one_chunk(table.column(place))
            table = table.set_column(place, field.name, taken_cells(column.dictionary, column.indices))
    return table


def taken_by_term(values: NDArray[Any], rows: NDArray[Any]) -> NDArray[Any]:
    """`values[rows]`, of rows by (match, term); those of a term are neighbours in memory.

    Anything where a row is negative.
    """
    by_term = rows.T
    if by_term.size and by_term.min() < 0:
        return np.take(values, by_term, mode="clip").T
    return taken_rows(values, by_term.reshape(-1)).reshape(by_term.shape).T


def only_value(values: NDArray[Any]) -> Any:
    """The value that all entries have; None = there is no entry, or they differ."""
    return values[0] if len(values) and (values == values[0]).all() else None


def repeated(text: str, count: int) -> pa.StringArray:
    """The same text so many times. Columns of the same text share their memory."""
    least = _rounded(count)
    if least * len(text.encode()) >= _MOST_BYTES:
        return pa.repeat(pa.scalar(text), count)
    return _repeated(text, least)[:count]


def repeated_number(number: int, count: int) -> pa.Array:
    """The same integer so many times. Columns of the same integer share their memory."""
    return _repeated_number(number, _rounded(count))[:count]


@lru_cache(_SHARED)
def _repeated_number(number: int, count: int) -> pa.Array:
    return pa.array(np.full(count, number, np.int64))


def evenly(count: int, width: int) -> pa.Buffer:
    """The offsets of so many texts of the same length. Columns share their memory."""
    return _evenly(_rounded(count), width).slice(0, 4 * (count + 1))


@lru_cache(_SHARED)
def _evenly(count: int, width: int) -> pa.Buffer:
    return pa.py_buffer(np.arange(count + 1, dtype=np.int32) * np.int32(width))


def _rounded(count: int) -> int:
    """The next power of two: so few lengths are kept."""
    return 1 << max(count - 1, 0).bit_length()


@lru_cache(_SHARED)
def _repeated(text: str, count: int) -> pa.StringArray:
    data = text.encode()
    return pa.StringArray.from_buffers(count, _evenly(count, len(data)), pa.py_buffer(data * count))


_FEW = 8
"""So many passes over narrow integers take less time than numpy's one pass over wide ones."""


def counts_of(values: NDArray[Any]) -> NDArray[np.int64]:
    """As `np.bincount`: by number from 0 to the largest, how many entries are this number."""
    least, most = (int(values.min()), int(values.max())) if len(values) else (0, -1)
    counts = np.zeros(most + 1, np.int64)
    if least == most:
        counts[most] = len(values)
    elif most < _FEW:
        counts[:] = [np.count_nonzero(values == value) for value in range(most + 1)]
    else:
        counts[:] = np.bincount(values)
    return counts


# Cold rows: rows of keys that the batch does not concern, in sorted runs, found by key hash.
#
# A cold row costs nothing but its memory: runs are searched only for wanted keys, and scanned only
# if a timer may have expired. Two keys with the same hash are loaded together; no answer depends on
# it.

Hashes = NDArray[np.uint64]

SMALL = 4
"""A batch is small if at least so many times its records are stored, and at least LEAST rows."""

LEAST = 4_096


def is_small(records: int, stored: int) -> bool:
    """Whether a batch is so small that it should load only the keys that it concerns."""
    return stored >= max(LEAST, SMALL * records)


_NO_HASHES = np.empty(0, np.uint64)


def _order_of(hashes: Hashes) -> NDArray[np.int64]:
    """`np.argsort`, stable, in a fraction of its time: of the upper bits and numbers of rows."""
    bits = np.uint64(len(hashes).bit_length())
    words = hashes >> bits << bits | np.arange(len(hashes), dtype=np.uint64)
    words.sort()
    order = (words & ((np.uint64(1) << bits) - np.uint64(1))).view(np.int64)
    own = hashes[order]
    if (own[1:] < own[:-1]).any():  # a few that differ in the lower bits only
        order = order[np.argsort(own, kind="stable")]
    return order


class _Run:
    """Rows sorted by the hash of their key.

    timer: by row, when arrival time alone does something to its key, µs; NEVER = it does not, or
        the row was taken
    is_stored: by row, whether it has not been taken yet
    """

    def __init__(self, table: pa.Table, hashes: Hashes, timer: Integers) -> None:
        order = _order_of(hashes)
        self.table = table.take(pa.array(order))
        self.hashes = hashes[order]
        self.timer = timer[order]
        self.is_stored = np.ones(len(order), np.bool_)
        self.count = len(order)
        self._no_timer_before = NO_TIME

    def take(self, wanted: Hashes) -> pa.Table:
        """Removes and returns the rows of these keys; `wanted` is sorted, without duplicates."""
        first = np.searchsorted(self.hashes, wanted, "left")
        is_here = np.append(self.hashes, np.uint64(0))[first] == wanted
        first = first[is_here & (first < len(self.hashes))]
        sizes = np.searchsorted(self.hashes, self.hashes[first], "right") - first
        rows = np.repeat(first - np.cumsum(sizes) + sizes, sizes) + np.arange(int(sizes.sum()))
        rows = rows[self.is_stored[rows]]
        self.is_stored[rows] = False
        self.timer[rows] = NEVER
        self.count -= len(rows)
        return self.table.take(pa.array(rows))

    def next_timer(self) -> int:
        """The earliest timer, NEVER if there is none; scans all rows."""
        self._no_timer_before = int(self.timer.min(initial=NEVER))
        return self._no_timer_before

    def expired_keys(self, limit: int) -> Hashes:
        """The hashes of keys with a timer up to `limit`.

        Rows are scanned only if `limit` has reached the earliest timer of the last scan. Nothing is
        lost: rows are only ever removed from a run, so its earliest timer never gets earlier.
        """
        may_be_expired = self._no_timer_before <= limit and self.next_timer() <= limit
        return self.hashes[self.timer <= limit] if may_be_expired else _NO_HASHES

    def rows_of(self, wanted: np.uint64) -> pa.Table:
        """The rows of a key, which stay stored."""
        first, last = np.searchsorted(self.hashes, wanted, "left"), np.searchsorted(self.hashes, wanted, "right")
        return self.table.slice(first, last - first).filter(pa.array(self.is_stored[first:last]))

    def stored(self) -> tuple[pa.Table, Hashes, Integers]:
        """All rows that have not been taken, with their hashes and timers."""
        is_stored = self.is_stored
        return self.table.filter(pa.array(is_stored)), self.hashes[is_stored], self.timer[is_stored]


class ColdRows:
    """Sorted runs of rows, each run less than half as long as the one before: a row is merged a
    logarithmic number of times."""

    def __init__(self, empty: pa.Table) -> None:
        self._empty = empty
        self._runs: list[_Run] = []

    def __len__(self) -> int:
        return sum(run.count for run in self._runs)

    def add(self, table: pa.Table, hashes: Hashes, timer: Integers) -> None:
        """Stores all rows of some keys, none of which has rows here.

        hashes: by row, the hash of its key
        timer: by row, when arrival time alone does something to its key, µs; NEVER = it does not
        """
        runs = [(table, hashes, timer)]
        while self._runs and self._runs[-1].count <= 2 * sum(len(part) for part, _, _ in runs):
            runs.append(self._runs.pop().stored())
        tables, *columns = zip(*reversed(runs), strict=True)
        hashes, timer = (np.concatenate(parts) for parts in columns)
        self._runs.append(_Run(joined(tables), hashes, timer))

    def expired_keys(self, limit: int) -> Hashes:
        """The hashes of keys with a timer up to `limit`."""
        return np.concatenate([_NO_HASHES, *(run.expired_keys(limit) for run in self._runs)])

    @property
    def next_timer(self) -> int:
        """The earliest timer, µs; NEVER if there is none."""
        return min((run.next_timer() for run in self._runs), default=NEVER)

    def take(self, wanted: Hashes) -> pa.Table:
        """Removes and returns the rows of these keys; `wanted` is sorted, without duplicates."""
        return joined([self._empty, *(run.take(wanted) for run in self._runs)])

    def numbers_of(self, column: str) -> list[Integers]:
        """The values of a column of integers, of all rows."""
        return [run.table.column(column).to_numpy()[run.is_stored] for run in self._runs]

    def take_all(self) -> pa.Table:
        """Removes and returns all rows."""
        runs, self._runs = self._runs, []
        return joined([self._empty, *(run.stored()[0] for run in runs)])

    def rows_of(self, wanted: np.uint64) -> pa.Table:
        """The rows of a key, which stay stored."""
        return joined([self._empty, *(run.rows_of(wanted) for run in self._runs)])


def joined(tables: Sequence[pa.Table]) -> pa.Table:
    """One table, each column in one piece."""
    return pa.concat_tables(tables).unify_dictionaries().combine_chunks()


_OFTEN = 2
"""Cells that are shared so often, on average, are put together first."""

_SAMPLE = 4_096
"""So many rows of a column tell whether its texts repeat."""


class RepeatedTexts:
    """The columns of text of a table by their different texts, each when it is first asked for.

    So what one text decides is found out once, however many rows have it, and copies of rows need
    not copy texts.
    """

    def __init__(self, table: pa.Table) -> None:
        self.table = table
        self._known: dict[str, pa.DictionaryArray | None] = {}

    def column(self, name: str) -> pa.DictionaryArray | None:
        """A column, with null as one of its texts; None = it is not text, or its texts differ."""
        if name not in self._known:
            column = one_chunk(self.table.column(name))
            self._known[name] = column.dictionary_encode(null_encoding="encode") if _repeats(column) else None
        return self._known[name]

    def shared(self) -> pa.Table:
        """The table; rows with equal texts share them where that is known by now."""
        table = self.table
        for name, column in self._known.items():
            if column is not None:
                table = table.set_column(table.schema.get_field_index(name), name, column)
        return table


def _repeats(column: pa.Array) -> bool:
    """Whether a column is text of which most rows have the same as others, as a part of it says."""
    if not pa.types.is_string(column.type) or not len(column):
        return False
    some = column.take(pa.array(np.arange(0, len(column), 1 + len(column) // _SAMPLE)))
    return bool(_OFTEN * pc.count_distinct(some, mode="all").as_py() <= len(some))


# Numbered rows: columns of records that several queries store, once for all of them.


def _shared(column: pa.Array, indices: NDArray[np.int32], rows: pa.Array) -> pa.Array:
    """Rows of a column, which share its cells; `rows`: of one whose rows share cells already."""
    if not pa.types.is_dictionary(column.type):
        return shared_cells(column, indices)
    return pa.DictionaryArray.from_arrays(column.indices.take(rows), column.dictionary, safe=False)


class NumberedRows:
    """Records by number: those of a call, and those of earlier calls that are stored.

    Numbers only grow. As cold rows, stored ones are runs, each less than half as long as the one
    before. Without columns nothing is stored.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._runs: list[tuple[Integers, pa.Table]] = []
        self._call, self._first = schema.empty_table(), 0

    def begin(self, records: pa.Table) -> int:
        """The records of a call, until `keep`; returns the number of the first one."""
        self._call = records
        return self._first

    def add(self, records: pa.Table) -> Integers:
        """Stores records; returns their numbers. Not between `begin` and `keep`."""
        numbers = np.arange(self._first, self._first + len(records))
        self._first += len(records)
        self._store(numbers, self._chosen(records))
        return numbers

    def shared(self, numbers: Integers) -> list[pa.Array]:
        """The columns of the records with these numbers, which share cells."""
        if not self._schema.names:
            return []
        if (numbers >= self._first).all():
            return self._shared_of_call(numbers - self._first)
        different, rows = np.unique(numbers, return_inverse=True)
        first_new = int(np.searchsorted(different, self._first))
        table = joined([self._stored(different[:first_new]), self._of_call(different[first_new:])])
        indices = rows.astype(np.int32)
        return [shared_cells(one_chunk(table.column(field.name)), indices) for field in self._schema]

    def _shared_of_call(self, rows: Integers) -> list[pa.Array]:
        """The same, of records of the call only."""
        columns = {
            field.name: one_chunk(self._call.column(field.name))
            for field in self._schema
            if has_column(self._call, field.name)
        }
        different, places = different_numbers(rows, len(self._call))
        indices = rows.astype(np.int32)
        if _OFTEN * len(different) <= len(rows):  # then their cells fit into the processor's caches
            chosen, indices = pa.array(different), places.astype(np.int32)
            columns = {
                name: column if pa.types.is_dictionary(column.type) else column.take(chosen)
                for name, column in columns.items()
            }
        taken = pa.array(rows)
        return [
            _shared(columns[field.name], indices, taken) if field.name in columns else pa.nulls(len(rows), field.type)
            for field in self._schema
        ]

    def keep(self, used: Integers, count: int, all_used: Callable[[], Integers]) -> None:
        """Stores records of the call and ends it.

        used: numbers that are used, all of the call among them
        count: not fewer than there are that are used at all
        all_used: these; it is asked when many stored ones may be unused
        """
        new = np.unique(used[used >= self._first])
        if len(new):
            self._store(new, self._of_call(new))
        self._first += len(self._call)
        self._call = self._schema.empty_table()
        if sum(len(numbers) for numbers, _ in self._runs) > 2 * count + LEAST:
            self._remove_unused(np.unique(all_used()))

    def _of_call(self, numbers: Integers) -> pa.Table:
        """Records of the call."""
        return self._chosen(self._call, pa.array(numbers - self._first))

    def _stored(self, numbers: Integers) -> pa.Table:
        """Records of earlier calls; their numbers are ascending."""
        found = [self._schema.empty_table()]
        for own, table in self._runs:
            begin, end = np.searchsorted(numbers, [own[0], own[-1] + 1])
            if begin < end:
                found.append(table.take(pa.array(np.searchsorted(own, numbers[begin:end]))))
        return joined(found)

    def _chosen(self, records: pa.Table, rows: pa.Array | None = None) -> pa.Table:
        """These rows, None = all, with the stored columns; those that they do not have are null."""
        count = len(records) if rows is None else len(rows)
        columns = []
        for field in self._schema:
            if has_column(records, field.name):
                own = records.column(field.name)
                is_shared = rows is not None and pa.types.is_dictionary(own.type)
                own = taken_cells(one_chunk(own), rows) if is_shared else own if rows is None else own.take(rows)
                columns.append(own)
            else:
                columns.append(pa.nulls(count, field.type))
        return pa.table(columns, schema=self._schema)

    def _store(self, numbers: Integers, table: pa.Table) -> None:
        if not len(numbers) or not self._schema.names:
            return
        own = [(numbers, table)]
        while self._runs and len(self._runs[-1][0]) <= 2 * sum(len(part) for part, _ in own):
            own.append(self._runs.pop())
        own.reverse()
        self._runs.append((np.concatenate([part for part, _ in own]), joined([table for _, table in own])))

    def _remove_unused(self, used: Integers) -> None:
        runs, self._runs = self._runs, []
        for numbers, table in runs:
            is_used = np.isin(numbers, used, assume_unique=True)
            self._store(numbers[is_used], table.filter(pa.array(is_used)))
