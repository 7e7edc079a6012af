"""Patterns of every kind through the engine alone: one core, columns in memory to matches as row numbers.

The same stream as the other measurements; what differs is the query. Rates are million events a second, medians over the
batches after the first two. `worst` is a pattern of six names whose condition never holds, over a window of 200
events: what a search costs that finds nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks import embedded, events

INPUTS = """
@OutOfOrder() event A {{ integer k; float v; }}
@OutOfOrder() event B {{ integer k; float v; }}
query Q {{
    inputs {{
        A() key k {window} wait 10 seconds;
        B() key k {window} wait 10 seconds;
    }}
    {find}
}}
"""


@dataclass(frozen=True, slots=True)
class Pattern:
    """A query of the bench: its name, the inputs' window, what is found, over how many keys."""

    name: str
    find: str
    window: str = "within 30 seconds"
    keys: int = 10_000


PATTERNS = (
    Pattern("two names, one condition", "find A as a -> B as b where b.v > a.v"),
    Pattern("three names, two conditions", "find A as a -> B as b -> A as c where b.v > a.v where c.v > b.v"),
    Pattern("without between", "find A as a -> B as b where b.v > a.v without A as x where x.v > 0.9 between (a b)"),
    Pattern("every, mean of about ten", "find every A as a select avg(a.v) as m", "retain 10"),
    Pattern("trailing wait", "find A as a -> wait(20 seconds) as t without B as b where b.v > 0.9"),
    Pattern("and", "find A as a and B as b where b.v > a.v"),
    Pattern(
        "100 candidates, costly condition",
        "find A as a -> B as b where (a.v * 3.7 - b.v) * (b.v + 0.31) / (a.v + 1.0) > 3.62",
        "retain 100",
    ),
    Pattern(
        "worst: six names, nothing ever holds",
        "find A as a -> A as b -> A as c -> A as d -> A as e -> B as f where b.v > a.v + 2.0",
        "retain 200",
        keys=100,
    ),
)


@dataclass(frozen=True, slots=True)
class Measured:
    """What came of a pattern: million events a second to matches, and how many there were in a batch."""

    name: str
    rate: float
    matches: int


def measure(count: int, batches: int) -> list[Measured]:
    """All patterns, one after the other, `count` events a batch."""
    found = []
    for pattern in PATTERNS:
        query = INPUTS.format(window=pattern.window, find=pattern.find)
        size = count // 10 if pattern.name.startswith(("worst", "100")) else count
        item = embedded.measure(size, pattern.keys, batches, events.plan(query))
        found.append(Measured(pattern.name, item.to_matches, item.matches))
    return found
