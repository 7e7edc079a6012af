"""What the searches of queries over the same events need not do.

`where a.code = 7` decides which events can serve a name of a pattern, over an input without a
filter: an index finds them for many queries (`runtime.admission.filter_index`), and a query's
search sees only those. What is admitted, stored and counted is the same. Nothing is lost, because a
match binds only such events. That holds where the search asks nothing of events that it passes
over: no `without`, `=>`, `prev` or repeat, no `retain` or `with unique`, which count them, no
aggregates over all candidates, and no wait.

Queries that differ in thresholds only are searched from the loosest on: an event that ends no match
of one query ends none of a tighter one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import copysign, isfinite
from threading import Lock

import numpy as np
import pyarrow as pa

from querylang.dataclass import dataclass, replace
from querylang.plan.expression import Binary, Expression, Literal, Type, Unary, terms_of, walk
from querylang.plan.model import Every, Plan, QueryPlan, Where, Within, Without
from querylang.plan.questions import has_additions
from runtime.admission import Filtered, FilterIndex, lookup_of
from runtime.column_types import Integers
from runtime.columns.rows import RepeatedTexts
from runtime.interpreter import event_numbers
from runtime.matching.find_every import aggregates_of
from runtime.matching.interface import Found, Matcher, Ordered

FEW = 4
"""For so few queries all events are searched: an index costs more."""

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
        may_end=events.may_end[positions] if len(events.may_end) else events.may_end,
    )


def restored(found: Found, positions: Integers, events: Ordered) -> Found:
    """What was found among `only`, with the positions of all events."""
    members = np.where(found.members < 0, -1, positions[found.members])
    errors = tuple((int(positions[at]), text) for at, text in found.errors)
    return replace(found, latest=positions[found.latest], members=members, free=events.free, errors=errors)


# Thresholds. A query is tighter than another one if its conditions hold only where those of the
# other one hold, too: `b.v > a.v + 5.0` is tighter than `b.v > a.v + 4.0`.

_LEFT_SIDE = {"<": 1, "<=": 1, ">": -1, ">=": -1}
"""By operator: 1 = a greater value of its left side makes it tighter, -1 = a smaller one."""

_MOST_TRIED = 64
"""Queries are compared with so many that are looser in their first threshold."""


@dataclass(frozen=True, slots=True)
class Tighter:
    """A query by its number, and the number of one that is looser or the same; None = of none.

    is_equal: whether both have the same thresholds
    """

    query: int
    looser: int | None = None
    is_equal: bool = False


_KNOWN: dict[tuple[int, ...], tuple[Sequence[QueryPlan], list[Tighter]]] = {}
"""By the identities of queries, which are kept beside, their order; the last used are the last."""

_MOST_KNOWN = 16


def in_known_order(queries: Sequence[QueryPlan]) -> list[Tighter]:
    """As `from_loosest_on`; a job makes an engine per bucket and micro-batch."""
    asked = tuple(map(id, queries))
    known = _KNOWN.pop(asked, None) or (list(queries), from_loosest_on(queries))
    _KNOWN[asked] = known
    for key in list(_KNOWN)[:-_MOST_KNOWN]:
        _KNOWN.pop(key, None)
    return known[1]


def from_loosest_on(queries: Sequence[QueryPlan]) -> list[Tighter]:
    """All queries, each behind the one that it is compared with."""
    alike: dict[object, list[tuple[tuple[float, ...], int]]] = {}
    for number, query in enumerate(queries):
        pattern, thresholds = _with_thresholds(query)
        alike.setdefault(pattern or number, []).append((thresholds, number))
    found = []
    for own in alike.values():
        own.sort()
        for place, (thresholds, number) in enumerate(own):
            looser = next(
                (
                    other
                    for other in reversed(own[max(0, place - _MOST_TRIED) : place])
                    if all(one <= two for one, two in zip(other[0], thresholds, strict=True))
                ),
                None,
            )
            if looser is None:
                found.append(Tighter(number))
            else:
                found.append(Tighter(number, looser[1], looser[0] == thresholds))
    return found


def _with_thresholds(query: QueryPlan) -> tuple[object | None, tuple[float, ...]]:
    """What a query searches for but its thresholds, and these: a greater one is tighter.

    None = no other query is like it.
    """
    thresholds: list[float] = []
    conditions = tuple(
        replace(item, condition=_without_thresholds(item.condition, thresholds)) if isinstance(item, Where) else item
        for item in query.conditions
    )
    # Zeros that differ in their sign are equal, but what is divided by them is not.
    aggregates = aggregates_of(query)
    written = [item.condition for item in conditions if isinstance(item, Where | Without) and item.condition]
    nodes = (node for expression in (*written, *aggregates) for node in walk(expression))
    if any(isinstance(node, Literal) and _is_negative_zero(node.value) for node in nodes):
        return None, ()
    plain = replace(
        query,
        name="",
        conditions=conditions,
        every=None if query.every is None else Every((), ()),
        block=(),
        slots=0,
        parameters=(),
        metadata=(),
        instance="",
        pattern="",
        selects=(),
        edition=0,
        starts=None,
        ends=None,
        at_most=None,
        routes=(),
    )
    return (plain, aggregates), tuple(thresholds)


def _is_negative_zero(value: object) -> bool:
    return isinstance(value, float) and value == 0.0 and copysign(1, value) < 0


def _without_thresholds(node: Expression, thresholds: list[float]) -> Expression:
    """The condition without its thresholds, which it adds."""
    if not isinstance(node, Binary):
        return node
    if node.operator in ("and", "or"):
        left = _without_thresholds(node.left, thresholds)
        return replace(node, left=left, right=_without_thresholds(node.right, thresholds))
    sign = _LEFT_SIDE.get(node.operator)
    if sign is None:
        return node
    left = _without_constant(node.left, sign, thresholds)
    return replace(node, left=left, right=_without_constant(node.right, -sign, thresholds))


def _without_constant(node: Expression, sign: int, thresholds: list[float]) -> Expression:
    """One side of a comparison without the constants with which it grows or falls.

    sign: 1 = a greater value of this side makes the comparison tighter, -1 = a smaller one

    Sums of floats are rounded, but never fall when a part grows; those with infinities may become
    NaN. Those of integers overflow.
    """
    match node:
        case Literal(value=bool() | str()):
            return node
        case Literal(type=type_, value=int() | float() as value) if isfinite(value):
            thresholds.append(sign * value)
            return Literal(type_, 0)
        case Unary(operator="-", operand=Literal() as operand) | Unary(type=Type.FLOAT, operator="-", operand=operand):
            return replace(node, operand=_without_constant(operand, -sign, thresholds))
        case Binary(type=Type.FLOAT, operator="+" | "-" as operator, left=left, right=right):
            own = sign if operator == "+" else -sign
            left = _without_constant(left, sign, thresholds)
            return replace(node, left=left, right=_without_constant(right, own, thresholds))
    return node


class Search:
    """The search of a query over the events of a call; made when it is first asked for.

    looser: one that has a match for each event for which this one has one; None = none is known
    may_find: False = it finds nothing

    Any thread may ask.
    """

    def __init__(
        self,
        matcher: Matcher,
        events: Ordered,
        served: Integers | None = None,
        looser: Search | None = None,
        *,
        is_equal: bool = False,
    ) -> None:
        """`served`: the positions of events that it has to see; None = all.

        is_equal: whether the looser one finds the same
        """
        self._matcher, self._events, self._served = matcher, events, served
        self.looser, self._is_equal = looser, is_equal
        self._lock = Lock()
        self._found: Found | None = None
        finds_nothing = served is not None and not len(served)
        self.may_find: bool = not finds_nothing and (looser is None or looser.may_find)

    def found(self) -> Found:
        """What it finds."""
        # From the loosest one on: there may be thousands.
        before, looser = list[Search](), self.looser
        while looser is not None and not looser.is_made:
            before.append(looser)
            looser = looser.looser
        known = None if looser is None else looser.made_behind(None)
        for search in reversed(before):
            known = search.made_behind(known)
        return self.made_behind(known)

    @property
    def is_made(self) -> bool:
        """Whether it is known what it finds."""
        return self._found is not None

    def made_behind(self, looser: Found | None) -> Found:
        """What it finds; `looser`: what the looser search has found, if this one is not made."""
        with self._lock:
            if self._found is None:
                self._found = self._made(looser)
            return self._found

    def _made(self, looser: Found | None) -> Found:
        if looser is not None and (self._is_equal or not len(looser.latest)):
            return looser
        events, served = self._events, self._served
        if looser is not None:
            may_end = np.zeros(len(events.row), np.bool_)
            may_end[looser.latest] = True
            events = replace(events, may_end=may_end)
        match = self._matcher.match
        return match(events) if served is None else restored(match(only(events, served)), served, events)


class Searches:
    """The searches of queries over the events of one admission."""

    def __init__(self, plan: Plan, queries: Sequence[QueryPlan]) -> None:
        self._in_order = in_known_order(queries)
        self._places: list[range | None] = []
        wanted: list[list[Filtered]] = []
        kinds = event_numbers(plan)
        for query in queries:
            names = served_by(query, kinds) if len(queries) > FEW else None
            self._places.append(None if names is None else range(len(wanted), len(wanted) + len(names)))
            wanted += [[item] for item in names or ()]
        self._index = FilterIndex(plan, wanted) if wanted else None

    def of_call(self, events: Ordered, matchers: Sequence[Matcher]) -> Sequence[Search]:
        """By query its search; `matchers`: by query."""
        made: dict[int, Search] = {}
        served = self._served(events)
        for item in self._in_order:
            matcher, looser = matchers[item.query], made.get(-1 if item.looser is None else item.looser)
            if not (matcher.only_finds and (item.is_equal or matcher.takes_may_end)):
                looser = None
            made[item.query] = Search(matcher, events, served[item.query], looser, is_equal=item.is_equal)
        return [made[place] for place in range(len(matchers))]

    def _served(self, events: Ordered) -> Sequence[Integers | None]:
        """By query the positions of the events that its search has to see; None = all."""
        if self._index is None or not len(events.row):
            return [None] * len(self._places)
        rows = self._index.found(RepeatedTexts(events.table), events.table.column("_kind").to_numpy().astype(np.int64))
        place = places(events)
        return [None if own is None else positions_of(events, [*map(rows.of, own)], place) for own in self._places]
