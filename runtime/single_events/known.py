"""What is known of events and of the matches that they bring."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from querylang.plan.model import EventType
from runtime.admission.arrays import Waited
from runtime.instants import NO_TIME
from runtime.interpreter.values import Value
from runtime.matching.reference import Released
from runtime.results.matched import Place

Key = tuple[Value, ...]
"""A key as Python compares it."""


Arguments = tuple[tuple[Value, ...] | None, ...]
"""By aggregate, the values of its arguments for one candidate; None = one has no value."""


class UnforeseenError(Exception):
    """Only the engine can tell what an event brings, now or later."""


@dataclass(frozen=True, slots=True)
class SingleEvent:
    """An event as it arrives.

    values: by field; none is null
    arrival: µs
    declared: the time in the source's column, µs; NO_TIME = none
    place: None = only the engine knows its coordinates
    """

    type: EventType
    values: Mapping[str, Value]
    arrival: int
    place: Place | None
    declared: int = NO_TIME


@dataclass(frozen=True, slots=True)
class Known(Released):
    """A released event.

    superseded: NEVER, or 0 = by an event before the latest one
    arrival: µs
    source_time: µs; NO_TIME = none
    place: as in `SingleEvent`
    unique: what `with unique` compares; None = nothing
    arguments: as a candidate of `runtime.single_events.one_name`; None = it is not one
    """

    arrival: int = NO_TIME
    source_time: int = NO_TIME
    place: Place | None = None
    unique: Key | None = None
    arguments: Arguments | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    """A match.

    key: its key, as `latest` has it
    latest: its latest event
    members: by term, or of a `find every` by select that is an event; None = unset
    time: of the match, µs
    definitive: the watermark when it was found, µs
    emitted: when it was found, µs
    waited: what it waited for
    rank: orders the matches of a key at the same time
    selected: of a `find every`, the values of the other selects by name
    """

    key: Key
    latest: Known
    members: tuple[Known | None, ...]
    time: int
    definitive: int = NO_TIME
    emitted: int = NO_TIME
    waited: Waited = Waited.NONE
    rank: int = 0
    selected: Mapping[str, Value] = field(default_factory=dict)

    @property
    def has_places(self) -> bool:
        """Whether the coordinates of all its events are known."""
        return all(event is None or event.place is not None for event in (self.latest, *self.members))
