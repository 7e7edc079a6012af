"""Random patterns: today's language, and each addition where its switch is on."""

from __future__ import annotations

import random
from dataclasses import dataclass, fields, replace
from itertools import pairwise

from tests.oracle.events import SECOND
from tests.oracle.shapes import Both, Chain, Either, Link, Repeat, Repeated, Shape, Step, Wait, may_be_empty

STEP_TYPES = "AAABBC"
WAITS = tuple(round(seconds * SECOND) for seconds in (0.5, 1, 1, 2, 3, 5))


@dataclass(frozen=True, slots=True)
class Switches:
    """Which additions queries may use; none: today's language."""

    repeats: bool = False
    groups: bool = False
    next: bool = False
    prev: bool = False
    folds: bool = False
    skip: bool = False
    finds_all: bool = False
    selects: bool = False
    middle_waits: bool = False
    waits_in_sides: bool = False
    """Middle waits inside `and` and `or` too."""
    repeated_wait: bool = False


TODAY = Switches()
ALL = Switches(*[True] * len(fields(Switches)))
EACH = {item.name: replace(TODAY, **{item.name: True}) for item in fields(Switches)}
"""Every addition alone, with what it needs."""
EACH["folds"] = replace(EACH["folds"], repeats=True)
EACH["waits_in_sides"] = replace(EACH["waits_in_sides"], middle_waits=True)


class Patterns:
    """Draws one pattern with up to five names."""

    def __init__(self, dice: random.Random, switches: Switches) -> None:
        self._dice, self._switches = dice, switches
        self._names = [*"edcba"]
        self._points = [*"upq"]
        self._may_wait = switches.middle_waits

    def pattern(self) -> Shape:
        """One that is never empty."""
        while True:
            names, points = [*self._names], [*self._points]
            shape = self._shape(self._dice.choice((1, 2, 2, 2, 3, 3, 3, 4, 5)))
            if not may_be_empty(shape):
                return shape
            self._names, self._points = names, points

    def _shape(self, size: int, *, never_empty: bool = False) -> Shape:
        """A pattern of so many names."""
        if size == 1:
            return self._step(never_empty=never_empty)
        if self._switches.groups and self._dice.random() < 0.35:
            return self._group(size, never_empty=never_empty)
        match self._dice.choice(("chain", "chain", "chain", "and", "or")):
            case "chain":
                return self._chain(size)
            case "and":
                left, right = self._two(size)
                return Both(left, right)
            case _:
                left, right = self._two(size, never_empty=True)
                return Either(left, right)

    def _two(self, size: int, *, never_empty: bool = False) -> tuple[Shape, Shape]:
        """Two sides that have so many names together."""
        may_wait, self._may_wait = self._may_wait, self._may_wait and self._switches.waits_in_sides
        while True:
            names, points = [*self._names], [*self._points]
            first = self._dice.randint(1, size - 1)
            both = (self._shape(first, never_empty=never_empty), self._shape(size - first, never_empty=never_empty))
            if not (never_empty and any(map(may_be_empty, both))):
                self._may_wait = may_wait
                return both
            self._names, self._points = names, points

    def _step(self, *, never_empty: bool = False) -> Shape:
        step = Step(self._dice.choice(STEP_TYPES), self._names.pop())
        if not self._switches.repeats or self._dice.random() < 0.4:
            return step
        return Repeated(step, self._repeat(never_empty=never_empty))

    def _repeat(self, *, never_empty: bool) -> Repeat:
        consecutive = self._dice.random() < 0.4
        sign = self._dice.choice(("", "", "", "?", "*", "+"))
        if never_empty and sign in {"?", "*"}:
            sign = ""
        if sign:
            return Repeat(0 if sign in {"?", "*"} else 1, 1 if sign == "?" else None, consecutive, sign)
        least = self._dice.choice((1, 1, 2, 2, 3) if never_empty else (0, 1, 1, 2, 2, 3))
        most = self._dice.choice((None, least, least + 1, least + 2))
        return Repeat(least, most or (1 if most == 0 else None), consecutive)

    def _group(self, size: int, *, never_empty: bool) -> Shape:
        steps = [Step(self._dice.choice(STEP_TYPES), self._names.pop()) for _ in range(size)]
        links = [Link(self._sign(), step) for step in steps[1:]]
        repeat = self._repeat(never_empty=never_empty)
        return Repeated(
            Chain(steps[0], tuple(links)), repeat if repeat.most != 1 else replace(repeat, consecutive=False)
        )

    def _chain(self, size: int) -> Shape:
        sizes = [self._dice.randint(1, 2) for _ in range(size)]
        shapes = list[Shape]()
        for number in sizes:
            if size:
                shapes.append(self._shape(min(number, size)))
                size -= min(number, size)
        if len(shapes) == 1:
            return shapes[0]
        links = list[Link]()
        for before, shape in pairwise(shapes):
            # Brackets that only group change nothing, so the steps beside the wait count.
            sure = not (may_be_empty(edge(before, last=True)) or may_be_empty(edge(shape, last=False)))
            waits = sure and self._may_wait and bool(self._points) and self._dice.random() < 0.5
            wait = Wait(self._dice.choice(WAITS), self._points.pop()) if waits else None
            links.append(Link("->" if wait else self._sign(), shape, wait))
        return Chain(shapes[0], tuple(links))

    def _sign(self) -> str:
        return "=>" if self._switches.next and self._dice.random() < 0.5 else "->"


def edge(shape: Shape, *, last: bool) -> Shape:
    """The last or the first step of a chain; other shapes themselves."""
    while isinstance(shape, Chain):
        shape = shape.links[-1].part if last else shape.first
    return shape
