"""Which column of a table holds what: the standard names, and other names that users give."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass

from querylang.errors import InputError
from runtime.reading.formats.raw_table import RawTable

ARRIVAL, TYPE, SOURCE_TIME = "at", "event", "ts"
"""The columns with arrival times, event types and source times, unless users name others."""

START, END, SHAPE = "start", "end", "shape"
"""The columns of events that are intervals."""

PLACES = ("source", "partition", "offset")
"""Columns that say where a row came from; fields only if an event definition says so."""


@dataclass(frozen=True, slots=True)
class ColumnNames:
    """Names that users give to columns; None = the standard name, whose column may be absent.

    arrival: instead of `at`
    type: instead of `event`
    source_time: instead of `ts`
    """

    arrival: str | None = None
    type: str | None = None
    source_time: str | None = None


STANDARD = ColumnNames()


@dataclass(frozen=True, slots=True)
class Roles:
    """The columns of one table that are not fields; None = the table has no such column.

    arrival: arrival times
    type: event types, or events written as text
    source_time: source times
    start: when events that are intervals begin; None too if no query of the plan knows intervals
    """

    arrival: str | None
    type: str | None
    source_time: str | None
    start: str | None

    @property
    def is_history(self) -> bool:
        """Whether rows arrive at their source time, because the table has no arrival times."""
        return self.arrival is None


def find_roles(raw: RawTable, names: ColumnNames, *, has_intervals: bool) -> Roles:
    """The columns of a table by role; InputError for a name that users give and it lacks."""
    return Roles(
        arrival=_find(raw, names.arrival, ARRIVAL),
        type=_find(raw, names.type, TYPE),
        source_time=_find(raw, names.source_time, SOURCE_TIME),
        start=_find(raw, None, START) if has_intervals else None,
    )


def _find(raw: RawTable, name: str | None, standard: str) -> str | None:
    if name is None:
        return standard if standard in raw.names else None
    if name not in raw.names:
        raise InputError(f"{raw.name}: has no column {name!r}{did_you_mean(name, raw.names)}")
    return name


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """The end of a message: the most similar name, or nothing."""
    near = difflib.get_close_matches(name, list(names), 1)
    return f"; did you mean {near[0]!r}?" if near else ""
