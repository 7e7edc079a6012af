"""Which events can serve a name of a pattern, as far as the conditions about that name alone say.

`where a.code = 7` decides it over an input without a filter, for many queries of one stream: an
index finds the events of each name (`runtime.admission.filter_index`), and a query's search sees
only those. What is admitted, stored and counted is the same.

Nothing is lost, because a match binds only such events. That holds where the search asks nothing of
events that it passes over: no `without`, `=>`, `prev` or repeat, no `retain` or `with unique`,
which count them, no aggregates over all candidates, and no wait.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from querylang.plan.expression import terms_of
from querylang.plan.model import QueryPlan, Where, Within
from querylang.plan.questions import has_additions
from runtime.admission import Filtered, lookup_of
from runtime.matching.interface import Found, Ordered
from runtime.number_arrays import Integers

NO_POSITIONS = np.empty(0, np.int64)


def served_by(query: QueryPlan, kinds: Mapping[str, int]) -> list[Filtered] | None:
    """By name of the pattern the events that can serve it; None = the search has to see others.

    kinds: by name the number of an event type
    """
    if not _passes_over(query) or query.shared_types:
        return None
    found = []
    for index, term in enumerate(query.terms):
        own = [
            lookup_of(item.condition)
            for item in query.conditions
            if isinstance(item, Where) and terms_of(item.condition) == {index}
        ]
        known = [lookup for lookup in own if lookup.field is not None]
        best = next((lookup for lookup in known if lookup.values is not None), known[0] if known else None)
        found.append(Filtered(kinds[query.inputs[term.input].event], best, query))
    return found if any(item.lookup is not None for item in found) else None


def _passes_over(query: QueryPlan) -> bool:
    """Whether the search asks nothing of events that it does not bind, and binds each name."""
    waits = query.leading, query.trailing, query.every, query.skip
    return (
        all(item is None for item in waits)
        and not has_additions(query)
        and not any(term.is_optional or term.sides for term in query.terms)
        and all(isinstance(item, Where | Within) for item in query.conditions)
        and all(item.retain is None and not item.unique for item in query.inputs)
    )


def positions_of(events: Ordered, rows: Sequence[Integers], place: Integers) -> Integers:
    """The positions of events that can serve some name; none if there is no match.

    rows: by name, the rows of its events
    place: by row its position; -1 = none
    """
    if not all(map(len, rows)):
        return NO_POSITIONS
    positions = np.unique(place[np.concatenate(rows)])
    positions = positions[int(np.searchsorted(positions, 0)) :]
    key = np.searchsorted(events.start, positions, side="right") - 1
    return positions if (positions >= events.fresh[key]).any() else NO_POSITIONS


def places(events: Ordered) -> Integers:
    """By row of the table its position; -1 = none."""
    place = np.full(len(events.table), -1, np.int64)
    place[events.row[: events.start[-1]]] = np.arange(events.start[-1])
    return place


def only(events: Ordered, positions: Integers) -> Ordered:
    """Events at some positions; what `_passes_over` excludes is not there."""
    return replace(
        events,
        start=np.searchsorted(positions, events.start),
        fresh=np.searchsorted(positions, events.fresh),
        row=np.arange(len(positions), dtype=np.int32),
        input=events.input[positions],
        time=events.time[positions],
        table=events.table.take(pa.array(events.row[positions])),
    )


def restored(found: Found, positions: Integers, events: Ordered) -> Found:
    """What was found among `only`, with the positions of all events."""
    members = np.where(found.members < 0, -1, positions[found.members])
    errors = tuple((int(positions[at]), text) for at, text in found.errors)
    return replace(found, latest=positions[found.latest], members=members, free=events.free, errors=errors)
