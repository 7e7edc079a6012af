"""The compiled search of chains: patterns whose steps take one event each and only compare events.

Most patterns are chains. All that `runtime.matching.kernel.search` decides for others, it decides
for each event, so a search of its own takes less than half the time. It finds the same.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from querylang.plan.model import QueryPlan
from runtime.compiling.compiled import borrowing, inlined
from runtime.instants import NEVER
from runtime.matching.kernel.evaluator import LoadedProgram
from runtime.matching.kernel.lookahead import Lanes, look_ahead
from runtime.matching.kernel.memory import failed_until, record_dead_end
from runtime.matching.kernel.search import bind, link_events, next_older
from runtime.matching.kernel.tables import AutomatonTables
from runtime.matching.kernel.workspace import Events, Links, Workspace, first_position, last_position
from runtime.matching.windows import WindowColumns
from runtime.number_arrays import Integers

AFTER_COMPARISONS = 8
"""After how many rejected events in a row to look ahead: `search` pays more for each of them."""


def chain_ages(
    query: QueryPlan, automaton: AutomatonTables, windows: WindowColumns, followed: NDArray[np.bool_], within: int
) -> Integers | None:
    """By state, how much older than the latest event its event may be, µs; None = not a chain.

    followed, within: as in `runtime.matching.kernel.conditions.Query`

    In a chain state n takes the events of one input, by one transition, for one name, to state n+1.
    Times alone decide what is in a window.
    """
    states, transitions = automaton.states, automaton.transitions
    is_plain = (
        query.every is None
        and query.skip is None
        and not len(followed)
        and not windows.is_unique.any()
        and len(states) == len(transitions) == len(query.terms)
        and (transitions["target"][:-1] == np.arange(1, len(states))).all()
        and (transitions["first_bind"] == transitions["stop_bind"]).all()
        and (transitions["first_other_check"] == transitions["stop_check"]).all()
        and (states["link_row"][1:] >= 0).all()
    )
    return np.minimum(windows.within[transitions["input"]], within) - 1 if is_plain else None


def for_chain(automaton: AutomatonTables) -> AutomatonTables:
    """The tables of a chain for `search_chain`, which looks ahead later."""
    states = automaton.states.copy()
    states["lookahead_after"][states["lookahead_after"] < NEVER] = AFTER_COMPARISONS
    return automaton._replace(states=states)


@borrowing
def search_chain(
    events: Events,
    automaton: AutomatonTables,
    program: LoadedProgram,
    ages: Integers,
    workspace: Workspace,
    latest: Integers,
    members: Integers,
) -> int:
    """As `runtime.matching.kernel.search.search`; `ages`: `chain_ages`."""
    links, lanes, dead_ends, path = workspace.links, workspace.lanes, workspace.dead_ends, workspace.path
    bindings, states = workspace.search_state.bindings, automaton.states
    matches, search_number, last = 0, 0, len(states) - 1
    for key in range(len(events.start) - 1):
        begin, fresh, end = events.start[key], events.fresh[key], events.start[key + 1]
        if fresh == end:
            continue
        count = link_events(events, automaton.linked_inputs, automaton.is_first, links, begin, fresh, end)
        first_search = search_number + 1
        for index in range(count):
            event = links.starts[index]
            now, search_number = events.time[event], search_number + 1
            # For conditions on the key alone, which any event of the key can answer.
            bindings[last + 1] = event
            # The first state takes the new event only. `oldest`: by depth, no older one is taken.
            depth, position, oldest = 0, event, event
            # Invariant: the states before `depth` have taken `path.event`, and all comparisons of
            # these events hold. For the state at `depth`, events newer than `position` have been
            # tried.
            while True:
                position = _next_position(
                    events,
                    automaton,
                    program,
                    links,
                    lanes,
                    bindings,
                    depth,
                    position,
                    event,
                    begin,
                    oldest,
                    now - ages[depth],
                )
                # 1. No event is left, so the state is a dead end. Back to the one before.
                if position < 0:
                    if depth == 0:
                        break
                    depth -= 1
                    position = path.event[depth]
                    if states[depth + 1].dead_end_row >= 0:
                        tried = first_position(events, position)
                        record_dead_end(automaton, dead_ends, bindings, depth + 1, tried, begin, search_number)
                    oldest = path.failed_until[depth]
                    position = next_older(links, states[depth].link_row, position, begin)
                # 2. All have taken an event. Newer ones came first, so no other match is better.
                elif depth == last:
                    latest[matches] = last_position(events, event)
                    for term in range(last + 1):
                        members[matches, term] = bindings[term]
                    matches += 1
                    break
                # 3. One deeper, unless it is known to be a dead end. There no event is taken with
                # which the state is known to fail.
                else:
                    failed = -1
                    if states[depth + 1].dead_end_row >= 0:
                        failed = failed_until(
                            automaton, dead_ends, bindings, depth + 1, begin, first_search, search_number
                        )
                    if position > failed:
                        path.event[depth], path.failed_until[depth] = position, oldest
                        depth, oldest = depth + 1, max(begin, failed)
                    position = next_older(links, states[depth].link_row, position, begin)
    return matches


@inlined
def _next_position(
    events: Events,
    automaton: AutomatonTables,
    program: LoadedProgram,
    links: Links,
    lanes: Lanes,
    bindings: Integers,
    state: int,
    position: int,
    event: int,
    begin: int,
    oldest: int,
    oldest_time: int,
) -> int:
    """Binds the newest event from `position` on for which the comparisons hold; -1 = there is none.

    event, begin: positions of the latest event and of the key's first one
    oldest, oldest_time: the oldest event that may be taken
    """
    # State n has the transition n.
    row, is_found, rejected = automaton.states[state].link_row, False, 0
    while not is_found and position >= oldest and events.time[position] >= oldest_time:
        is_found = bind(automaton, program, state, position, bindings)
        if not is_found:
            position, rejected = next_older(links, row, position, begin), rejected + 1
        # Many events in a row were rejected: look ahead for one for which the first comparison
        # holds.
        if rejected == automaton.states[state].lookahead_after:
            rejected = 0
            position = look_ahead(
                events.time,
                events.superseded,
                events.input,
                automaton.states[state].input,
                row,
                program,
                automaton.states[state].lookahead_program,
                position,
                event,
                begin,
                oldest,
                oldest_time,
                bindings,
                lanes,
            )
    return position if is_found else -1
