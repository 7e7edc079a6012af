"""Checked queries, the checker's output: the plan of each query, and its pattern as a tree."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from querylang.errors import QueryError
from querylang.plan.model import EventType, QueryPlan

Part_co = TypeVar("Part_co", covariant=True)
"""What the parts of a join are: patterns, or what the automaton builder makes of them."""


@dataclass(frozen=True, slots=True)
class TermOf:
    """One event of the pattern, by the index of its term."""

    index: int


@dataclass(frozen=True, slots=True)
class Sequence(Generic[Part_co]):
    """`a -> b -> c`: two or more parts, each wholly earlier than the next."""

    parts: tuple[Part_co, ...]


@dataclass(frozen=True, slots=True)
class Both(Generic[Part_co]):
    """`a and b`: two or more parts; all must match, in any order."""

    parts: tuple[Part_co, ...]


@dataclass(frozen=True, slots=True)
class Either(Generic[Part_co]):
    """`a or b`: two or more parts; one of them must match."""

    parts: tuple[Part_co, ...]


Pattern = TermOf | Sequence["Pattern"] | Both["Pattern"] | Either["Pattern"]
"""A pattern without its waits. Each term occurs once, in the order of the indexes."""


@dataclass(frozen=True, slots=True)
class CheckedQuery:
    """One query without a mistake.

    If the query was checked without schemas, `plan` lacks what depends on event types that nothing
    defines.
    """

    pattern: Pattern
    plan: QueryPlan


@dataclass(frozen=True, slots=True)
class Checked:
    """A set of queries without a mistake, and the event types that are defined or used."""

    events: tuple[EventType, ...]
    queries: tuple[CheckedQuery, ...]
    warnings: tuple[QueryError, ...]
