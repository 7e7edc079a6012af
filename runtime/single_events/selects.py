"""`find every`: what one match selects."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from querylang.plan.expression import Aggregate, Expression
from querylang.plan.model import Plan, QueryPlan
from runtime.interpreter.context import Context, PlanWorld
from runtime.interpreter.expressions import evaluate
from runtime.interpreter.statements import run_action
from runtime.interpreter.values import EvaluationError, Value
from runtime.matching.find_every import aggregates_of
from runtime.single_events.known import Finding, Known


class Selects:
    """The selects of a query."""

    def __init__(self, plan: Plan, query: QueryPlan) -> None:
        assert query.every is not None, "only `find every` selects"
        self._every, self._world = query.every, PlanWorld(plan, query)
        self._values = [query.every.expanded(select.value) for select in query.every.selects]
        self._having = [query.every.expanded(condition) for condition in query.every.having]
        self._aggregates = aggregates_of(query)

    def finding(
        self, events: Sequence[Known], latest: Known, aggregates: Sequence[Any], keys: Sequence[Value]
    ) -> Finding | None:
        """The match; None if a `having` is not true.

        aggregates: by aggregate its value; of one that is an event, its position in `events`
        """
        chosen: dict[str, Known | None] = {}
        known: dict[Aggregate, Value] = {}
        of_aggregates: dict[Expression, Known | None] = {}
        for node, value in zip(self._aggregates, aggregates, strict=True):
            if self._every.term_of(node) is None:
                known[node] = value
            else:
                event = None if value is None else events[value]
                of_aggregates[node] = event
                known[node] = None if event is None else event.value
        selects: dict[int, Value] = {}
        values: dict[str, Value] = {}
        for index, select in enumerate(self._every.selects):
            if select.value in of_aggregates:
                chosen[select.name] = of_aggregates[select.value]
                selects[index] = known[select.value]  # type: ignore[index]
            else:
                selects[index] = values[select.name] = self._value(self._values[index], known, selects, keys)
        if not all(self._value(condition, known, selects, keys) for condition in self._having):
            return None
        return Finding(tuple(keys), latest, tuple(chosen.values()), latest.time, selected=values)

    def _value(
        self, expression: Expression, known: dict[Aggregate, Value], selects: dict[int, Value], keys: Sequence[Value]
    ) -> Value:
        """None = it has no value."""
        context = Context(keys=keys, selects=selects, aggregates=known, world=self._world, invoke=run_action)
        try:
            return evaluate(expression, context)
        except EvaluationError:
            return None
