"""Cases: event rows, settings and what is expected, as data in a `*.case.yaml` file.

Takes a file; gives `Case`s, or raises InputError for a key that a case cannot have. A case names its query (`query: FILE`,
relative to it) or describes one that finds two events of its first input (`inputs`, `within`). What comes out is
compared in `ensue.testing.case_check`.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from querylang.errors import InputError
from querylang.parameters.given_values import NOTHING, Given
from querylang.plan.model import Heartbeat, Input, Plan, plain_field
from runtime.policies.plan_policies import OrderingError, Orderings, parse_orderings

CASE_KEYS = ("name", "provenance", "query", "parameters", "inputs", "within", "leeway", "ordering", "rows")
INPUT_KEYS = ("wait", "out_of_order")
ROW_KEYS = ("at", "id", "in", "event", "heartbeat", "ts", "dt", "dt_provenance", "out", "discard")
PLACE_KEYS = ("source", "partition", "start", "end", "shape")
"""Columns of an event table, where they are no fields. All other keys of a row are fields of its event."""


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a case, as written. `given` are the keys that it has; `fields` the event's own."""

    given: Mapping[str, Any]

    @property
    def event(self) -> str | None:
        """The event's type, or an event written as text; None where only time passes."""
        return self.given.get("event", self.given.get("in"))

    @property
    def fields(self) -> dict[str, Any]:
        """What is no key of a case row, and `id`, which serves both."""
        return {key: value for key, value in self.given.items() if key not in (*ROW_KEYS, *PLACE_KEYS) or key == "id"}

    @property
    def places(self) -> dict[str, Any]:
        """Where it came from, and how long it lasts."""
        return {key: self.given[key] for key in PLACE_KEYS if key in self.given}


@dataclass(frozen=True, slots=True)
class Case:
    """One case of a file. `query`: the file of its query, None where `text` is made from its settings."""

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
        """Rows of the event table that stand before the case's own."""
        return 0 if self.leeway is None else 1

    def table(self, plan: Plan) -> list[dict[str, Any]]:
        """The event table: rows in the case's order, the leeway as a control event before them."""
        rows = [self._table_row(plan, number, row) for number, row in enumerate(self.rows, 1)]
        if self.leeway is None:
            return rows
        text = f"com.apama.queries.SetDelayedEventsLeeway({', '.join(self.leeway)})"
        return [dict.fromkeys(rows[0], None) | {"at": self.rows[0].given["at"], "event": text}, *rows]

    def _table_row(self, plan: Plan, number: int, row: Row) -> dict[str, Any]:
        every = {field.name: None for event in plan.events for field in event.fields}
        base = {"at": row.given["at"], "event": row.event, "ts": row.given.get("ts")}
        name, time_from = row.event, None
        taken = [(item, item.heartbeat) for query in plan.queries for item in query.inputs]
        if "heartbeat" in row.given:
            heartbeat = _heartbeat_of(self, number, row.given["heartbeat"], taken)
            name, time_from = heartbeat.event, heartbeat.time_from
            base["event"] = name
        else:
            time_from = next((item.time_from for item, _ in taken if item.event == name), None)
        known = {event.name: {field.name for field in event.fields} for event in plan.events}.get(name or "")
        fields = row.fields
        if known is None or "id" not in known:
            fields.pop("id", None)
        if name is None or "(" in name or known is not None:  # of a type that nothing defines any field may be told
            _refuse_unknown(fields, known or (), f"{self.file}: {self.name}: row {number}")
        time_field = plain_field(time_from)
        if time_field is not None and "ts" in row.given:
            fields.setdefault(time_field, row.given["ts"])
        both = every | fields | base if "ts" not in (known or ()) else every | base | fields
        return both | row.places


def _heartbeat_of(case: Case, number: int, event: str, taken: Iterable[tuple[Input, Heartbeat | None]]) -> Heartbeat:
    for item, heartbeat in taken:
        if item.event == event and heartbeat is not None:
            return heartbeat
    raise InputError(f"{case.file}: {case.name}: row {number}: no query has an input {event!r} with a heartbeat")


