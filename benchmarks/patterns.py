"""Patterns of every kind through the engine alone: one core, columns in memory to matches as row numbers.

The same stream as the other measurements; what differs is the query. Medians over the batches after the first two, by when
all windows are full. `worst` is a pattern of six names whose condition never holds, over a window of 200 events: what a
search costs that finds nothing; `worst repeats` is the same with six repeats.
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
    """A query of the bench: its name, the inputs' window, what is found, over how many keys.

    `most`: at most so many events per batch: few keys, or a search that takes long. `on_spark`: the Spark operator runs it too.
    """

    name: str
    find: str
    window: str = "within 30 seconds"
    keys: int = 10_000
    most: int = 1_000_000
    on_spark: bool = False

    @property
    def query(self) -> str:
        """The query's text, with its event types."""
        return INPUTS.format(window=self.window, find=self.find)


PATTERNS = (
    Pattern("two names, one condition", "find A as a -> B as b where b.v > a.v"),
    Pattern(
        "three names, two conditions",
        "find A as a -> B as b -> A as c where b.v > a.v where c.v > b.v",
        on_spark=True,
    ),
    Pattern(
        "without between",
        "find A as a -> B as b where b.v > a.v without A as x where x.v > 0.9 between (a b)",
        on_spark=True,
    ),
    Pattern("every, mean of about ten", "find every A as a select avg(a.v) as m", "retain 10", on_spark=True),
    Pattern("trailing wait", "find A as a -> wait(20 seconds) as t without B as b where b.v > 0.9", on_spark=True),
    Pattern("and", "find A as a and B as b where b.v > a.v"),
    Pattern(
        "100 candidates, costly condition",
        "find A as a -> B as b where (a.v * 3.7 - b.v) * (b.v + 0.31) / (a.v + 1.0) > 3.62",
        "retain 100",
        keys=500,
    ),
    Pattern(
        "worst: six names, nothing ever holds",
        "find A as a -> A as b -> A as c -> A as d -> A as e -> B as f where b.v > a.v + 2.0",
        "retain 200",
        keys=20,
        most=20_000,
    ),
    Pattern("repeat of ten, then one", "find A as a+ -> B as b", "retain 10"),
    Pattern("three steps, strictly next", "find A as a => B as b => A as c"),
    Pattern(
        "W: down, then up, by `prev`",
        "find A as s => A as d+ consecutive => A as u+ consecutive where d.v < prev(d).v where u.v > prev(u).v",
        "retain 20",
    ),
    Pattern("find all, about ten matches", "find all A as a -> B as b", "retain 10", most=200_000),
    Pattern(
        "worst repeats: six, nothing ever holds",
        "find A as a+ -> A as b+ -> A as c+ -> A as d+ -> A as e+ -> A as f+ -> B as g where a.v > g.v + 2.0",
        "retain 200",
        keys=20,
        most=20_000,
    ),
)


@dataclass(frozen=True, slots=True)
class Measured:
    """What came of a pattern: million events per second to matches, and how many of both there were in a batch."""

    name: str
    keys: int
    events: int
    rate: float
    matches: int
    state_bytes: int
    kept_events: int


def measure(count: int, batches: int, keys: int | None = None) -> list[Measured]:
    """All patterns, one after the other, `count` events per batch at most; `keys` in place of each one's own."""
    return [_measured(pattern, count, batches, keys or pattern.keys) for pattern in PATTERNS]


def _measured(pattern: Pattern, count: int, batches: int, keys: int) -> Measured:
    found = embedded.measure(min(count, pattern.most), keys, batches, events.plan(pattern.query))
    sizes = (found.matches, found.state_bytes, found.kept_events)
    return Measured(pattern.name, keys, found.events, found.to_matches, *sizes)
