"""The reference matcher: plain Python, one event at a time, easy to verify.

It runs every query: matches by the *recent* policy (`docs/matching.md`), the aggregates of a `find
every`, and which trailing waits no event has ended. The kernel must agree with it on every stream.
It gets the released events of one key in total order; admission, filters and eviction are done
elsewhere.
"""

from __future__ import annotations

import operator
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby, takewhile
from typing import NamedTuple

from querylang.dataclass import dataclass
from querylang.plan import remembering
from querylang.plan.expression import Aggregate, Expression, Invoke, KeyOf, walk
from querylang.plan.model import (
    ACCEPT,
    Between,
    Condition,
    Gap,
    Input,
    Plan,
    QueryPlan,
    Skip,
    Transition,
    Where,
    Within,
    Without,
    known,
    mentioned_terms,
)
from querylang.plan.questions import Question, counted_states, pasts, question_of
from querylang.system_limits import room_for
from runtime.instants import NEVER, NO_TIME
from runtime.interpreter import (
    BY_RECENCY,
    Budget,
    Context,
    EvaluationError,
    Event,
    PlanWorld,
    Value,
    aggregate,
    evaluate,
    holds,
    run_action,
)
from runtime.matching.candidates import TOO_MANY, AskedCandidate, Verdict, is_unset, matches_of
from runtime.matching.find_every import aggregates_of
from runtime.matching.interface import Bindings


@dataclass(frozen=True, slots=True)
class ReleasedEvent:
    """A released event.

    input: the index of its input, of the first one if there are several
    time: µs UTC
    superseded: the position of the next event that supersedes it (`with unique`); NEVER = none
    number: its running number among the events of its key
    arrival: µs; NO_TIME = nothing depends on it
    also: the other inputs that it serves, each with what supersedes it there
    """

    input: int
    time: int
    value: Event
    superseded: int = NEVER
    number: int = 0
    arrival: int = NO_TIME
    also: tuple[tuple[int, int], ...] = ()

    @property
    def inputs(self) -> tuple[int, ...]:
        """All inputs that it serves."""
        return (self.input, *(number for number, _ in self.also))


@dataclass(frozen=True, slots=True)
class KeyMatches:
    """What a key's new events find.

    matches: by match the position of its latest event, and what the terms are bound to
    free: the first position that a later match may bind
    errors: the events that had more matches than a `find all` gives, or whose search was ended,
        each with what its error row says
    """

    matches: list[tuple[int, Bindings]]
    free: int
    errors: list[tuple[int, str]]


ENDED = f"the search was ended after {remembering.MOST_BOUND:,} steps without a match: make the window or the repeats smaller"


class EndedError(Exception):
    """A search has bound too many events."""


_FRAMES = 1_000_000
"""Python's frames that a search may take: some for each event of a candidate."""


class _Span(NamedTuple):
    """A range: strictly inside is what something named is before, and something named after.

    - `first`, `last`: positions of its events; NEVER and -1: it has none.
    - `since`, `until`: its points, µs; NEVER and -NEVER: it has none.
    """

    first: int
    last: int
    since: int
    until: int

    def is_before(self, position: int, time: int) -> bool:
        """Whether something named is before an event."""
        return position > self.first or time > self.since

    def has(self, position: int, time: int) -> bool:
        """Whether an event is inside."""
        return self.is_before(position, time) and (position < self.last or time < self.until)


