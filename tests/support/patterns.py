"""Patterns, conditions and aggregates of a random query as plain data, and their text.

A name is its own: the tree tells its event type, clauses refer to it by name. Nothing of `querylang` is used.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests.support.conditions import Node, Short, names_in, to_query

SECOND = 1_000_000


@dataclass(frozen=True, repr=False)
class Leaf(Short):
    """`event as name`."""

    event: str
    name: str


@dataclass(frozen=True, repr=False)
class Chain(Short):
    """`first -> second -> ...`; two parts or more."""

    parts: tuple[Pattern, ...]


@dataclass(frozen=True, repr=False)
class Both(Short):
    """`left and right`."""

    left: Pattern
    right: Pattern


@dataclass(frozen=True, repr=False)
class Either(Short):
    """`left or right`."""

    left: Pattern
    right: Pattern


Pattern = Leaf | Chain | Both | Either


@dataclass(frozen=True, repr=False)
class Where(Short):
    """`where condition`, a whole clause."""

    condition: Node


@dataclass(frozen=True, repr=False)
class Within(Short):
    """`within length between (names)`; without names: over the whole pattern. Microseconds."""

    length: int
    between: tuple[str, ...] = ()


@dataclass(frozen=True, repr=False)
class Without(Short):
    """`without event as name where condition between (names)`."""

    event: str
    name: str
    condition: Node | None = None
    between: tuple[str, ...] = ()


Clause = Where | Within | Without


@dataclass(frozen=True, repr=False)
class Wait(Short):
    """`wait(length) as name`. Microseconds."""

    length: int
    name: str | None = None


@dataclass(frozen=True, repr=False)
class Every(Short):
    """`every`: what is selected, each under a name, and what must hold of it."""

    selects: tuple[tuple[str, Node], ...]
    having: tuple[Node, ...] = ()


def chain(*events: str) -> Pattern:
    """`A as a1 -> B as b2 -> ...`."""
    leaves = tuple(Leaf(event, f"{event.lower()}{number}") for number, event in enumerate(events, 1))
    return leaves[0] if len(leaves) == 1 else Chain(leaves)


def parts_of(pattern: Pattern) -> tuple[Pattern, ...]:
    """The patterns right below, in text order."""
    match pattern:
        case Leaf():
            return ()
        case Chain(parts):
            return parts
        case Both(left, right) | Either(left, right):
            return (left, right)


def leaves_of(pattern: Pattern) -> tuple[Leaf, ...]:
    """The named events in text order."""
    if isinstance(pattern, Leaf):
        return (pattern,)
    return tuple(leaf for part in parts_of(pattern) for leaf in leaves_of(part))


def is_plain(pattern: Pattern) -> bool:
    """Whether it is one event, or a sequence of them."""
    return isinstance(pattern, Leaf) or (
        isinstance(pattern, Chain) and all(isinstance(part, Leaf) for part in pattern.parts)
    )


def opposites(pattern: Pattern) -> list[tuple[frozenset[str], frozenset[str]]]:
    """The names on the two sides of each `or`."""
    found = [pair for part in parts_of(pattern) for pair in opposites(part)]
    if isinstance(pattern, Either):
        left, right = (frozenset(leaf.name for leaf in leaves_of(side)) for side in (pattern.left, pattern.right))
        found.append((left, right))
    return found


def mentioned(clause: Clause) -> frozenset[str]:
    """All names that a clause mentions, its own and those of waits included."""
    match clause:
        case Where(condition):
            return names_in(condition)
        case Within(_, between):
            return frozenset(between)
        case Without(_, _, condition, between):
            return frozenset(between) | (frozenset() if condition is None else names_in(condition))


# Text

LOOSENESS: dict[type, int] = {Chain: 3, Either: 2, Both: 1, Leaf: 0}


def pattern_text(pattern: Pattern) -> str:
    """The pattern in the query language, with no more brackets than it needs."""
    match pattern:
        case Leaf(event, name):
            return f"{event} as {name}"
        case Chain(parts):
            return " -> ".join(_inner(part, 2) for part in parts)
        case Either(left, right):
            return f"{_inner(left, 2)} or {_inner(right, 1)}"
        case Both(left, right):
            return f"{_inner(left, 1)} and {_inner(right, 0)}"


def _inner(pattern: Pattern, loosest: int) -> str:
    text = pattern_text(pattern)
    return text if LOOSENESS[type(pattern)] <= loosest else f"({text})"


def clause_text(clause: Clause, fields: Callable[[str, str], str]) -> str:
    """The clause in the query language."""
    match clause:
        case Where(condition):
            return f"where {to_query(condition, fields)}"
        case Within(length, between):
            return f"within {seconds_text(length)}{between_text(between)}"
        case Without(event, name, condition, between):
            where = "" if condition is None else f" where {to_query(condition, fields)}"
            return f"without {event} as {name}{where}{between_text(between)}"


def between_text(names: tuple[str, ...]) -> str:
    """` between (a b)`, or nothing."""
    return f" between ({' '.join(names)})" if names else ""


def wait_text(wait: Wait) -> str:
    """`wait(5 seconds) as t`."""
    return f"wait({seconds_text(wait.length)})" + ("" if wait.name is None else f" as {wait.name}")


def seconds_text(microseconds: int) -> str:
    """A duration in the query language."""
    whole, rest = divmod(microseconds, SECOND)
    if not rest:
        return f"{whole} seconds"
    return f"{microseconds / 1000} milliseconds"
