"""The kinds of timelines: source partitions, substreams and event types.

A kind says which timeline a record belongs to, which group of timelines a key depends on, and how
many timelines a group still waits for. Timelines are numbered per call, those that are known from
earlier calls first.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from querylang.plan.model import Plan, QueryPlan, TimelineKind
from runtime.admission.clock_settings import ClockSettings
from runtime.admission.shared_clock_kernel import ALL_TIMELINES, IMPORTED
from runtime.arrow_types import arrow_type, one_chunk
from runtime.columns.keys import number_keys, plain_columns, substream_columns
from runtime.number_arrays import Integers


@dataclass(frozen=True, slots=True)
class NewRecords:
    """The new rows of a call, in order of arrival: events and heartbeats.

    table: the rows, with their system columns
    kinds: by row, the index of the event type, or a `Kind`
    input: by row, the input of the query; -1 = none
    time: by row, source time, µs
    arrival: by row, arrival time, µs
    heartbeats: the rows that are control events, each with the event type that it is a heartbeat of
    keys: the query's key, by row of the whole call; a column per part
    numbers: the number of that key; negative = a part is null
    key_count: how many keys the call has
    first: where the new rows begin among the rows of the whole call
    now: the clock after the last record, µs
    limit: up to where timers are processed after the last record, µs
    is_over: whether the input has ended
    """

    table: pa.Table
    kinds: Integers
    input: NDArray[np.int16]
    time: Integers
    arrival: Integers
    heartbeats: dict[int, str]
    keys: Sequence[pa.Array]
    numbers: Integers
    key_count: int
    first: int
    now: int
    limit: int
    is_over: bool


@dataclass(frozen=True, slots=True)
class Grouping:
    """Keys and timelines by group.

    of_key: by key number, its group; -1 = it has no timeline
    of_timeline: by timeline, its group
    count: how many groups there are
    """

    of_key: Integers
    of_timeline: Integers
    count: int


class TimelineKindRules(Protocol):
    """What depends on the kind of timelines."""

    @property
    def fields(self) -> list[tuple[str, pa.DataType]]:
        """The columns that tell timelines apart, the source or event type first."""

    @property
    def are_fixed(self) -> bool:
        """Whether all timelines are known before their first record."""

    def timelines_of(self, new: NewRecords, rows: Integers, known: pa.Table) -> tuple[Integers, pa.Table]:
        """The timeline of each row; and all timelines (`fields`), those of `known` first."""

    def groups_of(self, new: NewRecords, timelines: pa.Table) -> Grouping:
        """The groups of the call's keys and timelines."""

    def missing(self, timelines: pa.Table, known: int, grouping: Grouping) -> tuple[NDArray[np.bool_], Integers]:
        """Which timelines their group expects; by group, how many besides the first `known`."""

    def of_key(self, timelines: pa.Table, key: Sequence[Any]) -> pa.Table:
        """The timelines that a key depends on."""