class ReferenceMatcher:
    """Finds the matches of one query; keeps nothing between calls."""

    def __init__(self, plan: Plan, query: QueryPlan) -> None:
        self._query = query
        self._world = PlanWorld(plan, query)
        self._conditions = query.conditions
        self._aggregates = aggregates_of(query)
        self._may_mention_keys = any(_may_mention_keys(node) for node in (*_expressions(query), *self._aggregates))
        self._leading = None if query.leading is None else known(query.leading.duration)
        self._questions = [question_of(condition, query.terms) for condition in query.conditions]
        self.pasts = pasts(query) if query.has_runs else ()
        self.counted, self.most_bound = counted_states(query), remembering.MOST_BOUND
        self._as_of: int | None = None
        self._tied: dict[tuple[int, tuple[int, ...]], list[list[Transition]]] = {}
        served = [(number,) for number in range(len(query.inputs))] + list(query.shared_types.values())
        ties = (self._ties(state, inputs) for state in range(len(query.automaton.states)) for inputs in served)
        self._is_ordered = query.finds_all and all(len(tied) == 1 for of_state in ties for tied in of_state)

    def matches(self, events: Sequence[ReleasedEvent], key: range, first_new: int, free: int = 0) -> KeyMatches:
        """The matches of the new events of one key: at most one for each, except by `find all`.

        key: its positions, in total order; those from `first_new` on are new
        free: the first position that may be bound
        """
        found: list[tuple[int, Bindings]] = []
        errors: list[tuple[int, str]] = []
        for latest in range(first_new, key.stop):
            search = EventSearch(self, events, latest, key, free)
            try:
                matches, is_cut = self.found_in(search, latest)
            except EndedError:
                errors.append((latest, ENDED))
                continue
            found += [(latest, bindings) for bindings in matches]
            errors += [(latest, TOO_MANY)] * is_cut
            if found and found[-1][0] == latest and self._query.skip is not None:
                free = self.free_after(self._query.skip, *found[-1])
        return KeyMatches(found, free, errors)

    def found_in(self, search: EventSearch, latest: int) -> tuple[Sequence[Bindings], bool]:
        """The matches of a search, and whether there were too many of them. Raises EndedError."""
        if self._query.finds_all:
            candidates = search.candidates(0, latest, {})
            return matches_of(candidates, self._query.terms, self.recency, are_ordered=self._is_ordered)
        with room_for(_FRAMES):
            winner = search.winner(0, latest, {})
        return ([] if winner is None else [winner]), False

    def free_after(self, skip: Skip, latest: int, bindings: Bindings) -> int:
        """The first position that a match after this one may bind."""
        if skip.term is None:
            return latest + 1
        return bindings[skip.term][-1 if skip.to == "first" else 0]

    def aggregated(
        self, events: Sequence[ReleasedEvent], key: range, first_new: int
    ) -> list[tuple[int, tuple[Value, ...]]]:
        """New events that are part of a candidate, each with the aggregates over all candidates."""
        found: list[tuple[int, tuple[Value, ...]]] = []
        for latest in range(first_new, key.stop):
            searched = list(EventSearch(self, events, latest, key).candidates(0, latest, {}, is_every=True))
            if any((latest,) in bindings.values() for bindings in searched):
                found.append((latest, self._aggregates_over(events, searched[::-1])))
        return found

    def _aggregates_over(self, events: Sequence[ReleasedEvent], candidates: Sequence[Bindings]) -> tuple[Value, ...]:
        """The values of all aggregates. `candidates`: in the order of the search, from its end."""
        oldest_first: Sequence[Bindings] = []
        if any(node.function in BY_RECENCY for node in self._aggregates):
            oldest_first = sorted(candidates, key=self.recency)
        contexts: dict[int, Context] = {}  # by the candidate's identity
        return tuple(
            self._aggregate(events, node, oldest_first if node.function in BY_RECENCY else candidates, contexts)
            for node in self._aggregates
        )

    def outlives(
        self, events: Sequence[ReleasedEvent], bindings: Bindings, latest: int, due: int, key: range, *, is_new: bool
    ) -> bool:
        """Whether no condition that the trailing wait decides has ended it by now.

        bindings: the match's members; their positions need not be in `key`
        due: µs, the end of the wait
        key: the positions of the key; of a wait that is not new, those of its new events
        is_new: the wait begins in this call, so the events in the windows are checked too
        """
        search = EventSearch(self, events, latest, key=key if is_new else range(0))
        return all(
            self.survives(index, events, bindings, due, search, key, is_new=is_new)
            for index in self._query.decided_late
        )

    def survives(
        self,
        index: int,
        events: Sequence[ReleasedEvent],
        bindings: Bindings,
        due: int,
        search: EventSearch,
        key: range,
        *,
        is_new: bool,
    ) -> bool:
        """Whether one condition that the trailing wait decides has not ended it; as of `outlives`.

        search: that of the latest event
        """
        condition = self._conditions[index]
        assert isinstance(condition, Within | Without), "no other condition reaches a wait"
        if self._named(condition, bindings) is None:
            return True
        if isinstance(condition, Within):
            times = self._times(events, condition.between, bindings, due)
            return max(times) - min(times) < known(condition.duration)
        inside = self._until(index, events, bindings, due, search, key, is_new=is_new)
        return not self._blocks(events, index, bindings, inside)

    def _until(
        self,
        index: int,
        events: Sequence[ReleasedEvent],
        bindings: Bindings,
        due: int,
        search: EventSearch,
        key: range,
        *,
        is_new: bool,
    ) -> list[int]:
        """The positions in the range of a `without` that reaches the trailing wait."""
        condition = self._conditions[index]
        assert isinstance(condition, Without), "who asks has seen that it is"
        span = self._span(events, condition.between, bindings, with_leading=True)
        first = max(key.start, search.latest + 1) if is_new else key.start
        in_time = takewhile(lambda position: events[position].time < due, range(first, key.stop))
        later = [position for position in in_time if condition.input in events[position].inputs]
        return [
            position
            for position in (*search.of_input(condition.input), *later)
            if events[position].time < due and (not is_new or span.is_before(position, events[position].time))
        ]

    def blocking(
        self,
        index: int,
        events: Sequence[ReleasedEvent],
        bindings: Bindings,
        search: EventSearch,
        key: range,
        due: int | None = None,
    ) -> list[int]:
        """The events that a `without` finds in the range of a whole candidate, oldest first.

        search: that of the latest event
        due: µs, the end of the trailing wait if the condition is decided then; None = it is not
        """
        condition = self._conditions[index]
        assert isinstance(condition, Without), "only these look for events"
        if self._named(condition, bindings) is None:
            return []
        if due is not None:
            inside = self._until(index, events, bindings, due, search, key, is_new=True)
        else:
            span = self._span(events, condition.between, bindings, with_leading=True)
            own = search.of_input(condition.input)
            inside = [position for position in own if span.has(position, events[position].time)]
        return sorted(position for position in inside if self._blocks(events, index, bindings, [position]))

    def is_asked(self, index: int, bindings: Bindings) -> bool:
        """Whether a condition says anything of a whole candidate: all that it mentions is there."""
        return self._named(self._conditions[index], bindings) is not None

    def range_times(
        self, index: int, events: Sequence[ReleasedEvent], bindings: Bindings, due: int | None
    ) -> list[int]:
        """The times of what a `within` measures, µs; `due`: as in `blocking`."""
        condition = self._conditions[index]
        assert isinstance(condition, Within), "only these measure"
        return self._times(events, condition.between, bindings, due)

    def gap_times(self, index: int, events: Sequence[ReleasedEvent], bindings: Bindings) -> tuple[int, int] | None:
        """The latest time before a wait between steps, and the first after it, µs; None = none."""
        condition = self._conditions[index]
        assert isinstance(condition, Gap), "only these are waits between steps"
        later = [events[position].time for position in positions_of(bindings, condition.after)]
        return (self._latest(events, condition.before, bindings), min(later)) if later else None

    def asking(
        self, events: Sequence[ReleasedEvent], bindings: Bindings, extra: Mapping[int, int] | None = None
    ) -> AskedCandidate:
        """A candidate whose conditions about runs are asked; `extra`: as of `AskedCandidate`."""
        return self._asking(events, bindings, extra)

    def context(self, events: Sequence[ReleasedEvent], bindings: Bindings) -> Context:
        """What a condition about single events sees of a candidate."""
        return self._context(events, bindings)

    @property
    def mentions_keys(self) -> bool:
        """Whether a condition may mention a key."""
        return self._may_mention_keys

    def keys_of(self, event: ReleasedEvent) -> Sequence[Value]:
        """The values of the key, if a condition may mention it; else none."""
        return self._keys(event) if self._may_mention_keys else ()

    @property
    def questions(self) -> Sequence[Question | None]:
        """By condition, what it asks of runs; None = it names none."""
        return self._questions

    def recency(self, bindings: Bindings) -> tuple[tuple[int, ...], tuple[tuple[int, ...], ...]]:
        """What the *recent* policy compares: positions newest first, one per name; then by name."""
        terms = range(len(self._query.terms))
        by_name = tuple(bindings.get(term, ()) for term in reversed(terms))
        return tuple(sorted(positions_of(bindings), reverse=True)), by_name

    def permits(
        self,
        events: Sequence[ReleasedEvent],
        index: int,
        bindings: Bindings,
        search: EventSearch,
        *,
        is_last: bool,
        binds: Sequence[int] = (),
    ) -> bool:
        """Whether a condition is true as far as its names are bound; `is_last`: no more will be.

        binds: the terms that have just been bound
        """
        condition, question = self._conditions[index], self._questions[index]
        if question is not None and isinstance(condition, Without) and self._named(condition, bindings) is None:
            return True
        match condition:
            case Where(condition=expression):
                if question is None:
                    return self._is_true(events, expression, bindings)
                asking = self._asking(events, bindings)
                if question.is_whole:
                    return asking.verdict(question) is not Verdict.FAILS
                is_known = not question.plain & (question.prevs | set(binds))
                return asking.permits(question, newest_only=is_known)
            case Within(duration=duration, between=between):
                times = self._times(events, between, bindings, None)
                return max(times) - min(times) < known(duration)
            case Gap(duration=duration, before=before, after=after):
                later = [events[position].time for position in positions_of(bindings, after)]
                return not later or min(later) >= self._latest(events, before, bindings) + known(duration)
            case Without(between=between, input=number):
                span = self._span(events, between, bindings, with_leading=is_last)
                inside = [position for position in search.of_input(number) if span.has(position, events[position].time)]
                return not self._blocks(events, index, bindings, inside)

    def _blocks(self, events: Sequence[ReleasedEvent], index: int, bindings: Bindings, inside: Sequence[int]) -> bool:
        """Whether one of these events of the input is a `without` event; members of the candidate
        are not, whatever they are bound as."""
        number, condition, question = len(self._query.terms), self._conditions[index], self._questions[index]
        assert isinstance(condition, Without), "who asks has seen that it is"
        members = set(positions_of(bindings))
        others = [position for position in inside if position not in members]
        if condition.condition is None:
            return bool(others)
        if question is None:
            expression = condition.condition
            return any(self._is_true(events, expression, {**bindings, number: (position,)}) for position in others)
        if question.runs and not bindings.get(question.runs[0]):
            return False
        askings = (self._asking(events, bindings, {number: position}) for position in others)
        return any(asking.verdict(question) is Verdict.HOLDS for asking in askings)

    def _asking(
        self, events: Sequence[ReleasedEvent], bindings: Bindings, extra: Mapping[int, int] | None = None
    ) -> AskedCandidate:
        return AskedCandidate(events, self._query.terms, bindings, self._context(events, bindings), extra)

    def _span(
        self, events: Sequence[ReleasedEvent], between: Between | None, bindings: Bindings, *, with_leading: bool
    ) -> _Span:
        """The range of a `without` as far as its names are bound, without the trailing wait."""
        named = positions_of(bindings, None if between is None else between.terms)
        points = self._points(events, between, bindings)
        if with_leading and self._leading is not None and (between is None or between.leading):
            points.append(self._beginning(events, bindings))
        return _Span(
            min(named, default=NEVER), max(named, default=-1), min(points, default=NEVER), max(points, default=-NEVER)
        )

    def _times(
        self, events: Sequence[ReleasedEvent], between: Between | None, bindings: Bindings, due: int | None
    ) -> list[int]:
        """The times of a range's names as far as they are bound, those of its waits included."""
        named = positions_of(bindings, None if between is None else between.terms)
        times = [events[position].time for position in named] + self._points(events, between, bindings)
        if between is not None and between.leading:
            times.append(self._beginning(events, bindings))
        if between is not None and between.trailing:
            assert due is not None, "the range names a trailing wait"
            times.append(due)
        return times

    def _beginning(self, events: Sequence[ReleasedEvent], bindings: Bindings) -> int:
        """The point of the leading wait."""
        assert self._leading is not None, "the range begins with a leading wait"
        return min(events[position].time for position in positions_of(bindings)) - self._leading

    def _points(self, events: Sequence[ReleasedEvent], between: Between | None, bindings: Bindings) -> list[int]:
        """The points of the waits between steps that a range names."""
        gaps = [self._query.gaps[number] for number in (() if between is None else between.middle)]
        return [self._latest(events, gap.before, bindings) + known(gap.duration) for gap in gaps]

    def _latest(self, events: Sequence[ReleasedEvent], terms: Sequence[int], bindings: Bindings) -> int:
        """The time of the latest event of some terms."""
        return max(events[position].time for position in positions_of(bindings, terms))

    def _named(self, condition: Condition, bindings: Bindings) -> list[int] | None:
        """The positions of the range's names; None: the condition mentions a name that is unset."""
        terms = self._query.terms
        if any(is_unset(terms, term, bindings) for term in mentioned_terms(condition, len(terms))):
            return None
        between = condition.between if isinstance(condition, Within | Without) else None
        if between is not None and not all(bindings.get(term) for term in between.terms):
            return None
        gaps = [self._query.gaps[number] for number in (() if between is None else between.middle)]
        if not all(positions_of(bindings, gap.before) for gap in gaps):
            return None
        return positions_of(bindings, None if between is None else between.terms)

    def _is_true(self, events: Sequence[ReleasedEvent], expression: Expression, bindings: Bindings) -> bool:
        return holds(expression, self._context(events, bindings))

    def _aggregate(
        self,
        events: Sequence[ReleasedEvent],
        node: Aggregate,
        candidates: Sequence[Bindings],
        contexts: dict[int, Context],
    ) -> Value:
        """The value of an aggregate; if it is an event, the event's position.

        contexts: of the candidates that another aggregate has asked; gets those that are made here
        """
        if not node.arguments:
            return aggregate(node.function, [()] * len(candidates))
        term = None if self._query.every is None else self._query.every.term_of(node)
        rows = []
        for bindings in candidates:
            context = contexts.get(id(bindings))
            if context is None:
                context = contexts[id(bindings)] = self._context(events, bindings)
            else:
                context.budget = Budget()  # each evaluation has all steps
            try:
                values = [evaluate(argument, context) for argument in node.arguments]
            except EvaluationError:
                continue
            if None in values and not self._world.nulls_fail:
                continue
            rows.append(tuple(values if term is None else [bindings[term][0], *values[1:]]))
        return aggregate(node.function, rows)

    def _context(self, events: Sequence[ReleasedEvent], bindings: Bindings) -> Context:
        values: list[Event | None] = [None] * (len(self._query.terms) + 1)
        for term, positions in bindings.items():
            values[term] = events[positions[0]].value
        keys = self._keys(events[next(iter(bindings.values()))[0]]) if self._may_mention_keys else ()
        return Context(values, keys=keys, world=self._world, as_of=self._as_of, invoke=run_action)

    def _keys(self, event: ReleasedEvent) -> Sequence[Value]:
        """The values of the key, which each of its events has."""
        context = Context([event.value], world=self._world, invoke=run_action)
        return [evaluate(key, context) for key in self._query.inputs[event.input].keys]

    def look_up_as_of(self, latest: ReleasedEvent) -> None:
        """What candidates with this latest event look up is what tables say when it arrives."""
        self._as_of = None if latest.arrival == NO_TIME else latest.arrival

    @property
    def inputs(self) -> tuple[Input, ...]:
        """The inputs of the query."""
        return self._query.inputs

    def transitions(self, state: int, inputs: tuple[int, ...]) -> Sequence[Sequence[Transition]]:
        """A state's transitions for events of these inputs in groups of ties, more names first."""
        known = self._tied.get((state, inputs))
        if known is None:
            known = self._tied[state, inputs] = self._ties(state, inputs)
        return known

    def _ties(self, state: int, inputs: tuple[int, ...]) -> list[list[Transition]]:
        transitions = self._query.automaton.states[state].transitions
        fitting = [item for item in transitions if set(item.inputs) <= set(inputs)]
        return [list(tied) for _, tied in groupby(fitting, key=lambda item: len(item.binds))]

    def accepts(self, state: int) -> tuple[int, ...] | None:
        """The conditions to check where a candidate ends in this state; None: it cannot."""
        return self._query.automaton.states[state].accepts


