"""A checked pattern as a tree over the query's terms, and as text for `explain`."""

from __future__ import annotations

from collections import abc
from dataclasses import dataclass
from typing import Generic, TypeVar, assert_never

from querylang.plan.model import Input, Term
from querylang.plan.text import repeat_text

Part_co = TypeVar("Part_co", covariant=True)
"""What the parts of a join are: patterns, or what the automaton builder makes of them."""


@dataclass(frozen=True, slots=True)
class TermOf:
    """One event of the pattern, by the index of its term."""

    index: int


@dataclass(frozen=True, slots=True)
class Sequence(Generic[Part_co]):
    """`a -> b => c`: two or more parts, each wholly earlier than the next.

    `nexts`: by link between two parts, whether it is `=>`. Then what the part after it begins with
    comes directly after the latest event of all parts before it.

    `waits`: by link, the text of the `wait` in it, or nothing; empty: no link has one.
    """

    parts: tuple[Part_co, ...]
    nexts: tuple[bool, ...]
    waits: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Both(Generic[Part_co]):
    """`a and b`: two or more parts; all must match, in any order."""

    parts: tuple[Part_co, ...]


@dataclass(frozen=True, slots=True)
class Either(Generic[Part_co]):
    """`a or b`: two or more parts; one of them must match."""

    parts: tuple[Part_co, ...]


@dataclass(frozen=True, slots=True)
class Repeated(Generic[Part_co]):
    """`a {2,3}`, `(a -> b)+`: `inside` so many times, each wholly earlier than the next.

    - `most`: None: any number.
    - `sign`: as it is written.
    """

    inside: Part_co
    least: int
    most: int | None
    sign: str
    is_consecutive: bool


Pattern = TermOf | Sequence["Pattern"] | Both["Pattern"] | Either["Pattern"] | Repeated["Pattern"]
"""A pattern without its waits. Each term occurs once, in the order of the indexes."""


def pattern_text(pattern: Pattern, terms: abc.Sequence[Term], inputs: abc.Sequence[Input]) -> str:
    """The pattern as a user would write it: `A as a -> (B as b or C as c)`."""

    def text(part: Pattern) -> str:
        match part:
            case TermOf(index=index):
                return f"{inputs[terms[index].input].event} as {terms[index].name}"
            case Sequence(parts=parts, nexts=nexts, waits=waits):
                signs = [" => " if is_next else " -> " for is_next in nexts]
                if waits:
                    signs = [f" -> {wait} -> " if wait else sign for sign, wait in zip(signs, waits, strict=True)]
                texts = [inner(each, Sequence) for each in parts]
                return texts[0] + "".join(sign + each for sign, each in zip(signs, texts[1:], strict=True))
            case Repeated(inside=one, least=least, most=most, sign=sign, is_consecutive=is_consecutive):
                return inner(one, Sequence) + repeat_text(least, most, sign, is_consecutive=is_consecutive)
            case Either(parts=parts):
                return " or ".join(inner(each, Sequence, Either) for each in parts)
            case Both(parts=parts):
                return " and ".join(inner(each, Sequence, Either, Both) for each in parts)
        assert_never(part)

    def inner(part: Pattern, *looser: type) -> str:
        """A part of a join; in parentheses if it does not bind tighter than the join."""
        return f"({text(part)})" if isinstance(part, looser) else text(part)

    return text(pattern)


def may_be_empty(pattern: Pattern) -> bool:
    """Whether the pattern can hold without an event."""
    match pattern:
        case TermOf():
            return False
        case Repeated(inside=inside, least=least):
            return least == 0 or may_be_empty(inside)
        case Either(parts=parts):
            return any(map(may_be_empty, parts))
        case Sequence(parts=parts) | Both(parts=parts):
            return all(map(may_be_empty, parts))
    assert_never(pattern)


def terms_in(pattern: Pattern) -> tuple[int, ...]:
    """The indexes of its terms, in text order."""
    match pattern:
        case TermOf(index=index):
            return (index,)
        case Repeated(inside=inside):
            return terms_in(inside)
        case Sequence(parts=parts) | Both(parts=parts) | Either(parts=parts):
            return tuple(index for part in parts for index in terms_in(part))
    assert_never(pattern)
