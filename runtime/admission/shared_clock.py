"""Shared clocks: the watermark of sources that have an ordering policy, seen by many keys.

A clock has timelines: source partitions, substreams or event types. Timelines form groups, and the
watermark of a group is the least of its timelines' watermarks (watermark alignment). Keys of one
group see the same watermark. All keys are in one group, unless the fields that tell substreams
apart are keys.

The clock judges the records of its inputs and says at which step a time is definitive for a key.
What then happens to the records is left to `runtime.admission.per_key`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from querylang.dataclass import dataclass, replace
from querylang.plan.model import Plan, QueryPlan
from runtime.admission.bound_history import BoundHistory, ClockLag, Groups, find_definitive, limit_to_watermarks
from runtime.admission.shared_clock_kernel import (
    Clock,
    ClockTimelines,
    Feed,
    Rules,
    Verdicts,
    advance_idle,
    fill_trees,
    run_records,
)
from runtime.admission.timelines import COLUMNS, Grouping, NewRecords, TimelineStore, clock_settings, rules_of_kind
from runtime.column_types import Integers, has_column, one_chunk
from runtime.columns.arrivals import AT_THE_END
from runtime.columns.rows import stable_order
from runtime.input_policies import clock_inputs
from runtime.instants import NEVER, NO_TIME


@dataclass(frozen=True, slots=True)
class ClockRun:
    """What a clock did during one call; `group`: by key number, its group, -1 = none."""

    history: BoundHistory
    groups: Groups
    lag: ClockLag
    group: Integers

    def ready(self, keys: Integers, time: Integers, moment: Integers, row: Integers) -> None:
        """Moves the step (`moment`, `row`) to where `time` is definitive, if that is later."""
        find_definitive(self.history, self.groups, self.lag, self._groups_of(keys), time, moment, row)

    def lower(self, keys: Integers, moment: Integers, row: Integers, bound: Integers) -> None:
        """Lowers `bound` to the key's watermark at the step (`moment`, `row`)."""
        limit_to_watermarks(self.history, self.groups, self.lag, self._groups_of(keys), moment, row, bound)

    def of_lives(self, owner: Integers) -> ClockRun:
        """The same for other key numbers; `owner`: by new number, the key's number here."""
        return replace(self, group=self.group[owner]) if len(self.group) else self

    def _groups_of(self, keys: Integers) -> Integers:
        return np.where(keys < 0, -1, self.group[keys]) if len(self.group) else np.full(len(keys), -1)


