"""What tables beside the stream hold: rows by key and moment.

A row holds from `valid_from` until before `valid_to`; without these columns it holds for all time.
Where `valid_to` is missing, it holds until the next row of its key. Times are those of arrival.
"""

from __future__ import annotations

import atexit
import hashlib
import ipaddress
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from querylang.errors import InputError, did_you_mean
from querylang.plan.model import Plan, QueryPlan, Table
from querylang.plan.text import VALID
from querylang.plan.text_forms import Network, NotANetworkError, network_of
from querylang.printable import warn
from runtime.column_types import Integers, arrow_type, one_chunk
from runtime.columns.keys import hash_keys, number_keys, number_values
from runtime.columns.rows import stable_order
from runtime.instants import NEVER, NO_TIME
from runtime.interpreter import TableContent, Value
from runtime.reading import SmallTable
from runtime.temporary import HeldFolder

_NO_ROW = -1
_NO_PLAN = Plan((), ())

_TIMES = pa.timestamp("us", "UTC")

Place = tuple[int, int, int]
"""Of a network: the version of its addresses, its length, and its first address."""


class LookupTable:
    """The rows of a table, found by key and moment.

    Equal keys are an *entry*. The rows of an entry are neighbours in `_order`, the earliest first.

    table: its definition
    rows: a column per key and field, by name
    since, until: by row, from when and until before when it holds, µs; NO_TIME, NEVER = always
    """

    def __init__(self, table: Table, rows: pa.Table, since: Integers, until: Integers) -> None:
        self.table, self.rows, self.since, self.until = table, rows, since, until
        self._file: Path | None = None
        keys = [self.column(key.name) for key in table.keys]
        networks = None if table.network is None else [network_of(text) for text in keys[table.network].to_pylist()]
        if networks is not None and table.network is not None:  # one network has several spellings
            keys[table.network] = pa.array([str(network) for network in networks], pa.string())
        numbers, count = number_keys(keys, len(rows))
        order = stable_order(numbers, since)
        begin = np.searchsorted(numbers[order], np.arange(count + 1))
        first = order[begin[:-1]]
        hashes = hash_keys(keys)[first] if count else np.empty(0, np.uint64)
        by_hash = np.argsort(hashes, kind="stable")
        self._order = order
        self._hashes, self._begin, self._end = hashes[by_hash], begin[:-1][by_hash], begin[1:][by_hash]
        self._keys = [key.take(pa.array(first[by_hash])) for key in keys]
        self._has_versions = bool(len(order) > count or (since != NO_TIME).any() or (until != NEVER).any())
        _, counts = np.unique(self._hashes, return_counts=True)
        self._alike = int(counts.max(initial=1))
        self._networks: dict[tuple[Value, ...], int] = {}
        self._lengths: tuple[tuple[int, int], ...] = ()
        if networks is not None:
            self._index_networks([networks[row] for row in first[by_hash].tolist()])

    def __len__(self) -> int:
        return int(self.rows.num_rows)

    def column(self, field: str) -> pa.Array:
        """A column as an Arrow array."""
        return one_chunk(self.rows.column(field))

    def cell(self, field: str, row: int) -> Value:
        """A cell; None = null."""
        value: Value = self.rows.column(field)[row].as_py()
        return value

    def row_of(self, keys: Sequence[Value], moment: int) -> int:
        """The row of a key at a moment, µs; -1 = there is none."""
        columns = [
            pa.array([value], arrow_type(key.type, _NO_PLAN)) for key, value in zip(self.table.keys, keys, strict=True)
        ]
        return int(self.rows_of(columns, np.array([moment], np.int64))[0])

    def rows_of(self, keys: Sequence[pa.Array], moments: Integers) -> Integers:
        """By probe the row of its key at its moment; -1 = there is none, or a key is null.

        keys: by key of the table
        moments: µs
        """
        numbers, count = number_keys(keys, len(moments))
        known = np.flatnonzero(numbers >= 0)
        example = np.zeros(count, np.int64)
        example[numbers[known]] = known
        different = [key.take(pa.array(example)) for key in keys]
        chains = self._chains(different) if self.table.network is not None else [self._entries(different)]
        rows = np.full(len(moments), _NO_ROW, np.int64)
        for entries in chains:  # of networks the longest ones first
            missing = known[rows[known] == _NO_ROW]
            if len(missing):
                rows[missing] = self._rows_at(entries[numbers[missing]], moments[missing])
        return rows

    def _entries(self, keys: Sequence[pa.Array]) -> Integers:
        """By key its entry; -1 = none."""
        count = len(keys[0])
        entries = np.full(count, _NO_ROW, np.int64)
        if not len(self._hashes) or not count:
            return entries
        hashes = hash_keys(keys)
        place = np.searchsorted(self._hashes, hashes)
        for _ in range(self._alike):  # keys that differ and have the same hash
            probes = np.flatnonzero((entries == _NO_ROW) & (place < len(self._hashes)))
            probes = probes[self._hashes[place[probes]] == hashes[probes]]
            same = np.ones(len(probes), np.bool_)
            for own, wanted in zip(self._keys, keys, strict=True):
                found = pc.equal(own.take(pa.array(place[probes])), wanted.take(pa.array(probes)))
                same &= found.fill_null(False).to_numpy(zero_copy_only=False)
            entries[probes[same]] = place[probes[same]]
            place = place + 1
        return entries

    def _rows_at(self, entries: Integers, moments: Integers) -> Integers:
        """The row of each entry at a moment; -1 = there is none."""
        is_known = entries >= 0
        entries = np.maximum(entries, 0)
        if not len(self._begin):
            return np.full(len(entries), _NO_ROW, np.int64)
        low, high = self._begin[entries], self._end[entries]
        if not self._has_versions:
            return np.where(is_known, self._order[low], _NO_ROW)
        # The last row that has begun is in low - 1 … high - 1.
        begin, since = low.copy(), self.since[self._order]
        while (is_open := low < high).any():
            middle = (low + high) // 2
            has_begun = is_open & (since[np.minimum(middle, len(since) - 1)] <= moments)
            low, high = np.where(has_begun, middle + 1, low), np.where(is_open & ~has_begun, middle, high)
        rows = self._order[np.maximum(low - 1, 0)]
        holds = is_known & (low > begin) & (moments < self.until[rows])
        return np.where(holds, rows, _NO_ROW)

    def in_order(self) -> LookupTable:
        """The same rows by key and time: one that says the same is the same."""
        columns = [*(self.column(key.name) for key in self.table.keys), pa.array(self.since)]
        order = pc.sort_indices(
            pa.table(columns, [str(place) for place in range(len(columns))]),
            sort_keys=[(str(place), "ascending") for place in range(len(columns))],
        )
        rows = order.to_numpy()
        return LookupTable(self.table, self.rows.take(order), self.since[rows], self.until[rows])

    def neighbours(self) -> tuple[Integers, Integers]:
        """The pairs of rows of one key that begin one after the other."""
        begins = np.zeros(len(self._order) + 1, np.bool_)
        begins[self._begin] = True
        is_same = ~begins[1 : len(self._order)]
        return self._order[:-1][is_same], self._order[1:][is_same]

    def to_bytes(self) -> bytes:
        """The content as a file of Arrow, which `read_lookup_table` reads, too."""
        since, until = (
            pa.array(times, mask=times == none) for times, none in ((self.since, NO_TIME), (self.until, NEVER))
        )
        rows = self.rows.append_column(VALID[0], since.cast(_TIMES)).append_column(VALID[1], until.cast(_TIMES))
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, rows.schema) as writer:
            writer.write_table(rows)
        return sink.getvalue().to_pybytes()

    @staticmethod
    def of_file(table: Table, source: Any) -> LookupTable:
        """The inverse of `to_bytes`; source: as pyarrow opens it."""
        rows = pa.ipc.open_file(source).read_all()
        since, until = (one_chunk(rows.column(name)).cast(pa.int64()) for name in VALID)
        return LookupTable(
            table, rows.drop_columns([*VALID]), since.fill_null(NO_TIME).to_numpy(), until.fill_null(NEVER).to_numpy()
        )

    def written_to(self, folder: Path) -> Path:
        """A file in this folder with the content; its name says which content."""
        if self._file is None or self._file.parent != folder:
            data = self.to_bytes()
            file = folder / name_of_content(self.table.name, data)
            draft = file.with_suffix(".draft")
            draft.write_bytes(data)
            draft.rename(file)
            self._file = file
        return self._file

    def followed_by(self, new: LookupTable, place: int) -> LookupTable:
        """What holds up to the arrival `place`, µs, and what another version says behind it.

        A row that both have stays as it is.
        """
        begins = place + 1
        old_rows = np.flatnonzero(self.since < begins)
        new_rows = np.flatnonzero(new.until > begins)
        rows = pa.concat_tables([self.rows.take(pa.array(old_rows)), new.rows.take(pa.array(new_rows))])
        since = np.concatenate([self.since[old_rows], np.maximum(new.since[new_rows], begins)])
        until = np.concatenate([self.until[old_rows], new.until[new_rows]])
        is_new = np.arange(len(rows)) >= len(old_rows)
        goes_on = ~is_new & (until > begins)
        columns = [one_chunk(rows.column(name)) for name in rows.column_names]
        numbers, count = number_values([*columns, pa.array(until)], len(rows))
        of_old, of_new = np.zeros(count, np.bool_), np.zeros(count, np.bool_)
        of_old[numbers[goes_on]] = True
        of_new[numbers[is_new & (since == begins)]] = True
        is_same = (of_old & of_new)[numbers]
        until = np.where(goes_on & ~is_same, np.minimum(until, begins), until)
        kept = np.flatnonzero(~is_new | ~(is_same & (since == begins)))
        return LookupTable(self.table, rows.take(pa.array(kept)), since[kept], until[kept])

    # Networks: each length that there is is asked for, the longest first.

    def _index_networks(self, networks: Sequence[Network]) -> None:
        """By the other keys and the place of a network, its entry."""
        place = self.table.network
        others = [key.to_pylist() for at, key in enumerate(self._keys) if at != place]
        for entry, network in enumerate(networks):
            own = *(values[entry] for values in others), *_place(network)
            self._networks[own] = entry
        lengths = {(network.version, network.prefixlen) for network in networks}
        self._lengths = tuple(sorted(lengths, reverse=True))

    def _chains(self, keys: Sequence[pa.Array]) -> Iterator[Integers]:
        """By key the entries of all networks that its address is in, the longest ones first."""
        place = self.table.network
        assert place is not None, "who asks has seen that there are networks"
        others = list(zip(*(key.to_pylist() for at, key in enumerate(keys) if at != place), strict=True))
        found: list[list[int]] = []
        for number, text in enumerate(keys[place].to_pylist()):
            own = others[number] if others else ()
            found.append(
                [entry for part in self._places_of(text) if (entry := self._networks.get((*own, *part))) is not None]
            )
        for depth in range(max(map(len, found), default=0)):
            yield np.array([chain[depth] if depth < len(chain) else _NO_ROW for chain in found], np.int64)

    def _places_of(self, text: str) -> Iterator[Place]:
        try:
            address = ipaddress.ip_address(text)
        except ValueError:
            return
        number, bits = int(address), address.max_prefixlen
        for version, length in self._lengths:
            if version == address.version:
                yield version, length, number >> (bits - length) << (bits - length)


