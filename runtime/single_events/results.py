"""What single events bring, with the engine's tables for those who read them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from operator import itemgetter

import numpy as np

from querylang.plan.model import Plan, QueryPlan
from runtime.replay.order import in_order
from runtime.results.outputs import run_block
from runtime.results.schemas import NO_OUTPUTS, ORDER, Results, no_discards, rows_of
from runtime.single_events.known import Finding
from runtime.single_events.match_rows import MatchRows, Row, Step

Found = Mapping[str, Sequence[tuple[Step, Finding]]]
"""Matches by the title of their query."""


class CallResults:
    """Makes the results of calls with a plan."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.rows = {query.title: MatchRows(plan, query) for query in plan.queries}
        self.nothing = EarlyResults(self, {})

    def of(self, brought: Sequence[tuple[Step, QueryPlan, Finding]]) -> EarlyResults:
        """The results of a call."""
        if not brought:
            return self.nothing
        found: dict[str, list[tuple[Step, Finding]]] = {}
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
                outputs.append(run_block(plan, query, matches[query.title], np.arange(len(cut_off)), cut_off))
                if cut_off.any():
                    return None
        return in_order(plan, Results(matches, rows_of(NO_OUTPUTS, outputs), discarded))
