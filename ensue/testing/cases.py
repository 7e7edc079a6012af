"""Cases: rows of events, settings, and what is expected of each row.

A case names its query's file, or describes a query that finds two events of its first input.
`ensue.testing.cases` reads cases; `ensue.testing.case_check` compares them with results.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from job_engine.yaml_document import Mistakes, Node, read_document, read_given
from querylang.dataclass import dataclass, field, replace
from querylang.errors import FileErrors, InputError, did_you_mean
from querylang.load import is_query_text
from querylang.parameters import NOTHING, Given
from querylang.plan.model import Input, Plan, plain_field
from runtime.policies.plan_policies import OrderingError, Orderings, parse_orderings
from runtime.timestamps import parse_time
from runtime.yaml_reader import file_text, value_of

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


# Read case files (`*.case.yaml`); every mistake is reported with its line.

CASE_KEYS = ("name", "provenance", "query", "parameters", "inputs", "within", "leeway", "ordering", "rows")
INPUT_KEYS = ("wait", "out_of_order")


def read_cases(file: Path) -> list[Case]:
    """The cases of a file: a list of them, or one. Raises FileErrors with all mistakes."""
    mistakes = Mistakes(str(file), os.environ)
    document = read_document(file_text(file), mistakes, "cases", "a case begins with `name:`")
    items = document.raw.value if isinstance(document.raw, yaml.SequenceNode) else [document.raw]
    cases = [_case(file, Node(item, f"case {number}", mistakes)) for number, item in enumerate(items, 1)]
    mistakes.raise_if_any()
    return cases


def _case(file: Path, node: Node) -> Case:
    found = node.mapping(CASE_KEYS)
    if "rows" not in found and isinstance(node.raw, yaml.MappingNode):
        node.wrong(f"'{node.name}' has no 'rows'")
    rows = _rows(found["rows"]) if "rows" in found else ()
    heartbeats = {str(row.given["heartbeat"]) for row in rows if "heartbeat" in row.given}
    query = _given_query(file, found)
    return Case(
        name=found["name"].text() if "name" in found else file.name.removesuffix(".case.yaml"),
        file=file,
        query=query if isinstance(query, Path) else None,
        text=_query_text(node, found, heartbeats) if query is None and found else _as_text(query),
        leeway=_leeway(found["leeway"]) if "leeway" in found else None,
        rows=rows,
        parameters=read_given(found["parameters"]) if "parameters" in found else NOTHING,
        orderings=_orderings(found["ordering"]) if "ordering" in found else {},
    )


def _rows(node: Node) -> tuple[Row, ...]:
    if not isinstance(node.raw, yaml.SequenceNode):
        node.expected("a list of rows")
        return ()
    if not node.raw.value:
        node.wrong(f"'{node.name}' is empty")
    return tuple(_row(Node(item, f"row {number}", node.mistakes)) for number, item in enumerate(node.raw.value, 1))


def _row(node: Node) -> Row:
    entries = node.mapping()
    if isinstance(node.raw, yaml.MappingNode) and ("at" not in entries or entries["at"].is_empty()):
        node.wrong(f"'{node.name}' has no 'at'")
    given = {key: _value(entry) for key, entry in entries.items()}
    for key in ("at", "dt"):
        if given.get(key) is not None:
            _check_time(entries[key], given[key])
    for key in ("event", "in", "heartbeat"):
        if not isinstance(given.get(key) or "", str):
            entries[key].expected("an event type, or an event as text")
    if not isinstance(given.get("out") or [], list):
        entries["out"].expected("a list")
    return Row(given, node.line, {key: entry.line for key, entry in entries.items()})


def _check_time(node: Node, value: Any) -> None:
    try:
        parse_time(str(value))
    except InputError as error:
        node.wrong(f"'{node.name}': {error}")


def _value(node: Node) -> Any:
    """The value with its YAML types, at any depth."""
    return value_of(node.raw, lambda line, message: node.mistakes.add(line, f"'{node.name}': {message}"))


def _given_query(file: Path, found: Mapping[str, Node]) -> Path | str | None:
    """The query file that the case names, or the text that it has; None = neither."""
    if "query" not in found:
        return None
    for key in ("inputs", "within"):
        if key in found:
            found[key].wrong(f"'{key}' belongs in the query that the case has or names")
    given = found["query"].text()
    return given if is_query_text(given) else file.parent / given


def _as_text(query: Path | str | None) -> str | None:
    return query if isinstance(query, str) else None


def _query_text(node: Node, found: Mapping[str, Node], heartbeats: Collection[str]) -> str:
    """`find A as a1 -> A as a2` over the case's inputs, without a block: every match is an output.

    heartbeats: the inputs that have a heartbeat in some row
    """
    if "inputs" not in found:
        node.wrong(f"'{node.name}' has neither 'query' nor 'inputs'")
        return ""
    inputs = found["inputs"].mapping()
    if not inputs and isinstance(found["inputs"].raw, yaml.MappingNode):
        found["inputs"].wrong("'inputs' is empty")
    if "within" not in found:
        node.wrong(f"'{node.name}' has no 'within'")
    within = _seconds(found["within"]) if "within" in found else ""
    definitions, lines = [], []
    for event, item in inputs.items():
        settings = {} if item.is_empty() else item.mapping(INPUT_KEYS)
        annotation = "@OutOfOrder() " if "out_of_order" in settings and _value(settings["out_of_order"]) else ""
        definitions.append(f"{annotation}event {event} {{ integer id; }}")
        wait = f" wait {_seconds(settings['wait'])}" if "wait" in settings else ""
        heartbeat = ""
        if event in heartbeats:
            heartbeat = f" or {event}Heartbeat"
            definitions.append(f"event {event}Heartbeat {{ }}")
        lines.append(f"{event}() within {within}{wait}{heartbeat};")
    first = next(iter(inputs), "")
    body = f"inputs {{ {' '.join(lines)} }} find {first} as a1 -> {first} as a2"
    return "\n".join([*definitions, f"query Case {{ {body} }}"])


def _orderings(node: Node) -> Orderings:
    entries = node.mapping() if isinstance(node.raw, yaml.MappingNode) else {}
    try:
        return parse_orderings(_value(node))
    except OrderingError as error:
        for name, message in error.found:
            entries.get(name or "", node).wrong(message)
        return {}


def _leeway(node: Node) -> tuple[str, str] | None:
    if node.is_empty():
        return None
    items = node.items() if isinstance(node.raw, yaml.SequenceNode) else []
    if len(items) != 2:
        node.wrong(f"'{node.name}' must be two numbers of seconds: [delayLeeway, reorderBuffer]")
        return None
    return _seconds(items[0]), _seconds(items[1])


def _seconds(node: Node) -> str:
    """A number of seconds as text of the language."""
    value = _value(node)
    if isinstance(value, bool) or not isinstance(value, int | float):
        node.expected("a number of seconds")
        return ""
    return "infinity" if value == float("inf") else repr(float(value))