def name_of_content(table: str, data: bytes) -> str:
    """The name of a file with a table's content."""
    return f"{table}-{hashlib.sha256(data).hexdigest()[:32]}.arrow"


def _place(network: Network) -> Place:
    return network.version, network.prefixlen, int(network.network_address)


# Read the content of a table, and refuse what it cannot hold.


def read_lookup_table(table: Table, given: Any) -> LookupTable:
    """The content of a table, as of `SmallTable.read`.

    Raises InputError, which names the place of what is wrong.
    """
    read = SmallTable.read(given, f"table {table.name}", f"table '{table.name}'")
    columns = {field.name: read.column(field.name, field.type) for field in (*table.keys, *table.fields)}
    for key in table.keys:
        read.refuse_rows(columns[key.name].is_null().to_numpy(zero_copy_only=False), key.name, "has no value")
    if table.network is not None:
        name = table.keys[table.network].name
        for row, text in enumerate(columns[name].to_pylist()):
            try:
                network_of(text)
            except NotANetworkError as error:
                instead = "" if error.instead is None else f"; write {error.instead}"
                raise InputError(f"{read.at(row)}: {name!r}: {error}{instead}") from None
    since, until = read.times(VALID[0], NO_TIME), read.times(VALID[1], NEVER)
    is_reversed = (until != NEVER) & (since != NO_TIME) & (until <= since)
    read.refuse_rows(is_reversed, VALID[1], f"is not behind {VALID[0]!r}")
    rows = pa.table(columns)
    until = _until_next(read, table, LookupTable(table, rows, since, until), since, until)
    return LookupTable(table, rows, since, until)


