"""The pattern as a tree: steps, runs, groups, `->`, `=>`, waits in the middle, `and`, `or`; and its text."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from tests.oracle.expressions import seconds


class Kind(Enum):
    """What a name binds."""

    PLAIN = "plain"
    OPTIONAL = "optional"
    """The sign `?`: an event or nothing."""
    RUN = "run"


@dataclass(frozen=True, slots=True)
class Repeat:
    """Behind a step or a group.

    most: None = any number
    sign: `+`, `*` or `?`, where it is written so; only `?` means more than its bounds
    """

    least: int
    most: int | None
    consecutive: bool = False
    sign: str = ""

    def text(self) -> str:
        if self.sign:
            bounds = self.sign
        elif self.most == self.least:
            bounds = f"{{{self.least}}}"
        else:
            bounds = f"{{{self.least},{'' if self.most is None else self.most}}}"
        return f"{bounds} consecutive" if self.consecutive else bounds

    @property
    def kind(self) -> Kind:
        return Kind.OPTIONAL if self.sign == "?" else Kind.RUN


@dataclass(frozen=True, slots=True)
class Step:
    """`A as a`."""

    type: str
    name: str


@dataclass(frozen=True, slots=True)
class Repeated:
    """`A as a {2}`, or a group: `(A as a -> B as b) {2}`."""

    inside: Step | Chain
    repeat: Repeat


@dataclass(frozen=True, slots=True)
class Wait:
    """`wait(d) as t`.

    most: how often a trailing one repeats
    """

    length: int
    name: str
    most: int = 1

    def text(self) -> str:
        return f"wait({seconds(self.length)}) as {self.name}{f' {{1,{self.most}}}' if self.most > 1 else ''}"


@dataclass(frozen=True, slots=True)
class Link:
    """What stands between two parts of a chain, and the second of them.

    wait: `-> wait(d) as t ->`; None = only the sign
    """

    sign: str
    part: Shape
    wait: Wait | None = None


@dataclass(frozen=True, slots=True)
class Chain:
    """`L -> R => S`, from the left: of each link everything before it is the left side."""

    first: Shape
    links: tuple[Link, ...]


@dataclass(frozen=True, slots=True)
class Both:
    """`L and R`."""

    left: Shape
    right: Shape


@dataclass(frozen=True, slots=True)
class Either:
    """`L or R`."""

    left: Shape
    right: Shape


Shape = Step | Repeated | Chain | Both | Either


def text(shape: Shape) -> str:
    """The pattern as a query file has it."""
    match shape:
        case Step():
            return f"{shape.type} as {shape.name}"
        case Repeated(Step()):
            return f"{text(shape.inside)} {shape.repeat.text()}"
        case Repeated():
            return f"({text(shape.inside)}) {shape.repeat.text()}"
        case Chain():
            return within_brackets(shape.first, Chain) + "".join(link_text(link) for link in shape.links)
        case Both():
            return (
                f"{within_brackets(shape.left, Chain, Either)} and {within_brackets(shape.right, Chain, Either, Both)}"
            )
        case Either():
            return f"{within_brackets(shape.left, Chain)} or {within_brackets(shape.right, Chain, Either)}"


def link_text(link: Link) -> str:
    wait = f" -> {link.wait.text()}" if link.wait else ""
    return f"{wait} {link.sign} {within_brackets(link.part, Chain)}"


def within_brackets(shape: Shape, *kinds: type) -> str:
    """Its text, in brackets if it is of these kinds, which bind less tightly."""
    return f"({text(shape)})" if isinstance(shape, kinds) else text(shape)


def parts(shape: Shape) -> tuple[Shape, ...]:
    """What stands directly below, in the order in which it is written."""
    match shape:
        case Step():
            return ()
        case Repeated():
            return (shape.inside,)
        case Chain():
            return (shape.first, *(link.part for link in shape.links))
        case Both() | Either():
            return (shape.left, shape.right)


def below(shape: Shape) -> Iterator[Shape]:
    """The shape and all below it, as written."""
    yield shape
    for part in parts(shape):
        yield from below(part)


def names(shape: Shape) -> dict[str, Kind]:
    """The names in the order in which they are written, with what they bind."""
    match shape:
        case Step():
            return {shape.name: Kind.PLAIN}
        case Repeated():
            return dict.fromkeys(names(shape.inside), shape.repeat.kind)
    found = dict[str, Kind]()
    for part in parts(shape):
        found |= names(part)
    return found


def waits(shape: Shape) -> list[Wait]:
    """The waits in the middle."""
    chains = [item for item in below(shape) if isinstance(item, Chain)]
    return [link.wait for chain in chains for link in chain.links if link.wait]


def types(shape: Shape) -> set[str]:
    """The event types."""
    return {item.type for item in below(shape) if isinstance(item, Step)}


def may_be_empty(shape: Shape) -> bool:
    """Whether it can hold without an event."""
    match shape:
        case Step():
            return False
        case Repeated():
            return shape.repeat.least == 0 or may_be_empty(shape.inside)
        case Either():
            return may_be_empty(shape.left) or may_be_empty(shape.right)
        case _:
            return all(may_be_empty(part) for part in parts(shape))
