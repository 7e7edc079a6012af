"""Random conditions and folds over the names of a pattern."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.oracle.expressions import Constant, End, Field, Fold, IsNull, Node, Not, OneOf, Operation, Prev, Whole

FIELDS = ("v", "v", "v", "w", "s", "k", "getTime()")
NUMBERS = ("v", "v", "w")
SIGNS = ("=", "!=", "<", "<=", ">", ">=")


@dataclass(frozen=True)
class Names:
    """What a condition may mention.

    plain: names of one event, or of none
    each: names of one run or of one group
    folded: runs, by the group that they belong to
    prev: whether `prev` may be asked
    """

    plain: Sequence[str]
    each: Sequence[str] = ()
    folded: Sequence[Sequence[str]] = ()
    prev: bool = False
    own: Sequence[str] = field(default=())
    """The name of a `without`, of which no `prev` exists."""


class Conditions:
    """Draws conditions."""

    def __init__(self, dice: random.Random, names: Names) -> None:
        self._dice, self._names = dice, names
        self._single = [*names.plain, *names.each, *names.own]

    def condition(self) -> Node:
        """One comparison, or two with a sign between them; or the opposite."""
        match self._dice.randrange(8):
            case 0:
                return Not(self._comparison())
            case 1 | 2:
                sign = self._dice.choice(("and", "and", "or", "xor"))
                both = Operation(sign, self._comparison(), self._comparison())
                return Not(both) if self._dice.random() < 0.3 else both
            case 3:
                return self._division()
        return self._comparison()

    def select(self) -> Node:
        """A number of plain names and folds."""
        return self._number(self._dice.choice(NUMBERS))

    def _comparison(self) -> Node:
        """A comparison of two values, a test for null, or a look-up in a list."""
        match self._dice.randrange(12):
            case 0:
                return IsNull(self._number(self._dice.choice(NUMBERS)), self._dice.random() < 0.5)
            case 1:
                several: tuple[int, ...] = tuple(self._dice.sample(range(4), self._dice.randint(1, 3)))
                return OneOf(self._number("v"), several, self._dice.random() < 0.5)
            case 2:
                return OneOf(self._term("s"), ("", "ab"), self._dice.random() < 0.5)
        return self._of_two_values()

    def _of_two_values(self) -> Node:
        field_ = self._dice.choice(FIELDS)
        if field_ == "s":
            sides: list[Node] = [self._term("s"), self._term("s")]
            if self._dice.random() < 0.4:
                sides[1] = Constant(self._dice.choice(("", "a", "b", "ab")))
        elif self._names.folded and self._dice.random() < 0.4:
            sides = [self._fold(), self._number("v")]
        elif field_ == "getTime()":
            sides = self._apart(self._term(field_), self._term(field_))
        else:
            sides = [self._number(field_), self._number(field_)]
        return Operation(self._dice.choice(SIGNS), *sides)

    def _apart(self, one: Node, two: Node) -> list[Node]:
        """Two times and a number of seconds, in one of the ways to compare these."""
        length = Constant(self._dice.choice((0.0, 0.1, 0.6, 1.0, 2.5)))
        match self._dice.randrange(4):
            case 0:
                return [Operation("+", one, length), two]
            case 1:
                return [one, Operation("-", two, length)]
        return [Operation("-", one, two), length]

    def _division(self) -> Node:
        """It may be by zero, so that it stands alone: the other side of an `or` need not be evaluated."""
        divided = Operation(self._dice.choice("/%"), self._term("v"), self._term("v"))
        return Operation(self._dice.choice(SIGNS), divided, Constant(self._dice.randint(0, 2)))

    def _number(self, field_: str) -> Node:
        match self._dice.randrange(8):
            case 0:
                return Constant(self._dice.choice((0.5, 1.0, 2.0)) if field_ == "w" else self._dice.randint(-1, 3))
            case 1:
                sign = self._dice.choice(("+", "-", "*"))
                return Operation(sign, self._term(field_), self._term(field_))
            case 2 if self._names.folded:
                return self._fold()
        return self._term(field_)

    def _term(self, field_: str) -> Node:
        """A name's field; without names a constant."""
        if not self._single:
            return Constant({"s": "a", "w": 1.0, "getTime()": 100.0}.get(field_, 1))
        name = self._dice.choice(self._single)
        if self._names.prev and name not in self._names.own and self._dice.random() < 0.4:
            return Prev(name, field_)
        return Field(name, field_)

    def _fold(self) -> Node:
        """A fold over a run, or over runs of one group in pairs; or the end of a run."""
        group = self._dice.choice(self._names.folded)
        name, field_ = self._dice.choice(group), self._dice.choice(NUMBERS)
        match self._dice.randrange(6):
            case 0:
                return End(self._dice.choice(("first", "last")), name, field_)
            case 1:
                return Fold("count", Whole(name))
            case 2:
                inside: Node = Operation(
                    self._dice.choice("+-"), Field(name, field_), Field(self._dice.choice(group), field_)
                )
            case 3 if self._names.plain:
                inside = Operation("-", Field(name, field_), Field(self._dice.choice(self._names.plain), field_))
            case _:
                inside = Field(name, field_)
        return Fold(self._dice.choice(("sum", "avg", "min", "max")), inside)