def _until_next(read: SmallTable, table: Table, made: LookupTable, since: Integers, until: Integers) -> Integers:
    """When rows end: those without an end when the next one of their key begins.

    Raises InputError for two rows of a key that hold at the same time.
    """
    before, after = made.neighbours()
    until = until.copy()
    is_open = (until[before] == NEVER) & (since[before] < since[after])
    until[before[is_open]] = since[after[is_open]]
    both = np.flatnonzero(until[before] > since[after])
    if len(both):
        pair = sorted((int(before[both[0]]), int(after[both[0]])))
        first, second = (read.raw.describe(int(read.raw.numbers[row]))[0] for row in pair)
        keys = ", ".join(repr(made.cell(key.name, pair[0])) for key in table.keys)
        way_out = f"; columns {VALID[0]!r} and {VALID[1]!r} say when each row holds" if _is_always(since, until) else ""
        raise InputError(
            f"{read.raw.name}: {first} and {second} of table '{table.name}' have the same key, {keys}, and hold at the"
            f" same time{way_out}"
        )
    return until


def _is_always(since: Integers, until: Integers) -> bool:
    return bool((since == NO_TIME).all() and (until == NEVER).all())


# The tables of a plan and their content.


def tables_of_plan(plan: Plan) -> list[Table]:
    """The different tables that queries look something up in."""
    return list(dict.fromkeys(table for query in plan.queries for table in query.tables))


