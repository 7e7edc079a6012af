"""`find every` of one name: each event is asked once, and not again with every later event."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from querylang.plan.expression import Aggregate
from querylang.plan.model import Plan, QueryPlan, Where
from runtime.interpreter.aggregates import aggregate
from runtime.interpreter.context import Context, PlanWorld
from runtime.interpreter.expressions import evaluate, holds
from runtime.interpreter.statements import run_action
from runtime.interpreter.values import EvaluationError, Event, Value
from runtime.matching.find_every import aggregates_of
from runtime.single_events.known import Arguments, Known


def has_one_name(query: QueryPlan) -> bool:
    """Whether each event is a candidate by itself, whatever other events there are."""
    waits = query.leading is not None or query.trailing is not None
    return len(query.terms) == 1 and not waits and all(isinstance(item, Where) for item in query.conditions)


class OneName:
    """The aggregates of a query that `has_one_name`, as `ReferenceMatcher.aggregated` has them."""

    def __init__(self, plan: Plan, query: QueryPlan) -> None:
        assert query.every is not None, "only `find every` has aggregates"
        (self._term,), self._world = query.terms, PlanWorld(plan, query)
        self._conditions = [item.condition for item in query.conditions if isinstance(item, Where)]
        self._aggregates = [(node, query.every.term_of(node) is not None) for node in aggregates_of(query)]

    def arguments(self, item: int, event: Event, keys: Sequence[Value]) -> Arguments | None:
        """An event as a candidate; None = it is not one.

        item: the number of its input
        keys: the values of its key
        """
        if item != self._term.input:
            return None
        if not all(holds(condition, self._context(event, keys)) for condition in self._conditions):
            return None
        return tuple(self._values(node, event, keys) for node, _ in self._aggregates)

    def aggregates(self, events: Sequence[Known], places: Sequence[int]) -> list[Value]:
        """By aggregate its value; of one that is an event, the place of the event.

        places: of the candidates in the windows, oldest first
        """
        return [self._aggregate(events, places, number) for number, _ in enumerate(self._aggregates)]

    def _aggregate(self, events: Sequence[Known], places: Sequence[int], number: int) -> Value:
        node, is_event = self._aggregates[number]
        rows: list[tuple[Any, ...]] = []
        for place in places:
            asked = events[place].arguments
            assert asked is not None, "it is a candidate"
            values = asked[number]
            if values is not None:
                rows.append((place, *values[1:]) if is_event else values)
        return aggregate(node.function, rows)

    def _values(self, node: Aggregate, event: Event, keys: Sequence[Value]) -> tuple[Value, ...] | None:
        context = self._context(event, keys)
        try:
            values = tuple(evaluate(argument, context) for argument in node.arguments)
        except EvaluationError:
            return None
        return None if None in values and not self._world.nulls_fail else values

    def _context(self, event: Event, keys: Sequence[Value]) -> Context:
        return Context([event, None], keys=keys, world=self._world, invoke=run_action)
