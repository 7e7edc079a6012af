"""What `MATCH_RECOGNIZE` finds, as the standard of SQL says it: leftmost start, greedy, one row after the other.

Written from the standard's rules alone; it shares nothing with the translation.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from random import Random

Row = tuple[float, int | None]
"""Time and value; None is a null."""
Labels = tuple[str, ...]
"""Per row of a match, its variable."""


@dataclass(frozen=True)
class Condition:
    """A condition as SQL, and what it is worth: of the rows, the row, and the first row of the match; None is null."""

    sql: str
    worth: Callable[[Sequence[Row], int, int], bool | None]


TESTS: dict[str, Callable[[int, int], bool]] = {
    "<": operator.lt,
    ">": operator.gt,
    "=": operator.eq,
    "<>": operator.ne,
    ">=": operator.ge,
}


def compared(one: int | None, sign: str, other: int | None) -> bool | None:
    return None if one is None or other is None else TESTS[sign](one, other)


def _plain(sign: str, number: int) -> Condition:
    return Condition(f"{{v}}.x {sign} {number}", lambda rows, at, _: compared(rows[at][1], sign, number))


def _of_previous(sign: str) -> Condition:
    def worth(rows: Sequence[Row], at: int, _: int) -> bool | None:
        return compared(rows[at][1], sign, rows[at - 1][1] if at else None)

    return Condition(f"{{v}}.x {sign} PREV({{v}}.x)", worth)


def _of_first(sign: str) -> Condition:
    return Condition(
        f"{{v}}.x {sign} FIRST({{first}}.x)", lambda rows, at, first: compared(rows[at][1], sign, rows[first][1])
    )


def _not(inner: Condition) -> Condition:
    def worth(rows: Sequence[Row], at: int, first: int) -> bool | None:
        value = inner.worth(rows, at, first)
        return None if value is None else not value

    return Condition(f"NOT ({inner.sql})", worth)


def _either(one: Condition, other: Condition) -> Condition:
    def worth(rows: Sequence[Row], at: int, first: int) -> bool | None:
        values = [item.worth(rows, at, first) for item in (one, other)]
        return True if True in values else None if None in values else False

    return Condition(f"({one.sql} OR {other.sql})", worth)


CONDITIONS = (
    *(_plain(sign, number) for sign in ("<", ">", "=", "<>") for number in (1, 2, 3)),
    *(_of_previous(sign) for sign in ("<", ">", "=")),
)
LOGICAL = (
    *(_not(_plain(sign, 2)) for sign in ("<", ">", "=")),
    *(_either(_of_previous(sign), _plain("=", number)) for sign in ("<", ">") for number in (1, 4)),
    _not(_either(_of_previous("="), _plain("<", 2))),
)
OF_FIRST = tuple(_of_first(sign) for sign in ("<", ">="))
COUNTS = (
    ("", 1, 1),
    ("", 1, 1),
    ("+", 1, None),
    ("*", 0, None),
    ("?", 0, 1),
    ("{2}", 2, 2),
    ("{1,2}", 1, 2),
    ("{2,}", 2, None),
)
SKIPS = ("PAST LAST ROW", "PAST LAST ROW", "TO NEXT ROW", "TO LAST {last}", "TO LAST {some}", "TO FIRST {some}")


@dataclass(frozen=True)
class Part:
    name: str
    count: tuple[str, int, int | None]
    conditions: tuple[Condition, ...]


@dataclass(frozen=True)
class SqlPattern:
    """A pattern over one table `T`, partitioned by `k`, ordered by `ts`."""

    parts: tuple[Part, ...]
    skip: str
    within: int | None

    @staticmethod
    def random(chooser: Random) -> SqlPattern:
        names = "ABCD"[: chooser.choice((1, 2, 3, 3, 4))]
        parts = []
        for number, name in enumerate(names):
            some = [chooser.choice(CONDITIONS) for _ in range(chooser.choice((0, 1, 1, 1, 2) if number else (0, 0, 1)))]
            if number and chooser.random() < 0.2:
                some.append(chooser.choice(OF_FIRST))
            if number and chooser.random() < 0.2:
                some.append(chooser.choice(LOGICAL))
            ends = number in (0, len(names) - 1) and chooser.random() < 0.8
            parts.append(Part(name, COUNTS[0] if ends else chooser.choice(COUNTS), tuple(some)))
        skip = chooser.choice(SKIPS).format(last=names[-1], some=chooser.choice(names))
        return SqlPattern(tuple(parts), skip, chooser.choice((None, None, 2, 4)))

    @property
    def sql(self) -> str:
        pattern = " ".join(part.name + part.count[0] for part in self.parts)
        within = f" WITHIN INTERVAL '{self.within}' SECOND" if self.within else ""
        texts = [
            f"{part.name} AS "
            + " AND ".join(item.sql.format(v=part.name, first=self.parts[0].name) for item in part.conditions)
            for part in self.parts
            if part.conditions
        ]
        define = f"\n  DEFINE {', '.join(texts)}" if texts else "\n  DEFINE A AS true"
        return (
            "SELECT * FROM T MATCH_RECOGNIZE (\n  PARTITION BY k ORDER BY ts\n"
            f"  ONE ROW PER MATCH AFTER MATCH SKIP {self.skip}\n  PATTERN ({pattern}){within}{define}\n)"
        )

    def matches(self, rows: Sequence[Row]) -> list[tuple[int, Labels]]:
        """Per match its first row, and the variables of its rows."""
        found, start = [], 0
        while start < len(rows):
            labels = next(self._from(rows, start, start, 0, ()), None)
            if labels is None:
                start += 1
                continue
            found.append((start, labels))
            start = self._next_start(start, labels)
        return found

    def _next_start(self, start: int, labels: Labels) -> int:
        end = start + len(labels)
        if self.skip == "TO NEXT ROW":
            return start + 1
        if self.skip == "PAST LAST ROW":
            return end
        own = [number for number, name in enumerate(labels) if name == self.skip[-1]]
        return max(start + 1, start + own[-1 if "LAST" in self.skip else 0]) if own else end

    def _from(self, rows: Sequence[Row], first: int, at: int, part: int, labels: Labels) -> Iterator[Labels]:
        """All ways to continue, the preferred one first."""
        if part == len(self.parts):
            if labels and (self.within is None or rows[at - 1][0] - rows[first][0] < self.within):
                yield labels
            return
        _, least, most = self.parts[part].count
        taken, ways = 0, [at]
        while (most is None or taken < most) and ways[-1] < len(rows) and self._holds(rows, ways[-1], first, part):
            ways.append(ways[-1] + 1)
            taken += 1
        for count in range(taken, least - 1, -1):
            yield from self._from(rows, first, at + count, part + 1, labels + (self.parts[part].name,) * count)

    def _holds(self, rows: Sequence[Row], at: int, first: int, part: int) -> bool:
        return all(item.worth(rows, at, first) is True for item in self.parts[part].conditions)
