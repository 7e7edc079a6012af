"""What single events bring, with the engine's tables for those who read them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from operator import itemgetter
from typing import Any

import numpy as np
import pyarrow as pa

from querylang.plan.model import Plan, QueryPlan, known
from runtime.columns.arrivals import to_cell
from runtime.instants import EARLIEST, LATEST, NO_TIME
from runtime.results.matched import match_id, seeds_of
from runtime.results.outputs import block_outputs
from runtime.results.schemas import (
    NO_OUTPUTS,
    ORDER,
    Results,
    in_order,
    match_schema,
    no_discards,
    rows_of,
    term_event,
    told_cells,
)
from runtime.single_events.windows import FoundMatch, Known

# Matches of single events as rows of the engine's tables of matches.

Row = dict[str, Any]
"""Nested, with the columns of `match_schema`; times in µs."""

Step = int
"""Which record of the call has found a match; -1 = a timer. See `runtime.results.schemas.ORDER`."""


class MatchRows:
    """Makes the table of matches of one query from single ones."""

    def __init__(self, plan: Plan, query: QueryPlan) -> None:
        self._query, self._seeds, self._told = query, seeds_of(query), told_cells(query)
        self._type = pa.struct(list(match_schema(plan, query)))
        self._terms = {name: term_event(plan, query, term).name for name, term in _named_terms(query).items()}
        waits = (query.leading, query.trailing)
        self._leading, self._trailing = (None if query.every or wait is None else wait for wait in waits)

    def table(self, found: Sequence[tuple[Step, FoundMatch]]) -> pa.Table:
        """The matches (`match_schema`)."""
        rows = pa.array([self.row(step, finding) for step, finding in found], self._type)
        return pa.Table.from_batches([pa.RecordBatch.from_struct_array(rows)])

    def row(self, step: Step, found: FoundMatch) -> Row:
        """One match."""
        query = self._query
        events = dict(zip(self._terms, map(_member, self._terms.values(), found.members), strict=True))
        places = [found.latest] if query.every is not None else found.members
        row: Row = {
            "match_id": match_id(self._seeds, found.key, [None if event is None else event.place for event in places]),
            "query": query.name,
            "instance": query.instance,
            "key": dict(zip(query.key_names, found.key, strict=True)),
            "time": _moment(found.time),
            "definitive": _moment(found.definitive),
            "emitted": _moment(found.emitted),
            "waited": found.waited.name.lower(),
            **self._told,
            "members": events if query.every is None else {},
            "_step": step,
            "_rank": found.rank,
        }
        if query.every is not None:
            row["selected"] = {name: to_cell(value) for name, value in found.selected.items()} | events
        row["points"] = self._points(found)
        return row

    def _points(self, found: FoundMatch) -> Row:
        """Named waits: the moment when a leading one starts, and when a trailing one ends."""
        points: Row = {}
        if self._leading is not None and self._leading.name is not None:
            first = min(event.time for event in found.members if event is not None)
            points[self._leading.name] = _moment(first - known(self._leading.duration))
        if self._trailing is not None and self._trailing.name is not None:
            points[self._trailing.name] = _moment(found.time)
        return points


def _named_terms(query: QueryPlan) -> Mapping[str, int]:
    """By name of a member of a finding: its term."""
    if query.every is not None:
        return query.every.event_terms
    return {term.name: index for index, term in enumerate(query.terms)}


def _member(name: str, event: Known | None) -> Row | None:
    """A `runtime.results.schemas.member_struct`."""
    if event is None:
        return None
    assert event.place is not None, "it has been asked for"
    source, partition, offset = event.place
    return {
        "event": name,
        "time": _moment(event.time),
        "source_time": _moment(event.source_time),
        "arrival": _moment(event.arrival),
        "source": source,
        "partition": partition,
        "offset": offset,
        "fields": {field: to_cell(value) for field, value in event.value.values.items()},
    }


def _moment(micros: int) -> int | None:
    """As a timestamp, in the years 1 to 9999."""
    return None if micros == NO_TIME else max(EARLIEST, min(micros, LATEST))


Found = Mapping[str, Sequence[tuple[Step, FoundMatch]]]
"""Matches by the title of their query."""


class CallResults:
    """Makes the results of calls with a plan."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.rows = {query.title: MatchRows(plan, query) for query in plan.queries}
        self.nothing = EarlyResults(self, {})

    def of(self, brought: Sequence[tuple[Step, QueryPlan, FoundMatch]]) -> EarlyResults:
        """The results of a call."""
        if not brought:
            return self.nothing
        found: dict[str, list[tuple[Step, FoundMatch]]] = {}
        for step, query, finding in brought:
            found.setdefault(query.title, []).append((step, finding))
        return EarlyResults(self, found)


class EarlyResults:
    """The results of a call. Its tables are made when somebody reads them, which costs more."""

    def __init__(self, call: CallResults, found: Found) -> None:
        self._call, self._found = call, found

    def __len__(self) -> int:
        """How many matches there are."""
        return sum(map(len, self._found.values()))

    def rows(self) -> list[Row] | None:
        """The matches in order; None = the tables have to say in which order they are."""
        if any(len(items) > 1 for items in self._found.values()):
            return None
        titles = [query.title for query in self._call.plan.queries if query.title in self._found]
        rows = [self._call.rows[title].row(*self._found[title][0]) for title in titles]
        return sorted(rows, key=itemgetter(*ORDER))

    @cached_property
    def tables(self) -> Results | None:
        """The results in order, without a ledger; None = only the engine knows the outputs."""
        plan = self._call.plan
        discarded = no_discards(plan)
        if not self._found:
            return Results(discarded=discarded)
        matches = {title: self._call.rows[title].table(items) for title, items in self._found.items()}
        outputs = [NO_OUTPUTS]
        for query in plan.queries:
            if query.block and query.title in matches:
                # The engine counts how often blocks of a key are cut off by a limit.
                cut_off = np.zeros(len(matches[query.title]), np.int64)
                outputs.append(block_outputs(plan, query, matches[query.title], np.arange(len(cut_off)), cut_off)[0])
                if cut_off.any():
                    return None
        return in_order(plan, Results(matches, rows_of(NO_OUTPUTS, outputs), discarded))
