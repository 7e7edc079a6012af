"""The interface of a matcher: ordered events in, matches and the fate of trailing waits out.

`runtime.matching.kernel.matcher` runs every query whose conditions its programs can express;
`runtime.matching.reference` runs all. Both follow the plan's automaton and must agree on every
stream.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Integers = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Ordered:
    """Events by key, those of each key in total order.

    start: by key, the position of its first event; one more entry for the end
    fresh: by key, the position of its first new event; those from there to `start[key + 1]` are new
    row: by position, the event's row in `table`
    input: by position, its input
    time: by position, µs
    superseded: by position, that of the next event of the key that supersedes it (`with unique`);
        NEVER = none. Empty if no input has `with unique`
    table: the events' columns; `_time` holds the times by row

    Positions after the last key's are members of pending waits.
    """

    start: Integers
    fresh: Integers
    row: NDArray[np.int32]
    input: NDArray[np.int16]
    time: Integers
    superseded: Integers
    table: pa.Table


@dataclass(frozen=True, slots=True)
class Found:
    """Matches in the order of their latest event's position.

    latest: by match, the position of its latest event
    members: by (match, term), the position of its event; -1 = the name is unset. No columns for a
        `find every`
    aggregates: of a `find every`, a column for each of `runtime.matching.find_every.aggregates_of`
    """

    latest: Integers
    members: Integers
    aggregates: tuple[pa.Array, ...] = ()


@dataclass(frozen=True, slots=True)
class Waiting:
    """Matches whose trailing wait has not ended, one entry each.

    key: the number of the key
    members, latest: as in `Found`
    due: µs, when the wait's timer expires
    is_new: whether the wait begins in this call; for the others only new events are checked
    """

    key: Integers
    members: Integers
    latest: Integers
    due: Integers
    is_new: NDArray[np.bool_]

    def only(self, chosen: NDArray[Any]) -> Waiting:
        """The chosen waits, by mask or by number."""
        return Waiting(
            self.key[chosen], self.members[chosen], self.latest[chosen], self.due[chosen], self.is_new[chosen]
        )


class Matcher(Protocol):
    """Finds, for each new event, the candidate that wins by the *recent* policy."""

    def match(self, events: Ordered) -> Found:
        """At most one match for each new event."""
        ...

    def outlives(self, events: Ordered, waiting: Waiting) -> NDArray[np.bool_]:
        """By wait, whether no condition has ended it, by all events that there are now."""
        ...
