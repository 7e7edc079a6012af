"""The least change of one setting with which a candidate would have been a match.

Each proposal is tried: the query with it runs over the records of the key, and has to give a match
with the same latest event. What does not is not proposed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import islice

from querylang.dataclass import dataclass, replace
from querylang.plan.expression import Binary, Expression, Literal, Type, rewritten, walk
from querylang.plan.model import Gap, Input, QueryPlan, Where, Within, known
from querylang.plan.text import count_text, duration_text
from runtime.interpreter import Context, EvaluationError, evaluate
from runtime.matching.interface import Bindings
from runtime.matching.reference import positions_of
from runtime.why.answers import Change
from runtime.why.clauses import Clause, What
from runtime.why.searching import Near, Searching

MOST_TRIED = 60
"""So many values of one setting are tried at most."""

MOST_LOOKED_AT = 50
"""Candidates that are looked at for the value that one of them needs."""

_SECOND = 1_000_000


@dataclass(frozen=True, slots=True)
class Proposal:
    """A setting to be tried. before, after: as in `Change`; query: the plan with it."""

    before: str
    after: str
    query: QueryPlan


Rewrite = Callable[[Change, QueryPlan, QueryPlan], Change]
"""Puts the text of the query into a change, from the plan without it to that with it."""


class LeastChange:
    """Looks for the least change for candidates of one key.

    gives: whether the query, run again, gives a match with the event at a position as the latest
    """

    def __init__(
        self, searching: Searching, gives: Callable[[QueryPlan, int], bool], rewritten_as: Rewrite | None
    ) -> None:
        """rewritten_as: gives the text of the query with a change; None = there is no text"""
        self._searching, self._gives, self._rewritten_as = searching, gives, rewritten_as
        self.query = searching.query

    def of(self, near: Near, latest: int) -> Change | None:
        """The change that lets a candidate be a match; None = none of one setting does."""
        if not near.is_whole:
            return None
        what = near.clause.what
        for proposal in islice(self._proposals(near, latest), MOST_TRIED):
            if self._is_found(proposal.query, latest) and self._gives(proposal.query, latest):
                costs = _COSTS.get(what, "")
                change = Change(str(what), proposal.before, proposal.after, proposal.after, costs=costs)
                return change if self._rewritten_as is None else self._rewritten_as(change, self.query, proposal.query)
        return None

    def _is_found(self, query: QueryPlan, latest: int) -> bool:
        """Whether the search finds a match; a quick look before the query is run again."""
        return Searching(replace(self._searching.history, query=query)).match(latest) is not None

    def _proposals(self, near: Near, latest: int) -> Iterator[Proposal]:
        index = near.clause.index
        match near.clause.what:
            case What.WINDOW:
                yield from self._windows(index, latest)
            case What.RETAIN:
                yield from self._counts(index)
            case What.WITHIN:
                yield from self._ranges(near, latest)
                yield from self._trailing(near, latest)
            case What.WAIT:
                yield from self._gaps(near, latest)
            case What.WHERE:
                yield from self._constants(near, latest)
            case What.WITHOUT:
                yield from self._trailing(near, latest)

    # Lengths and counts.

    def _windows(self, item: int, latest: int) -> Iterator[Proposal]:
        events, own = self._searching.history.events, self.query.inputs[item]
        length, scope = known(own.within or 0), self._searching.scope(latest)
        time = int(events.times[latest])
        is_own = events.serve(item)
        places = [place for place in scope if is_own[place] and time - events.times[place] >= length]
        for age in sorted({time - int(events.times[place]) for place in places}):
            for needed in _longer(age):
                inputs = _changed(self.query.inputs, item, within=needed)
                yield Proposal(
                    f"within {duration_text(length)}",
                    f"within {duration_text(needed)}",
                    replace(self.query, inputs=inputs),
                )

    def _counts(self, item: int) -> Iterator[Proposal]:
        own = self.query.inputs[item]
        count = known(own.retain or 0)
        for needed in range(count + 1, count + 1 + MOST_TRIED):
            inputs = _changed(self.query.inputs, item, retain=needed)
            before, after = (f"retain {count_text(number)}" for number in (count, needed))
            yield Proposal(before, after, replace(self.query, inputs=inputs))

    def _ranges(self, near: Near, latest: int) -> Iterator[Proposal]:
        condition = self.query.conditions[near.clause.index]
        assert isinstance(condition, Within), "the clause is a `within`"
        due = self._due(near.clause.index, latest)
        spans = set()
        for bound in self._candidates(near, latest):
            times = self._searching.matcher().range_times(near.clause.index, self._searching.events, bound, due)
            spans.add(max(times) - min(times))
        for span in sorted(spans):
            for needed in _longer(span):
                yield self._with_condition(near.clause, replace(condition, duration=needed))

    def _gaps(self, near: Near, latest: int) -> Iterator[Proposal]:
        condition = self.query.conditions[near.clause.index]
        assert isinstance(condition, Gap), "the clause is a wait"
        lengths = set()
        for bound in self._candidates(near, latest):
            pair = self._searching.matcher().gap_times(near.clause.index, self._searching.events, bound)
            if pair is not None and 0 < pair[1] - pair[0] < known(condition.duration):
                lengths.add(pair[1] - pair[0])
        for length in sorted(lengths, reverse=True):
            yield self._with_condition(near.clause, replace(condition, duration=length))

    def _trailing(self, near: Near, latest: int) -> Iterator[Proposal]:
        """A shorter trailing wait, over before what ends it comes."""
        wait, trailing, events = self._searching.wait, self.query.trailing, self._searching.events
        if wait is None or trailing is None or near.clause.index not in self.query.decided_late:
            return
        reach = self._searching.until(latest, events[latest].time + wait)
        lengths = {events[position].time - events[latest].time for position in reach if position > latest}
        for length in sorted((length for length in lengths if 0 < length < wait), reverse=True):
            shorter = replace(trailing, duration=length)
            before, after = (f"wait({duration_text(number)})" for number in (wait, length))
            yield Proposal(before, after, replace(self.query, trailing=shorter))

    def _due(self, index: int, latest: int) -> int | None:
        wait = self._searching.wait
        is_late = index in self.query.decided_late and wait is not None
        return self._searching.events[latest].time + wait if is_late and wait is not None else None

    def _candidates(self, near: Near, latest: int) -> Iterator[Bindings]:
        """The candidate, and others that only this clause keeps from being a match."""
        yield near.bound
        if self.query.every is None:
            yield from self._searching.candidates(latest, near.clause, MOST_LOOKED_AT)

    def _with_condition(self, clause: Clause, condition: Where | Within | Gap) -> Proposal:
        conditions = list(self.query.conditions)
        conditions[clause.index] = condition
        query = replace(self.query, conditions=tuple(conditions))
        return Proposal(clause.text(self.query), clause.text(query), query)

    # Constants in conditions.

    def _constants(self, near: Near, latest: int) -> Iterator[Proposal]:
        condition = self.query.conditions[near.clause.index]
        assert isinstance(condition, Where), "the clause is a `where`"
        found: list[tuple[float, Where]] = []
        whole = rewritten(condition.condition, lambda node: replace(node) if isinstance(node, Literal) else node)
        literals = [node for node in walk(whole) if isinstance(node, Literal)]  # each is an object of its own
        for bound in self._candidates(near, latest):
            for context in self._contexts(near.clause.index, bound):
                for literal in literals:
                    for distance, value in _wanted(whole, literal, context):
                        changed = _with_literal(whole, literal, replace(literal, value=value))
                        found.append((distance, replace(condition, condition=changed)))
        for _, changed_condition in sorted(found, key=lambda item: item[0]):
            yield self._with_condition(near.clause, changed_condition)

    def _contexts(self, index: int, bound: Bindings) -> Iterator[Context]:
        matcher, events = self._searching.matcher(), self._searching.events
        question = matcher.questions[index]
        if question is None:
            yield matcher.context(events, bound)
        elif positions_of(bound):
            yield from (context for _, context, _ in matcher.asking(events, bound).answers(question))


_COSTS = {
    What.WINDOW: "events are kept for longer, per key",
    What.RETAIN: "more events are kept, per key",
}


def _longer(length: int) -> Sequence[int]:
    """Lengths just above one, µs: in whole seconds if that is as good, else exactly."""
    whole = (length // _SECOND + 1) * _SECOND
    return [whole, length + 1] if whole != length + 1 else [whole]


def _changed(inputs: Sequence[Input], index: int, **changes: int) -> tuple[Input, ...]:
    found = list(inputs)
    found[index] = replace(found[index], **changes)  # type: ignore[arg-type]  # a length or a count
    return tuple(found)


def _with_literal(expression: Expression, literal: Literal, other: Literal) -> Expression:
    """The expression with another constant in place of this one, and not of those that equal it."""
    return rewritten(expression, lambda node: other if node is literal else node)


def _wanted(expression: Expression, literal: Literal, context: Context) -> Iterator[tuple[float, int | float | str]]:
    """Values of a constant with which a comparison may hold, with their distance."""
    for node in walk(expression):
        if not isinstance(node, Binary) or not any(inner is literal for inner in walk(node)):
            continue
        if node.operator not in ("=", "<", "<=", ">", ">=", "!="):
            continue
        if literal.type == Type.STRING:
            yield from _equal_text(node, literal, context)
        elif literal.type in (Type.INTEGER, Type.FLOAT):
            yield from _solved(node, literal, context)


def _equal_text(node: Binary, literal: Literal, context: Context) -> Iterator[tuple[float, str]]:
    other = node.right if node.left is literal else node.left if node.right is literal else None
    value = None if other is None else _number_or_text(other, context)
    if node.operator == "=" and isinstance(value, str):
        yield 1.0, value


def _solved(node: Binary, literal: Literal, context: Context) -> Iterator[tuple[float, int | float]]:
    """Where both sides are equal, if their difference is linear in the constant; and near it."""
    start = literal.value
    assert isinstance(start, int | float), "it is a number"
    is_whole = literal.type == Type.INTEGER
    first, second = (_difference(node, literal, start + step, context) for step in (0, 1))
    if first is None or second is None or second == first:
        return
    root = start - first / (second - first)
    if not math.isfinite(root) or abs(root) > 1e15:
        return
    yield from _near_root(root, start, is_whole=is_whole)


_DIGITS = 12


def _near_root(root: float, start: float, *, is_whole: bool) -> Iterator[tuple[float, int | float]]:
    """Values near the one where both sides are equal, each with its distance.

    Of values that are nearly equally far the one with few digits counts as nearer.
    """
    base = abs(root - start)
    if is_whole:
        yield from ((abs(value - start), value) for value in range(math.floor(root) - 1, math.ceil(root) + 2))
        return
    for digits in range(_DIGITS + 1):
        scale = 10.0**digits
        first = math.floor(root * scale)
        for value in (round(step / scale, digits) for step in range(first - 1, first + 3)):
            if abs(value - root) <= base * 0.05:
                yield base * (1 + digits / 1_000) + abs(value - start) / 1_000_000, value
    for value in (root, math.nextafter(root, math.inf), math.nextafter(root, -math.inf)):
        yield base * (1 + (_DIGITS + 1) / 1_000), value


def _difference(node: Binary, literal: Literal, value: float, context: Context) -> float | None:
    changed = replace(literal, value=type(literal.value)(value))
    sides = [_number_or_text(_with_literal(side, literal, changed), context) for side in (node.left, node.right)]
    if any(isinstance(side, bool) or not isinstance(side, int | float) for side in sides):
        return None
    left, right = sides
    assert isinstance(left, int | float), "both are numbers"
    assert isinstance(right, int | float), "both are numbers"
    return float(left - right)


def _number_or_text(expression: Expression, context: Context) -> object:
    try:
        return evaluate(expression, context)
    except EvaluationError:
        return None
