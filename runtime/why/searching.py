"""Search as the reference matcher does, with each clause lifted once; and where searches end.

Three questions about one event as the latest: what wins, what would win if one clause were not
there, and, where no single clause is to blame, where the search has ended.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import overload

import numpy as np
import pyarrow as pa

from querylang.dataclass import dataclass, field, replace
from querylang.plan.model import ACCEPT, Transition, known
from querylang.system_limits import room_for
from runtime.column_types import Integers
from runtime.instants import NEVER
from runtime.matching.choose import kernel_matcher
from runtime.matching.interface import Bindings, Matcher, Ordered, as_bindings
from runtime.matching.reference import EndedError, EventSearch, ReferenceMatcher, ReleasedEvent, joined, positions_of
from runtime.why.clauses import Clause, What, clauses_of, lifted
from runtime.why.history import KeyEvents, KeyHistory

MOST_BEFORE = 1_000
"""So many events before the latest one are searched at most."""

MOST_CANDIDATES = 2_000
"""So many candidates of a `find every`, or with a clause lifted, are looked at."""

_FRAMES = 100_000

MOST_VISITS = 3_000
"""So many places of a search without a match are looked at for where it ends."""


@dataclass(frozen=True, slots=True)
class Near:
    """A candidate, or a part of one, that is not a match.

    clause: what it fails for first
    bound: what the terms are bound to
    position: the event that fails, if it is one of the candidate's; None = it is about all of it
    is_whole: nothing else fails: with the clause lifted it is a match
    state: where the search ended, of one that never finds a further event; None = elsewhere
    """

    clause: Clause
    bound: Bindings
    position: int | None = None
    is_whole: bool = True
    state: int | None = None


class _Unsuperseded(Sequence[ReleasedEvent]):
    """The events as if none of an input superseded another."""

    def __init__(self, events: Sequence[ReleasedEvent], item: int) -> None:
        self._events, self._item = events, item

    def __len__(self) -> int:
        return len(self._events)

    @overload
    def __getitem__(self, position: int) -> ReleasedEvent: ...
    @overload
    def __getitem__(self, position: slice) -> Sequence[ReleasedEvent]: ...
    def __getitem__(self, position: int | slice) -> ReleasedEvent | Sequence[ReleasedEvent]:
        if isinstance(position, slice):
            return [self[place] for place in range(*position.indices(len(self)))]
        event = self._events[position]
        if event.input == self._item:
            return event if event.superseded >= NEVER else replace(event, superseded=NEVER)
        if all(item != self._item or by >= NEVER for item, by in event.also):
            return event
        also = tuple((item, NEVER if item == self._item else by) for item, by in event.also)
        return replace(event, also=also)


def superseded_in(event: ReleasedEvent, item: int) -> int:
    """What supersedes an event in an input that it serves; NEVER = nothing."""
    return event.superseded if event.input == item else next(by for number, by in event.also if number == item)


@dataclass(frozen=True, slots=True)
class Matchers:
    """The matchers of a query, by the clause that is lifted; None = none is.

    kernels: None in it = no kernel can express the query
    """

    plain: dict[Clause | None, ReferenceMatcher] = field(default_factory=dict)
    kernels: dict[Clause | None, Matcher | None] = field(default_factory=dict)


class _AtOnce:
    """Searches from several events of a key at once: the scope of each is a key of its own."""

    def __init__(self, events: KeyEvents, scopes: Sequence[range]) -> None:
        self._events, self._scopes = events, scopes
        self._start = np.cumsum([0, *map(len, scopes)])
        lengths, first = np.diff(self._start), np.array([scope.start for scope in scopes])
        self._shift = np.repeat(first - self._start[:-1], lengths)
        self._latest = np.repeat(self._start[1:] - 1, lengths)
        self._positions = np.arange(self._start[-1]) + self._shift
        self._table = pa.concat_tables([events.table.slice(scope.start, len(scope)) for scope in scopes])

    def found(self, matcher: Matcher, free: Sequence[int], unsuperseded: int) -> dict[int, Bindings]:
        """By latest event what wins; those without a match are missing.

        free: by search, the first position that may be bound
        unsuperseded: an input of which nothing counts as superseded; -1 = there is none
        """
        found = matcher.match(self._ordered(free, unsuperseded))
        shift, terms = self._shift[found.latest], len(found.widths) or found.members.shape[1]
        members = np.where(found.members < 0, -1, found.members + shift[:, np.newaxis])
        bound = (as_bindings(row, found.widths, terms) for row in members.tolist())
        return dict(zip((found.latest + shift).tolist(), bound, strict=True))

    def _ordered(self, free: Sequence[int], unsuperseded: int) -> Ordered:
        events, positions, start = self._events, self._positions, self._start
        inputs, by = events.first_inputs[positions], events.superseded[positions]
        # What supersedes an event later than the latest one of a search has not come yet.
        by = np.where(by < NEVER, by - self._shift, NEVER)
        by[(by > self._latest) | (inputs == unsuperseded)] = NEVER
        first = [max(position, scope.start) for position, scope in zip(free, self._scopes, strict=True)]
        return Ordered(
            start=start,
            fresh=start[1:] - 1,
            row=np.arange(len(positions), dtype=np.int32),
            input=inputs.astype(np.int16),
            time=events.times[positions],
            superseded=by,
            table=self._table.combine_chunks(),
            free=np.array(first, np.int64) - self._shift[start[:-1]],
            number=events.numbers[positions],
        )


class Searching:
    """Searches over the events of one key.

    limits: what was not looked at so far, in words
    """

    def __init__(self, history: KeyHistory, matchers: Matchers | None = None) -> None:
        """matchers: those of the same query for other keys; gets those that are made here"""
        self.history, self.query = history, history.query
        self.events: Sequence[ReleasedEvent] = history.events
        self._matchers = Matchers() if matchers is None else matchers
        self._winners: dict[Clause | None, dict[int, Bindings | None]] = {}
        self.limits: dict[str, None] = {}

    def limited(self, text: str) -> None:
        """Notes what is not looked at."""
        self.limits[text] = None

    def matcher(self, clause: Clause | None = None) -> ReferenceMatcher:
        """The reference matcher of the query with a clause lifted."""
        known = self._matchers.plain
        if clause not in known:
            known[clause] = ReferenceMatcher(self.history.plan, lifted(self.query, clause))
        return known[clause]

    def _kernel(self, clause: Clause | None) -> Matcher | None:
        known = self._matchers.kernels
        if clause not in known:
            known[clause] = kernel_matcher(self.history.plan, lifted(self.query, clause))
        return known[clause]

    def search_all(self, latest: Sequence[int]) -> None:
        """Searches from many events at once where a kernel can: `winner` then knows what wins.

        Both matchers agree on every stream; the kernel follows a search a hundred times faster.
        """
        events = self.history.events
        if self.query.every is not None or events.also or not latest:
            return
        searches = _AtOnce(events, [self.scope(position) for position in latest])
        for clause in (None, *clauses_of(self.query)):
            kernel = self._kernel(clause)
            if kernel is not None:
                free = [self.free(position, clause) for position in latest]
                found = searches.found(kernel, free, self._unsuperseded(clause))
                self._winners[clause] = {position: found.get(position) for position in latest}

    @staticmethod
    def _unsuperseded(clause: Clause | None) -> int:
        """The input of which nothing counts as superseded; -1 = there is none."""
        return clause.index if clause is not None and clause.what is What.UNIQUE else -1

    def seen(self, clause: Clause | None) -> Sequence[ReleasedEvent]:
        """The events with a clause lifted."""
        item = self._unsuperseded(clause)
        return self.events if item < 0 else _Unsuperseded(self.events, item)

    def scope(self, latest: int) -> range:
        """The events that a search from this one looks at; those of its matches are among them."""
        life = self.history.life(latest)
        own = [min(positions_of(bound), default=latest) for bound in self.history.found.at(latest)]
        start = max(life.start, min([latest + 1 - MOST_BEFORE, *own]))
        if start > life.start:
            self.limited(
                f"only the {MOST_BEFORE:,} events before the latest one of a key were searched, not older ones"
            )
        return range(start, latest + 1)

    def search(self, latest: int, clause: Clause | None = None) -> EventSearch:
        """The windows of an event."""
        free, scope, matcher = self.free(latest, clause), self.scope(latest), self.matcher(clause)
        in_window = self.history.events.windows_at(latest, matcher.inputs, scope, self._unsuperseded(clause))
        return EventSearch(matcher, self.seen(clause), latest, scope, free, in_window)

    def free(self, latest: int, clause: Clause | None = None) -> int:
        """The first position that may be bound: `after match skip` has passed those before."""
        before = self.skipped_by(latest)
        if before is None or (clause is not None and clause.what is What.USED):
            return 0
        assert self.query.skip is not None, "something is skipped"
        return self.matcher().free_after(self.query.skip, *before)

    def skipped_by(self, latest: int) -> tuple[int, Bindings] | None:
        """The match after which events were skipped: its latest event, and what it binds."""
        if self.query.skip is None:
            return None
        found = self.history.found
        before = found.last_between(self.history.life(latest).start, latest)
        return None if before is None else (before, found.at(before)[-1])

    def winner(self, latest: int, clause: Clause | None = None) -> Bindings | None:
        """What the search finds, before any trailing wait; None = nothing, or it was ended."""
        known = self._winners.get(clause, {})
        if latest in known:
            return known[latest]
        if self.query.every is not None:
            return next((bound for bound in self.candidates(latest, clause) if latest in positions_of(bound)), None)
        try:
            found, _ = self.matcher(clause).found_in(self.search(latest, clause), latest)
        except EndedError:
            return None
        return found[-1] if found else None

    def candidates(self, latest: int, clause: Clause | None = None, most: int = MOST_CANDIDATES) -> Iterator[Bindings]:
        """Candidates with this latest event, the newest mostly first; of a `find every` all."""
        found = self.search(latest, clause).candidates(0, latest, {}, is_every=self.query.every is not None)
        with room_for(_FRAMES):
            try:
                yield from islice(found, most)
                if most == MOST_CANDIDATES and next(found, None) is not None:
                    self.limited(f"only {MOST_CANDIDATES:,} candidates with one latest event were looked at")
            except EndedError:
                pass

    def match(self, latest: int, clause: Clause | None = None) -> Bindings | None:
        """What is a match once its trailing wait has ended; None = nothing."""
        bound = self.winner(latest, clause)
        return None if bound is None or next(self.ended_by(latest, bound, clause), None) is not None else bound

    @property
    def wait(self) -> int | None:
        """The trailing wait, µs; None = the query has none."""
        return None if self.query.trailing is None else known(self.query.trailing.duration)

    def ended_by(self, latest: int, bound: Bindings, clause: Clause | None = None) -> Iterator[int]:
        """The conditions that end the trailing wait of a candidate."""
        wait = self.wait
        if wait is None:
            return
        matcher, events = self.matcher(clause), self.seen(clause)
        due, key = events[latest].time + wait, self.until(latest, events[latest].time + wait)
        for index in lifted(self.query, clause).decided_late:
            search = self.search(latest, clause)
            if not matcher.survives(index, events, bound, due, search, key, is_new=True):
                yield index

    def until(self, latest: int, due: int) -> range:
        """The events of a search, and those behind it that are before a moment, µs."""
        life, times = self.history.life(latest), self.history.events.times
        end = latest + 1
        while end < life.stop and times[end] < due:
            end += 1
        return range(self.scope(latest).start, end)

    def may_end(self, position: int) -> bool:
        """Whether an event can be the latest of a match."""
        if self.query.every is not None:
            return True
        starts, served = self.query.automaton.states[0].transitions, self.history.events.inputs_at(position)
        return any(set(item.inputs) <= set(served) for item in starts)

    @property
    def ends(self) -> Integers:
        """The events that can be the latest of a match."""
        events = self.history.events
        if self.query.every is not None:
            return np.arange(len(events))
        found = np.zeros(len(events), np.bool_)
        for item in self.query.automaton.states[0].transitions:
            found |= np.all([events.serve(number) for number in item.inputs], axis=0)
        return np.flatnonzero(found)

    # What a search without a match fails for.

    def by_one_clause(self, latest: int) -> list[Near]:
        """A candidate for each clause without which there is a match."""
        found = []
        bound = self.winner(latest)
        if bound is not None:
            for index in self.ended_by(latest, bound):
                clause = Clause.of_condition(self.query, index)
                is_whole = next(self.ended_by(latest, bound, clause), None) is None
                found.append(Near(clause, bound, is_whole=is_whole))
            return found
        for clause in clauses_of(self.query):
            bound = self.match(latest, clause)
            position = None if bound is None else self._place(clause, latest, bound)
            if bound is not None and (clause.is_condition or position is not None):
                found.append(Near(clause, bound, position))
        return found

    def _place(self, clause: Clause, latest: int, bound: Bindings) -> int | None:
        """The first event, from the latest one backwards, that such a clause refuses."""
        if clause.is_condition:
            return None
        search = self.search(latest)
        positions = sorted(set(positions_of(bound)), reverse=True)
        match clause.what:
            case What.ORDER:
                numbers = [self.events[position].number for position in positions]
                pairs = zip(positions[1:], numbers[1:], numbers, strict=False)
                return next((position for position, older, newer in pairs if older != newer - 1), None)
            case What.USED:
                return next((position for position in positions if position not in search.free), None)
        terms = [term for term in bound if self.query.terms[term].input == clause.index]
        own = sorted(positions_of(bound, terms), reverse=True)
        return next((position for position in own if clause.index not in search.in_window.get(position, ())), None)

    def dead_ends(self, latest: int) -> list[Near]:
        """Where the search ends without a match: those that have come furthest, newest first."""
        return _DeadEnds(self, latest).furthest()


class _DeadEnds:
    """Follows a search place by place, in its order, and notes why it ends there."""

    def __init__(self, searching: Searching, latest: int) -> None:
        self._searching, self._latest = searching, latest
        self._search, self._matcher = searching.search(latest), searching.matcher()
        self._in_window, self._free = self._search.in_window, set(self._search.free)
        self._scope = searching.scope(latest)
        self._found: list[tuple[float, Near]] = []
        self._visits = 0
        with room_for(_FRAMES):
            self._visit(0, latest, {})

    def furthest(self) -> list[Near]:
        """Those that bind the most."""
        best = max((reached for reached, _ in self._found), default=0.0)
        return [near for reached, near in self._found if reached == best]

    def _visit(self, state: int, newest: int, bound: Bindings) -> None:
        events = self._searching.events
        is_any = False
        for position in range(newest, self._scope.start - 1, -1):
            for tied in self._matcher.transitions(state, events[position].inputs):
                for transition in tied:
                    self._visits += 1
                    if self._visits > MOST_VISITS:
                        self._searching.limited(f"only {MOST_VISITS:,} places of a search were followed to their end")
                        return
                    is_any = True
                    self._step(transition, position, newest, bound)
            if state == 0:
                break
        checks = self._matcher.accepts(state)
        if checks is not None:
            failing = self._failing(checks, bound, is_last=True, binds=())
            if failing is not None:
                self._note(len(positions_of(bound)) + 0.25, Near(failing, bound, is_whole=False))
        elif not is_any:
            clause = Clause(What.NEVER_CAME)
            self._note(float(len(positions_of(bound))), Near(clause, bound, is_whole=False, state=state))

    def _step(self, transition: Transition, position: int, newest: int, bound: Bindings) -> None:
        extended = joined(bound, dict.fromkeys(transition.binds, (position,)))
        failing = self._refused(transition, position, newest)
        if failing is None:
            failing = self._failing(
                transition.checks, extended, is_last=transition.target == ACCEPT, binds=transition.binds
            )
        if failing is not None:
            place = None if failing.is_condition else position
            self._note(len(positions_of(bound)) + 0.5, Near(failing, extended, place, is_whole=False))
        elif transition.target != ACCEPT:
            self._visit(transition.target, position - 1, extended)

    def _refused(self, transition: Transition, position: int, newest: int) -> Clause | None:
        """What keeps an event from being bound at all."""
        events, query = self._searching.events, self._searching.query
        left = next((item for item in transition.inputs if item not in self._in_window.get(position, ())), None)
        if left is not None:
            return Clause(self._left(position, left), left)
        if position not in self._free:
            return Clause(What.USED)
        if transition.follows and events[position].number != events[newest + 1].number - 1:
            return Clause(What.ORDER)
        assert query.inputs, "a query has inputs"
        return None

    def _left(self, position: int, number: int) -> What:
        """Why an event is not in the window of an input that it serves."""
        events, item = self._searching.events, self._searching.query.inputs[number]
        if item.within is not None and events[self._latest].time - events[position].time >= known(item.within):
            return What.WINDOW
        return What.UNIQUE if superseded_in(events[position], number) <= self._latest else What.RETAIN

    def _failing(self, checks: Sequence[int], bound: Bindings, *, is_last: bool, binds: Sequence[int]) -> Clause | None:
        events = self._searching.events
        for index in checks:
            if not self._matcher.permits(events, index, bound, self._search, is_last=is_last, binds=binds):
                return Clause.of_condition(self._searching.query, index)
        return None

    def _note(self, reached: float, near: Near) -> None:
        self._found.append((reached, near))
