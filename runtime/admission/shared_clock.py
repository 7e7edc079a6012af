"""Clocks that partition keys share: the timelines of sources whose records are put in order by a policy of their own.

Takes the records of a call in order of arrival; judges those of its inputs, and says when any moment is definitive for any key.
A clock has timelines (a source partition, a substream, an event type), each in a group; a group has come as far as the least
of its timelines. Keys of one group see the same definitive time: all keys are in one group, unless substreams
are told apart by fields of the key. What is done with the records afterwards is left to `runtime.admission.per_key`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from querylang.plan.model import Plan, QueryPlan, TimelineKind, TimePolicy
from runtime.admission.rules import Action, Settings
from runtime.admission.shared_clock_kernel import (
    Curve,
    Feed,
    Groups,
    Growth,
    Timelines,
    Verdicts,
    fill_trees,
    find_bounds,
    find_ready,
    run_quiet,
    run_records,
)
from runtime.arrow_types import arrow_type, one_chunk
from runtime.columns.arrivals import AT_THE_END
from runtime.columns.cold_rows import Shelf, is_small, joined
from runtime.columns.keys import hash_keys, number_keys, plain_columns, substream_columns
from runtime.columns.sorting import stable_order
from runtime.instants import NEVER, NO_TIME
from runtime.policies.per_input import key_places

Integers = NDArray[np.int64]

UNKNOWN_DELAY = 5_000_000
"""How far behind the clock a source partition that never had input is taken to be, µs (docs/time.md)."""

_RUNNING = ("newest", "bound", "counted", "since", "heard")


@dataclass(frozen=True, slots=True)
class NewRecords:
    """The records of a call, in order of arrival, that are events, heartbeats, or punctuation that a control event brings.

    `beats`: of the last kind, which event type, by row; `keys`, `numbers`: the key of these rows and of all others of the
    call (`first`: the place of the first of these among them); `now`: the clock before time runs out on its own, `limit`: how far it does; `is_over`: that was the last record.
    """

    table: pa.Table
    kinds: Integers
    input: NDArray[np.int16]
    time: Integers
    arrival: Integers
    beats: dict[int, str]
    keys: Sequence[pa.Array]
    numbers: Integers
    key_count: int
    first: int
    now: int
    limit: int
    is_over: bool


@dataclass(frozen=True, slots=True)
class ClockRun:
    """How a clock went through a call; `group`: by key number."""

    curve: Curve
    groups: Groups
    growth: Growth
    group: Integers

    def ready(self, keys: Integers, time: Integers, moment: Integers, row: Integers) -> None:
        """Moves (`moment`, `row`) to where `time` is definitive for the key, if that is later."""
        find_ready(self.curve, self.groups, self.growth, self._groups_of(keys), time, moment, row)

    def lower(self, keys: Integers, moment: Integers, row: Integers, bound: Integers) -> None:
        """Lowers `bound` to how far the clock had come for the key at (`moment`, `row`)."""
        find_bounds(self.curve, self.groups, self.growth, self._groups_of(keys), moment, row, bound)

    def _groups_of(self, keys: Integers) -> Integers:
        return np.where(keys < 0, -1, self.group[keys]) if len(self.group) else np.full(len(keys), -1)


class SharedClock:
    """The clock of some inputs of a query that have the same policy."""

    def __init__(self, plan: Plan, query: QueryPlan, inputs: tuple[int, ...]) -> None:
        self._plan, self._query, self.inputs = plan, query, inputs
        policy = query.inputs[inputs[0]].policy
        assert policy is not None, "a clock has a policy"
        self.policy: TimePolicy = policy
        self._places = key_places(query, inputs)
        self._sources = tuple(dict.fromkeys(name for index in inputs for name in query.inputs[index].sources))
        self._settings = _settings(policy)
        self._events = [query.inputs[index].event for index in inputs]
        self._imports, self._other, self._is_final = -1, self._settings, policy.is_final
        if policy.imports is not None:
            names = [event.name for event in plan.events]
            origin, self._other, ends = _origin(query, policy.imports, policy)
            self._imports, self._is_final = names.index(origin), policy.is_final or ends
        self._common = NO_TIME
        if policy.start is not None and policy.max_delay is not None:
            self._common = policy.start - policy.max_delay
        unknown = 0 if self._places is not None or self._settings.late >= NEVER else UNKNOWN_DELAY
        self._growth = Growth(self._settings.late, unknown, int(policy.is_strict))
        fields = [("source", pa.string())]
        fields += [(f"part{place}", type_) for place, type_ in enumerate(self._part_types())]
        self._state = pa.schema([*fields, *((name, pa.int64()) for name in _RUNNING)]).empty_table()
        self._resting, self._most = Shelf(self._state), 0

    def _part_types(self) -> list[pa.DataType]:
        if self.policy.timeline is TimelineKind.PARTITION:
            return [pa.int32()]
        event = self._plan.event(self._events[0])
        return [arrow_type(event.type_of(field), self._plan) for field in self.policy.over]

    def run(self, new: NewRecords, verdicts: Verdicts) -> ClockRun:
        """Judges the records of its inputs, into `verdicts`, and remembers how far all has come."""
        rows = self._rows(new)
        self._recall(new)
        number, identities = self._timelines_of(new, rows)
        group, owners, count = self._groups_of(new, identities)
        timelines, groups = self._begin(identities, owners, count)
        is_import = self._imports >= 0
        idle = np.array([self._settings.idle, self._other.idle])
        with_quiet = bool(idle.min() < NEVER)
        curve = _curve(groups.bound, self._common, owners, number, with_quiet=with_quiet)
        self._common = run_records(
            self._feed(new, rows, number),
            self._settings,
            self._other,
            is_import,
            idle,
            timelines,
            groups,
            self._common,
            curve,
            verdicts,
        )
        if with_quiet:
            run_quiet(timelines, groups, curve, idle, is_import, new.limit)
        if self._is_final and new.is_over:
            self._end(curve, new.now)
        self._remember(identities, timelines)
        if with_quiet:  # what quiet will bring, unless a record comes before
            ahead = timelines._replace(bound=timelines.bound.copy(), heard=timelines.heard.copy())
            groups_ahead = groups._replace(bound=groups.bound.copy(), tree=groups.tree.copy())
            run_quiet(ahead, groups_ahead, curve, idle, is_import, NEVER - 1)
        return ClockRun(curve, groups, self._growth, group)

    def _recall(self, new: NewRecords) -> None:
        """Brings to hand the substreams of the call's keys; the others rest if they are many."""
        if self._places is None:
            return
        total = len(self._state) + len(self._resting)
        if not len(self._resting):
            self._most = 2 * total
        if not is_small(len(new.time), total) or total > self._most:
            self._state = self.state
            return
        names = [f"part{place}" for place in range(len(self._places))]
        own = hash_keys([one_chunk(self._state.column(name)) for name in names])
        self._resting.put(self._state, own, np.full(len(own), NEVER))
        self._state = self._resting.fetch(np.unique(hash_keys([new.keys[place] for place in self._places])))

    def _end(self, curve: Curve, now: int) -> None:
        """The input is over: after all records."""
        at = int(curve.end[-1])
        curve.moment[at], curve.row[at], curve.bound[at] = now, AT_THE_END, NEVER
        curve.end[-1] += 1
        self._common = NEVER

    def _rows(self, new: NewRecords) -> Integers:
        """The new rows that move the clock."""
        moves: NDArray[np.bool_] = np.isin(new.input, self.inputs)
        if self._imports >= 0:
            moves |= new.kinds == self._imports
        for row, event in new.beats.items():
            moves[row] = event in self._events or self._is_imported(event)
        return np.flatnonzero(moves)

    def _is_imported(self, event: str) -> bool:
        return self._imports >= 0 and event == self._plan.events[self._imports].name

    def _timelines_of(self, new: NewRecords, rows: Integers) -> tuple[Integers, pa.Table]:
        """The number of each record's timeline, -1 for punctuation of all; and what tells timelines apart, those of the state first."""
        if self.policy.events_last:
            return self._types(new, rows), self._fixed()
        is_event = ~np.isin(rows, list(new.beats))
        events = pa.array(rows[is_event])
        source = one_chunk(new.table.column("_source"))
        names = {name: code for code, name in enumerate(self._state.column("source").unique().to_pylist())}
        present = map(self._source_of, source.dictionary.to_pylist())
        codes = np.array([names.setdefault(name, len(names)) for name in present], np.int64)
        taken = [pa.array(codes[source.indices.to_numpy()]), *self._parts(new)]
        known = [one_chunk(self._state.column(f"part{place}")) for place in range(len(taken) - 1)]
        known.insert(0, pa.array([names[name] for name in self._state.column("source").to_pylist()], pa.int64()))
        both = [pa.concat_arrays([one, other.take(events)]) for one, other in zip(known, taken, strict=True)]
        numbers, count = number_keys(both, len(both[0]))  # by first appearance: those of the state are 0, 1, 2 ...
        first = np.empty(count, np.int64)
        first[numbers[::-1]] = np.arange(len(numbers))[::-1]
        own = [column.take(pa.array(first)) for column in both]
        own[0] = pa.array(list(names), pa.string()).take(own[0])
        number = np.full(len(rows), -1, np.int64)
        number[is_event] = numbers[len(self._state) :]
        return number, pa.table(own, names=["source", *(f"part{place}" for place in range(len(own) - 1))])

    def _source_of(self, name: str) -> str:
        """The source that has a clock: files of one that is declared, called `source/file`, have it together."""
        declared = name.partition("/")[0]
        return declared if declared in self._sources else name

    def _parts(self, new: NewRecords) -> list[pa.Array]:
        """What tells timelines apart beside the source, by new row."""
        if self.policy.timeline is TimelineKind.PARTITION:
            return [one_chunk(new.table.column("_partition"))]
        if self._places is not None:
            return [new.keys[place].slice(new.first, len(new.table)) for place in self._places]
        return substream_columns(new.table, new.kinds, self._plan, self._query, self.inputs)

    def _types(self, new: NewRecords, rows: Integers) -> Integers:
        """0: the input's own event type; 1: the one whose punctuation it takes."""
        number = np.zeros(len(rows), np.int64)
        if self._imports >= 0:
            number[new.kinds[rows] == self._imports] = 1
            for at, row in enumerate(rows.tolist() if new.beats else ()):
                number[at] |= self._is_imported(new.beats.get(row, ""))
        return number

    def _fixed(self) -> pa.Table:
        """The timeline of an event type, and that of the one whose punctuation it takes."""
        names = [self._events[0], *([] if self._imports < 0 else [self._plan.events[self._imports].name])]
        return pa.table({"source": names})

    def _groups_of(self, new: NewRecords, identities: pa.Table) -> tuple[Integers, Integers, int]:
        """The group of each key, that of each timeline, and how many groups there are."""
        if self._places is None:
            owners = np.zeros(len(identities), np.int64)
            if self._imports >= 0:
                owners[1] = 1
            return np.zeros(new.key_count, np.int64), owners, 1 + int(self._imports >= 0)
        parts = [one_chunk(identities.column(f"part{at}")) for at in range(len(self._places))]
        both = [pa.concat_arrays([part, new.keys[place]]) for part, place in zip(parts, self._places, strict=True)]
        numbers, count = number_keys(both, len(both[0]))
        of_rows = numbers[len(identities) :]
        group = np.full(new.key_count, -1, np.int64)
        is_known = (new.numbers >= 0) & (of_rows >= 0)
        group[new.numbers[is_known]] = of_rows[is_known]
        return group, numbers[: len(identities)], count

    def _begin(self, identities: pa.Table, owners: Integers, count: int) -> tuple[Timelines, Groups]:
        """The timelines as the last call has left them, and new ones."""
        known, total = len(self._state), len(identities)
        running = {name: np.full(total, 0 if name == "counted" else NO_TIME, np.int64) for name in _RUNNING}
        for name in _RUNNING:
            running[name][:known] = self._state.column(name).to_numpy()
        seen = (np.arange(total) < known) | (self.policy.events_last)  # an event type is known beforehand
        owed, unseen = self._owed(identities, owners, count)
        root, leaf, tree = _trees(owners, count, np.where(seen, running["bound"], NEVER))
        least = tree[root + 1]
        groups = Groups(
            unseen=unseen,
            bound=np.where((unseen > 0) | (least >= NEVER), NO_TIME, least),
            complete_moment=np.where(unseen > 0, NEVER, NO_TIME),
            complete_row=np.full(count, -1, np.int64),
            root=root,
            tree=tree,
        )
        return Timelines(group=owners, leaf=leaf, is_seen=seen, is_owed=owed, **running), groups

    def _owed(self, identities: pa.Table, owners: Integers, count: int) -> tuple[NDArray[np.bool_], Integers]:
        """Which timelines a group waits to hear of, and how many it had not heard of at the start of the call.

        Each source counts once in each group, or once a partition that it is said to have.
        """
        known, total = len(self._state), len(identities)
        expected = max(1, len(self._sources))
        if self.policy.events_last:
            return np.zeros(total, np.bool_), np.zeros(count, np.int64)
        if self._places is not None:
            unseen = np.maximum(expected - np.bincount(owners[:known], minlength=count), 0)
            return np.ones(total, np.bool_), unseen
        left = dict.fromkeys(self._sources, self.policy.partitions or 1)
        if not left:
            left = {"": self.policy.partitions or 1}
        owed = np.zeros(total, np.bool_)
        for place, name in enumerate(identities.column("source").to_pylist()):
            name = name if name in left else ""  # noqa: PLW2901
            owed[place] = left.get(name, 0) > 0
            left[name] = left.get(name, 0) - 1
        missing = (self.policy.partitions or 1) * expected - int(owed[:known].sum())
        return owed, np.full(count, missing, np.int64)

    def _feed(self, new: NewRecords, rows: Integers, number: Integers) -> Feed:
        is_beat = np.isin(rows, list(new.beats))
        names = new.table.column_names
        shape, end = np.zeros(len(rows), np.int8), np.full(len(rows), NO_TIME, np.int64)
        if "_shape" in names:
            shape = one_chunk(new.table.column("_shape")).fill_null(0).to_numpy().astype(np.int8)[rows]
            end = one_chunk(new.table.column("_end")).fill_null(NO_TIME).to_numpy()[rows]
        return Feed(rows, number, is_beat, new.time[rows], new.arrival[rows], shape, end)

    def _remember(self, identities: pa.Table, timelines: Timelines) -> None:
        self._state = identities
        for name in _RUNNING:
            self._state = self._state.append_column(name, pa.array(getattr(timelines, name)))

    def forget(self, clock: int) -> None:
        """Drops the substreams that the clock has left behind; its group waits for one that it may have, like for one never seen.

        Where sources are not known by name there would be no telling that one is missing.
        """
        if self._places is not None and self._sources and self._settings.late < NEVER and len(self._state):
            is_ahead = self._state.column("bound").to_numpy() > max(clock - self._settings.late, self._common)
            if not is_ahead.all():
                self._state = self._state.filter(pa.array(is_ahead))

    def definitive(self, run: ClockRun, clock: int) -> Integers:
        """How far it has come for each key of a call, at `clock`."""
        bound = np.where(run.groups.unseen > 0, NO_TIME, run.groups.bound)
        reached = np.maximum(bound, self._common)
        if self._settings.late < NEVER:
            behind = self._settings.late + np.where(run.groups.unseen > 0, self._growth.unknown, 0)
            reached = np.maximum(reached, clock - behind)
        if not len(reached):
            return np.empty(0, np.int64)
        return np.where(run.group < 0, NO_TIME, reached[run.group])

    def at(self, key: Sequence[Any], clock: int) -> int:
        """How far it has come for a key, at `clock`."""
        values = [key[place] for place in self._places or ()]
        state = self._state
        if values and len(self._resting):
            types = [state.schema.field(f"part{place}").type for place in range(len(values))]
            wanted = hash_keys([pa.array([value], type_) for value, type_ in zip(values, types, strict=True)])[0]
            state = joined([state, self._resting.of(wanted)])
        mine = np.ones(len(state), np.bool_)
        for place, value in enumerate(values):
            column = one_chunk(state.column(f"part{place}"))
            sides = plain_columns([column]), plain_columns([pa.repeat(pa.scalar(value, column.type), len(column))])
            for one, other in zip(*sides, strict=True):
                mine &= pc.equal(one, other).fill_null(False).to_numpy(zero_copy_only=False)
        chosen = state.filter(pa.array(mine))
        bounds = chosen.column("bound").to_numpy()[: 1 if self.policy.events_last else None]
        if self._places is None:
            missing = int(self._owed(state, np.zeros(len(state), np.int64), 1)[1][0])
        else:
            missing = max(0, max(1, len(self._sources)) - len(bounds))
        reached = self._common
        if missing == 0 and len(bounds):
            reached = max(reached, int(bounds.min()))
        if self._settings.late < NEVER:
            reached = max(reached, clock - self._settings.late - (self._growth.unknown if missing else 0))
        return reached

    def header(self) -> dict[str, Any]:
        """The part of the state that is plain data."""
        return {"common": self._common, "policy": self.policy.name, "timeline": self.policy.timeline.value}

    @property
    def state(self) -> pa.Table:
        """One row a timeline: what tells it apart, and how far it has come."""
        if len(self._resting):
            self._state = joined([self._state, self._resting.fetch_all()])
        return self._state

    def restore(self, header: dict[str, Any], state: pa.Table) -> None:
        """Goes on from `header` and `state`; raises ValueError where they were made with timelines of another kind."""
        if header["timeline"] != self.policy.timeline.value:
            raise ValueError(f"the ordering had timelines by {header['timeline']}, now by {self.policy.timeline}")
        self._common = int(header["common"])
        self._state = state.cast(self._state.schema)


