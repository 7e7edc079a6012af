"""What the job's clocks have to know of a source: what it can bring, and when it counts as idle."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum

from querylang.dataclass import dataclass
from querylang.plan.model import QueryPlan, TimelineKind, TimePolicy


@dataclass(frozen=True, slots=True)
class ClockSource:
    """A source of a job.

    event: all its records are of this event type; None = of any
    idle: µs of silence after which time advances without it; None = never
    is_policy: whether its ordering policy says so, and not the user
    ahead: µs that its records may arrive later than the micro-batch; None = no limit
    by_topic: whether it is a log, as topics are: see `SourceKind.is_log`. The places of records
        then tell topics apart, and arrival is the running maximum along each partition
    in_files: whether its records are merged by arrival, those of a micro-batch, as files are
    """

    name: str
    event: str | None = None
    idle: int | None = None
    is_policy: bool = False
    ahead: int | None = None
    by_topic: bool = False
    in_files: bool = False


@dataclass(frozen=True, slots=True)
class Idle:
    """What a user says of idle sources; `length`: µs, None = never idle."""

    length: int | None


def clock_source(
    name: str, event: str | None, idle: Idle | None, policy: TimePolicy | None, ahead: int | None = None
) -> ClockSource:
    """A source with what the user says of its idle time; None = the rule of its ordering policy."""
    if idle is not None:
        return ClockSource(name, event, idle.length, ahead=ahead)
    is_policy = has_own_idle(policy)
    return ClockSource(name, event, 0 if is_policy else None, is_policy, ahead)


def has_own_idle(policy: TimePolicy | None) -> bool:
    """Whether an ordering policy lets time advance while its source is silent."""
    if policy is None or policy.is_per_key:
        return False
    # Stream Analytics estimates arrival, StreamInsight has a timer
    return policy.idle is not None or policy.timeline is not TimelineKind.EVENT_TYPE


def sources_of(query: QueryPlan, sources: Iterable[ClockSource]) -> tuple[str, ...]:
    """The names of the sources that can bring records of a query, heartbeats included."""
    wanted = _events_of(query)
    return tuple(sorted(source.name for source in sources if source.event is None or source.event in wanted))


def _events_of(query: QueryPlan) -> set[str]:
    events = {item.event for item in query.inputs}
    events |= {item.heartbeat.event for item in query.inputs if item.heartbeat is not None}
    return events | {item.policy.imports for item in query.inputs if item.policy is not None and item.policy.imports}


@dataclass(frozen=True, slots=True)
class IdleTimes:
    """After how many µs of silence time advances without a source; None = never.

    by_source: of sources that have their own
    others: of all others
    """

    by_source: Mapping[str, int | None]
    others: int | None = None

    def of(self, source: str) -> int | None:
        """That of one source."""
        return self.by_source.get(source, self.others)

    @property
    def has_any(self) -> bool:
        """Whether time can advance without some source."""
        return self.others is not None or any(length is not None for length in self.by_source.values())


# What "now" is for a streaming job: the setting `clock` of a deployment file.


class Clock(StrEnum):
    """What "now" is for a job."""

    ARRIVAL = "arrival"
    """The arrival time that all source partitions have reached."""
    PROCESSING = "processing"
    """The timestamp of the micro-batch that processes a record."""
