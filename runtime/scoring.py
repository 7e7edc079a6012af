"""Matches of a replay against labels: what should have fired, by rows or by times.

A *label* is a row of a table that says where a query should have fired:

- by times: at `time`, or from `start` to `end`. A match counts if its `time` is in between, or at
  most `within` behind the end;
- by row: the number `row` of an event in its table, and `source`, the table's name. A match counts
  if the event is a member of it.

Columns that are called like keys of a query restrict a label to matches with these values; a cell
without a value restricts nothing. `query` restricts it to one query, by its name or its title.

A match is a *hit* if it counts for at least one label, else a *false alarm*. A label is *found* if
at least one match counts for it, else *missed*. Precision is hits / matches, recall is found /
labels, F1 their harmonic mean. The *delay* of a label is the time from its beginning, or from its
event, to the earliest match that counts for it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from itertools import accumulate
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from querylang.dataclass import dataclass, field, replace
from querylang.errors import InputError, listed
from querylang.plan.expression import Type
from runtime.instants import NO_TIME
from runtime.policies.settings_text import parse_duration
from runtime.reading import SmallTable
from runtime.results.for_users import row_number
from runtime.results.schemas import is_run

if TYPE_CHECKING:
    from querylang.plan.model import QueryPlan
    from runtime.results.for_users import RowOf
    from runtime.results.schemas import Results

TIME, START, END, ROW, SOURCE, QUERY = "time", "start", "end", "row", "source", "query"
"""Columns of labels."""

COLUMNS = (TIME, START, END, ROW, SOURCE, QUERY)

SECOND = 1_000_000
"""µs"""


@dataclass(frozen=True, slots=True)
class Label:
    """Where a query should have fired.

    number: of its row in the table of labels, from 1
    keys: values by name of a key; those that are missing restrict nothing
    start, end: between which a match counts, µs; NO_TIME = it is about a row
    row, source: of the event; None = it is about a time, of any table
    """

    number: int
    keys: Mapping[str, Any]
    start: int = NO_TIME
    end: int = NO_TIME
    row: int | None = None
    source: str | None = None


@dataclass(frozen=True, slots=True)
class ScoredMatch:
    """A match. `rows`: by table and row of its events their times, µs. Times in µs."""

    match_id: str
    keys: Mapping[str, Any]
    time: int
    emitted: int
    rows: Mapping[tuple[str, int], int]


@dataclass(frozen=True, slots=True)
class LabelledTables:
    """The rows of the event tables.

    sources: the names of the tables
    row_of: gives the numbers of their records
    count: how many records there are
    last: gives the largest number of a row, of all tables; it may have to read them
    """

    sources: Sequence[str]
    row_of: RowOf
    count: int
    last: Callable[[], int]

    def behind(self, labels: Sequence[Label]) -> list[Label]:
        """The labels of rows that no table has, because they are behind the last one."""
        found = [label for label in labels if label.row is not None and label.row > self.count]
        last = self.last() if found else 0
        return [label for label in found if label.row is not None and label.row > last]


@dataclass(frozen=True)
class Score:
    """How the matches of a query fit the labels.

    query, instance: whose matches
    parameters: the values that a sweep has set
    matches, labels: how many there are
    hits, found: how many of them belong to each other
    delays: by found label, µs from its beginning to the earliest match that counts for it
    waits: by found label, µs from there to when that match was emitted
    missed: the labels that no match counts for
    false_alarms: the matches that count for no label
    remarks: what may be meant otherwise
    """

    query: str
    instance: str
    parameters: Mapping[str, Any]
    matches: int
    labels: int
    hits: int
    found: int
    delays: tuple[int, ...] = field(repr=False)
    waits: tuple[int, ...] = field(repr=False)
    missed: tuple[Label, ...] = field(repr=False)
    false_alarms: tuple[ScoredMatch, ...] = field(repr=False)
    remarks: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """The query as users see it."""
        return f"{self.query}/{self.instance}" if self.instance else self.query

    @property
    def precision(self) -> float | None:
        """Which share of the matches are hits; None = there is no match."""
        return self.hits / self.matches if self.matches else None

    @property
    def recall(self) -> float | None:
        """Which share of the labels was found; None = there is no label."""
        return self.found / self.labels if self.labels else None

    @property
    def f1(self) -> float | None:
        """The harmonic mean of precision and recall; None = there is no label."""
        if self.recall is None:
            return None
        both = (self.precision or 0.0) + self.recall
        return 2 * (self.precision or 0.0) * self.recall / both if both else 0.0

    @property
    def delay(self) -> float | None:
        """The median delay in seconds; None = nothing was found."""
        return median(self.delays) / SECOND if self.delays else None

    @property
    def longest_delay(self) -> float | None:
        """In seconds; None = nothing was found."""
        return max(self.delays) / SECOND if self.delays else None

    @property
    def wait(self) -> float | None:
        """The median of the waits in seconds; None = nothing was found."""
        return median(self.waits) / SECOND if self.waits else None


def scores_of(
    queries: Sequence[QueryPlan],
    results: Results,
    labels: Any,
    within: str | timedelta | None,
    tables: LabelledTables,
) -> list[Score]:
    """How the matches of each query fit the labels.

    labels: a path, a DataFrame, an Arrow table or a list of mappings
    within: how long behind a label a match still counts, such as `5 minutes`; needed for `time`
    tables: those of the events

    Raises InputError.
    """
    read = SmallTable.read(labels, "labels", "the labels")
    length = _length(within)
    if not len(read):
        raise InputError(f"{read.raw.name}: there are no labels: nothing says where a query should have fired")
    given, matches = _Labels(read, length, tables), _Matches(tables.row_of)
    return [_score(query, given, matches.of(query, results.matches.get(query.title))) for query in queries]


def _length(within: str | timedelta | None) -> int | None:
    if isinstance(within, timedelta):
        length: int | None = within // timedelta(microseconds=1)
    else:
        length = parse_duration(within) if isinstance(within, str) else None
    if within is not None and (length is None or length < 0):
        raise InputError(f"within: {within!r} is not a length of time, such as `5 minutes`")
    return length


# Labels as users give them.


class _Labels:
    """The rows of a table of labels.

    within: µs
    tables: those of the events
    are_rows: whether they are rows of events, and not times
    """

    def __init__(self, read: SmallTable, within: int | None, tables: LabelledTables) -> None:
        self._read, self._tables = read, tables
        by = [name for name in (TIME, START, ROW) if read.name_of(name) is not None]
        if len(by) != 1:
            there = listed(by or read.raw.names)
            raise InputError(
                f"{read.raw.name}: labels have one of the columns 'time', 'start' (with 'end') and 'row'; "
                f"there {'are' if len(by or read.raw.names) > 1 else 'is'} {there}"
            )
        self.are_rows = by == [ROW]
        if by == [TIME] and within is None:
            raise InputError("labels with 'time' need a length: how long behind it does a match still count? `within`")
        if self.are_rows and within is not None:
            raise InputError("`within` is for labels with times; these have rows")
        self._labels = list(self._of_rows(tables.sources) if self.are_rows else self._of_times(by[0], within or 0))
        self._queries = self._texts(QUERY)

    def _of_times(self, name: str, within: int) -> Iterator[Label]:
        starts = self._read.times(name, NO_TIME)
        self._read.refuse_rows(starts == NO_TIME, name, "has no value")
        ends = starts if name == TIME else self._read.times(END, NO_TIME)
        ends = np.where(ends == NO_TIME, starts, ends)
        self._read.refuse_rows(ends < starts, END, f"is before {START!r}")
        for row, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
            yield Label(self._number(row), {}, start, end + within)

    def _of_rows(self, known: Sequence[str]) -> Iterator[Label]:
        rows = self._read.column(ROW, Type.INTEGER)
        self._read.refuse_rows(rows.is_null().to_numpy(zero_copy_only=False), ROW, "has no value")
        self._read.refuse_rows(
            rows.to_numpy(zero_copy_only=False) < 1, ROW, "is less than 1, the number of the first row"
        )
        for row, (event, source) in enumerate(zip(rows.to_pylist(), self._texts(SOURCE), strict=True)):
            if source is None and len(known) > 1:
                raise InputError(f"{self._read.at(row)}: of which table? 'source' is one of {listed(known)}")
            if source is not None and source not in known:
                raise InputError(f"{self._read.at(row)}: there is no table {source!r}; there are {listed(known)}")
            yield Label(self._number(row), {}, row=event, source=source)

    def _number(self, row: int) -> int:
        return int(self._read.raw.numbers[row])

    def _texts(self, name: str) -> list[str | None]:
        if self._read.name_of(name) is None:
            return [None] * len(self._read)
        texts: list[str | None] = self._read.column(name, Type.STRING).to_pylist()
        return [text or None for text in texts]

    def of_query(self, query: QueryPlan) -> list[Label]:
        """The labels of a query, with the values of its keys. Raises InputError."""
        if self.are_rows and query.every is not None:
            raise InputError(
                f"query '{query.name}': a `find every` does not keep its events, so no row is in a match; "
                "give labels with 'time' or 'start'"
            )
        named = [key for key in query.keys if key.name not in COLUMNS and self._read.name_of(key.name) is not None]
        columns = {key.name: self._read.column(key.name, key.type.required).to_pylist() for key in named}
        return [
            replace(label, keys={name: cells[row] for name, cells in columns.items() if cells[row] is not None})
            for row, (label, name) in enumerate(zip(self._labels, self._queries, strict=True))
            if name in (None, query.name, query.public_title)
        ]

    def remarks(self, query: QueryPlan) -> Iterator[str]:
        """What is not restricted that people may think is."""
        names = [key.name for key in query.keys if key.name in COLUMNS or self._read.name_of(key.name) is None]
        if names and not self.are_rows:
            yield f"labels do not say {listed(names)}: they count for any"
        behind = self._tables.behind(self.of_query(query)) if self.are_rows else []
        if behind:
            first, last = behind[0], self._tables.last()
            are = "labels are" if len(behind) > 1 else "label is"
            yield f"{len(behind):,} {are} behind the last row, {last:,}: such as label {first.number}, row {first.row:,}"


# Matches.


class _Matches:
    """The matches of queries, with the rows of their events."""

    def __init__(self, row_of: RowOf) -> None:
        self._row_of = row_of

    def of(self, query: QueryPlan, matches: pa.Table | None) -> list[ScoredMatch]:
        """The matches of a query, in order."""
        if matches is None or not len(matches):
            return []
        rows: list[dict[tuple[str, int], int]] = [{} for _ in range(len(matches))]
        members = matches.column("members").combine_chunks()
        for name in () if query.every is not None else [item.name for item in members.type]:
            self._add(members.field(name), rows)
        times, emitted = (matches.column(name).cast(pa.int64()).to_pylist() for name in ("time", "emitted"))
        ids, keys = matches.column("match_id").to_pylist(), matches.column("key").to_pylist()
        return [ScoredMatch(*cells) for cells in zip(ids, keys, times, emitted, rows, strict=True)]

    def _add(self, events: pa.Array, rows: list[dict[tuple[str, int], int]]) -> None:
        of_match = range(len(events))
        if is_run(events.type):
            of_match, events = pc.list_parent_indices(events).to_pylist(), pc.list_flatten(events)
        is_there = events.is_valid().to_pylist()
        sources, partitions, offsets = (events.field(name).to_pylist() for name in ("source", "partition", "offset"))
        times = events.field("time").cast(pa.int64()).to_pylist()
        for number, (match, is_valid) in enumerate(zip(of_match, is_there, strict=True)):
            if is_valid:
                row = row_number(self._row_of, sources[number], partitions[number], offsets[number])
                if row is not None:
                    rows[match][sources[number], row] = times[number]


# Which matches count for which labels.


@dataclass(frozen=True, slots=True)
class _Counted:
    """Which matches count. `earliest`: by place of a found label that of its earliest match."""

    hits: frozenset[int]
    earliest: Mapping[int, int]


def _score(query: QueryPlan, given: _Labels, matches: Sequence[ScoredMatch]) -> Score:
    labels = given.of_query(query)
    counted_ones = _by_rows(labels, matches) if given.are_rows else _by_times(labels, matches)
    found = [(labels[place], matches[match]) for place, match in sorted(counted_ones.earliest.items())]
    return Score(
        query=query.name,
        instance=query.instance,
        parameters={},
        matches=len(matches),
        labels=len(labels),
        hits=len(counted_ones.hits),
        found=len(found),
        delays=tuple(max(0, match.time - _begin(label, match)) for label, match in found),
        waits=tuple(match.emitted - match.time for _, match in found),
        missed=tuple(label for place, label in enumerate(labels) if place not in counted_ones.earliest),
        false_alarms=tuple(match for number, match in enumerate(matches) if number not in counted_ones.hits),
        remarks=tuple(given.remarks(query)),
    )


def _begin(label: Label, match: ScoredMatch) -> int:
    """Where a label begins: at its time, or that of its event."""
    if label.row is None:
        return label.start
    return min(time for (source, row), time in match.rows.items() if _is_of(label, source, row))


def _is_of(label: Label, source: str, row: int) -> bool:
    return row == label.row and label.source in (None, source)


def _fits(label: Label, match: ScoredMatch) -> bool:
    return all(match.keys[name] == value for name, value in label.keys.items())


def _by_rows(labels: Sequence[Label], matches: Sequence[ScoredMatch]) -> _Counted:
    by_row = defaultdict[int, list[tuple[str, int]]](list)
    for number, match in enumerate(matches):
        for source, row in match.rows:
            by_row[row].append((source, number))
    hits, earliest = set[int](), dict[int, int]()
    for place, label in enumerate(labels):
        events = by_row.get(label.row or 0, [])
        own = [number for source, number in events if label.source in (None, source) and _fits(label, matches[number])]
        hits.update(own)
        if own:
            earliest[place] = min(own, key=lambda number: matches[number].time)
    return _Counted(frozenset(hits), earliest)


def _by_times(labels: Sequence[Label], matches: Sequence[ScoredMatch]) -> _Counted:
    """Labels that say the same keys look among matches that are sorted by these and by time."""
    groups = defaultdict[tuple[str, ...], list[int]](list)
    for place, label in enumerate(labels):
        groups[tuple(label.keys)].append(place)
    hits, earliest = set[int](), dict[int, int]()
    for names, places in groups.items():
        of_key = defaultdict[tuple[Any, ...], list[tuple[int, int]]](list)
        for number, match in enumerate(matches):
            of_key[tuple(match.keys[name] for name in names)].append((match.time, number))
        begins = defaultdict[tuple[Any, ...], list[int]](list)
        for key, own in of_key.items():
            own.sort()
            begins[key] = [0] * (len(own) + 1)
        for place in places:
            label = labels[place]
            key = tuple(label.keys.values())
            own = of_key.get(key, [])
            first = bisect_left(own, (label.start, -1))
            behind = bisect_left(own, (label.end + 1, -1))
            if first < behind:
                earliest[place] = own[first][1]
                begins[key][first] += 1
                begins[key][behind] -= 1
        for key, own in of_key.items():
            covers = accumulate(begins[key][:-1])
            hits.update(number for (_, number), count in zip(own, covers, strict=True) if count)
    return _Counted(frozenset(hits), earliest)
