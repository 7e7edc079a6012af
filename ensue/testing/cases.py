"""Cases: rows of events, settings, and what is expected of each row.

A case names its query's file, or describes a query that finds two events of its first input.
`ensue.testing.case_file` reads cases; `ensue.testing.case_check` compares them with results.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from querylang.errors import FileErrors, did_you_mean
from querylang.parameters import NOTHING, Given
from querylang.plan.model import Input, Plan, plain_field
from runtime.policies.plan_policies import Orderings

ROW_KEYS = ("at", "id", "in", "event", "heartbeat", "ts", "dt", "dt_provenance", "out", "discard")
EVENT_KEYS = ("event", "in", "heartbeat")
"""Those of them that say what a row is."""
PLACE_KEYS = ("source", "partition", "start", "end", "shape")
"""Columns of an event table that are not fields. All other keys of a row are fields."""

Found = list[tuple[int | None, str]]
"""Mistakes: line and message."""


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a case, as written.

    given: its keys and values
    line: its line in the file, from 1; None = not from a file
    lines: the line of each key
    """

    given: Mapping[str, Any]
    line: int | None = None
    lines: Mapping[str, int] = field(default_factory=dict)

    @property
    def event(self) -> str | None:
        """The event's type, or an event written as text; None = a tick or a heartbeat."""
        return self.given.get("event", self.given.get("in"))

    @property
    def fields(self) -> dict[str, Any]:
        """The fields of the event: all other keys, and `id`, which is both."""
        return {key: value for key, value in self.given.items() if key not in (*ROW_KEYS, *PLACE_KEYS) or key == "id"}

    @property
    def places(self) -> dict[str, Any]:
        """The record's source, and the event's interval."""
        return {key: self.given[key] for key in PLACE_KEYS if key in self.given}


@dataclass(frozen=True, slots=True)
class Case:
    """One case of a file.

    query: the file of its query; None = `text` is the query
    leeway: delay leeway and reorder buffer, seconds as text; None = the defaults
    """

    name: str
    file: Path
    query: Path | None
    text: str | None
    leeway: tuple[str, str] | None
    rows: tuple[Row, ...]
    parameters: Given = NOTHING
    orderings: Orderings = field(default_factory=dict)

    @property
    def rows_before(self) -> int:
        """Rows of the event table before the case's own."""
        return 0 if self.leeway is None else 1

    def with_events(self, inputs: Sequence[str]) -> Case:
        """Its rows with fields as events of the only input, if no row says what it is.

        As in a table without a column `event`.

        inputs: the event types that the query takes
        """
        if len(inputs) != 1 or any(key in row.given for row in self.rows for key in EVENT_KEYS):
            return self
        named = (replace(row, given={**row.given, "event": inputs[0]}) if row.fields else row for row in self.rows)
        return replace(self, rows=tuple(named))

    def table(self, plan: Plan) -> list[dict[str, Any]]:
        """The event table: the leeway as a control event, then the rows of the case.

        Raises FileErrors with all keys that are not fields, and all unknown heartbeats.
        """
        fields = {event.name: [field.name for field in event.fields] for event in plan.events}
        inputs = [item for query in plan.queries for item in query.inputs]
        found: Found = []
        rows = [_table_row(fields, inputs, number, row, found) for number, row in enumerate(self.rows, 1)]
        if found:
            raise FileErrors(str(self.file), found)
        if self.leeway is None:
            return rows
        text = f"com.apama.queries.SetDelayedEventsLeeway({', '.join(self.leeway)})"
        return [dict.fromkeys(rows[0], None) | {"at": self.rows[0].given["at"], "event": text}, *rows]


def _table_row(
    fields_of: Mapping[str, Collection[str]], inputs: Collection[Input], number: int, row: Row, found: Found
) -> dict[str, Any]:
    """The row of the event table, with a column per field of any type; adds mistakes to `found`."""
    name = row.event
    time_from = next((item.time_from for item in inputs if item.event == name), None)
    if "heartbeat" in row.given:
        heartbeats = (item.heartbeat for item in inputs if item.event == row.given["heartbeat"])
        heartbeat = next((item for item in heartbeats if item is not None), None)
        if heartbeat is None:
            message = f"row {number}: no query has an input {row.given['heartbeat']!r} with a heartbeat"
            found.append((row.lines.get("heartbeat", row.line), message))
            return {}
        name, time_from = heartbeat.event, heartbeat.time_from
    known = fields_of.get(name or "")
    fields = row.fields
    if known is None or "id" not in known:
        fields.pop("id", None)
    if name is None or "(" in name or known is not None:  # a type that nothing defines may have any field
        found += _unknown_fields(row, number, name, fields, known or ())
    time_field = plain_field(time_from)
    if time_field is not None and "ts" in row.given:
        fields.setdefault(time_field, row.given["ts"])
    empty = dict.fromkeys((field for names in fields_of.values() for field in names), None)
    base = {"at": row.given["at"], "event": name, "ts": row.given.get("ts")}
    cells = empty | base | fields if "ts" in (known or ()) else empty | fields | base
    return cells | row.places


def _unknown_fields(
    row: Row, number: int, name: str | None, fields: Collection[str], known: Collection[str]
) -> Iterator[tuple[int | None, str]]:
    owner = "of a row without an event" if name is None else f"of a row with {name!r}"
    for key in fields:
        if key not in known:
            hint = did_you_mean(key, [*known, *ROW_KEYS, *PLACE_KEYS])
            yield row.lines.get(key, row.line), f"row {number}: {key!r} is not a key {owner}{hint}"