class SharedClock:
    """The clock of some inputs of a query that have the same policy."""

    def __init__(self, plan: Plan, query: QueryPlan, inputs: tuple[int, ...]) -> None:
        self._settings = clock_settings(plan, query, inputs)
        self._kind = rules_of_kind(self._settings, plan, query)
        self._store = TimelineStore(self._kind.fields, self._settings.places)
        self._common = self._settings.start  # bound by heartbeats for all timelines

    def run(self, new: NewRecords, verdicts: Verdicts) -> ClockRun:
        """Judges the records of its inputs into `verdicts`, and stores the advanced timelines."""
        settings = self._settings
        rows = self._concerned(new)
        self._store.load(new)
        number, identities = self._kind.timelines_of(new, rows, self._store.hot)
        grouping = self._kind.groups_of(new, identities)
        clock = self._start(identities, grouping, number)
        feed = self._feed(new, rows, number)
        self._common = run_records(feed, settings.rules, clock, self._common, verdicts)
        if settings.has_idle:
            advance_idle(settings.rules, clock, new.limit)
        if settings.is_final and new.is_over:
            self._end(clock.history, new.now)
        self._store.save(identities, clock.timelines)
        if settings.has_idle:
            _foresee_idle(clock, settings.rules)
        return ClockRun(clock.history, clock.groups, settings.lag, grouping.of_key)

    def _concerned(self, new: NewRecords) -> Integers:
        """The new rows that may advance the clock."""
        settings = self._settings
        is_concerned: NDArray[np.bool_] = np.isin(new.input, settings.inputs)
        if settings.imported is not None:
            is_concerned |= new.kinds == settings.imported_kind
        for row, event in new.heartbeats.items():
            is_concerned[row] = event in settings.events or event == settings.imported
        is_concerned &= ~new.is_again  # it is judged once
        return np.flatnonzero(is_concerned)

    def _start(self, identities: pa.Table, grouping: Grouping, number: Integers) -> Clock:
        """The state at the start of a call: timelines as the last call left them, then new ones."""
        known, total = len(self._store.hot), len(identities)
        running = {field: np.full(total, 0 if field == "counted" else NO_TIME, np.int64) for field in COLUMNS}
        for field, name in COLUMNS.items():
            running[field][:known] = self._store.hot.column(name).to_numpy()
        is_registered = (np.arange(total) < known) | self._kind.are_fixed
        is_expected, missing = self._kind.missing(identities, known, grouping)
        root, leaf, tree = _trees(grouping, np.where(is_registered, running["bound"], NEVER))
        least = tree[root + 1]
        bound = np.where((missing > 0) | (least >= NEVER), NO_TIME, least)
        groups = Groups(
            missing=missing,
            bound=bound,
            complete_moment=np.where(missing > 0, NEVER, NO_TIME),
            complete_row=np.full(grouping.count, -1, np.int64),
            root=root,
            tree=tree,
        )
        history = _new_history(bound, self._common, grouping, number, has_idle=self._settings.has_idle)
        timelines = ClockTimelines(
            group=grouping.of_timeline,
            leaf=leaf,
            is_registered=is_registered,
            is_expected=is_expected,
            **running,
        )
        return Clock(timelines, groups, history)

    @staticmethod
    def _feed(new: NewRecords, rows: Integers, number: Integers) -> Feed:
        shape, end = np.zeros(len(rows), np.int8), np.full(len(rows), NO_TIME, np.int64)
        if has_column(new.table, "_shape"):
            shape = one_chunk(new.table.column("_shape")).fill_null(0).to_numpy().astype(np.int8)[rows]
            end = one_chunk(new.table.column("_end")).fill_null(NO_TIME).to_numpy()[rows]
        is_heartbeat = np.isin(rows, list(new.heartbeats))
        return Feed(rows, number, is_heartbeat, new.time[rows], new.arrival[rows], shape, end)

    def _end(self, history: BoundHistory, now: int) -> None:
        """Records the end of the input, after all records: no time is open any more."""
        entry = int(history.end[-1])
        history.moment[entry], history.row[entry], history.bound[entry] = now, AT_THE_END, NEVER
        history.end[-1] += 1
        self._common = NEVER

    def forget(self, key: Sequence[pa.Scalar]) -> None:
        """Removes the timelines that only this key has."""
        self._store.forget(key)

    def evict(self, clock: int) -> None:
        """Removes substreams that cannot hold back watermarks: arrival time alone is ahead of them.

        A removed substream is missing again, and a group with a missing timeline follows the clock
        just as far. Only for sources known by name: otherwise nothing would say that one is
        missing.
        """
        settings = self._settings
        if settings.places and settings.sources and settings.lag.late < NEVER:
            self._store.evict(max(clock - settings.lag.late, self._common))

    def definitive(self, run: ClockRun, clock: int) -> Integers:
        """The watermark of each key of a call when the clock is `clock`, µs; NO_TIME = none."""
        watermarks = self._watermarks(run.groups.bound, run.groups.missing, clock)
        if not len(watermarks):
            return np.empty(0, np.int64)
        return np.where(run.group < 0, NO_TIME, watermarks[run.group])

    def definitive_of(self, key: Sequence[Any], clock: int) -> int:
        """The watermark of one key when the clock is `clock`, µs; NO_TIME = none."""
        timelines = self._kind.of_key(self._store.near(key), key)
        count = len(timelines)
        only_group = Grouping(np.zeros(1, np.int64), np.zeros(count, np.int64), 1)
        _, missing = self._kind.missing(timelines, count, only_group)
        bound = timelines.column("bound").to_numpy().min() if count else NO_TIME
        return int(self._watermarks(np.array([bound]), missing, clock)[0])

    def _watermarks(self, bound: Integers, missing: Integers, clock: int) -> Integers:
        """The watermarks of groups when the clock is `clock`.

        bound: by group, the least bound of its timelines
        missing: by group, how many timelines are missing; while there are any, its bound does not
            count
        """
        reached = np.maximum(np.where(missing > 0, NO_TIME, bound), self._common)
        lag = self._settings.lag
        if lag.late >= NEVER or clock == NO_TIME:
            return reached
        return np.maximum(reached, clock - (lag.late + np.where(missing > 0, lag.missing, 0)))

    def header(self) -> dict[str, Any]:
        """The part of the saved state that is plain data."""
        policy = self._settings.policy
        return {"common": self._common, "policy": policy.name, "timeline": policy.timeline.value}

    @property
    def state(self) -> pa.Table:
        """The part of the saved state that is columns: one row per timeline."""
        return self._store.load_all()

    def restore(self, header: dict[str, Any], state: pa.Table) -> None:
        """Continues from saved state; raises ValueError if it has timelines of another kind."""
        kind = self._settings.policy.timeline.value
        if header["timeline"] != kind:
            raise ValueError(f"the ordering had timelines by {header['timeline']}, now by {kind}")
        self._common = int(header["common"])
        self._store.restore(state)