def read_cases(file: Path) -> list[Case]:
    """The cases of a file: a list of them, or one."""
    try:
        document = yaml.safe_load(file.read_text("utf-8"))
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        raise InputError(f"{file}: cannot be read: {' '.join(str(error).split())}") from error
    found = document if isinstance(document, list) else [document]
    return [_case(file, number, item) for number, item in enumerate(found, 1)]


def _case(file: Path, number: int, item: Any) -> Case:
    if not isinstance(item, dict):
        raise InputError(f"{file}: case {number} is not a mapping")
    name = str(item.get("name", file.name.removesuffix(".case.yaml")))
    place = f"{file}: {name}"
    _refuse_unknown(item, CASE_KEYS, place)
    rows = item.get("rows")
    if not isinstance(rows, list) or not rows or not all(isinstance(row, dict) for row in rows):
        raise InputError(f"{place}: `rows` must be a list of rows")
    for index, row in enumerate(rows, 1):
        if "at" not in row:
            raise InputError(f"{place}: row {index} has no `at`")
    has_heartbeats = {row["heartbeat"] for row in rows if "heartbeat" in row}
    query = _query_file(file, place, item)
    text = None if query is not None else _query_text(place, item, has_heartbeats)
    parameters = _parameters(place, item.get("parameters", {}))
    orderings = _orderings(place, item.get("ordering"))
    leeway = _leeway(place, item.get("leeway"))
    return Case(name, file, query, text, leeway, tuple(map(Row, rows)), parameters, orderings)


def _refuse_unknown(given: Iterable[str], known: Iterable[str], place: str) -> None:
    for key in given:
        if key not in known:
            near = difflib.get_close_matches(str(key), list(known), 1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise InputError(f"{place}: unknown key {key!r}{hint}")


def _query_file(file: Path, place: str, item: Mapping[str, Any]) -> Path | None:
    if "query" not in item:
        return None
    for key in ("inputs", "within"):
        if key in item:
            raise InputError(f"{place}: `{key}` belongs into the query file that the case names")
    return file.parent / str(item["query"])


def _query_text(place: str, item: Mapping[str, Any], heartbeats: Iterable[str]) -> str:
    """`find A as a1 -> A as a2` over the case's inputs, without a block: every match is an output."""
    inputs = item.get("inputs")
    if not isinstance(inputs, dict) or not inputs:
        raise InputError(f"{place}: names neither a `query` nor `inputs`")
    beating = set(heartbeats)
    definitions, lines = [], []
    for event, given in inputs.items():
        settings = given or {}
        _refuse_unknown(settings, INPUT_KEYS, f"{place}: input {event}")
        annotation = "@OutOfOrder() " if settings.get("out_of_order") else ""
        definitions.append(f"{annotation}event {event} {{ integer id; }}")
        wait = f" wait {_seconds(place, settings['wait'])}" if "wait" in settings else ""
        beat = f" or {event}Heartbeat" if event in beating else ""
        if beat:
            definitions.append(f"event {event}Heartbeat {{ }}")
        lines.append(f"{event}() within {_seconds(place, item.get('within'))}{wait}{beat};")
    first = next(iter(inputs))
    body = f"inputs {{ {' '.join(lines)} }} find {first} as a1 -> {first} as a2"
    return "\n".join([*definitions, f"query Case {{ {body} }}"])


def _parameters(place: str, given: Any) -> Given:
    if not isinstance(given, dict):
        raise InputError(f"{place}: `parameters` must be a mapping of names to values")
    return Given(given, place)


def _orderings(place: str, given: Any) -> Orderings:
    try:
        return parse_orderings(given)
    except OrderingError as error:
        raise InputError("\n".join(f"{place}: {message}" for _, message in error.found)) from error


def _leeway(place: str, given: Any) -> tuple[str, str] | None:
    if given is None:
        return None
    if not isinstance(given, list) or len(given) != 2:
        raise InputError(f"{place}: `leeway` is [delayLeeway, reorderBuffer] in seconds")
    return _seconds(place, given[0]), _seconds(place, given[1])


def _seconds(place: str, given: Any) -> str:
    if isinstance(given, bool) or not isinstance(given, int | float):
        raise InputError(f"{place}: {given!r} is not a number of seconds")
    return "infinity" if given == float("inf") else repr(float(given))