def _expressions(query: QueryPlan) -> Iterator[Expression]:
    for item in query.conditions:
        if isinstance(item, Where | Without) and item.condition is not None:
            yield item.condition


def _may_mention_keys(expression: Expression) -> bool:
    """Whether an expression mentions a key, or calls an action, which may mention one."""
    return any(isinstance(node, KeyOf | Invoke) for node in walk(expression))


class EventSearch:
    """The search with one event as the latest.

    latest: its position
    in_window: positions in the windows, newest first
    free: those of them that may be bound
    """

    def __init__(
        self,
        matcher: ReferenceMatcher,
        events: Sequence[ReleasedEvent],
        latest: int,
        key: range,
        free: int = 0,
        in_window: dict[int, tuple[int, ...]] | None = None,
    ) -> None:
        """in_window: what `windows_at` gives, where it is known"""
        self._matcher = matcher
        self._events = events
        self.latest = latest
        self._known: dict[tuple[object, ...], Bindings | None] = {}
        self._bound = 0
        matcher.look_up_as_of(events[latest])
        if in_window is None:
            in_window = windows_at(events, latest, matcher.inputs, range(key.start, min(key.stop, latest + 1)))
        self.in_window = in_window
        self.free = [position for position in self.in_window if position >= free]

    def of_input(self, number: int) -> list[int]:
        """The positions in the window of an input, newest first."""
        return [position for position, inputs in self.in_window.items() if number in inputs]

    def winner(self, state: int, newest: int, bindings: Bindings) -> Bindings | None:
        """What completes these bindings from this state on to the most recent candidate.

        Depth first, newer events first: the first candidate found is the winner. Only if one event
        may serve different names, equally many, all tied transitions are explored and the best
        candidate is kept. More events are preferred to the end of the candidate.

        `newest`: only positions up to this one may be consumed; the start state must consume it: it
        is the latest event.
        """
        pasts = self._matcher.pasts
        if not pasts or pasts[state].is_all:
            return self._searched(state, newest, bindings)
        key = (state, newest, *pasts[state].key(bindings))
        if key not in self._known:
            self._known[key] = self._searched(state, newest, bindings)
        return self._known[key]

    def _searched(self, state: int, newest: int, bindings: Bindings) -> Bindings | None:
        for position in self.free[bisect_left(self.free, -newest, key=operator.neg) :]:
            for tied in self._matcher.transitions(state, self.in_window[position]):
                # Loops, not comprehensions, which take the stack of the machine at each level.
                found = []
                for transition in tied:
                    rest = self._follow(state, transition, position, newest, bindings)
                    if rest is not None:
                        found.append(rest)
                if found:
                    return max(found, key=self._matcher.recency)
            if state == 0:
                break
        return {} if self._may_end(state, bindings) else None

    def _follow(
        self, state: int, transition: Transition, position: int, newest: int, bindings: Bindings
    ) -> Bindings | None:
        """The event at `position`, and what completes the candidate after it."""
        extended = self._consume(state, transition, position, newest, bindings)
        if extended is None:
            return None
        rest = {} if transition.target == ACCEPT else self.winner(transition.target, position - 1, extended)
        return None if rest is None else joined(dict.fromkeys(transition.binds, (position,)), rest)

    def candidates(self, state: int, newest: int, bindings: Bindings, *, is_every: bool = False) -> Iterator[Bindings]:
        """All candidates that complete these bindings from this state on.

        is_every: also those without the latest event
        """
        for position in self.free:
            if position > newest:
                continue
            if state == 0 and position < newest and not is_every:
                return
            for tied in self._matcher.transitions(state, self.in_window[position]):
                for transition in tied:
                    extended = self._consume(state, transition, position, newest, bindings)
                    if extended is None:
                        continue
                    if transition.target == ACCEPT:
                        yield extended
                    else:
                        yield from self.candidates(transition.target, position - 1, extended)
        if self._may_end(state, bindings):
            yield bindings

    def _may_end(self, state: int, bindings: Bindings) -> bool:
        """Whether the bindings are a candidate without a further event."""
        checks = self._matcher.accepts(state)
        permits = self._matcher.permits
        return checks is not None and all(
            permits(self._events, index, bindings, self, is_last=True) for index in checks
        )

    def _consume(
        self, state: int, transition: Transition, position: int, newest: int, bindings: Bindings
    ) -> Bindings | None:
        """The bindings after consuming the event at `position`; None if a condition is false."""
        events = self._events
        # The event that was bound last is the one after the newest that may be consumed.
        if transition.follows and events[position].number != events[newest + 1].number - 1:
            return None
        extended = joined(bindings, dict.fromkeys(transition.binds, (position,)))
        is_last, permits = transition.target == ACCEPT, self._matcher.permits
        if not all(
            permits(events, index, extended, self, is_last=is_last, binds=transition.binds)
            for index in transition.checks
        ):
            return None
        self._bound += self._matcher.counted[state]
        if self._bound > self._matcher.most_bound:
            raise EndedError
        return extended