class _OfSources(ABC):
    """Timelines that are parts of sources; all keys depend on all of them."""

    are_fixed = False

    def __init__(self, settings: ClockSettings, types: Sequence[pa.DataType]) -> None:
        self._settings = settings
        self.fields = [("source", pa.string()), *((f"part{place}", type_) for place, type_ in enumerate(types))]

    @abstractmethod
    def _parts(self, new: NewRecords) -> list[pa.Array]:
        """What tells the timelines of one source apart, by new row."""

    def timelines_of(self, new: NewRecords, rows: Integers, known: pa.Table) -> tuple[Integers, pa.Table]:
        is_event = ~np.isin(rows, list(new.heartbeats))
        events = pa.array(rows[is_event])
        # A dictionary of source names that starts with those of `known`; all timelines then are
        # numbered by their columns.
        source = one_chunk(new.table.column("_source"))
        codes = {name: code for code, name in enumerate(known.column("source").unique().to_pylist())}
        present = map(self._declared_source, source.dictionary.to_pylist())
        code_of = np.array([codes.setdefault(name, len(codes)) for name in present], np.int64)
        new_columns = [pa.array(code_of[source.indices.to_numpy()]), *self._parts(new)]
        known_codes = pa.array([codes[name] for name in known.column("source").to_pylist()], pa.int64())
        known_parts = [one_chunk(known.column(f"part{place}")) for place in range(len(new_columns) - 1)]
        columns = [
            pa.concat_arrays([old, column.take(events)])
            for old, column in zip([known_codes, *known_parts], new_columns, strict=True)
        ]
        # Numbers are given by first appearance: the timelines of `known` are 0, 1, 2 ...
        numbers, count = number_keys(columns, len(columns[0]))
        first = np.empty(count, np.int64)
        first[numbers[::-1]] = np.arange(len(numbers))[::-1]
        timelines = [column.take(pa.array(first)) for column in columns]
        timelines[0] = pa.array(list(codes), pa.string()).take(timelines[0])
        number = np.full(len(rows), ALL_TIMELINES, np.int64)
        number[is_event] = numbers[len(known) :]
        return number, pa.table(timelines, names=[name for name, _ in self.fields])

    def _declared_source(self, name: str) -> str:
        """The source that has timelines: files `source/file` of a declared one share them."""
        declared = name.partition("/")[0]
        return declared if declared in self._settings.sources else name

    def groups_of(self, new: NewRecords, timelines: pa.Table) -> Grouping:
        return Grouping(np.zeros(new.key_count, np.int64), np.zeros(len(timelines), np.int64), 1)

    def missing(self, timelines: pa.Table, known: int, grouping: Grouping) -> tuple[NDArray[np.bool_], Integers]:
        # Each source is expected with so many partitions as it is declared to have; without names,
        # any source counts.
        partitions = self._settings.policy.partitions or 1
        left = dict.fromkeys(self._settings.sources or ("",), partitions)
        is_expected = np.zeros(len(timelines), np.bool_)
        for place, name in enumerate(timelines.column("source").to_pylist()):
            source = name if name in left else ""
            is_expected[place] = left.get(source, 0) > 0
            left[source] = left.get(source, 0) - 1
        expected = partitions * max(1, len(self._settings.sources))
        return is_expected, np.full(grouping.count, expected - int(is_expected[:known].sum()), np.int64)

    def of_key(self, timelines: pa.Table, key: Sequence[Any]) -> pa.Table:  # noqa: ARG002
        return timelines


class ByPartition(_OfSources):
    """A timeline per source partition."""

    def __init__(self, settings: ClockSettings) -> None:
        super().__init__(settings, [pa.int64()])

    def _parts(self, new: NewRecords) -> list[pa.Array]:
        return [one_chunk(new.table.column("_partition"))]


class BySubstream(_OfSources):
    """A timeline per source and substream; its fields are not all keys: keys depend on all."""

    def __init__(self, settings: ClockSettings, plan: Plan, query: QueryPlan) -> None:
        event = plan.event(settings.events[0])
        super().__init__(settings, [arrow_type(event.type_of(field), plan) for field in settings.policy.over])
        self._plan, self._query = plan, query

    def _parts(self, new: NewRecords) -> list[pa.Array]:
        return substream_columns(new.table, new.kinds, self._plan, self._query, self._settings.inputs)


