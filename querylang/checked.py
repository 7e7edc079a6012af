"""A query of which everything is known: names resolved, types given. What the checker gives and the compiler takes.

Inputs, terms, statements and expressions are those of the plan; what is missing to a plan is the automaton.
"""

from __future__ import annotations

from dataclasses import dataclass

from querylang.errors import QueryError
from querylang.expression import Expression
from querylang.plan import EventType, Input, Statement, Term


@dataclass(frozen=True, slots=True)
class CheckedQuery:
    """One query. `conditions`: its `where` clauses split at each outer `and`.

    Checked without schemas, what depends on types that nothing defines is left out of it.
    """

    name: str
    keys: tuple[str, ...]
    inputs: tuple[Input, ...]
    terms: tuple[Term, ...]
    conditions: tuple[Expression, ...]
    within: int | None
    block: tuple[Statement, ...]


@dataclass(frozen=True, slots=True)
class Checked:
    """A set of queries without a mistake, and the event types that are defined or used."""

    events: tuple[EventType, ...]
    queries: tuple[CheckedQuery, ...]
    warnings: tuple[QueryError, ...]
