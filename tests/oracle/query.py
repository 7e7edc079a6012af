"""A query: its text, and what it finds in a stream."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tests.oracle.conditions import Candidate, Condition
from tests.oracle.events import Event, Row
from tests.oracle.expressions import Binding, Node, NoValueError, Scope, Value, Whole, names_of, value
from tests.oracle.inputs import Input, Key, partitions
from tests.oracle.placements import Placement, Windows, events_of, placements, recency, without_covered
from tests.oracle.shapes import Kind, Shape, Wait, names, text, types

MOST_MATCHES = 10_000
"""Under `find all`: for one event."""

Bound = int | tuple[int, ...] | None
"""Row numbers: of an event, of a run; None = unset."""

Selected = Value | tuple[int, ...] | None
"""A value, or the row numbers of a whole run."""


@dataclass(frozen=True, slots=True)
class Skip:
    """`after match skip ...`.

    to: `first` or `last`; "" = past the last event
    name: of which name
    """

    to: str = ""
    name: str = ""

    def text(self) -> str:
        return f"after match skip {f'to {self.to} {self.name}' if self.to else 'past last event'}"

    def mark(self, match: Placement) -> int:
        """The first place that a later match may bind."""
        if not self.to:
            return match.entries()[0].place + 1
        return events_of(match.names[self.name])[0 if self.to == "first" else -1].place


@dataclass(frozen=True, slots=True)
class Select:
    """`select e as n`."""

    expression: Node
    name: str

    def text(self) -> str:
        return f"select {self.expression.text()} as {self.name}"

    def value(self, placement: Placement, kinds: Mapping[str, Kind]) -> Selected:
        """Its value; None where it names something unset or has none."""
        bound = {name: as_in_block(one, kinds[name]) for name, one in placement.names.items()}
        if isinstance(self.expression, Whole):
            return tuple(event.row.number for event in events_of(bound[self.expression.name]))
        if any(bound[name] is None for name in names_of(self.expression)):
            return None
        single = {name: one for name, one in bound.items() if isinstance(one, Event)}
        runs = {name: one for name, one in bound.items() if isinstance(one, tuple)}
        try:
            return value(self.expression, Scope(single, runs, placement.members()))
        except (NoValueError, IndexError):
            return None


def as_in_block(bound: Binding, kind: Kind) -> Binding:
    """In a block the run of an untaken side is an empty sequence."""
    return () if bound is None and kind is Kind.RUN else bound


@dataclass(frozen=True, slots=True)
class Match:
    """What one match is, with row numbers for events.

    time: microseconds; of its latest event, or of its trailing wait's point
    """

    key: Key
    time: int
    members: Mapping[str, Bound]
    points: Mapping[str, int | None]
    selected: Mapping[str, Selected]


@dataclass(frozen=True, slots=True)
class Query:
    """One query of a file."""

    inputs: tuple[Input, ...]
    pattern: Shape
    conditions: tuple[Condition, ...] = ()
    keys: tuple[str, ...] = ()
    leading: Wait | None = None
    trailing: Wait | None = None
    selects: tuple[Select, ...] = ()
    skip: Skip | None = None
    finds_all: bool = False
    name: str = "Q"

    def text(self) -> str:
        """The query as a file has it."""
        inputs = "\n".join(f"    {item.text(self.keys)}" for item in self.inputs)
        return f"query {self.name} {{\n  inputs {{\n{inputs}\n  }}\n  {self.find_text()};\n}}\n"

    def find_text(self) -> str:
        """From `find` to the last clause."""
        leading = f"{self.leading.text()} -> " if self.leading else ""
        trailing = f" -> {self.trailing.text()}" if self.trailing else ""
        clauses = [item.text() for item in (*self.conditions, *self.selects, *([self.skip] if self.skip else []))]
        found = f"find {'all ' if self.finds_all else ''}{leading}{text(self.pattern)}{trailing}"
        return "\n    ".join([found, *clauses])

    def matches(self, rows: Sequence[Row]) -> list[Match]:
        """All matches; those of one key in their order, keys in that of their values."""
        found = partitions(self.inputs, self.keys, rows)
        return [match for key in sorted(found) for match in in_partition(self, key, found[key])]


def in_partition(query: Query, key: Key, events: Sequence[Event]) -> list[Match]:
    """The matches of one key, in order."""
    released = list[tuple[int, Placement]]()
    mark = 0
    for number in range(1, len(events) + 1):
        found = winners(query, events[:number], mark)
        for placement in found:
            released += moments_of_match(query, placement, events, number)
        if found and query.skip:
            mark = query.skip.mark(found[-1])
    written = [*names(query.pattern)]
    if query.trailing:
        released.sort(key=lambda item: (item[0], recency(item[1], written)))
    return [as_match(query, key, time, placement) for time, placement in released]


def winners(query: Query, events: Sequence[Event], mark: int) -> list[Placement]:
    """What is found when the last of these events is added, oldest first.

    mark: events of earlier places may not be bound
    """
    windows = {item.name: item.window(events) for item in query.inputs}
    free = {name: [event for event in window if event.place >= mark] for name, window in windows.items()}
    written = [*names(query.pattern)]
    own = {name: free[name] for name in sorted(types(query.pattern))}
    placed = [one for one in placements(query.pattern, own) if events[-1] in one.entries()]
    found = [one for one in (with_leading(query, placement) for placement in placed) if fulfils(query, one, windows)]
    found.sort(key=lambda one: recency(one, written))
    return without_covered(found, query.pattern)[-MOST_MATCHES:] if query.finds_all else found[-1:]


def with_leading(query: Query, placement: Placement) -> Placement:
    """With the point of the leading wait."""
    if query.leading is None:
        return placement
    oldest = placement.members()[0].time
    return replace(placement, points={query.leading.name: oldest - query.leading.length, **placement.points})


def fulfils(query: Query, placement: Placement, windows: Windows) -> bool:
    """Whether the conditions hold that can be judged when the latest event is there."""
    candidate = Candidate(placement, names(query.pattern), windows)
    return all(condition.holds(candidate) for condition in query.conditions if not is_for_later(query, condition))


def is_for_later(query: Query, condition: Condition) -> bool:
    """Whether it is decided when the trailing wait is due."""
    return query.trailing is not None and condition.reaches(query.trailing.name)


def moments_of_match(
    query: Query, placement: Placement, events: Sequence[Event], number: int
) -> Iterator[tuple[int, Placement]]:
    """When what was found is a match: at once, or each time that its trailing wait is due and the conditions hold.

    number: so many of the partition's events were there when it was found
    """
    latest = events[number - 1]
    if query.trailing is None:
        yield latest.time, placement
        return
    windows = {item.name: [*item.window(events[:number]), *later(item, events, number)] for item in query.inputs}
    for count in range(1, query.trailing.most + 1):
        due = latest.time + count * query.trailing.length
        waited = replace(placement, points={**placement.points, query.trailing.name: due})
        candidate = Candidate(waited, names(query.pattern), windows)
        if not all(condition.holds(candidate) for condition in query.conditions if is_for_later(query, condition)):
            return
        yield due, waited


def later(item: Input, events: Sequence[Event], number: int) -> list[Event]:
    """The events of an input that were added since."""
    return [event for event in events[number:] if item.name in event.inputs]


def as_match(query: Query, key: Key, time: int, placement: Placement) -> Match:
    kinds = names(query.pattern)
    members = {name: numbers(as_in_block(one, kinds[name])) for name, one in placement.names.items()}
    selected = {item.name: item.value(placement, kinds) for item in query.selects}
    return Match(key, time, members, placement.points, selected)


def numbers(bound: Binding) -> Bound:
    """Row numbers."""
    match bound:
        case None:
            return None
        case Event():
            return bound.row.number
        case _:
            return tuple(event.row.number for event in bound)