def joined(newer: Bindings, older: Bindings) -> dict[int, tuple[int, ...]]:
    """The bindings of both."""
    result = dict(newer)
    for term, positions in older.items():
        result[term] = (*result[term], *positions) if term in result else positions
    return result


def positions_of(bindings: Bindings, terms: Sequence[int] | None = None) -> list[int]:
    """The positions of the events of these terms, or of all."""
    named = bindings if terms is None else [term for term in terms if term in bindings]
    return [position for term in named for position in bindings[term]]


def windows_at(
    events: Sequence[ReleasedEvent], latest: int, inputs: Sequence[Input], positions: Sequence[int]
) -> dict[int, tuple[int, ...]]:
    """Positions of the events in a window just after the latest event, newest first, each with the
    inputs in whose window it is.

    Younger than `within` (strict), among the `retain` most recent of their input, not superseded by
    a newer event. `positions`: those of the key up to the latest.
    """
    withins = [NEVER if item.within is None else known(item.within) for item in inputs]
    retains = [NEVER if item.retain is None else known(item.retain) for item in inputs]
    seen = [0] * len(inputs)
    current: dict[int, tuple[int, ...]] = {}
    for position in reversed(positions):
        event = events[position]
        age = events[latest].time - event.time
        # Times never decrease with positions: once no window has room, none has for older events.
        if not any(
            age < within and count < retain for within, retain, count in zip(withins, retains, seen, strict=True)
        ):
            break
        for number, superseded in ((event.input, event.superseded), *event.also):
            seen[number] += 1
            if age < withins[number] and seen[number] <= retains[number] and superseded > latest:
                current[position] = (*current.get(position, ()), number)
    return current
