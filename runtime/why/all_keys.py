"""The released events of all keys of a query, key by key, as the matcher got them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from querylang.dataclass import dataclass
from querylang.plan.model import Plan, QueryPlan
from runtime.column_types import Integers
from runtime.columns.arrivals import Arrivals
from runtime.columns.keys import number_values
from runtime.engine import Engine, QueryParts
from runtime.instants import NEVER, NO_TIME
from runtime.matching.interface import Found, Matcher, Ordered, Waiting, joined_events
from runtime.results.schemas import Results
from runtime.why.history import Also, Ending, KeptEvents, KeyEvents, at_the_end, engine_of, last_superseded, note
from runtime.why.matches import PLACE_COLUMNS

_NONE = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class AllKeys:
    """The events of all keys.

    events: those of one key after those of another, each in total order
    keys: the positions of each key; of one that was forgotten in between, of each of its lives
    definitive: gives, by position of an event, the watermark of the query and its key at the end,
        µs; NO_TIME = there is none
    results: what the engine gave
    """

    events: KeyEvents
    keys: Sequence[range]
    definitive: Callable[[int], int]
    results: Sequence[Results]


@dataclass(slots=True)
class _Call:
    """What was new in one call, in the order of positions.

    superseded: numbers of events over all calls; NEVER = none
    is_first: whether an event is the first one of its key, of which nothing was kept
    also: of events that serve several inputs, by their numbers: the others
    """

    table: pa.Table
    input: Integers
    time: Integers
    superseded: Integers
    number: Integers
    is_first: NDArray[np.bool_]
    also: Mapping[int, Also]


class _Recorder:
    """Stands before the matcher of a query, and keeps what is new for it."""

    only_finds = False
    takes_may_end = False

    def __init__(self, parts: QueryParts) -> None:
        self.parts, self._matcher = parts, parts.matcher
        self._has_unique = any(item.unique for item in parts.query.inputs)
        self._known: dict[tuple[Any, ...], int] = {}
        self.calls: list[_Call] = []
        self.later: dict[tuple[int, int], int] = {}
        self._count = 0

    def match(self, events: Ordered) -> Found:
        """As the matcher has it."""
        found = self._matcher.match(events)
        if len(events.start) > 1:
            joined = joined_events(events)
            self._keep(joined.ordered(events), joined.also(events))
        return found

    def outlives(self, events: Ordered, waiting: Waiting) -> NDArray[np.bool_]:
        """As the matcher has it."""
        return self._matcher.outlives(events, waiting)

    def _keep(self, events: Ordered, also: Mapping[int, Also]) -> None:
        """events: each once; also: of those that serve several inputs, the others"""
        begin, end = int(events.start[0]), int(events.start[-1])
        places = np.arange(begin, end)
        key = np.repeat(np.arange(len(events.start) - 1), np.diff(events.start))
        is_new = places >= events.fresh[key]
        new = places[is_new]
        is_first = (new == events.start[key[is_new]]) if len(new) else np.empty(0, np.bool_)
        superseded, served = np.full(len(new), NEVER), dict[int, Also]()
        if self._has_unique or also:
            numbers, inputs = self._numbers(events, places, is_new, also), events.input[places].tolist()
            own = events.superseded[places]
            moved = np.where(own < NEVER, numbers[np.clip(own - begin, 0, max(0, len(numbers) - 1))], NEVER)
            superseded = moved[is_new]
            for at in np.flatnonzero(~is_new).tolist():
                note(self.later, int(numbers[at]), ((inputs[at], int(moved[at])),))
            for place, others in also.items():
                number = int(numbers[place - begin])
                now = tuple((item, by if by >= NEVER else int(numbers[by - begin])) for item, by in others)
                if is_new[place - begin]:
                    served[number] = now
                note(self.later, number, now)
        self.calls.append(
            _Call(
                table=events.table.take(pa.array(events.row[new].astype(np.int64))),
                input=events.input[new].astype(np.int64),
                time=events.time[new].astype(np.int64),
                superseded=superseded,
                number=events.number[new].astype(np.int64) if len(events.number) else np.zeros(len(new), np.int64),
                is_first=is_first,
                also=served,
            )
        )
        self._count += len(new)

    def _numbers(
        self, events: Ordered, places: Integers, is_new: NDArray[np.bool_], also: Mapping[int, Also]
    ) -> Integers:
        """By position of a call, the number of its event over all calls.

        A record is known by its place and an input: in other roles it is another event elsewhere.
        """
        table = events.table.take(pa.array(events.row[places].astype(np.int64)))
        columns = [table.column(name).to_pylist() for name in PLACE_COLUMNS]
        inputs, own = events.input[places].tolist(), list(zip(*columns, strict=True))
        new = np.flatnonzero(is_new).tolist()
        for count, at in enumerate(new, self._count):
            for item in (inputs[at], *(other for other, _ in also.get(int(places[at]), ()))):
                self._known[(*own[at], item)] = count
        return np.array([self._known[(*place, item)] for place, item in zip(own, inputs, strict=True)], np.int64)


def all_keys(plan: Plan, query: QueryPlan, table: pa.Table, ending: Ending) -> AllKeys:
    """Runs an engine over records.

    table: records in order of arrival
    """
    engine = engine_of(plan, query)
    recorders: list[_Recorder] = []

    def watch(parts: QueryParts) -> Matcher:
        recorders.append(_Recorder(parts))
        return recorders[-1]

    engine.watch(query.title, watch)
    results = [engine.process(Arrivals(table), now=ending.last), *at_the_end(engine, ending)]
    return _by_key(engine, query, recorders[0], results)


def _by_key(engine: Engine, query: QueryPlan, recorder: _Recorder, results: Sequence[Results]) -> AllKeys:
    calls = recorder.calls
    tables = [Arrivals.empty(engine.plan).table, *(call.table for call in calls)]
    table = pa.concat_tables(tables, promote_options="default").combine_chunks()
    columns = recorder.parts.keys_of(table) if len(table) else []
    numbers, _ = number_values(columns, len(table))
    order = np.argsort(numbers, kind="stable")
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    inputs = np.concatenate([_NONE, *(call.input for call in calls)])
    superseded = last_superseded(np.concatenate([_NONE, *(call.superseded for call in calls)]), inputs, recorder.later)
    is_over = superseded < NEVER
    superseded[is_over] = place[superseded[is_over]]
    also: dict[int, Also] = {
        int(place[number]): tuple((item, _moved(recorder.later[number, item], place)) for item, _ in own)
        for call in calls
        for number, own in call.also.items()
    }
    kept = KeptEvents(
        table.take(pa.array(order)).combine_chunks(),
        inputs[order],
        np.concatenate([_NONE, *(call.time for call in calls)])[order],
        superseded[order],
        np.concatenate([_NONE, *(call.number for call in calls)])[order],
        also,
    )
    begins = np.diff(numbers[order], prepend=-1) != 0
    if query.forget_keys is not None:
        begins |= np.concatenate([np.empty(0, np.bool_), *(call.is_first for call in calls)])[order]
    starts = [*np.flatnonzero(begins).tolist(), len(order)]
    keys = [range(start, stop) for start, stop in pairwise(starts)]
    definitive = _Definitive(engine, query, [column.take(pa.array(order)) for column in columns])
    return AllKeys(KeyEvents(engine.plan, query, kept), keys, definitive, results)


def _moved(by: int, place: Integers) -> int:
    """Where the event of a number is now; NEVER stays."""
    return by if by >= NEVER else int(place[by])


class _Definitive:
    """By position of an event, the watermark of the query and its key at the end, µs."""

    def __init__(self, engine: Engine, query: QueryPlan, columns: Sequence[pa.Array]) -> None:
        self._engine, self._query, self._columns = engine, query, columns

    def __call__(self, position: int) -> int:
        values = tuple(column[position].as_py() for column in self._columns)
        reached = self._engine.definitive(self._query.title, values)
        return NO_TIME if reached is None else reached
