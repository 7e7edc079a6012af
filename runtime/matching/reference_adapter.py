"""The reference matcher behind the matcher interface: table rows become Python events."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from querylang.plan.model import Plan, QueryPlan
from runtime.arrow_types import arrow_type
from runtime.columns.cell_values import row_events, to_cell
from runtime.instants import NEVER
from runtime.interpreter.context import PlanWorld
from runtime.matching.find_every import aggregates_of
from runtime.matching.interface import Found, Ordered, Waiting
from runtime.matching.reference import ReferenceMatcher, Released

SECOND = 1_000_000


class ReferenceOverColumns:
    """A matcher for one query, whatever its conditions; it runs in Python, event by event."""

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
        members: list[list[int]] = []
        aggregated: list[tuple[Any, ...]] = []
        for key in range(len(events.fresh)):
            begin, fresh, end = (int(at) for at in (events.start[key], events.fresh[key], events.start[key + 1]))
            positions = range(begin, end)
            if is_every:
                for position, values in self._matcher.aggregated(released, positions, fresh):
                    latest.append(position)
                    aggregated.append(values)
            else:
                for position, bindings in self._matcher.matches(released, positions, fresh):
                    latest.append(position)
                    members.append([bindings.get(term, -1) for term in range(len(self._query.terms))])
        found = np.array(latest, np.int64)
        if not is_every:
            return Found(found, np.array(members, np.int64).reshape(len(latest), len(self._query.terms)))
        columns = zip(*aggregated, strict=True) if aggregated else [()] * len(self._aggregates)
        types = [arrow_type(node.type, self._plan) for node in self._aggregates]
        arrays = tuple(
            pa.array([to_cell(value) for value in values], type_) for values, type_ in zip(columns, types, strict=True)
        )
        return Found(found, np.empty((len(latest), 0), np.int64), arrays)

    def outlives(self, events: Ordered, waiting: Waiting) -> NDArray[np.bool_]:
        """One check per wait of the events that may end it."""
        released = self._released(events)
        result = np.ones(len(waiting.key), np.bool_)
        for wait, key in enumerate(waiting.key.tolist()):
            is_new = bool(waiting.is_new[wait])
            begin = int(events.start[key] if is_new else events.fresh[key])
            members = enumerate(waiting.members[wait].tolist())
            bindings = {term: position for term, position in members if position >= 0}
            result[wait] = self._matcher.outlives(
                released,
                bindings,
                int(waiting.latest[wait]),
                int(waiting.due[wait]),
                range(begin, int(events.start[key + 1])),
                is_new=is_new,
            )
        return result

    def _released(self, events: Ordered) -> list[Released]:
        """All events by position, members of pending waits included."""
        inputs, times = events.input, events.time
        values: list[Any] = [None] * len(inputs)
        for number, item in enumerate(self._query.inputs):
            positions = np.flatnonzero(inputs == number)
            rows = events.table.take(pa.array(events.row[positions].astype(np.int64)))
            made = row_events(self._plan.event(item.event), rows, self._world, (times[positions] / SECOND).tolist())
            for position, value in zip(positions.tolist(), made, strict=True):
                values[position] = value
        superseded = events.superseded.tolist() + [NEVER] * (len(inputs) - len(events.superseded))
        return [Released(*event) for event in zip(inputs.tolist(), times.tolist(), values, superseded, strict=True)]
