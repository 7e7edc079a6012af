"""The timelines of a shared clock: their settings, their kinds, and how they are stored."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from querylang.dataclass import dataclass, replace
from querylang.plan.model import Plan, QueryPlan, TimelineKind, TimePolicy
from runtime.admission.bound_history import ClockLag
from runtime.admission.rules import Action, Settings
from runtime.admission.shared_clock_kernel import ALL_TIMELINES, IMPORTED, ClockTimelines, Rules
from runtime.column_types import Integers, arrow_type, one_chunk
from runtime.columns.keys import hash_keys, is_of_key, number_keys, plain_columns, substream_columns
from runtime.columns.rows import ColdRows, is_small, joined
from runtime.input_policies import key_places
from runtime.instants import NEVER, NO_TIME

# The settings of a shared clock, as numbers, from the policy that its inputs have in common.

NEW_PARTITION_LAG = 5_000_000
"""The assumed lag of a source partition without records behind the clock, µs (docs/time.md)."""


@dataclass(frozen=True, slots=True)
class ClockSettings:
    """What a shared clock is configured with.

    inputs: the indexes of its inputs in the query
    events: the event types of these inputs
    sources: the sources that can bring them; empty = not known
    policy: the policy of all of these inputs
    places: where the fields of its substreams are among the keys of the query; empty = keys share
        the timelines
    rules: for its timelines
    lag: how far its watermarks are behind the clock
    imported: the event type whose bound it takes over; None = none
    imported_kind: the index of that type in the plan; -1 = none
    is_final: whether the end of the input is a bound beyond all times
    start: the bound of all timelines before the first record, µs; NO_TIME = none
    """

    inputs: tuple[int, ...]
    events: tuple[str, ...]
    sources: tuple[str, ...]
    policy: TimePolicy
    places: tuple[int, ...]
    rules: Rules
    lag: ClockLag
    imported: str | None
    imported_kind: int
    is_final: bool
    start: int

    @property
    def has_idle(self) -> bool:
        """Whether timelines can be idle."""
        return min(self.rules.own.idle, self.rules.imported.idle) < NEVER


def clock_settings(plan: Plan, query: QueryPlan, inputs: tuple[int, ...]) -> ClockSettings:
    """The settings of the clock that these inputs of a query share."""
    policy = query.inputs[inputs[0]].policy
    assert policy is not None, "the inputs of a clock have a policy"
    own = imported_settings = _settings(policy)
    imported, imported_kind, is_final = None, -1, policy.is_final
    if policy.imports is not None:
        imported, imported_settings, ends = _origin(query, policy.imports, policy)
        imported_kind = [event.name for event in plan.events].index(imported)
        is_final = policy.is_final or ends
    places = key_places(query, inputs) or ()
    has_start = policy.start is not None and policy.max_delay is not None
    return ClockSettings(
        inputs=inputs,
        events=tuple(query.inputs[index].event for index in inputs),
        sources=tuple(dict.fromkeys(name for index in inputs for name in query.inputs[index].sources)),
        policy=policy,
        places=places,
        rules=Rules(own, imported_settings, imported is not None),
        lag=ClockLag(own.late, 0 if places or own.late >= NEVER else NEW_PARTITION_LAG, int(policy.is_strict)),
        imported=imported,
        imported_kind=imported_kind,
        is_final=is_final,
        start=(policy.start or 0) - (policy.max_delay or 0) if has_start else NO_TIME,
    )


def _origin(query: QueryPlan, imports: str, policy: TimePolicy) -> tuple[str, Settings, bool]:
    """The event type whose bound is imported in the end, its settings, and whether it is final.

    Imports are followed to the end of their chain. A type that is not an input of the query
    advances with each of its events.
    """
    policies = {item.event: item.policy for item in query.inputs}
    while (own := policies.get(imports)) is not None and own.imports is not None:
        imports = own.imports
    if own is not None:
        return imports, _settings(own), own.is_final
    return imports, _settings(replace(policy, every=1, every_span=None, disorder=0, idle=None)), False


def _settings(policy: TimePolicy) -> Settings:
    def or_never(length: int | None) -> int:
        return NEVER if length is None else length

    return Settings(
        early=or_never(policy.early),
        late=or_never(policy.max_delay),
        disorder=policy.disorder,
        every=policy.every or 0,
        span=policy.every_span or 0,
        idle=or_never(policy.idle),
        action=Action[policy.action.upper()],
    )


# The kinds of timelines: source partitions, substreams and event types. A kind says which timeline
# a record belongs to, which group of timelines a key depends on, and how many timelines a group
# still waits for. Timelines are numbered per call, those that are known from earlier calls first.


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
    is_again: by row, whether it has the same record as the row before
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
    is_again: NDArray[np.bool_]
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


# The stored timelines of a shared clock, one row each; those of cold keys are in a cold store.

COLUMNS = {
    "newest": "newest",
    "bound": "bound",
    "counted": "counted",
    "since": "since",
    "last_arrival": "heard",
}
"""What is stored of a timeline: the field of `ClockTimelines`, and its column in saved state."""


class TimelineStore:
    """Timelines that the latest call concerned are in `hot`, the others in a cold store.

    places: where the fields of substreams are among the keys of the query; empty = nothing is ever
    cold
    """

    def __init__(self, fields: Sequence[tuple[str, pa.DataType]], places: tuple[int, ...]) -> None:
        self._parts, self._places = [pa.field(name, type_) for name, type_ in fields[1:]], places
        columns = [*fields, *((name, pa.int64()) for name in COLUMNS.values())]
        self.hot = pa.schema(columns).empty_table()
        self._cold, self._most = ColdRows(self.hot), 0

    def load(self, new: NewRecords) -> None:
        """Makes the timelines of the call's keys hot; all of them if the call is large."""
        if not self._places:
            return
        total = len(self.hot) + len(self._cold)
        if not len(self._cold):
            self._most = 2 * total
        # Only hot timelines are evicted. Once their number has doubled, all are loaded, so that
        # none stays for good.
        if not is_small(len(new.time), total) or total > self._most:
            self.load_all()
            return
        hashes = hash_keys([one_chunk(self.hot.column(part.name)) for part in self._parts])
        self._cold.add(self.hot, hashes, np.full(len(hashes), NEVER))
        self.hot = self._cold.take(np.unique(hash_keys([new.keys[place] for place in self._places])))

    def load_all(self) -> pa.Table:
        """Loads all timelines, and returns them."""
        if len(self._cold):
            self.hot = joined([self.hot, self._cold.take_all()])
        return self.hot

    def near(self, key: Sequence[Any]) -> pa.Table:
        """The timelines among which are all that a key depends on; none is loaded."""
        if not self._places or not len(self._cold):
            return self.hot
        values = [pa.array([key[place]], part.type) for place, part in zip(self._places, self._parts, strict=True)]
        return joined([self.hot, self._cold.rows_of(hash_keys(values)[0])])

    def save(self, identities: pa.Table, timelines: ClockTimelines) -> None:
        """Stores the timelines of a call as `hot`."""
        self.hot = identities
        for field, name in COLUMNS.items():
            self.hot = self.hot.append_column(name, pa.array(getattr(timelines, field)))

    def forget(self, key: Sequence[pa.Scalar]) -> None:
        """Removes the timelines that only this key has: those of a substream of all its parts."""
        if set(self._places) != set(range(len(key))):
            return
        timelines = self.load_all()
        columns = [one_chunk(timelines.column(part.name)) for part in self._parts]
        if len(timelines):
            is_own = is_of_key(columns, [key[place] for place in self._places])
            self.hot = timelines.filter(pa.array(~is_own))

    def evict(self, until: int) -> None:
        """Removes hot timelines whose bound is at most `until`, µs."""
        is_ahead = self.hot.column("bound").to_numpy() > until
        if not is_ahead.all():
            self.hot = self.hot.filter(pa.array(is_ahead))

    def restore(self, table: pa.Table) -> None:
        """Replaces all timelines by those of saved state; ValueError if they cannot be."""
        restored = table.cast(self.hot.schema)
        own = [name for name in restored.column_names if name not in COLUMNS.values()]
        if any(column.null_count for column in restored.columns):
            raise ValueError("a timeline has no source, no key or no time")
        if own and len(restored.group_by(own).aggregate([])) < len(restored):
            raise ValueError("there are two timelines of one source and key")
        self.hot = restored
