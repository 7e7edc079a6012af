"""Remarks about inferred types: what a query does that users may not expect."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from querylang.errors import listed
from querylang.plan.expression import Type
from querylang.plan.model import Plan
from runtime.reading.plan_needs import fields_divided

Schemas = Mapping[str, Mapping[str, Type]]
"""By event type: its fields and their types."""


def truncating_divisions(plan: Plan, schemas: Schemas) -> Iterator[str]:
    """The queries that divide integers whose types are inferred: a line each."""
    inferred = {(event, name) for event, own in schemas.items() for name, type_ in own.items() if type_ == Type.INTEGER}
    for query in plan.queries if inferred else ():
        names = dict.fromkeys(name for event, name in fields_divided(plan, query) if (event, name) in inferred)
        if names:
            are = "is an integer" if len(names) == 1 else "are integers"
            yield (
                f"query {query.title}: `/` truncates, because {listed(names)} {are} by what the data shows;"
                f" for fractions write `.toFloat()`, or define the event type"
            )
