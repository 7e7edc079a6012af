"""What a matcher takes and gives; two of them stand behind this interface.

`runtime.matching.kernel.matcher` takes every query whose conditions its program can say, `runtime.matching.reference` takes all. Both
are driven by the plan's automaton and must agree on every stream.
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
    """Events by key, each key's in total order: positions `start[k]` to `fresh[k]` were there before, from `fresh[k]` to
    `start[k + 1]` are new. By position: the event's row in `table`, its input and its time. Positions behind the last
    key's are members of pending waits. `superseded`: for inputs with `with unique`, the position of the next
    event of the key that takes an event's place (NEVER: none); without such inputs it is empty. The column `_time` of
    `table` holds the times by row."""

    start: Integers
    fresh: Integers
    row: NDArray[np.int32]
    input: NDArray[np.int16]
    time: Integers
    superseded: Integers
    table: pa.Table


@dataclass(frozen=True, slots=True)
class Found:
    """Matches in order of their latest event's position; `members[match, term]` is a position, -1 where it is unset.

    Of a `find every`, `aggregates` has a column for each of `runtime.matching.find_every.aggregates_of`, and members mean nothing.
    """

    latest: Integers
    members: Integers
    aggregates: tuple[pa.Array, ...] = ()


@dataclass(frozen=True, slots=True)
class Waiting:
    """Matches whose trailing wait is not over, one entry each: the key's number, positions of the members and of the latest
    event, when it is due. `is_new`: it begins in this call; of the others only new events are judged."""

    key: Integers
    members: Integers
    latest: Integers
    due: Integers
    is_new: NDArray[np.bool_]

    def only(self, chosen: NDArray[Any]) -> Waiting:
        """Those waits, by mask or number."""
        return Waiting(
            self.key[chosen], self.members[chosen], self.latest[chosen], self.due[chosen], self.is_new[chosen]
        )


class Matcher(Protocol):
    """Finds, for each new event, the candidate that wins by the *recent* policy."""

    def match(self, events: Ordered) -> Found:
        """At most one match for each new event."""
        ...

    def outlives(self, events: Ordered, waiting: Waiting) -> NDArray[np.bool_]:
        """Which of the waits no condition has ended, by all events that there are now."""
        ...
