"""The interface of a matcher: ordered events in, matches and the fate of trailing waits out.

`runtime.matching.matchers` runs every query whose conditions its programs can express;
`runtime.matching.reference` runs all. Both follow the plan's automaton and must agree on every
stream.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from querylang.dataclass import dataclass, field, fields, replace
from runtime.column_types import Integers
from runtime.instants import NEVER

Bindings = Mapping[int, tuple[int, ...]]
"""By term, the positions of its events, newest first; a term without events is missing."""


def _none() -> Integers:
    return np.empty(0, np.int64)


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
    free: by key, the first position that may be bound (`after match skip`). Empty if all may
    number: by position, the running number among the events of the key. Empty if no transition
        of the automaton asks for it
    event: by position; neighbours of a key with equal numbers are one event, which serves several
        inputs. Empty if no type is several inputs
    may_end: by position, whether a match may have it as its latest event. Empty if all new ones
        may; only matchers with `takes_may_end` look at it

    Positions after the last key's are members of pending waits.
    """

    start: Integers
    fresh: Integers
    row: NDArray[np.int32]
    input: NDArray[np.int16]
    time: Integers
    superseded: Integers
    table: pa.Table
    free: Integers = field(default_factory=_none)
    number: Integers = field(default_factory=_none)
    event: Integers = field(default_factory=_none)
    may_end: NDArray[np.bool_] = field(default_factory=lambda: np.empty(0, np.bool_))


@dataclass(frozen=True, slots=True)
class Found:
    """Matches in the order of their latest event's position; of one event the oldest first.

    latest: by match, the position of its latest event
    members: by (match, column), the position of an event; -1 = there is none. No columns for a
        `find every`
    widths: how many columns each term has (`runtime.matching.interface`)
    aggregates: of a `find every`, a column for each of `runtime.matching.find_every.aggregates_of`;
        those that are events are positions, null = none
    free: as in `Ordered`, after these matches
    errors: positions of events that had more matches than a `find all` gives, or whose search was
        ended, each with what its error row says
    """

    latest: Integers
    members: Integers
    aggregates: tuple[pa.Array, ...] = ()
    free: Integers = field(default_factory=_none)
    errors: tuple[tuple[int, str], ...] = ()
    widths: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Waiting:
    """Matches whose trailing wait has not ended, one entry each.

    key: the number of the key
    members, latest, widths: as in `Found`
    due: µs, when the wait's timer expires
    is_new: whether the wait begins in this call; for the others only new events are checked
    number: of the wait; one that is due several times has an entry for each, in their order
    round: the how manieth time it is, from 1
    last: the last time that is known to be possible
    """

    key: Integers
    members: Integers
    latest: Integers
    due: Integers
    is_new: NDArray[np.bool_]
    number: Integers
    round: Integers
    last: Integers
    widths: tuple[int, ...] = ()

    def only(self, chosen: NDArray[Any]) -> Waiting:
        """The chosen waits, by mask or by number."""
        columns = {item.name: getattr(self, item.name)[chosen] for item in fields(self) if item.name != "widths"}
        return replace(self, **columns)


class Matcher(Protocol):
    """Finds, for each new event, the candidate that wins by the *recent* policy."""

    @property
    def only_finds(self) -> bool:
        """Whether `match` sets neither `free` nor `errors` and keeps nothing.

        If so, it may run after the next call has begun, in any thread.
        """
        ...

    @property
    def takes_may_end(self) -> bool:
        """Whether `match` searches only for matches with the latest events of `Ordered.may_end`."""
        ...

    def match(self, events: Ordered) -> Found:
        """At most one match for each new event, except by `find all`."""
        ...

    def outlives(self, events: Ordered, waiting: Waiting) -> NDArray[np.bool_]:
        """By wait, whether no condition has ended it, by all events that there are now."""
        ...


# Members of matches as columns: one per name, and several for a run of events.
#
# `widths` says how many columns each term has; it is empty if each has one. The columns of a run
# are in order of time, and those behind its last event are -1.


def columns_of(widths: Sequence[int], terms: int) -> list[slice]:
    """By term, its columns."""
    ends = np.cumsum(widths or [1] * terms).tolist()
    return [slice(begin, end) for begin, end in zip([0, *ends], ends, strict=False)]


def as_columns(
    found: Sequence[Mapping[int, tuple[int, ...]]], is_run: Sequence[bool]
) -> tuple[NDArray[np.int64], tuple[int, ...]]:
    """Bindings, which have the newest event of a term first, as columns and their widths.

    is_run: by term
    """
    terms = range(len(is_run))
    widths = tuple(
        max((len(bindings.get(term, ())) for bindings in found if is_run[term]), default=0) or 1 for term in terms
    )
    columns = np.full((len(found), sum(widths)), -1, np.int64)
    places = columns_of(widths, len(is_run))
    for row, bindings in enumerate(found):
        for term, positions in bindings.items():
            begin = places[term].start
            columns[row, begin : begin + len(positions)] = positions[::-1]
    return columns, widths if any(is_run) else ()


