"""A checked pattern as a tree, and what is left of it while it is read backwards.

A remainder is a pattern, or what reading has made of it.
"""

from __future__ import annotations

from collections import abc
from collections.abc import Iterator
from functools import lru_cache
from typing import Generic, NamedTuple, TypeVar, assert_never

from querylang.dataclass import dataclass
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
                return f"{inputs[terms[index].input].name} as {terms[index].name}"
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


# A remainder is a pattern, or what reading has made of it. `steps` are the ways to bind its
# newest event; `may_end` says whether nothing more is needed.


@dataclass(frozen=True, slots=True)
class Chain:
    """The parts of a sequence that are left; of the last one an event is bound if `is_begun`.

    `is_cold`: since its last event was bound, another part of an `and` has bound an older one. So
    the part before a `=>` cannot come directly before it any more.
    """

    parts: tuple[Remainder, ...]
    nexts: tuple[bool, ...]
    is_begun: bool = False
    is_cold: bool = False


@dataclass(frozen=True, slots=True)
class Hot:
    """Its next event is the one directly before the event that was bound last, or it has none."""

    part: Remainder


@dataclass(frozen=True, slots=True)
class Paired:
    """Remainders of two sides of an `or` that have bound the same events, and must end together."""

    left: Remainder
    right: Remainder


Remainder = (
    TermOf
    | Sequence["Remainder"]
    | Both["Remainder"]
    | Either["Remainder"]
    | Repeated["Remainder"]
    | Chain
    | Hot
    | Paired
)
"""The part of a pattern that is still to be found further back."""


class Served(NamedTuple):
    """What an event has to be so that a term may be bound to it.

    - `type`: tells event types apart: the first input of its type.
    - `input`: the input that it serves.
    """

    type: int
    input: int


class Step(NamedTuple):
    """One event of a type is bound to the terms `binds`, which are those of the inputs `inputs`.

    - `remainder` None: nothing is left.
    - `follows`: the event is directly before the one that was bound last.
    """

    type: int
    inputs: tuple[int, ...]
    binds: frozenset[int]
    remainder: Remainder | None
    follows: bool = False


class DeadError(Exception):
    """A remainder that cannot be completed any more."""


@lru_cache(maxsize=10_000)
def may_end(remainder: Remainder) -> bool:
    """Whether the pattern is complete without any of it."""
    match remainder:
        case TermOf():
            return False
        case Repeated(least=least):
            return least == 0
        case Hot(part=part):
            return may_end(part)
        case Paired(left=left, right=right):
            return may_end(left) and may_end(right)
        case Either(parts=parts):
            return any(map(may_end, parts))
        case Sequence(parts=parts) | Both(parts=parts) | Chain(parts=parts):
            return all(map(may_end, parts))
    raise AssertionError("every kind of remainder is known")


@lru_cache(maxsize=10_000)
def terms_left(remainder: Remainder) -> frozenset[int]:
    """The terms that may still be bound."""
    match remainder:
        case TermOf(index=index):
            return frozenset((index,))
        case Repeated(inside=part) | Hot(part=part):
            return terms_left(part)
        case Paired(left=left, right=right):
            return terms_left(left) | terms_left(right)
        case Sequence(parts=parts) | Both(parts=parts) | Either(parts=parts) | Chain(parts=parts):
            return frozenset().union(*map(terms_left, parts))
    raise AssertionError("every kind of remainder is known")


def steps(remainder: Remainder, terms: tuple[Served, ...]) -> Iterator[Step]:
    """All ways in which the newest event of the remainder can be bound, each once."""
    match remainder:
        case TermOf(index=index):
            yield Step(terms[index].type, (terms[index].input,), frozenset((index,)), None)
        case Sequence(parts=parts, nexts=nexts):
            yield from _of_chain(Chain(parts, nexts), terms)
        case Chain():
            yield from _of_chain(remainder, terms)
        case Repeated():
            yield from _of_repeat(remainder, terms)
        case Hot(part=part):
            yield from (step._replace(follows=True) for step in steps(part, terms))
        case Both(parts=(first, *others)):
            yield from _of_both(first, _both(tuple(others)), terms)
        case Either(parts=(first, *others)):
            left, right = list(steps(first, terms)), list(steps(_either(tuple(others)), terms))
            yield from left
            yield from right
            yield from _paired(left, right)
        case Paired(left=one, right=two):
            yield from _paired(list(steps(one, terms)), list(steps(two, terms)))
        case _:
            raise AssertionError("a join has parts")


