"""The inputs of a query: which rows are its events, in which partition, and which of them a window holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tests.oracle.events import SECOND, Event, Row, Value, total_order
from tests.oracle.expressions import compare, constant_text, seconds

Key = tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Filter:
    """`v >= 1`: an event for which it is false is not an event of the input."""

    field: str
    sign: str
    value: Value

    def text(self) -> str:
        return f"{self.field} {self.sign} {constant_text(self.value)}"

    def admits(self, row: Row) -> bool:
        return compare(self.sign, row.field(self.field), self.value) is True


@dataclass(frozen=True, slots=True)
class Input:
    """One line of `inputs`.

    within: microseconds; None = no such bound
    retain: how many events; None = no such bound
    wait: microseconds that records may come late; None = an event's time is its arrival
    role: its name in the pattern; None = that of the type
    fields: where its events have the keys of the query; None = in the fields of these names
    """

    type: str
    filters: tuple[Filter, ...] = ()
    within: int | None = 100 * SECOND
    retain: int | None = None
    unique: str | None = None
    wait: int | None = None
    role: str | None = None
    fields: tuple[str, ...] | None = None

    @property
    def name(self) -> str:
        """What patterns call it."""
        return self.type if self.role is None else self.role

    def text(self, keys: Sequence[str]) -> str:
        parts = [f"{self.type}({', '.join(item.text() for item in self.filters)})"]
        parts += [] if self.role is None else [f"as {self.role}"]
        named = zip(keys if self.fields is None else self.fields, keys, strict=True)
        own = [key if field == key else f"{field} as {key}" for field, key in named]
        parts += [f"key {', '.join(own)}"] if keys else []
        parts += [] if self.within is None else [f"within {seconds(self.within)}"]
        parts += [] if self.retain is None else [f"retain {self.retain}"]
        parts += [] if self.unique is None else [f"with unique {self.unique}"]
        parts += [] if self.wait is None else [f"wait {seconds(self.wait)}"]
        return f"{' '.join(parts)};"

    def admits(self, row: Row) -> bool:
        """Whether the row is an event of this input."""
        return row.type == self.type and all(item.admits(row) for item in self.filters)

    def window(self, events: Sequence[Event]) -> list[Event]:
        """The window at the moment of the last of these events of a partition, oldest first."""
        latest = events[-1]
        own = [event for event in events if self.name in event.inputs]
        within = own if self.within is None else [x for x in own if latest.time - x.time < self.within]
        retained = within if self.retain is None else within[-self.retain :]
        return retained if self.unique is None else newest_of_each(retained, self.unique)


def newest_of_each(events: Sequence[Event], field: str) -> list[Event]:
    """Of the events with the same value of the field the newest; a null equals none."""
    newest = {event.row.field(field): event for event in events}
    return [event for event in events if (value := event.row.field(field)) is None or newest[value] is event]


def partitions(inputs: Sequence[Input], keys: Sequence[str], rows: Sequence[Row]) -> dict[Key, list[Event]]:
    """The admitted events per key, in their total order; one with a null in its key is discarded.

    In the key of each input a row counts for it; where keys are equal it is one event.
    """
    found = dict[Key, list[Event]]()
    for row in sorted(rows, key=total_order):
        served = dict[Key, list[str]]()
        for item in inputs:
            key = tuple(row.field(field) for field in (keys if item.fields is None else item.fields))
            if None not in key and item.admits(row):
                served.setdefault(key, []).append(item.name)
        for key, names in served.items():
            events = found.setdefault(key, [])
            events.append(Event(len(events), row, frozenset(names)))
    return found
