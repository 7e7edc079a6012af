"""A query's inputs with their ordering policies and a stream for it, as plain data whose `repr` is Python.

Any number of event types with the same fields: `id` (an integer), `k` (integer), `c` (string), `v` (integer). `HA` is the heartbeat
of an input `A` that carries the keys, `H` the one that does not. Times are integer microseconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from querylang.plan.model import TimelineKind, TimePolicy
from tests.support.conditions import Short

SECOND = 1_000_000
MINUTE = 60 * SECOND
POINT, INTERVAL, START_EDGE, END_EDGE = "point", "interval", "start_edge", "end_edge"


@dataclass(frozen=True, repr=False)
class Record(Short):
    """A record. `event`: its type; None: only time passes, unless it is a control event. `id` None: the record's number.

    `leeway`: SetDelayedEventsLeeway of these two lengths in seconds; `punctuation`: Heartbeat of this type and time.
    """

    at: int
    event: str | None = None
    time: int | None = None
    k: int | None = 0
    c: str | None = "x"
    v: int = 0
    source: str = "s"
    partition: int = 0
    end: int | None = None
    shape: str = POINT
    leeway: tuple[float, float] | None = None
    punctuation: tuple[str, int] | None = None
    id: int | None = None

    @property
    def identity(self) -> tuple[object, ...]:
        """What the two edges of an event agree in."""
        return (self.event, self.time, self.id, self.k, self.c, self.v)

    def values(self, names: Sequence[str]) -> tuple[int | str | None, ...]:
        """The values of some of the fields k, c and v."""
        return tuple({"k": self.k, "c": self.c, "v": self.v}[name] for name in names)


@dataclass(frozen=True, repr=False)
class TimedInput(Short):
    """One input. Without a policy it says itself how it is ordered, as an input of the query language does.

    `least`: it takes only events whose `v` is at least this.
    """

    event: str
    policy: TimePolicy | None = None
    sources: tuple[str, ...] = ()
    wait: int | None = None
    out_of_order: bool = False
    heartbeat: str | None = None
    least: int | None = None

    @property
    def is_chosen(self) -> bool:
        """Whether a policy was chosen for its source that is not the one of the query language itself."""
        return self.policy is not None and not self.policy.is_per_key


@dataclass(frozen=True, repr=False)
class Timed(Short):
    """A query, of which only the inputs and the keys (`k`, `c`) matter, and its stream."""

    inputs: tuple[TimedInput, ...]
    records: tuple[Record, ...]
    keys: tuple[str, ...] = ()

    def ordered(self) -> list[tuple[int, Record]]:
        """Offsets and records in the order in which they count as having arrived."""
        numbered = enumerate(self.records, 1)
        return sorted(numbered, key=lambda item: (item[1].at, item[1].source, item[1].partition, item[0]))


def stream_analytics(
    *,
    late: int | None = 5 * SECOND,
    out_of_order: int = 0,
    early: int | None = 5 * MINUTE,
    action: str = "adjust",
    over: tuple[str, ...] = (),
    partitions: int | None = None,
) -> TimePolicy:
    """The settings of Stream Analytics with their defaults; `late` None: for ever."""
    chosen = TimePolicy(
        "stream_analytics", TimelineKind.SUBSTREAM if over else TimelineKind.PARTITION, over, early, late, out_of_order
    )
    return replace(chosen, every=1, action=action, partitions=partitions)


def streaminsight(
    *,
    every: int | None = 1,
    span: int | None = None,
    delay: int = 0,
    action: str = "drop",
    idle: int | None = None,
    final: bool = False,
    imports: str | None = None,
) -> TimePolicy:
    """The settings of StreamInsight with their defaults: `every` so many events, or `span` of event time, or neither."""
    chosen = TimePolicy(
        "streaminsight", TimelineKind.EVENT_TYPE, disorder=delay, every=every, every_span=span, idle=idle
    )
    return replace(chosen, imports=imports, action=action, is_strict=True, is_final=final)


def apama(
    *, early: int | None = None, leeway: int | None = 10 * SECOND, reorder: int | None = 10 * SECOND
) -> TimePolicy:
    """What may be said of an input that is ordered by what the query says."""
    return TimePolicy("apama", TimelineKind.KEY, early=early, leeway=leeway, reorder=reorder)