def _of_chain(chain: Chain, terms: tuple[Served, ...]) -> Iterator[Step]:
    """The last part is read first; if it may be empty, or has all it needs, also the one before."""
    *earlier, last = chain.parts
    is_next = bool(chain.nexts) and chain.nexts[-1]
    for step in steps(last, terms):
        if step.remainder is not None:
            left: Remainder | None = Chain((*earlier, step.remainder), chain.nexts, is_begun=True)
        else:
            left = _rest(chain, is_hot=is_next)
        yield step._replace(remainder=left)
    if earlier and may_end(last) and not (is_next and chain.is_cold):
        rest = _rest(chain, is_hot=is_next and chain.is_begun)
        assert rest is not None, "there are earlier parts"
        yield from steps(rest, terms)


def _rest(chain: Chain, *, is_hot: bool) -> Remainder | None:
    """What is left without the last part."""
    if len(chain.parts) == 1:
        return None
    rest = chain.parts[0] if len(chain.parts) == 2 else Chain(chain.parts[:-1], chain.nexts[:-1])
    return _hot(rest) if is_hot else rest


def _hot(remainder: Remainder) -> Remainder:
    return remainder if isinstance(remainder, Hot) else Hot(remainder)


def _of_repeat(repeat: Repeated[Remainder], terms: tuple[Served, ...]) -> Iterator[Step]:
    """The last repeat is read first, then what is left of the number of repeats."""
    rest: Remainder | None = None
    if repeat.most is None or repeat.most > 1:
        most = None if repeat.most is None else repeat.most - 1
        rest = Repeated(repeat.inside, max(repeat.least - 1, 0), most, "", repeat.is_consecutive)
    for step in steps(repeat.inside, terms):
        if rest is None:
            yield step
        elif step.remainder is not None:
            left: Remainder = Chain((rest, step.remainder), (repeat.is_consecutive,), is_begun=True)
            yield step._replace(remainder=left)
        else:
            yield step._replace(remainder=_hot(rest) if repeat.is_consecutive else rest)


def _of_both(first: Remainder, other: Remainder, terms: tuple[Served, ...]) -> Iterator[Step]:
    """An event of one side, or one that serves names of both."""
    left, right = list(steps(first, terms)), list(steps(other, terms))
    for sides, beside in ((left, other), (right, first)):
        try:
            left_over = cooled(beside)
        except DeadError:
            continue
        for step in sides:
            pair = (step.remainder, left_over) if beside is other else (left_over, step.remainder)
            yield step._replace(remainder=_joined(*pair))
    yield from (_merged(a, b, _joined(a.remainder, b.remainder)) for a in left for b in right if a.type == b.type)


def cooled(remainder: Remainder) -> Remainder | None:
    """What is left after another part has bound an older event; raises DeadError.

    None: it is complete, and can take no more.
    """
    match remainder:
        case Hot(part=part):
            if may_end(part):
                return None
            raise DeadError
        case Both(parts=(first, *others)):
            return _joined(cooled(first), cooled(_both(tuple(others))))
        case Paired(left=left, right=right):
            return _ended_together(cooled(left), cooled(right))
        case Chain():
            return _cooled_chain(remainder)
    return remainder


def _cooled_chain(chain: Chain) -> Remainder | None:
    is_next = chain.is_begun and bool(chain.nexts) and chain.nexts[-1]
    last = cooled(chain.parts[-1])
    if last is None:
        rest = _rest(chain, is_hot=is_next)
        return None if rest is None else cooled(rest)
    return Chain((*chain.parts[:-1], last), chain.nexts, chain.is_begun, is_cold=is_next)


def _paired(left: list[Step], right: list[Step]) -> Iterator[Step]:
    """The ways in which both sides of an `or` bind one event; the sides end together."""
    for a in left:
        for b in right:
            if a.type != b.type:
                continue
            try:
                yield _merged(a, b, _ended_together(a.remainder, b.remainder))
            except DeadError:
                continue


def _ended_together(left: Remainder | None, right: Remainder | None) -> Remainder | None:
    """What is left of two sides that must bind the same events; raises DeadError."""
    if left is not None and right is not None:
        return Paired(left, right)
    longer = right if left is None else left
    if longer is not None and not may_end(longer):
        raise DeadError
    return None


def _merged(left: Step, right: Step, remainder: Remainder | None) -> Step:
    inputs = tuple(sorted({*left.inputs, *right.inputs}))
    return Step(left.type, inputs, left.binds | right.binds, remainder, left.follows or right.follows)


def _joined(left: Remainder | None, right: Remainder | None) -> Remainder | None:
    if left is None or right is None:
        return right if left is None else left
    return Both((left, right))


def _both(parts: tuple[Remainder, ...]) -> Remainder:
    return parts[0] if len(parts) == 1 else Both(parts)


def _either(parts: tuple[Remainder, ...]) -> Remainder:
    return parts[0] if len(parts) == 1 else Either(parts)