class ByKeyedSubstream(BySubstream):
    """A timeline per source and substream; its fields are keys: a key depends on its substream."""

    def _parts(self, new: NewRecords) -> list[pa.Array]:
        return [new.keys[place].slice(new.first, len(new.table)) for place in self._settings.places]

    def groups_of(self, new: NewRecords, timelines: pa.Table) -> Grouping:
        """A group per substream: its timelines in all sources."""
        parts = [one_chunk(timelines.column(name)) for name, _ in self.fields[1:]]
        keys = [new.keys[place] for place in self._settings.places]
        both = [pa.concat_arrays([part, key]) for part, key in zip(parts, keys, strict=True)]
        numbers, count = number_keys(both, len(both[0]))
        of_rows = numbers[len(timelines) :]
        of_key = np.full(new.key_count, -1, np.int64)
        is_known = (new.numbers >= 0) & (of_rows >= 0)
        of_key[new.numbers[is_known]] = of_rows[is_known]
        return Grouping(of_key, numbers[: len(timelines)], count)

    def missing(self, timelines: pa.Table, known: int, grouping: Grouping) -> tuple[NDArray[np.bool_], Integers]:
        """Each source is expected once in each substream."""
        expected = max(1, len(self._settings.sources))
        present = np.bincount(grouping.of_timeline[:known], minlength=grouping.count)
        return np.ones(len(timelines), np.bool_), np.maximum(expected - present, 0)

    def of_key(self, timelines: pa.Table, key: Sequence[Any]) -> pa.Table:
        """The timelines of the key's substream."""
        is_own = np.ones(len(timelines), np.bool_)
        for (name, type_), place in zip(self.fields[1:], self._settings.places, strict=True):
            column = one_chunk(timelines.column(name))
            wanted = pa.repeat(pa.scalar(key[place], type_), len(column))
            for part, value in zip(plain_columns([column]), plain_columns([wanted]), strict=True):
                is_own &= pc.equal(part, value).fill_null(False).to_numpy(zero_copy_only=False)
        return timelines.filter(pa.array(is_own))


class ByEventType:
    """OWN, in the group of all keys; IMPORTED, if there is one, in a group without keys."""

    are_fixed = True
    fields = [("source", pa.string())]  # noqa: RUF012

    def __init__(self, settings: ClockSettings) -> None:
        self._settings = settings
        self._names = [name for name in (settings.events[0], settings.imported) if name is not None]

    def timelines_of(self, new: NewRecords, rows: Integers, known: pa.Table) -> tuple[Integers, pa.Table]:  # noqa: ARG002
        """OWN or IMPORTED; a heartbeat names its event type."""
        number = np.zeros(len(rows), np.int64)
        if self._settings.imported is not None:
            number[new.kinds[rows] == self._settings.imported_kind] = IMPORTED
            for at, row in enumerate(rows.tolist() if new.heartbeats else ()):
                if new.heartbeats.get(row) == self._settings.imported:
                    number[at] = IMPORTED
        return number, pa.table({"source": self._names})

    def groups_of(self, new: NewRecords, timelines: pa.Table) -> Grouping:
        """A group per timeline; keys are in that of OWN."""
        return Grouping(np.zeros(new.key_count, np.int64), np.arange(len(timelines)), len(timelines))

    def missing(self, timelines: pa.Table, known: int, grouping: Grouping) -> tuple[NDArray[np.bool_], Integers]:  # noqa: ARG002
        """None: both are known beforehand."""
        return np.zeros(len(timelines), np.bool_), np.zeros(grouping.count, np.int64)

    def of_key(self, timelines: pa.Table, key: Sequence[Any]) -> pa.Table:  # noqa: ARG002
        """OWN, which has taken over the bound of IMPORTED."""
        return timelines.slice(0, 1)


def rules_of_kind(settings: ClockSettings, plan: Plan, query: QueryPlan) -> TimelineKindRules:
    """What depends on the kind of timelines of a clock."""
    match settings.policy.timeline:
        case TimelineKind.PARTITION:
            return ByPartition(settings)
        case TimelineKind.SUBSTREAM:
            return ByKeyedSubstream(settings, plan, query) if settings.places else BySubstream(settings, plan, query)
        case TimelineKind.EVENT_TYPE:
            return ByEventType(settings)
        case TimelineKind.KEY:
            raise AssertionError("timelines per key have no shared clock")
