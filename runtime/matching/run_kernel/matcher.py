"""The compiled matcher of queries with additions, behind the matcher interface."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from querylang.plan.model import Plan, QueryPlan
from runtime.compiling.compiled import borrowing
from runtime.matching import reference
from runtime.matching.all_candidates import MOST_MATCHES, TOO_MANY
from runtime.matching.interface import Found, Ordered, Waiting
from runtime.matching.kernel.columns import Reader
from runtime.matching.kernel.conditions import Events
from runtime.matching.reference_adapter import ReferenceOverColumns
from runtime.matching.remembering import counted_states
from runtime.matching.run_kernel.compilation import compile_runs, program_for_types
from runtime.matching.run_kernel.search import NO_ROOM_FOR_MATCHES, NO_ROOM_IN_MEMORY, search
from runtime.matching.run_kernel.tables import Records
from runtime.matching.run_kernel.workspace import (
    ERRORS,
    LEAST_ROOM,
    MATCHES,
    Matches,
    new_matches,
    new_memory,
    new_workspace,
)
from runtime.number_arrays import Integers


class RunKernelMatcher:
    """A matcher for one query; raises NotForKernel if it needs the reference matcher."""

    def __init__(self, plan: Plan, query: QueryPlan) -> None:
        self._compiled = compile_runs(query)
        self._query = query
        may_fail = query.finds_all or any(counted_states(query))
        self.only_finds = query.skip is None and query.trailing is None and not may_fail
        self._reader = Reader(plan, query, program_for_types(self._compiled, plan, query), self._compiled.counted)
        # Few events end a wait, so they are asked in Python.
        self._of_waits = ReferenceOverColumns(plan, query)

    def match(self, events: Ordered) -> Found:
        """One compiled search over all keys."""
        made, query = self._compiled, self._query
        program, counts = self._reader.read(events)
        # The search writes the values of folds there.
        program = program._replace(
            integer_constants=program.integer_constants.copy(), float_constants=program.float_constants.copy()
        )
        loaded = Events(events.start, events.fresh, events.input, events.time, events.superseded, counts)
        free, skip = events.free.copy(), query.skip
        workspace = new_workspace(events.start, made.tables, made.slots, len(query.inputs))
        parts = int((made.tables.states["stop_part"] - made.tables.states["first_part"]).max(initial=0))
        memory = new_memory(LEAST_ROOM, max(1, parts))
        new = int((events.start[1:] - events.fresh).sum())
        matches = new_matches(new, max(LEAST_ROOM, len(query.terms) * new), new)
        while ending := search(
            loaded,
            events.number,
            made.tables,
            program,
            made.windows,
            made.followed,
            made.within,
            made.leading,
            made.is_ambiguous,
            reference.MOST_BOUND,
            MOST_MATCHES if query.finds_all else 0,
            workspace,
            memory,
            matches,
            free,
            -1 if skip is None or skip.term is None else skip.term,
            skip is not None and skip.to == "last",
        ):
            if ending == NO_ROOM_IN_MEMORY:
                memory = new_memory(4 * len(memory.value), max(1, parts))
            if ending == NO_ROOM_FOR_MATCHES:
                matches = _larger(matches, int(workspace.place[MATCHES]))
        return self._found(matches, int(workspace.place[MATCHES]), int(workspace.place[ERRORS]), free)

    def _found(self, matches: Matches, count: int, errors: int, free: Integers) -> Found:
        tables, query = self._compiled.tables, self._query
        latest = matches.latest[:count]
        # Of the matches of one event, which are neighbours, the most recent one was found first.
        order = np.lexsort((-np.arange(count), latest)) if query.finds_all else np.arange(count)
        own, widths = np.zeros(len(query.terms), np.int64), np.ones(len(query.terms), np.int64)
        measure(matches, tables.transitions, tables.binds, count, own, widths)
        # Whoever reads them goes column by column.
        members = np.full((int(widths.sum()), count), -1, np.int64).T
        lay_out(matches, tables.transitions, tables.binds, order, np.cumsum(widths) - widths, own, members)
        return Found(
            latest[order],
            members,
            free=free,
            errors=tuple(
                (int(event), TOO_MANY) if event >= 0 else (int(-1 - event), reference.ENDED)
                for event in matches.errors[:errors]
            ),
            widths=tuple(widths.tolist()) if any(term.group is not None for term in query.terms) else (),
        )

    def outlives(self, events: Ordered, waiting: Waiting) -> NDArray[np.bool_]:
        """By the reference matcher."""
        return self._of_waits.outlives(events, waiting)


def _larger(matches: Matches, count: int) -> Matches:
    """More room, with the first `count` matches."""
    result = new_matches(2 * len(matches.latest) + LEAST_ROOM, 4 * len(matches.event), len(matches.errors))
    used = int(matches.first[count])
    result.latest[:count], result.first[: count + 1] = matches.latest[:count], matches.first[: count + 1]
    result.event[:used], result.transition[:used] = matches.event[:used], matches.transition[:used]
    result.errors[:] = matches.errors
    return result


@borrowing
def measure(
    matches: Matches, transitions: Records, binds: Integers, count: int, own: Integers, widths: Integers
) -> None:
    """Sets `widths` to how many events each term has at most; `own` is of one match."""
    for match in range(count):
        _count(matches, transitions, binds, match, own)
        for term in range(len(widths)):
            widths[term] = max(widths[term], own[term])


@borrowing
def _count(matches: Matches, transitions: Records, binds: Integers, match: int, own: Integers) -> None:
    """Sets `own` to how many events each term has."""
    own[:] = 0
    for index in range(matches.first[match], matches.first[match + 1]):
        taken = matches.transition[index]
        for bind in range(transitions[taken].first_bind, transitions[taken].stop_bind):
            own[binds[bind]] += 1


@borrowing
def lay_out(
    matches: Matches,
    transitions: Records,
    binds: Integers,
    order: Integers,
    begins: Integers,
    own: Integers,
    members: Integers,
) -> None:
    """Fills in the members: the matches in this order, each run from its oldest event on.

    begins: by term, its first column
    """
    for row in range(len(order)):
        match = order[row]
        _count(matches, transitions, binds, match, own)
        for index in range(matches.first[match], matches.first[match + 1]):
            taken = matches.transition[index]
            for bind in range(transitions[taken].first_bind, transitions[taken].stop_bind):
                term = binds[bind]
                own[term] -= 1
                members[row, begins[term] + own[term]] = matches.event[index]
