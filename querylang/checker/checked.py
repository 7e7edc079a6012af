"""A query of which everything is known: names resolved, types given. What the checker gives and the compiler takes.

Inputs, terms, conditions, statements and expressions are those of the plan; what is missing to a plan is the
automaton, and with it which transition checks what. The pattern stands here as a tree over the terms.
"""

from __future__ import annotations

from dataclasses import dataclass

from querylang.errors import QueryError
from querylang.plan.model import (
    Action,
    Condition,
    EventType,
    Every,
    Input,
    Key,
    Parameter,
    Statement,
    Term,
    Wait,
)


@dataclass(frozen=True, slots=True)
class TermOf:
    """One event of the pattern, by the index of its term."""

    index: int


@dataclass(frozen=True, slots=True)
class Sequence:
    """`a -> b -> c`: two parts or more, each wholly earlier than the next."""

    parts: tuple[Pattern, ...]


@dataclass(frozen=True, slots=True)
class Both:
    """`a and b`: two parts or more; all hold, in any order."""

    parts: tuple[Pattern, ...]


@dataclass(frozen=True, slots=True)
class Either:
    """`a or b`: two parts or more; one of them holds."""

    parts: tuple[Pattern, ...]


Pattern = TermOf | Sequence | Both | Either
"""A pattern without its waits. Terms stand in it in the order of their indexes, each once."""


@dataclass(frozen=True, slots=True)
class CheckedQuery:
    """One query. `conditions` in text order, its `where` clauses split at each outer `and`.

    `pattern` None: no part of it could be checked. Checked without schemas, what depends on types that nothing defines
    is left out.
    """

    name: str
    keys: tuple[Key, ...]
    inputs: tuple[Input, ...]
    terms: tuple[Term, ...]
    pattern: Pattern | None
    conditions: tuple[Condition, ...]
    block: tuple[Statement, ...]
    slots: int = 0
    actions: tuple[Action, ...] = ()
    leading: Wait | None = None
    trailing: Wait | None = None
    every: Every | None = None
    parameters: tuple[Parameter, ...] = ()
    metadata: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Checked:
    """A set of queries without a mistake, and the event types that are defined or used."""

    events: tuple[EventType, ...]
    queries: tuple[CheckedQuery, ...]
    warnings: tuple[QueryError, ...]