def _origin(query: QueryPlan, imports: str, policy: TimePolicy) -> tuple[str, Settings, bool]:
    """The event type whose time is taken in the end, its settings, and whether its end is a bound beyond all times; one that is
    no input has punctuation after each event."""
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


def _curve(bounds: Integers, common: int, owners: Integers, number: Integers, *, with_quiet: bool) -> Curve:
    """The groups' bounds at the start, and room for all rises: one a record and timeline, as many ends of quiet, the end."""
    count = len(bounds)
    room = np.bincount(owners[number[number >= 0]], minlength=count + 1) + np.bincount(owners, minlength=count + 1)
    room[count] = int((number < 0).sum()) + 1
    if with_quiet:
        room[:count] = 2 * room[:count].sum()  # a rise of one may be that of another that takes its punctuation
    ends = np.cumsum(room + 1)
    start, size = ends - room - 1, int(ends[-1])
    curve = Curve(start, start.copy(), *(np.empty(size, np.int64) for _ in range(3)))
    first = np.append(bounds, common)
    known = np.flatnonzero(first != NO_TIME)
    curve.moment[start[known]], curve.row[start[known]], curve.bound[start[known]] = NO_TIME, -1, first[known]
    curve.end[known] += 1
    return curve


def _trees(owners: Integers, count: int, bounds: Integers) -> tuple[Integers, Integers, Integers]:
    """For each group a heap-ordered tree of minima over its timelines: where it begins, each timeline's leaf, all of them."""
    sizes = np.bincount(owners, minlength=count)
    widths = 1 << np.ceil(np.log2(np.maximum(sizes, 1))).astype(np.int64)
    root = np.concatenate([[0], np.cumsum(2 * widths)])[:-1].astype(np.int64)
    order = stable_order(owners)
    rank = np.empty(len(owners), np.int64)
    rank[order] = np.arange(len(owners)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    leaf = widths[owners] + rank
    tree = np.full(int(2 * widths.sum()), NEVER, np.int64)
    fill_trees(tree, root, widths, owners, leaf, bounds)
    return root, leaf, tree