def definition_of(table: Table) -> str:
    """The name of a table, and a hash of its fields."""
    fields = [(field.name, str(field.type)) for field in (*table.keys, *table.fields)]
    text = repr((fields, len(table.keys), table.network))
    return f"{table.name}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


class GivenTables:
    """The tables that users give; each is read once, whatever plans need it.

    given: by name, as of `read`
    read: gives the content of a table
    """

    def __init__(
        self,
        given: Mapping[str, Any] | None = None,
        read: Callable[[Table, Any], LookupTable] = read_lookup_table,
    ) -> None:
        self._given = dict(given or {})
        self._reader = read
        self._read: dict[Table, LookupTable] = {}
        self._was_asked = False

    def bound(self, plan: Plan) -> Plan:
        """The plan with the content of its tables. Raises InputError where there is none."""
        tables = tables_of_plan(plan)
        if not self._was_asked:
            self._was_asked, names = True, {table.name for table in tables}
            for name in sorted(self._given.keys() - names):
                warn(f"table {name!r}: no query looks anything up in it{did_you_mean(name, names)}")
        for table in tables:
            if table not in self._read:
                self._read[table] = self._reader(table, self._content_of(table))
        return with_content(plan, self._read) if tables else plan

    def _content_of(self, table: Table) -> Any:
        if table.name not in self._given:
            near = did_you_mean(table.name, self._given)
            raise InputError(f"table '{table.name}' has no content; give it, `--table {table.name}=FILE`{near}")
        return self._given[table.name]


def with_content(plan: Plan, contents: Mapping[Table, TableContent]) -> Plan:
    """The plan with the content of these tables."""

    def own(query: QueryPlan) -> QueryPlan:
        if not query.tables:
            return query
        return replace(
            query, tables=tuple(replace(table, content=contents.get(table, table.content)) for table in query.tables)
        )

    return replace(plan, queries=tuple(map(own, plan.queries)))


# Content for other processes: a file with the name of its content, which they map into memory.


@cache
def _folder() -> HeldFolder:
    folder = HeldFolder()
    atexit.register(folder.close)
    return folder


def with_places(plan: Plan) -> Plan:
    """The plan whose tables other processes of this machine can read."""
    if not tables_of_plan(plan):
        return plan

    def placed(table: Table) -> Table:
        content: LookupTable = table.content
        return replace(table, place=str(content.written_to(_folder().folder)))

    queries = (replace(query, tables=tuple(map(placed, query.tables))) for query in plan.queries)
    return replace(plan, queries=tuple(queries))


def with_read_places(plan: Plan) -> Plan:
    """A plan of another process, with the content of its tables that have a place."""
    tables = [table for table in tables_of_plan(plan) if table.place]
    return with_content(plan, {table: _at_place(table) for table in tables}) if tables else plan


@lru_cache(16)
def _at_place(table: Table) -> LookupTable:
    try:
        with pa.memory_map(table.place) as source:
            return LookupTable.of_file(table, source)
    except OSError as error:
        raise InputError(f"table '{table.name}': {table.place!r} cannot be read here: {error}") from None
