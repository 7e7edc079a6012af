"""What `why` answers, as plain data: times are ISO 8601 text in UTC, lengths are seconds."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from querylang.dataclass import dataclass
from querylang.printable import masked
from runtime.results.matched import Coordinates


class Status(StrEnum):
    """What became of the event, match or record that was asked about."""

    MATCHED = "matched"
    NOT = "not"
    NOT_YET = "not yet"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class EventAt:
    """An event and its place in the input.

    name: in the pattern; empty = it is not bound
    event: its type; empty = unknown
    row: its number in its table, from 1; None = it was routed, or comes from a topic
    time: the time that counts for the query; None = it was refused before it had one
    text: as `toString()` prints it, or the text of a record that is not an event
    """

    name: str
    event: str
    source: str
    partition: int
    offset: int
    row: int | None
    time: str | None
    source_time: str | None
    arrival: str | None
    fields: Mapping[str, Any]
    text: str

    @property
    def place(self) -> Coordinates:
        """Where it was read."""
        return self.source, self.partition, self.offset


@dataclass(frozen=True, slots=True)
class Side:
    """A part of a condition, as it is written, with its value; what failed is a text."""

    text: str
    value: Any


@dataclass(frozen=True, slots=True)
class Checked:
    """A condition of a match. `says`: what it says of this one, in words."""

    clause: str
    sides: tuple[Side, ...]
    says: str


@dataclass(frozen=True, slots=True)
class Reason:
    """What a candidate, or a record, failed for first.

    what: one of `runtime.why.clauses.What`, or the word of the account
    clause: as it is written in the query; empty = there is not one
    says: a sentence
    event: the event that is to blame: the one of the `without`, the newer one of `with unique`
    by: by how much, in seconds or in the unit of the numbers compared; None = not a distance
    """

    what: str
    clause: str
    says: str
    sides: tuple[Side, ...] = ()
    event: EventAt | None = None
    by: float | None = None


@dataclass(frozen=True, slots=True)
class Change:
    """The least change of one setting with which there is the match; it was tried.

    before, after: the clause or option as it is, and as it would have to be
    text: what to paste: the line of the query, or the option of the command
    query: the text of the whole query file with the change; empty = it is an option
    costs: what is paid for it
    """

    what: str
    before: str
    after: str
    text: str
    query: str = ""
    costs: str = ""


@dataclass(frozen=True, slots=True)
class Candidate:
    """Events that nearly were a match.

    reason: what failed first
    is_whole: nothing else fails
    """

    events: tuple[EventAt, ...]
    reason: Reason
    is_whole: bool
    change: Change | None = None


@dataclass(frozen=True, slots=True)
class Other:
    """Another candidate of a match's latest event. `says`: why the match is the more recent one."""

    events: tuple[EventAt, ...]
    says: str


@dataclass(frozen=True, slots=True)
class Awaited:
    """What a match or an event waits for.

    due: the time that the watermark has to reach; None = several, or not known
    watermark: that of the query and key; None = there is none
    held_by: what holds it back
    latest: when it comes at the latest, by the clock of arrivals; None = not without another record
    setting: what lets time advance
    """

    what: str
    due: str | None
    watermark: str | None
    held_by: str
    latest: str | None
    setting: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """The answer about one event, match or record of one query.

    says: the answer in a sentence
    event: what was asked about: the latest event of a search, or the record
    events: of a match, its members
    conditions: of a match
    others: of a match, the other candidates
    candidates: of what is not a match, the nearest first
    """

    status: Status
    query: str
    instance: str
    key: Mapping[str, Any]
    says: str
    event: EventAt | None = None
    match_id: str | None = None
    events: tuple[EventAt, ...] = ()
    conditions: tuple[Checked, ...] = ()
    others: tuple[Other, ...] = ()
    candidates: tuple[Candidate, ...] = ()
    reason: Reason | None = None
    awaited: Awaited | None = None
    change: Change | None = None
    causes: tuple[Explanation, ...] = ()

    @property
    def title(self) -> str:
        """The public title of the query."""
        return f"{self.query}/{self.instance}" if self.instance else self.query


def plain(value: Any) -> Any:
    """Data of JSON: enumerations as text, tuples as lists."""
    match value:
        case StrEnum():
            return str(value)
        case str():
            return masked(value)
        case Mapping():
            return {str(name): plain(part) for name, part in value.items()}
        case tuple() | list():
            return [plain(part) for part in value]
    return value
