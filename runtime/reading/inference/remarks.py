"""Remarks about inferred types: what a query does that users may not expect."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from querylang.errors import listed
from querylang.plan.expression import Binary, FieldOf, MemberOf, walk
from querylang.plan.model import Plan
from querylang.plan.value_types import Type

Schemas = Mapping[str, Mapping[str, Type]]
"""By event type: its fields and their types."""


def truncating_divisions(plan: Plan, schemas: Schemas) -> Iterator[str]:
    """The queries that divide integers whose types are inferred: a line each."""
    inferred = {field for fields in schemas.values() for field, type_ in fields.items() if type_ == Type.INTEGER}
    for query in plan.queries:
        names = dict.fromkeys(name for name in _divided(query) if name in inferred)
        if names:
            are = "is an integer" if len(names) == 1 else "are integers"
            yield (
                f"query {query.title}: `/` truncates, because {listed(names)} {are} by what the data shows;"
                f" for fractions write `.toFloat()`, or define the event type"
            )


def _divided(value: Any) -> Iterator[str]:
    """The fields under divisions of integers in a part of a plan."""
    if isinstance(value, Binary) and value.operator == "/" and value.type == Type.INTEGER:
        yield from (node.field for node in walk(value) if isinstance(node, FieldOf | MemberOf))
    elif dataclasses.is_dataclass(value):
        for part in dataclasses.fields(value):
            yield from _divided(getattr(value, part.name))
    elif isinstance(value, tuple | list):
        for item in value:
            yield from _divided(item)
