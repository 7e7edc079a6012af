"""Random queries: inputs, pattern, conditions, waits and the clauses behind them."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tests.oracle.conditions import Condition, Where, Within, Without
from tests.oracle.events import SECOND, Row
from tests.oracle.expressions import Field, Fold, Node, Operation, Whole
from tests.oracle.inputs import Filter, Input
from tests.oracle.query import Query, Select, Skip
from tests.oracle.random_expressions import Conditions, Names
from tests.oracle.random_patterns import WAITS, Patterns, Switches
from tests.oracle.random_streams import LATE, random_stream
from tests.oracle.shapes import (
    Both,
    Chain,
    Either,
    Kind,
    Repeated,
    Shape,
    Wait,
    below,
    may_be_empty,
    names,
    parts,
    types,
    waits,
)

DURATIONS = tuple(round(seconds * SECOND) for seconds in (0.5, 1, 2, 3, 5, 8, 20))
KEYS: tuple[tuple[str, ...], ...] = ((), (), ("k",), ("k",), ("s",), ("k", "s"))


@dataclass(frozen=True, slots=True)
class Draw:
    """One stream and queries that all read it.

    late: events come out of order; they are admitted all the same and are put in order
    """

    rows: tuple[Row, ...]
    queries: tuple[Query, ...]
    late: bool


def random_draw(seed: int, switches: Switches, count: int) -> Draw:
    """A stream and so many queries, by number."""
    dice = random.Random(seed)
    late = dice.random() < 0.4
    queries = tuple(Drawing(dice, switches, late=late).query(f"Q{number}") for number in range(count))
    return Draw(tuple(random_stream(dice, late=late, nulls=True)), queries, late)


class Drawing:
    """Draws the parts of one query."""

    def __init__(self, dice: random.Random, switches: Switches, *, late: bool) -> None:
        self._dice, self._switches, self._late = dice, switches, late
        self._pattern = Patterns(dice, switches).pattern()
        self._names = names(self._pattern)
        self._sides = [*sides_of(self._pattern)]

    def _chance(self, share: float) -> bool:
        return self._dice.random() < share

    def query(self, name: str) -> Query:
        sure_ends = not ends_may_be_empty(self._pattern)
        leading = Wait(self._dice.choice(WAITS), "l") if sure_ends and self._chance(0.15) else None
        trailing = self._trailing() if sure_ends and self._chance(0.2) else None
        used = {*types(self._pattern), *self._dice.sample("ABCD", self._dice.choice((0, 0, 1, 2)))}
        points = [wait.name for wait in (*waits(self._pattern), leading, trailing) if wait]
        return Query(
            tuple(self._input(type_) for type_ in sorted(used)),
            self._pattern,
            tuple(self._conditions(sorted(used), points)),
            self._dice.choice(KEYS),
            leading,
            trailing,
            tuple(self._selects()) if self._switches.selects else (),
            self._skip() if self._switches.skip and not trailing and self._chance(0.7) else None,
            self._switches.finds_all and self._chance(0.7),
            name,
        )

    def _trailing(self) -> Wait:
        repeats = self._switches.repeated_wait and self._chance(0.7)
        return Wait(self._dice.choice(WAITS), "r", self._dice.randint(2, 4) if repeats else 1)

    def _input(self, type_: str) -> Input:
        """Windows are small where many names or runs may take from them."""
        large = len(self._names) > 3 or Kind.RUN in self._names.values()
        retain = self._dice.choice((1, 2, 3, 4, 5, 6) if large else (None, None, 1, 2, 3, 5))
        within = self._dice.choice((None if retain else 20 * SECOND, *DURATIONS, 20 * SECOND, 20 * SECOND))
        filters = (
            (Filter("v", self._dice.choice((">", "<=", "=")), self._dice.randint(0, 2)),) if self._chance(0.2) else ()
        )
        unique = self._dice.choice("vsk") if self._chance(0.2) else None
        return Input(type_, filters, within, retain, unique, LATE if self._late else None)

    def _conditions(self, used: Sequence[str], points: Sequence[str]) -> Iterator[Condition]:
        for _ in range(self._dice.choice((0, 1, 1, 2))):
            yield Where(self._clause())
        ranges = {self._between(points) for _ in range(self._dice.choice((0, 0, 1, 2)))}
        for between in sorted(ranges):
            yield Within(self._dice.choice(DURATIONS), between)
        for number in range(self._dice.choice((0, 0, 1, 2))):
            where = self._condition(self._of_one_side(), f"x{number}") if self._chance(0.5) else None
            yield Without(self._dice.choice(used), f"x{number}", where, self._between(points))

    def _clause(self) -> Node:
        """One that uses additions may have conditions about several runs, with `and` between them."""
        usable = self._of_one_side()
        if not self._groups() or self._chance(0.6):
            return self._condition(usable)
        return Operation("and", self._condition(usable), self._condition(usable))

    def _between(self, points: Sequence[str]) -> tuple[str, ...]:
        """Names of a range; none: the whole pattern."""
        possible = [*self._names, *points]
        if len(possible) < 2 or self._chance(0.4):
            return ()
        return tuple(sorted(self._dice.sample(possible, self._dice.randint(2, min(3, len(possible))))))

    def _condition(self, usable: Sequence[str], own: str = "") -> Node:
        """Over some of these names, at most one run or group of them; `own`: the name of a `without`."""
        plain = [name for name in usable if self._names[name] is not Kind.RUN]
        groups = [group for group in self._groups() if set(group) <= set(usable)]
        each = self._dice.choice(groups) if groups and self._chance(0.6) else ()
        folded = groups if self._switches.folds else ()
        prev = self._switches.prev and self._chance(0.6)
        return Conditions(self._dice, Names(plain, each, folded, prev, (own,) if own else ())).condition()

    def _of_one_side(self) -> list[str]:
        """The names without those of one side of each `or`: no `where` may mention both."""
        usable = [*self._names]
        for sides in self._sides:
            left_out = self._dice.choice(sides)
            usable = [name for name in usable if name not in left_out]
        return usable

    def _groups(self) -> list[list[str]]:
        """The runs, with those together that are of one group."""
        repeats = [shape for shape in below(self._pattern) if isinstance(shape, Repeated)]
        return [[*names(shape)] for shape in repeats if shape.repeat.kind is Kind.RUN]

    def _selects(self) -> Iterator[Select]:
        """What may be unset stands alone: there is no arithmetic with it."""
        sure = set(always_bound(self._pattern))
        plain = [name for name in self._names if name in sure and self._names[name] is Kind.PLAIN]
        groups = [group for group in self._groups() if self._switches.folds and sure.issuperset(group)]
        for number in range(self._dice.randint(1, 2)):
            name = self._dice.choice([*self._names])
            if self._names[name] is not Kind.RUN:
                yield Select(Field(name, self._dice.choice("vws")), f"n{number}")
            elif self._chance(0.5):
                yield Select(Whole(name), f"n{number}")
            elif self._switches.folds:
                yield Select(Fold(self._dice.choice(("sum", "avg", "min", "max")), Field(name, "v")), f"n{number}")
            if plain or groups:
                yield Select(Conditions(self._dice, Names(plain, (), groups)).select(), f"m{number}")

    def _skip(self) -> Skip:
        sure = [*always_bound(self._pattern)]
        if not sure or self._chance(0.5):
            return Skip()
        return Skip(self._dice.choice(("first", "last")), self._dice.choice(sure))


def always_bound(shape: Shape) -> list[str]:
    """The names that have an event in every match."""
    match shape:
        case Either():
            return []
        case Repeated():
            return [] if may_be_empty(shape) else [*names(shape)]
        case Chain() | Both():
            return [name for part in parts(shape) for name in always_bound(part)]
    return [*names(shape)]


def ends_may_be_empty(shape: Shape) -> bool:
    """Whether the first or the last step may be empty: no wait is next to it."""
    match shape:
        case Chain():
            return ends_may_be_empty(shape.first) or ends_may_be_empty(shape.links[-1].part)
        case Both() | Either():
            return any(map(ends_may_be_empty, parts(shape)))
    return may_be_empty(shape)


def sides_of(shape: Shape) -> Iterator[tuple[list[str], list[str]]]:
    """The names of both sides of each `or`."""
    for item in below(shape):
        if isinstance(item, Either):
            yield [*names(item.left)], [*names(item.right)]