def _foresee_idle(clock: Clock, rules: Rules) -> None:
    """Appends to the history the idle timeouts after the call, as if no record came before them.

    A record that comes first belongs to a later call, whose history starts from the stored
    timelines: so only copies of the timelines change here.
    """
    timelines, groups = clock.timelines, clock.groups
    ahead = Clock(
        timelines._replace(bound=timelines.bound.copy(), last_arrival=timelines.last_arrival.copy()),
        groups._replace(bound=groups.bound.copy(), tree=groups.tree.copy()),
        clock.history,
    )
    advance_idle(rules, ahead, NEVER - 1)


def _new_history(
    bounds: Integers, common: int, grouping: Grouping, number: Integers, *, has_idle: bool
) -> BoundHistory:
    """A history that starts with the bounds of the groups, with room for all rises of a call.

    A group can rise once per record of its timelines, and once per timeline when it registers.
    With idle timeouts, each of these rises can be followed by a timeout. Heartbeats for all
    timelines can rise once per record, and once at the end of the input.
    """
    count, owners = grouping.count, grouping.of_timeline
    room = np.bincount(owners[number[number >= 0]], minlength=count + 1) + np.bincount(owners, minlength=count + 1)
    room[count] = int((number < 0).sum()) + 1
    if has_idle:
        room[:count] = 2 * room[:count].sum()  # a rise may come from a timeline of another group
    ends = np.cumsum(room + 1)
    start, size = ends - room - 1, int(ends[-1])
    history = BoundHistory(start, start.copy(), *(np.empty(size, np.int64) for _ in range(3)))
    first = np.append(bounds, common)
    known = np.flatnonzero(first != NO_TIME)
    history.moment[start[known]], history.row[start[known]], history.bound[start[known]] = NO_TIME, -1, first[known]
    history.end[known] += 1
    return history


