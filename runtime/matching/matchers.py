"""The matchers: the kernel, the kernel of queries with additions, and the reference matcher.

Each is behind `runtime.matching.interface.Matcher`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from querylang.dataclass import dataclass, replace
from querylang.plan import remembering
from querylang.plan.expression import Aggregate, EventOf, Type
from querylang.plan.model import Plan, QueryPlan, Without
from querylang.plan.questions import counted_states
from runtime.column_types import Integers, arrow_type
from runtime.columns.arrivals import row_events, to_cell
from runtime.columns.rows import is_any_of
from runtime.compiling.compiled import borrowing
from runtime.instants import NEVER, NO_TIME
from runtime.interpreter import PlanWorld
from runtime.matching import reference
from runtime.matching.candidates import MOST_MATCHES, TOO_MANY
from runtime.matching.find_every import aggregates_of
from runtime.matching.interface import Bindings, Found, Joined, Ordered, Waiting, as_bindings, as_columns, joined_events
from runtime.matching.kernel.aggregates import (
    Aggregated,
    Aggregation,
    Function,
    Running,
    aggregate_found,
    new_aggregated,
    new_exact_sums,
    new_seen,
)
from runtime.matching.kernel.building import RANKED
from runtime.matching.kernel.collected import collect, form_of, write_values
from runtime.matching.kernel.columns import Reader
from runtime.matching.kernel.compilation import (
    CompiledQuery,
    CompiledRuns,
    compile_all_of_chain,
    compile_query,
    compile_runs,
    program_for_types,
    types_with_actions,
)
from runtime.matching.kernel.evaluator import LoadedProgram
from runtime.matching.kernel.program import Form, NotForKernel
from runtime.matching.kernel.run_search import EVERY, NO_ROOM_FOR_MATCHES, NO_ROOM_IN_MEMORY, search_runs
from runtime.matching.kernel.search import search
from runtime.matching.kernel.short_cuts import new_queues, search_all_of_chain, search_chain, slide
from runtime.matching.kernel.tables import Records
from runtime.matching.kernel.waits import Waits, WaitsOfRuns, outlive
from runtime.matching.kernel.workspace import (
    ERRORS,
    LEAST_ROOM,
    MATCHES,
    Events,
    Limits,
    Matches,
    Query,
    RunWorkspace,
    Skip,
    Workspace,
    new_matches,
    new_memory,
    new_run_workspace,
    new_workspace,
)
from runtime.matching.reference import ReferenceMatcher, ReleasedEvent

# The reference matcher behind the matcher interface: table rows become Python events.


class ReferenceOverColumns:
    """A matcher for one query, whatever its conditions; it runs in Python, event by event."""

    only_finds = False  # Python holds its lock, so that nothing would be gained
    takes_may_end = False

    def __init__(self, plan: Plan, query: QueryPlan) -> None:
        self._plan = plan
        self._query = query
        self._world = PlanWorld(plan, query)
        self._matcher = ReferenceMatcher(plan, query)
        self._aggregates = aggregates_of(query)

    def match(self, events: Ordered) -> Found:
        """One search per new event."""
        joined = joined_events(events)
        has_new = np.repeat(events.fresh < events.start[1:], np.diff(events.start))
        released = self._released(events, np.append(has_new, np.ones(len(events.row) - len(has_new), np.bool_)))
        if not joined.has_shared:
            return self._searched(events, released)
        found = self._searched(joined.ordered(events), _joined(released, joined))
        inputs = [term.input for term in self._query.terms]
        return joined.placed(found, events.input, inputs, [self._is_event(node) for node in self._aggregates])

    def _searched(self, events: Ordered, released: Sequence[ReleasedEvent]) -> Found:
        """One search per new event, by the events as Python has them."""
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
        return pa.int64() if self._is_event(node) else arrow_type(node.type, self._plan)

    def _is_event(self, node: Aggregate) -> bool:
        assert self._query.every is not None, "only `find every` has aggregates"
        return self._query.every.term_of(node) is not None

    def outlives(self, events: Ordered, waiting: Waiting) -> NDArray[np.bool_]:
        """One check per wait of the events that may end it."""
        result = np.ones(len(waiting.key), np.bool_)
        late = [self._query.conditions[index] for index in self._query.decided_late]
        if not late:
            return result
        inputs = [item.input for item in late if isinstance(item, Without)]
        is_asked = is_any_of(events.input, inputs)
        is_asked[waiting.members[waiting.members >= 0]] = True
        joined = joined_events(events)
        released: Sequence[ReleasedEvent] = self._released(events, None if joined.has_shared else is_asked)
        if joined.has_shared:
            released, events, waiting = _joined(released, joined), joined.ordered(events), joined.waiting(waiting)
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

    def _released(self, events: Ordered, is_asked: NDArray[np.bool_] | None = None) -> list[ReleasedEvent]:
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
        arrivals = [NO_TIME] * len(inputs)
        if self._query.tables:
            arrivals = events.table.column("_arrival").to_numpy()[events.row].tolist()
        columns = (inputs.tolist(), times.tolist(), values, superseded, number, arrivals)
        return [ReleasedEvent(*event) for event in zip(*columns, strict=True)]


def _joined(released: Sequence[ReleasedEvent], joined: Joined) -> list[ReleasedEvent]:
    """By event, what serves several inputs as one; `released`: by position."""
    of, found = joined.of, list[ReleasedEvent]()
    for first, last in zip(joined.first.tolist(), joined.last.tolist(), strict=True):
        own = [
            (item.input, item.superseded if item.superseded >= NEVER else int(of[item.superseded]))
            for item in released[first : last + 1]
        ]
        (number, superseded), *also = own
        found.append(replace(released[first], input=number, superseded=superseded, also=tuple(also)))
    return found


class _Aggregates:
    """The aggregates of a `find every` on a kernel; of other queries there are none."""

    def __init__(self, compiled: CompiledQuery | CompiledRuns, reader: Reader, query: QueryPlan) -> None:
        self._reader, self._terms, self._is_every = reader, len(query.terms), query.every is not None
        self._nodes, self._arguments = compiled.aggregates, compiled.arguments
        # Those that a position or rank stands for, apart from whole events.
        self._operands = {
            index: compiled.program.integer_operands[self._arguments.operand[index]]
            for index, node in enumerate(self._nodes)
            if node.type in RANKED or (form_of(node) is Form.POSITION and not isinstance(node.arguments[0], EventOf))
        }

    def room(self, most: int, events: Ordered) -> Aggregation:
        """Room for the aggregates of so many matches."""
        count, numbers = len(self._nodes), len(events.table)
        results = new_aggregated(count, most)
        best = np.full((count, self._terms), -1, np.int64)
        seen = new_seen(count, numbers) if Function.COUNT_UNIQUE in self._arguments.function else new_seen(1, 1)
        integers, floats = np.zeros(count, np.int64), np.zeros(count, np.float64)
        running = Running(
            np.zeros(count, np.int64), integers, floats, np.zeros(count, np.int64), new_exact_sums(count), seen, best
        )
        return Aggregation(self._is_every, self._arguments, running, results)

    def columns(
        self, results: Aggregated, matches: int, events: Ordered, program: LoadedProgram
    ) -> tuple[pa.Array, ...]:
        """A column for each; whole events are positions."""
        return tuple(self._column(index, results, matches, events, program) for index in range(len(self._nodes)))

    def _column(
        self, index: int, results: Aggregated, matches: int, events: Ordered, program: LoadedProgram
    ) -> pa.Array:
        node, operand = self._nodes[index], self._operands.get(index)
        valid = results.is_valid[index, :matches]
        if operand is not None:
            positions = results.integers[index, :matches][valid]
            if operand.form is Form.VALUE:
                number = int(self._arguments.operand[index])
                positions = self._reader.positions_of_ranks(number, events, program)[positions]
            column = self._reader.values_at(operand, events, positions)
            return column.take(pa.array(np.cumsum(valid) - 1, mask=~valid))
        values = (results.floats if node.type == Type.FLOAT else results.integers)[index, :matches]
        if node.type == Type.BOOLEAN:
            values = values != 0
        return pa.array(values, mask=None if valid.all() else ~valid)


# The compiled matcher: reads a query's columns from ordered events and runs the search over them.
#
# Operands of conditions are computed as columns first. Then each new event starts a depth-first
# search backwards in time (`runtime.matching.kernel.search`, or `short_cuts` where that is enough).
# No partial matches are kept; windows, `within` and conditions, checked as early as they can be
# decided, cut the search.


class KernelMatcher:
    """A matcher for one query; raises NotForKernel if it needs the reference matcher."""

    def __init__(self, plan: Plan, query: QueryPlan) -> None:
        self._terms, self._inputs = len(query.terms), len(query.inputs)
        self._is_every = query.every is not None
        self._has_trailing_wait = query.trailing is not None
        self._skip_term = -1 if query.skip is None or query.skip.term is None else query.skip.term
        self._compiled = compile_query(query, types_with_actions(plan))
        self._reader = Reader(plan, query, self._compiled.program, self._compiled.counted)
        self.only_finds = query.skip is None and query.trailing is None
        self.takes_may_end = not self._is_every or isinstance(self._compiled.sliding, str)
        self._aggregates = _Aggregates(self._compiled, self._reader, query)
        self._last: tuple[Ordered, tuple[Events, Query]] | None = None

    def match(self, events: Ordered) -> Found:
        """One compiled search over all keys; or one pass, where aggregates follow the window."""
        loaded, query = self._tables(events)
        # At most one match per new event.
        most = int((events.start[1:] - events.fresh).sum())
        latest = np.empty(most, np.int64)
        members = np.empty((most, 0 if self._is_every else self._terms), np.int64)
        free, ages = events.free.copy(), self._compiled.ages
        if ages is not None:
            workspace = self._workspace(loaded)
            matches = search_chain(loaded, query.automaton, query.program, ages, workspace, latest, members)
            return Found(latest[:matches], members[:matches], (), free)
        aggregation, window = self._aggregates.room(most, events), self._compiled.sliding
        if self._is_every and not isinstance(window, str):
            queues = new_queues(len(self._compiled.aggregates), int(np.diff(events.start).max(initial=1)))
            matches = slide(loaded, window, query.program, aggregation, queues, latest)
        else:
            workspace = self._workspace(loaded)
            matches = search(loaded, query, workspace, aggregation, latest, members, free, self._skip_term)
        columns = self._aggregates.columns(aggregation.results, matches, events, query.program)
        return Found(latest[:matches], members[:matches], columns, free)

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
        program, loaded = self._reader.read(events)
        made = self._compiled
        windows, limits = (made.windows, made.followed), (made.within, made.leading)
        return loaded, Query(made.automaton, made.conditions, program, *windows, *limits, made.is_ambiguous)


class ChainMatcher:
    """A matcher for one `find all` whose pattern is a chain (`chain_ages`), without waits."""

    only_finds = False  # an event may have too many matches
    takes_may_end = False

    def __init__(self, plan: Plan, query: QueryPlan, compiled: CompiledQuery, ages: Integers) -> None:
        self._compiled, self._ages, self._query = compiled, ages, query
        self._reader = Reader(plan, query, compiled.program, compiled.counted)

    @staticmethod
    def of(plan: Plan, query: QueryPlan) -> ChainMatcher | None:
        """None = it is another pattern."""
        compiled = compile_all_of_chain(query, types_with_actions(plan))
        if compiled is None or compiled.ages is None:
            return None
        return ChainMatcher(plan, query, compiled, compiled.ages)

    def match(self, events: Ordered) -> Found:
        """One compiled search over all keys."""
        made, terms = self._compiled, len(self._query.terms)
        program, loaded = self._reader.read(events)
        workspace = new_workspace(events.start, made.automaton, terms, len(self._query.inputs))
        new, place = int((events.start[1:] - events.fresh).sum()), np.zeros(8, np.int64)
        errors, latest, members = (
            np.empty(new, np.int64),
            np.empty(new + LEAST_ROOM, np.int64),
            np.empty((new + LEAST_ROOM, terms), np.int64),
        )
        while not search_all_of_chain(
            loaded, made.automaton, program, self._ages, MOST_MATCHES, workspace, place, latest, members, errors
        ):
            latest, members = (np.concatenate([column, np.empty_like(column)]) for column in (latest, members))
        count = int(place[MATCHES])
        order = _oldest_first(latest[:count])
        found = np.ascontiguousarray(members[:count].T[:, order]).T
        too_many = tuple((int(event), TOO_MANY) for event in errors[: place[ERRORS]])
        return Found(latest[:count][order], found, free=events.free.copy(), errors=too_many)

    def outlives(self, events: Ordered, waiting: Waiting) -> NDArray[np.bool_]:  # noqa: ARG002
        """No match waits."""
        return np.ones(len(waiting.key), np.bool_)


def _oldest_first(latest: Integers) -> Integers:
    """The order of matches of which the most recent one of each event was found first.

    Those of one event are neighbours.
    """
    return np.lexsort((-np.arange(len(latest)), latest))


# The compiled matcher of queries with additions, behind the matcher interface.


class RunKernelMatcher:
    """A matcher for one query; raises NotForKernel if it needs the reference matcher."""

    takes_may_end = False

    def __init__(self, plan: Plan, query: QueryPlan) -> None:
        self._compiled = compile_runs(query, types_with_actions(plan))
        self._query = query
        may_fail = query.finds_all or any(counted_states(query))
        self.only_finds = query.skip is None and query.trailing is None and not may_fail
        self._reader = Reader(plan, query, program_for_types(self._compiled, plan, query), self._compiled.counted)
        self._aggregates = _Aggregates(self._compiled, self._reader, query)
        self._of_waits = _of_waits(plan, query)

    def match(self, events: Ordered) -> Found:
        """One compiled search over all keys."""
        made, query = self._compiled, self._query
        program, loaded = self._reader.read(events)
        # The search writes the values of folds there.
        program = program._replace(
            integer_constants=program.integer_constants.copy(), float_constants=program.float_constants.copy()
        )
        free, skip = events.free.copy(), query.skip
        workspace = new_run_workspace(events.start, made.tables, made.slots, len(query.inputs))
        memory = new_memory(LEAST_ROOM, made.tables)
        new = int((events.start[1:] - events.fresh).sum())
        matches = new_matches(new, max(LEAST_ROOM, len(query.terms) * new), new)
        every = None if query.every is None else self._new_every(new, events)
        limits = Limits(
            within=made.within,
            leading=made.leading,
            is_ambiguous=made.is_ambiguous and every is None,
            most_bound=remembering.MOST_BOUND,
            most_matches=MOST_MATCHES if query.finds_all else 0 if every is None else EVERY,
        )
        after = Skip(-1 if skip is None or skip.term is None else skip.term, skip is not None and skip.to == "last")
        columns_of_windows = made.windows, made.followed
        while ending := search_runs(
            loaded, made.tables, program, *columns_of_windows, limits, workspace, memory, matches, free, after
        ):
            if ending == NO_ROOM_IN_MEMORY:
                memory = new_memory(4 * len(memory.value), made.tables)
            if ending == NO_ROOM_FOR_MATCHES:
                # Candidates of a `find every` go when they are aggregated.
                if every is not None and workspace.place[MATCHES] > 0:
                    self._aggregate(every, program, matches, workspace)
                else:
                    matches = _larger(matches, int(workspace.place[MATCHES]))
        if every is not None:
            self._aggregate(every, program, matches, workspace)
            columns = self._aggregates.columns(every.aggregation.results, every.count, events, program)
            return Found(every.latest[: every.count], np.empty((every.count, 0), np.int64), columns, free)
        return self._found(matches, int(workspace.place[MATCHES]), int(workspace.place[ERRORS]), free)

    def _new_every(self, most: int, events: Ordered) -> _Every:
        terms, slots = len(self._query.terms), self._compiled.slots
        ours, theirs = np.zeros(terms, np.int64), np.zeros(terms, np.int64)
        return _Every(
            self._aggregates.room(most, events), np.empty(most, np.int64), np.empty(slots, np.int64), ours, theirs
        )

    def _aggregate(self, every: _Every, program: LoadedProgram, found: Matches, workspace: RunWorkspace) -> None:
        """Makes matches of the candidates that were found, which makes room for others."""
        made, first = self._compiled, every.count
        every.count = aggregate_found(
            program,
            every.aggregation,
            made.is_ambiguous,
            made.tables.transitions,
            made.tables.binds,
            found,
            int(workspace.place[MATCHES]),
            every.count,
            every.bindings,
            every.ours,
            every.theirs,
            every.latest,
        )
        if made.collected:
            self._collect(every, program, found, workspace, first)
        workspace.place[MATCHES] = 0

    def _collect(
        self, every: _Every, program: LoadedProgram, found: Matches, workspace: RunWorkspace, first: int
    ) -> None:
        """Writes the aggregates that need all values of the candidates that were found.

        first: the number of their first match
        """
        made, count = self._compiled, int(workspace.place[MATCHES])
        values = new_aggregated(len(made.asked.program), count)
        write_values(
            program,
            made.asked,
            made.tables.transitions,
            made.tables.binds,
            found,
            count,
            every.bindings,
            values,
        )
        latest = found.latest[:count]
        match = first + np.cumsum(np.diff(latest, prepend=-1) != 0) - 1
        collect(made.collected, made.asked, values, match, every.aggregation.results)

    def _found(self, matches: Matches, count: int, errors: int, free: Integers) -> Found:
        tables, query = self._compiled.tables, self._query
        latest = matches.latest[:count]
        order = _oldest_first(latest) if query.finds_all else np.arange(count)
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
        """One compiled pass over all waits, or by the reference matcher."""
        return self._of_waits.outlives(events, waiting)


@dataclass(slots=True)
class _Every:
    """The matches of a `find every` while candidates are searched; `count`: how many there are.

    The others as in `runtime.matching.kernel.aggregates.aggregate_found`.
    """

    aggregation: Aggregation
    latest: Integers
    bindings: Integers
    ours: Integers
    theirs: Integers
    count: int = 0


def _of_waits(plan: Plan, query: QueryPlan) -> WaitsOfRuns | ReferenceOverColumns:
    try:
        return WaitsOfRuns(plan, query)
    except NotForKernel:
        return ReferenceOverColumns(plan, query)


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
        _count_members(matches, transitions, binds, match, own)
        for term in range(len(widths)):
            widths[term] = max(widths[term], own[term])


@borrowing
def _count_members(matches: Matches, transitions: Records, binds: Integers, match: int, own: Integers) -> None:
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
        _count_members(matches, transitions, binds, match, own)
        for index in range(matches.first[match], matches.first[match + 1]):
            taken = matches.transition[index]
            for bind in range(transitions[taken].first_bind, transitions[taken].stop_bind):
                term = binds[bind]
                own[term] -= 1
                members[row, begins[term] + own[term]] = matches.event[index]