def as_bindings(members: Sequence[int], widths: Sequence[int], terms: int) -> dict[int, tuple[int, ...]]:
    """The inverse of `as_columns` for one match."""
    bound = {
        term: tuple(position for position in reversed(members[columns]) if position >= 0)
        for term, columns in enumerate(columns_of(widths, terms))
    }
    return {term: positions for term, positions in bound.items() if positions}


def wider(left: Sequence[int], right: Sequence[int]) -> tuple[int, ...]:
    """The widths that both fit into."""
    return tuple(map(max, left, right))


def relaid(values: NDArray[Any], widths: Sequence[int], wanted: Sequence[int], fill: int) -> NDArray[Any]:
    """The columns with other widths; `fill` behind runs."""
    if tuple(widths) == tuple(wanted) or not values.shape[1]:
        return values
    result = np.full((len(values), sum(wanted)), fill, values.dtype)
    for old, new in _moves(widths, wanted):
        result[:, new] = values[:, old]
    return result


def _moves(widths: Sequence[int], wanted: Sequence[int]) -> Iterator[tuple[slice, slice]]:
    for old, new in zip(columns_of(widths, 0), columns_of(wanted, 0), strict=True):
        yield old, slice(new.start, new.start + old.stop - old.start)


# Events that serve several inputs of one key: each of a record's rows has a position of its own.


@dataclass(frozen=True, slots=True)
class Joined:
    """Positions by event.

    first, last: by event, the first and the last of its positions
    of: by position, its event
    """

    first: Integers
    last: Integers
    of: Integers

    @property
    def has_shared(self) -> bool:
        """Whether any event has several positions."""
        return len(self.first) < len(self.of)

    def ordered(self, events: Ordered) -> Ordered:
        """The same with positions by event; what supersedes an event is that of its first input."""
        of = np.append(self.of, len(self.first))
        return replace(
            events,
            start=of[events.start],
            fresh=of[events.fresh],
            row=events.row[self.first],
            input=events.input[self.first],
            time=events.time[self.first],
            superseded=self._superseding(events)[self.first],
            free=of[events.free] if len(events.free) else events.free,
            number=events.number[self.first[self.first < len(events.number)]],
            event=events.event[:0],
        )

    def also(self, events: Ordered) -> dict[int, tuple[tuple[int, int], ...]]:
        """By event that serves several inputs: the others, each with what supersedes it there."""
        if not self.has_shared:
            return {}
        superseded, several = self._superseding(events), np.flatnonzero(self.first < self.last)
        return {
            event: tuple(
                (int(events.input[position]), int(superseded[position]))
                for position in range(int(self.first[event]) + 1, int(self.last[event]) + 1)
            )
            for event in several.tolist()
        }

    def _superseding(self, events: Ordered) -> Integers:
        """By position, the event that supersedes it; NEVER = none."""
        found = np.full(len(self.of), NEVER)
        own = events.superseded
        is_over = np.flatnonzero(own < NEVER)
        found[is_over] = self.of[own[is_over]]
        return found

    def waiting(self, waiting: Waiting) -> Waiting:
        """The same with positions by event."""
        members = np.where(waiting.members < 0, -1, self.of[waiting.members])
        return replace(waiting, members=members, latest=self.of[waiting.latest])

    def placed(
        self, found: Found, input_of: NDArray[np.int16], inputs: Sequence[int], are_events: Sequence[bool]
    ) -> Found:
        """What was found by event, by position: each member where it serves the input of its term.

        input_of: by position; inputs: by term; are_events: by aggregate
        """
        members, columns = found.members.copy(), columns_of(found.widths, len(inputs))
        for number, places in zip(inputs, columns, strict=True) if members.shape[1] else ():
            for place in range(places.start, places.stop):
                members[:, place] = self._serving(found.members[:, place], number, input_of)
        first = np.append(self.first, len(self.of))
        return replace(
            found,
            latest=self.last[found.latest],
            members=members,
            aggregates=tuple(
                pa.array(self.first[column.fill_null(0).to_numpy()], mask=column.is_null().to_numpy(False))
                if is_event
                else column
                for column, is_event in zip(found.aggregates, are_events, strict=True)
            ),
            free=first[found.free] if len(found.free) else found.free,
            errors=tuple((int(self.last[event]), text) for event, text in found.errors),
        )

    def _serving(self, events: Integers, number: int, input_of: NDArray[np.int16]) -> Integers:
        """The positions of events that serve an input; -1 = no event."""
        places = np.where(events < 0, -1, self.first[events])
        for _ in range(int((self.last - self.first).max())):
            places = np.where((places >= 0) & (input_of[places] != number), places + 1, places)
        return places


def joined_events(events: Ordered) -> Joined:
    """The positions by event; members of pending waits are events of their own."""
    count, placed = len(events.row), int(events.start[-1]) if len(events.start) else 0
    is_first = np.ones(count, np.bool_)
    if len(events.event):
        is_first[1:placed] = events.event[1:placed] != events.event[: max(placed - 1, 0)]
        is_first[events.start[:-1][events.start[:-1] < placed]] = True
    first = np.flatnonzero(is_first)
    last = np.append(first[1:], count) - 1
    return Joined(first, last, np.cumsum(is_first) - 1)