def _trees(grouping: Grouping, bounds: Integers) -> tuple[Integers, Integers, Integers]:
    """A heap-ordered tree of minima per group: each root, each timeline's leaf, all trees."""
    owners = grouping.of_timeline
    sizes = np.bincount(owners, minlength=grouping.count)
    widths = 1 << np.ceil(np.log2(np.maximum(sizes, 1))).astype(np.int64)
    root = np.concatenate([[0], np.cumsum(2 * widths)])[:-1].astype(np.int64)
    order = stable_order(owners)
    rank = np.empty(len(owners), np.int64)
    rank[order] = np.arange(len(owners)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    leaf = widths[owners] + rank
    tree = np.full(int(2 * widths.sum()), NEVER, np.int64)
    fill_trees(tree, root, widths, owners, leaf, bounds)
    return root, leaf, tree


# All shared clocks of a query together: verdicts, and when a time is definitive for all. A query
# whose sources have no policies of their own has no shared clocks; then every method returns at
# once.

CLOCK_SCHEMA = pa.schema(
    [
        ("query", pa.string()),
        ("timeline", pa.string()),
        ("bound", pa.int64()),
        ("newest", pa.int64()),
        ("heard", pa.int64()),
    ]
)
"""One row per timeline. Times are µs, null = none yet.

query: the query's title
timeline: what tells it apart: source and partition, source and values of fields, or event type
bound: its watermark as far as the clock is not concerned
newest: largest source time admitted
`heard`: arrival of the latest record; null also if the timeline is idle since
"""


@dataclass(frozen=True, slots=True)
class ClocksRun:
    """The verdicts of a call by new row, and what each clock did during it."""

    verdicts: Verdicts
    runs: tuple[ClockRun, ...]

    def ready(self, keys: Integers, time: Integers) -> tuple[Integers, Integers]:
        """The step (moment, row) at which each time is definitive for its key by all clocks."""
        if not self.runs:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        moment, row = np.full(len(time), NO_TIME, np.int64), np.full(len(time), -1, np.int64)
        for run in self.runs:
            run.ready(keys, time, moment, row)
        return moment, row

    def lowered(self, keys: Integers, moment: Integers, row: Integers, bound: Integers) -> Integers:
        """`bound`, limited to the key's watermark of each clock at the step (`moment`, `row`)."""
        if not self.runs:
            return bound
        lowest = bound.copy()
        for run in self.runs:
            run.lower(keys, moment, row, lowest)
        return lowest


def no_clocks_run(time: Integers) -> ClocksRun:
    """A call of a query without shared clocks; `time`: by new row, which is admitted as it is."""
    count = len(time)
    none = np.zeros(count, np.int8), np.zeros(count, np.int8), np.full(count, NO_TIME, np.int64)
    return ClocksRun(Verdicts(*none, time), ())


class QueryClocks:
    """The shared clocks of one query."""

    def __init__(self, plan: Plan, query: QueryPlan) -> None:
        self._query = query
        self._clocks = [SharedClock(plan, query, inputs) for inputs in clock_inputs(query)]

    @property
    def has_clocks(self) -> bool:
        """Whether there are any."""
        return bool(self._clocks)

    def run(self, new: NewRecords) -> ClocksRun:
        """Judges the new records of inputs whose sources have a policy."""
        verdicts = no_clocks_run(new.time.copy()).verdicts
        runs = tuple(clock.run(new, verdicts) for clock in self._clocks)
        if runs and new.is_again.any():
            first = np.maximum.accumulate(np.where(new.is_again, 0, np.arange(len(new.time))))
            refused, adjusted, bound, time = verdicts
            verdicts = Verdicts(refused[first], adjusted[first], bound[first], time[first])
        return ClocksRun(verdicts, runs)

    def definitive(self, run: ClocksRun, clock: int, keys: int) -> Integers:
        """The least watermark of each key when the clock is `clock`, µs; NEVER = no clocks."""
        reached = np.full(keys, NEVER, np.int64)
        for shared, its_run in zip(self._clocks, run.runs, strict=True):
            np.minimum(reached, shared.definitive(its_run, clock), out=reached)
        return reached

    def definitive_of(self, key: Sequence[Any], clock: int) -> int:
        """The same for one key."""
        return min((shared.definitive_of(key, clock) for shared in self._clocks), default=NEVER)

    def forget(self, key: Sequence[pa.Scalar]) -> None:
        """Removes the timelines that only this key has."""
        for shared in self._clocks:
            shared.forget(key)

    def evict(self, clock: int) -> None:
        """Removes timelines that cannot hold back a clock any more."""
        for shared in self._clocks:
            shared.evict(clock)

    def header(self) -> list[dict[str, Any]]:
        """The part of the saved state that is plain data."""
        return [shared.header() for shared in self._clocks]

    def tables(self) -> dict[str, pa.Table]:
        """The part of the saved state that is columns."""
        return {f"clock{number}": shared.state for number, shared in enumerate(self._clocks)}

    def restore(self, header: Sequence[dict[str, Any]], tables: dict[str, pa.Table]) -> None:
        """Continues from saved state; raises ValueError if it was written with other policies."""
        if len(header) != len(self._clocks):
            raise ValueError(f"query {self._query.title!r} had {len(header)} shared clocks, now {len(self._clocks)}")
        for number, (shared, own) in enumerate(zip(self._clocks, header, strict=True)):
            shared.restore(own, tables[f"clock{number}"])

    def timelines(self) -> pa.Table:
        """All timelines (CLOCK_SCHEMA)."""
        return pa.concat_tables([CLOCK_SCHEMA.empty_table(), *map(self._rows, self._clocks)])

    def _rows(self, shared: SharedClock) -> pa.Table:
        rows = [
            {
                "query": self._query.title,
                "timeline": "/".join(str(row[name]) for name in row if name == "source" or name.startswith("part")),
                **{name: None if row[name] == NO_TIME else row[name] for name in ("bound", "newest", "heard")},
            }
            for row in shared.state.to_pylist()
        ]
        return pa.Table.from_pylist(rows, schema=CLOCK_SCHEMA)
