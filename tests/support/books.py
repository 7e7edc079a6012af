"""Random programs whose queries feed each other, and rows for them."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass
from typing import Any

from querylang.plan.model import Plan
from querylang.plan.routing import receivers

Row = dict[str, Any]
FIELDS = "integer h; integer u; integer v; float w;"
LEVELS = 4


TIMED = '@TimeFrom("w") '
UNORDERED = "@OutOfOrder() "


@dataclass(frozen=True)
class Book:
    """A program.

    annotations: by event type
    queries: their texts
    has_beats: whether inputs may have heartbeats, `B1` those of `E1`
    """

    annotations: list[str]
    queries: list[str]
    has_beats: bool = False

    @property
    def text(self) -> str:
        return self.text_with(self.annotations)

    @property
    def text_alone(self) -> str:
        """As the rules say of routed events: with a time of their own they are out of order, else not."""
        return self.text_with(
            [TIMED + UNORDERED if TIMED in one and at else "" for at, one in enumerate(self.annotations)]
        )

    @property
    def from_sources(self) -> list[str]:
        """The event types that sources bring, too: the same is said of both."""
        own = [f"E{level}" for level, one in enumerate(self.annotations) if not one or not level]
        return [*own, *self._beats]

    @property
    def _beats(self) -> list[str]:
        return [f"B{level}" for level in range(1, LEVELS)] if self.has_beats else []

    def text_with(self, annotations: list[str]) -> str:
        types = [f"{one}event E{level} {{ {FIELDS} }}" for level, one in enumerate(annotations)]
        types += [f"event {name} {{ {FIELDS} }}" for name in self._beats]
        return "\n".join([*types, *self.queries])


def an_input(chance: random.Random, event: str, key: str, *, has_beats: bool = False) -> str:
    window = chance.choice(["within 20.0", "within 7.0", "retain 2", "within 30.0 retain 3"])
    new = chance.choice(["", "", "", " new by v within 6.0"])
    wait = chance.choice(["", "", "", " wait 3.0", " wait 9.0"])
    wanted = chance.choice(["", "", "v > 1"])
    if has_beats and wait and event != "E0":
        wait += f" or B{event[1:]}"
    return f"{event}({wanted}){key} {window}{new}{wait};"


def pattern(chance: random.Random, one: str, other: str) -> tuple[str, list[str]]:
    """A pattern over two event types, and the names that its block may use."""
    return chance.choice(
        [
            (f"find {one} as a", ["a"]),
            (f"find {one} as a -> {other} as b", ["a", "b"]),
            (f"find {one} as a -> {other} as b where a.v <= b.v within 8.0", ["a", "b"]),
            (f"find {one} as a => {other} as b", ["a", "b"]),
            (f"find all {one} as a -> {other} as b", ["a", "b"]),
            (f"find {one} as a -> wait(4.0)", ["a"]),
            (f"find {one} as a -> wait(2.5) without {other} as x", ["a"]),
            (f"find {one} as a -> {other} as b without {one} as x", ["a", "b"]),
            (f"find {one} as a or {other} as b", []),
            (f"find every {one} as a select last(a) as e having count() % 2 = 0", ["e"]),
        ]
    )


KEYS = ["", " key h", " key u", " key h, u"]


def a_query(chance: random.Random, name: str, level: int, shared: str | None = None, *, has_beats: bool = False) -> str:
    """A query that takes events up to a level, and routes some of the next; parameters as of `book`."""
    key = chance.choice(KEYS) if shared is None else shared
    one = f"E{level}" if chance.random() < 0.7 else f"E{chance.randint(0, level)}"
    other = f"E{chance.randint(0, level)}"
    inputs = "\n".join(an_input(chance, event, key, has_beats=has_beats) for event in dict.fromkeys([one, other]))
    found, names = pattern(chance, one, other)
    limit = chance.choice(["", "", "", " at most 1 per 5.0"])
    body = ['print "x";']
    if level + 1 < LEVELS:
        levels = [chance.randint(level + 1, LEVELS - 1) for _ in range(chance.choice([1, 1, 2]))]
        kept = "" if shared is None else shared
        body += [a_route(chance, names, f"E{fed}", kept) for fed in levels]
        if has_beats:
            body += [a_route(chance, names, f"B{fed}", kept) for fed in levels if chance.random() < 0.5]
    return f"query {name} {{ inputs {{ {inputs} }} {found}{limit} {{ {' '.join(body)} }} }}"


def a_route(chance: random.Random, names: list[str], event: str, kept: str = "") -> str:
    """A statement that routes; `kept`: the key that what it routes has, too."""
    if not names:
        return f"route {event}({'h' if 'h' in kept else 1}, {'u' if 'u' in kept else 2}, 3, 5.0);"
    name = chance.choice(names)
    first, second = f"{name}.{chance.choice('hu')}", f"{name}.{chance.choice('hu')}"
    if "h" in kept:
        first = chance.choice(["h", f"{name}.h"])
    if "u" in kept:
        second = chance.choice(["u", f"{name}.u"])
    values = f"{first}, {second}, {name}.v + {chance.randint(0, 1)}, {name}.w"
    routed = f"route {event}({values});"
    if chance.random() < 0.3:
        routed = f'send {event}({values}) to "com.apama.queries";'
    return f"if {name}.v > 1 {{ {routed} }}" if chance.random() < 0.3 else routed


def book(chance: random.Random, shared: str | None = None, *, has_beats: bool = False) -> Book:
    """A program whose queries feed each other, in any order of their names.

    shared: the key of all queries, which what they route keeps; None = their keys differ
    has_beats: whether inputs may have heartbeats, which are routed, too
    """
    names = [f"Q{number}" for number in range(chance.randint(2, 5))]
    chance.shuffle(names)
    levels = [0, *(chance.randint(0, LEVELS - 1) for _ in names[1:])]
    texts = zip(names, levels, strict=True)
    queries = [a_query(chance, name, level, shared, has_beats=has_beats) for name, level in texts]
    annotations = ["", *(chance.choice(["", "", UNORDERED, TIMED, TIMED + UNORDERED]) for _ in range(1, LEVELS))]
    return Book(annotations, queries, has_beats)


PARAMETERS = {
    "least": ("integer", "1", re.compile(r"(?<=v > )1\b")),
    "length": ("float", "20.0", re.compile(r"(?<=within )20\.0(?=[; ])")),
    "delay": ("float", "4.0", re.compile(r"(?<=wait\()4\.0")),
}
"""By name: type, constant, and where a query of a book has it."""


def with_parameters(query: str) -> str:
    """A query that means the same, and has parameters where it had constants."""
    declared = ""
    for name, (kind, value, place) in PARAMETERS.items():
        if place.search(query):
            query = place.sub(name, query)
            declared += f"{kind} {name} := {value}; "
    return query.replace("{ inputs", f"{{ parameters {{ {declared}}} inputs", 1) if declared else query


def values(chance: random.Random, query: str) -> dict[str, float]:
    """Values for some of the parameters of a query."""
    drawn = {
        "least": chance.choice([0, 1, 2]),
        "length": chance.choice([3.0, 20.0]),
        "delay": chance.choice([1.5, 6.0]),
    }
    own = {name: value for name, value in drawn.items() if f" {name} := " in query}
    return {name: value for name, value in own.items() if chance.random() < 0.8}


def rows(chance: random.Random, events: list[str]) -> list[Row]:
    at, found = 0, []
    for _ in range(chance.randint(4, 18)):
        at += chance.choice([0, 0, 1, 1, 2, 3, 7])
        event = chance.choice(["E0", "E0", *events])
        values = {name: chance.randint(0, 2) for name in "huv"}
        times = {name: float(max(0, at - chance.choice([0, 0, 1, 2, 5]))) for name in ("ts", "w")}
        found.append({"at": at, "event": event, **values, **times})
    return found


def divided(plan: Plan, chance: random.Random) -> set[str]:
    """The names of queries that are deployed with history: none of them feeds others that are not."""
    edges, new = receivers(plan.queries), set[str]()
    names = [query.name for query in plan.queries]
    waiting = chance.sample(names, chance.randint(1, len(names)))
    while waiting:
        name = waiting.pop()
        if name not in new:
            new.add(name)
            waiting += edges.get(name, [])
    return new
