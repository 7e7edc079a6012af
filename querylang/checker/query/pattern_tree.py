"""A checked pattern as a tree over the query's terms, and as text for `explain`."""

from __future__ import annotations

from collections import abc
from dataclasses import dataclass
from typing import Generic, TypeVar, assert_never

from querylang.plan.model import Input, Term

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


def pattern_text(pattern: Pattern, terms: abc.Sequence[Term], inputs: abc.Sequence[Input]) -> str:
    """The pattern as a user would write it: `A as a -> (B as b or C as c)`."""

    def text(part: Pattern) -> str:
        match part:
            case TermOf(index=index):
                return f"{inputs[terms[index].input].event} as {terms[index].name}"
            case Sequence(parts=parts):
                return " -> ".join(inner(each, Sequence) for each in parts)
            case Either(parts=parts):
                return " or ".join(inner(each, Sequence, Either) for each in parts)
            case Both(parts=parts):
                return " and ".join(inner(each, Sequence, Either, Both) for each in parts)
        assert_never(part)

    def inner(part: Pattern, *looser: type) -> str:
        """A part of a join; in parentheses if it does not bind tighter than the join."""
        return f"({text(part)})" if isinstance(part, looser) else text(part)

    return text(pattern)
