"""The reference matcher behind the matcher interface: table rows become Python events."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from querylang.plan.expression import Aggregate
from querylang.plan.model import Plan, QueryPlan, Without
from runtime.arrow_types import arrow_type
from runtime.columns.arrivals import row_events, to_cell
from runtime.instants import NEVER
from runtime.interpreter.context import PlanWorld
from runtime.matching.asking import Bindings
from runtime.matching.find_every import aggregates_of
from runtime.matching.interface import Found, Ordered, Waiting
from runtime.matching.reference import ReferenceMatcher, Released
from runtime.matching.run_columns import as_bindings, as_columns


class ReferenceOverColumns:
    """A matcher for one query, whatever its conditions; it runs in Python, event by event."""

    only_finds = False  # Python holds its lock, so that nothing would be gained

    def __init__(self, plan: Plan, query: QueryPlan) -> None:
        self._plan = plan
        self._query = query
        self._world = PlanWorld(plan, query)
        self._matcher = ReferenceMatcher(plan, query)
        self._aggregates = aggregates_of(query)

    def match(self, events: Ordered) -> Found:
        """One search per new event."""
        released = self._released(events)
        is_every = self._query.every is not None
        latest: list[int] = []
        members: list[Bindings] = []
        free, errors = events.free.copy(), list[tuple[int, str]]()
        aggregated: list[tuple[Any, ...]] = []
        for key in range(len(events.fresh)):
            begin, fresh, end = (int(at) for at in (events.start[key], events.fresh[key], events.start[key + 1]))
            positions = range(begin, end)
            if is_every:
                for position, values in self._matcher.aggregated(released, positions, fresh):
                    latest.append(position)
                    aggregated.append(values)
            else:
                own = self._matcher.matches(released, positions, fresh, int(free[key]) if len(free) else 0)
                for position, bindings in own.matches:
                    latest.append(position)
                    members.append(bindings)
                if len(free):
                    free[key] = own.free
                errors += own.errors
        found = np.array(latest, np.int64)
        if not is_every:
            columns, widths = as_columns(members, [term.group is not None for term in self._query.terms])
            return Found(found, columns, free=free, errors=tuple(errors), widths=widths)
        values_of = zip(*aggregated, strict=True) if aggregated else [()] * len(self._aggregates)
        types = [self._column_type(node) for node in self._aggregates]
        arrays = tuple(
            pa.array([to_cell(value) for value in values], type_)
            for values, type_ in zip(values_of, types, strict=True)
        )
        return Found(found, np.empty((len(latest), 0), np.int64), arrays)

    def _column_type(self, node: Aggregate) -> pa.DataType:
        """The type of an aggregate's column in `Found`."""
        assert self._query.every is not None, "only `find every` has aggregates"
        is_event = self._query.every.term_of(node) is not None
        return pa.int64() if is_event else arrow_type(node.type, self._plan)

    def outlives(self, events: Ordered, waiting: Waiting) -> NDArray[np.bool_]:
        """One check per wait of the events that may end it."""
        result = np.ones(len(waiting.key), np.bool_)
        late = [self._query.conditions[index] for index in self._query.decided_late]
        if not late:
            return result
        inputs = [item.input for item in late if isinstance(item, Without)]
        is_asked = np.isin(events.input, inputs)
        is_asked[waiting.members[waiting.members >= 0]] = True
        released = self._released(events, is_asked)
        for wait, key in enumerate(waiting.key.tolist()):
            is_new = bool(waiting.is_new[wait])
            begin = int(events.start[key] if is_new else events.fresh[key])
            bindings = as_bindings(waiting.members[wait].tolist(), waiting.widths, len(self._query.terms))
            result[wait] = self._matcher.outlives(
                released,
                bindings,
                int(waiting.latest[wait]),
                int(waiting.due[wait]),
                range(begin, int(events.start[key + 1])),
                is_new=is_new,
            )
        return result

    def _released(self, events: Ordered, is_asked: NDArray[np.bool_] | None = None) -> list[Released]:
        """All events by position, members of pending waits included.

        is_asked: by position, whether the event's value is; None = all are
        """
        inputs, times = events.input, events.time
        values: list[Any] = [None] * len(inputs)
        for number, item in enumerate(self._query.inputs):
            positions = np.flatnonzero(inputs == number if is_asked is None else (inputs == number) & is_asked)
            rows = events.table.take(pa.array(events.row[positions].astype(np.int64)))
            made = row_events(self._plan.event(item.event), rows, self._world, times[positions].tolist())
            for position, value in zip(positions.tolist(), made, strict=True):
                values[position] = value
        superseded = events.superseded.tolist() + [NEVER] * (len(inputs) - len(events.superseded))
        number = events.number.tolist() + [0] * (len(inputs) - len(events.number))
        columns = (inputs.tolist(), times.tolist(), values, superseded, number)
        return [Released(*event) for event in zip(*columns, strict=True)]
