"""Rewrite the expectations of a case file in place, for `--ensue-accept`.

Only `dt`, `out` and `discard` change: comments, order and layout of the rest stay as they are. A
time with results but without a row becomes a row of its own.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import yaml

from ensue.testing.case_check import Line, clock_text
from ensue.testing.cases import Case
from runtime.yaml_reader import read_nodes

EXPECTED = ("dt", "out", "discard")


def accept(case: Case, observed: Sequence[Line]) -> None:
    """Rewrite the rows of one case to the observed lines."""
    text = case.file.read_text("utf-8")
    nodes = _row_nodes(read_nodes(text), case.name)
    changes: list[tuple[int, int, str]] = []
    after = 0
    for line in observed:
        if line.row is None:
            changes.append((after, after, f"\n{_indent(text, nodes[0])}- {{at: {_quoted(line.at)}, {_out(line)}}}"))
            continue
        node = nodes[line.row - 1]
        start, end = node.start_mark.index, len(text[: node.end_mark.index].rstrip())
        changes.append((start, end, _row(text, node, line)))
        after = end
    for start, end, changed in sorted(changes, key=lambda change: change[:2], reverse=True):
        text = text[:start] + changed + text[end:]
    case.file.write_text(text, "utf-8")


def _row_nodes(root: Any, name: str) -> list[yaml.MappingNode]:
    cases = root.value if isinstance(root, yaml.SequenceNode) else [root]
    for case in cases:
        entries = {key.value: value for key, value in case.value}
        if len(cases) == 1 or (entries.get("name") is not None and entries["name"].value == name):
            return list(entries["rows"].value)
    raise AssertionError("the case was read from this file")


def _indent(text: str, node: yaml.MappingNode) -> str:
    """The spaces before the dash of a row."""
    before = text.rfind("\n", 0, node.start_mark.index) + 1
    line = text[before : node.start_mark.index]
    return line[: len(line) - len(line.lstrip())]


def _row(text: str, node: yaml.MappingNode, line: Line) -> str:
    """The row on one line: expectations as observed, the rest as written."""
    written = {key.value: text[value.start_mark.index : value.end_mark.index].strip() for key, value in node.value}
    kept = {key: value for key, value in written.items() if key not in EXPECTED}
    if "dt" in written and line.definitive is not None:
        kept["dt"] = _quoted(line.definitive)
    parts = [f"{key}: {value}" for key, value in kept.items()]
    if line.out:
        parts.append(_out(line))
    if line.discard is not None:
        parts.append(f"discard: {line.discard}")
    return f"{{{', '.join(parts)}}}"


def _out(line: Line) -> str:
    items = [list(item) if isinstance(item, tuple) else item for item in line.out]
    return f"out: {json.dumps(items, ensure_ascii=False)}"


def _quoted(micros: int) -> str:
    return json.dumps(clock_text(micros))
