"""Read case files (`*.case.yaml`); every mistake is reported with its line."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import yaml

from ensue.testing.cases import Case, Row
from job_engine.document.yaml_document import Mistakes, Node, read_document, read_given
from querylang.errors import InputError
from querylang.load import is_query_text
from querylang.parameters import NOTHING
from runtime.policies.plan_policies import OrderingError, Orderings, parse_orderings
from runtime.timestamps import parse_time
from runtime.yaml_reader import file_text, value_of

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
