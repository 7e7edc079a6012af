"""The compiled matcher: reads a query's columns from ordered events and runs the search over them.

Operands of conditions are computed as columns first. Then each new event starts a depth-first
search backwards in time (`runtime.matching.kernel.search`, or `chain` where that is enough). No
partial matches are kept; windows, `within` and conditions, checked as early as they can be decided,
cut the search.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from querylang.plan.expression import Aggregate, Type
from querylang.plan.model import Plan, QueryPlan
from runtime.matching.exact_sums import new_exact_sums
from runtime.matching.interface import Found, Ordered, Waiting
from runtime.matching.kernel.aggregates import Aggregated, Aggregation, Running
from runtime.matching.kernel.chain import search_chain
from runtime.matching.kernel.columns import Reader
from runtime.matching.kernel.compilation import compile_query
from runtime.matching.kernel.conditions import Events, Query
from runtime.matching.kernel.search import search
from runtime.matching.kernel.sliding import new_queues, slide
from runtime.matching.kernel.waits import Waits, outlive
from runtime.matching.kernel.workspace import Workspace, new_workspace


class KernelMatcher:
    """A matcher for one query; raises NotForKernel if it needs the reference matcher."""

    def __init__(self, plan: Plan, query: QueryPlan) -> None:
        self._terms, self._inputs = len(query.terms), len(query.inputs)
        self._is_every = query.every is not None
        self._has_trailing_wait = query.trailing is not None
        self._skip_term = -1 if query.skip is None or query.skip.term is None else query.skip.term
        self._compiled = compile_query(query)
        self._reader = Reader(plan, query, self._compiled.program, self._compiled.counted)
        self.only_finds = query.skip is None and query.trailing is None
        self._last: tuple[Ordered, tuple[Events, Query]] | None = None

    def match(self, events: Ordered) -> Found:
        """One compiled search over all keys; or one pass, where aggregates follow the window."""
        loaded, query = self._tables(events)
        # At most one match per new event.
        most = int((events.start[1:] - events.fresh).sum())
        latest = np.empty(most, np.int64)
        members = np.empty((most, 0 if self._is_every else self._terms), np.int64)
        free = events.free.copy()
        aggregation, window, ages = self._aggregation(most), self._compiled.sliding, self._compiled.ages
        if ages is not None:
            workspace = self._workspace(loaded)
            matches = search_chain(loaded, query.automaton, query.program, ages, workspace, latest, members)
        elif self._is_every and not isinstance(window, str):
            queues = new_queues(len(self._compiled.aggregates), int(np.diff(events.start).max(initial=1)))
            matches = slide(loaded, window, query.program, aggregation, queues, latest)
        else:
            is_ambiguous = self._compiled.is_ambiguous
            workspace = self._workspace(loaded)
            matches = search(
                loaded, query, workspace, is_ambiguous, aggregation, latest, members, free, self._skip_term
            )
        columns = tuple(
            _column(node, index, aggregation.results, matches) for index, node in enumerate(self._compiled.aggregates)
        )
        return Found(latest[:matches], members[:matches], columns, free)

    def _aggregation(self, most: int) -> Aggregation:
        """Room for the aggregates of so many matches."""
        count = len(self._compiled.aggregates)
        shape = count, most
        results = Aggregated(np.zeros(shape, np.int64), np.zeros(shape, np.float64), np.zeros(shape, np.bool_))
        best = np.full((count, self._terms), -1, np.int64)
        integers, floats = np.zeros(count, np.int64), np.zeros(count, np.float64)
        running = Running(
            np.zeros(count, np.int64), integers, floats, np.zeros(count, np.int64), new_exact_sums(count), best
        )
        return Aggregation(self._is_every, self._compiled.arguments, running, results)

    def outlives(self, events: Ordered, waiting: Waiting) -> NDArray[np.bool_]:
        """One compiled pass over all waits."""
        loaded, query = self._tables(events)
        waits = Waits(waiting.key, waiting.members, waiting.latest, waiting.due, waiting.is_new)
        result = np.ones(len(waiting.key), np.bool_)
        outlive(loaded, query, self._compiled.late, waits, self._workspace(loaded), result)
        # No later call needs this batch: its columns can be freed.
        self._last = None
        return result

    def _workspace(self, events: Events) -> Workspace:
        return new_workspace(events.start, self._compiled.automaton, self._terms, self._inputs)

    def _tables(self, events: Ordered) -> tuple[Events, Query]:
        """Events and query as the kernel reads them, shared by `match` and `outlives`."""
        last = self._last
        if last is not None and last[0] is events:
            return last[1]
        tables = self._new_tables(events)
        if self._has_trailing_wait:
            self._last = events, tables
        return tables

    def _new_tables(self, events: Ordered) -> tuple[Events, Query]:
        program, counts = self._reader.read(events)
        loaded = Events(events.start, events.fresh, events.input, events.time, events.superseded, counts)
        made = self._compiled
        windows = made.windows, made.followed
        return loaded, Query(made.automaton, made.conditions, program, *windows, made.within, made.leading)


def _column(node: Aggregate, index: int, results: Aggregated, matches: int) -> pa.Array:
    """The values of one aggregate, by match."""
    missing = ~results.is_valid[index, :matches]
    values = (results.floats if node.type == Type.FLOAT else results.integers)[index, :matches]
    if node.type == Type.BOOLEAN:
        values = values != 0
    return pa.array(values, mask=missing if missing.any() else None)
