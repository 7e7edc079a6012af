"""The reference matcher behind the interface over columns: rows become Python events, key by key."""

from __future__ import annotations

import numpy as np

from querylang.plan import Plan, QueryPlan
from runtime.batch import column_name
from runtime.matcher import Found, Ordered
from runtime.reference_matcher import Event, ReferenceMatcher


class ReferenceOverColumns:
    """A matcher for one query, whatever its conditions; costs Python work per event."""

    def __init__(self, plan: Plan, query: QueryPlan) -> None:
        self._matcher = ReferenceMatcher(plan, query)
        self._terms = len(query.terms)
        self._fields = [
            {field.name: column_name(field.name, field.type) for field in plan.event(item.event).fields}
            for item in query.inputs
        ]

    def match(self, events: Ordered) -> Found:
        """One search a key."""
        partition = self._events(events)
        latest: list[int] = []
        members: list[tuple[int, ...]] = []
        for key in range(len(events.fresh)):
            begin, fresh, end = (int(at) for at in (events.start[key], events.fresh[key], events.start[key + 1]))
            for position, bound in self._matcher.matches(partition[begin:fresh], partition[fresh:end]):
                latest.append(begin + position)
                members.append(tuple(begin + at for at in bound))
        return Found(np.array(latest, np.int64), np.array(members, np.int64).reshape(len(latest), self._terms))

    def _events(self, events: Ordered) -> list[Event]:
        columns = {name: events.table.column(name).to_pylist() for name in events.table.column_names if ":" in name}
        result = []
        for row in events.row.tolist():
            item = int(events.input[row])
            names = self._fields[item].items()
            values = {field: columns[name][row] if name in columns else None for field, name in names}
            result.append(Event(item, int(events.time[row]), values))
        return result
