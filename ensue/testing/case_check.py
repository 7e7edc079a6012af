"""Compare what a case expects with the results of an executor, line by line.

A line is a row of the case, or a time between rows that has results. Definitive time (if the case
has one), matches or outputs, and discards are compared.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import yaml

from ensue.rendering.replay_table import WIDEST_EVENT, key_text, step_outputs
from ensue.rendering.text_table import shortened, text_table
from ensue.testing.cases import Case, Row
from querylang.dataclass import dataclass, field, replace
from querylang.plan.model import Plan
from querylang.plan.routing import DONE, ROUTE_SOURCE
from runtime.replay import FileRecords, Records, Step
from runtime.results.for_users import Plain, PlainMatches, RowOf, plain_outputs, row_number
from runtime.results.schemas import Results, in_order, matches_in_order
from runtime.timestamps import format_time, parse_time
from runtime.yaml_reader import read_nodes

SHARED, COMPARED = ("at", "row", "event", "key"), ("definitive", "out", "discard")
"""Columns of a failure: what both sides have, and what is compared."""


@dataclass(frozen=True, slots=True)
class Line:
    """A row of a case, or a time between rows that has results.

    at: arrival time, µs
    row: number of the row in the case, from 1; None = between rows
    definitive: definitive time after it, µs; None = not known or not expected
    out: matches as the identities of their members or selected values, or outputs as text
    discard: why the row's record was discarded; None = it was not
    event, key: of the row's record, as text; for people, not compared
    texts: the outputs, and the matches of queries without a block; for people, not compared
    """

    at: int
    row: int | None
    definitive: int | None
    out: tuple[Any, ...] = ()
    discard: str | None = None
    event: str = field(default="", compare=False)
    key: str = field(default="", compare=False)
    texts: tuple[str, ...] = field(default=(), compare=False)

    def compared(self) -> list[str]:
        """The cells of COMPARED."""
        definitive = "" if self.definitive is None else clock_text(self.definitive)
        return [definitive, ", ".join(map(text_of_result, self.out)), self.discard or ""]


def expected_lines(case: Case) -> list[Line]:
    """The lines that the case expects."""
    return [
        Line(
            at=_time(row.given["at"]),
            row=number,
            definitive=None if row.given.get("dt") is None else _time(row.given["dt"]),
            out=tuple(_frozen(item) for item in row.given.get("out") or ()),
            discard=row.given.get("discard"),
            event=_event_as_written(row),
        )
        for number, row in enumerate(case.rows, 1)
    ]


def _event_as_written(row: Row) -> str:
    """The row's event, for executors that do not give steps: `A(id: 1, x: 2.5)`."""
    fields = ", ".join(f"{name}: {value}" for name, value in row.fields.items())
    name = row.event or row.given.get("heartbeat") or ""
    return name if "(" in name or not fields else f"{name}({fields})"


def observed_by_step(case: Case, plan: Plan, steps: Sequence[Step]) -> list[Line]:
    """The lines of a replay: each row with the results of timers at the same time before it."""
    lines: list[Line] = []
    pending: list[Any] = []  # results of timers, not in a line yet
    texts: list[str] = []
    time: int | None = None
    key, is_of_row = "", False  # whether the step before, of nothing routed, was that of a row
    for full in steps:
        step = replace(full, outputs=[output for output in full.outputs if output["kind"] not in DONE])
        if pending and time is not None and time != step.at:
            lines.append(Line(time, None, None, tuple(pending), key=key, texts=tuple(texts)))
            pending, texts = [], []
        if step.source is not None and lines and not pending and lines[-1].at == step.at and is_of_row:
            lines[-1] = _with_routed(case, plan, lines[-1], step)  # the row before has caused it
            continue
        time, key = step.at, key_text(step.key or {}, is_named=False)
        pending += _outs(case, plan, step.matches, step)
        texts += step_outputs(plan, replace(step, discarded=None))
        number = None if step.row is None else step.row - case.rows_before
        if number is not None and number > 0:
            found = Line(step.at, number, step.definitive, tuple(pending), step.discarded)
            lines.append(replace(found, event=step.text or "", key=key, texts=tuple(texts)))
            pending, texts = [], []
        is_of_row = number is not None
    if pending and time is not None:
        lines.append(Line(time, None, None, tuple(pending), key=key, texts=tuple(texts)))
    return lines


def _with_routed(case: Case, plan: Plan, line: Line, step: Step) -> Line:
    """The line of a row with what an event has brought that a query has routed because of it."""
    own = replace(step, discarded=None)
    out = (*line.out, *_outs(case, plan, step.matches, own))
    return replace(line, out=out, texts=(*line.texts, *step_outputs(plan, own)))


def at_times(lines: Sequence[Line]) -> list[Line]:
    """The same lines, with all results of a time at its first row.

    Results without steps do not say more.
    """
    outs: dict[int, list[Any]] = {}
    for line in lines:
        outs.setdefault(line.at, []).extend(line.out)
    return [replace(line, out=tuple(outs.pop(line.at, ()))) for line in lines]


def observed_by_time(case: Case, plan: Plan, records: Records | FileRecords, results: Results) -> list[Line]:
    """The lines of an executor that gives results without steps, as `at_times`.

    Definitive time is known if a match has it and the time has one row; else the case's is taken.
    """
    results = in_order(plan, results)
    outs: dict[int, list[Any]] = {}
    definitive: dict[int, int] = {}
    for at, match, found in results_by_match(case, plan, records, results):
        outs.setdefault(at, []).extend(found)
        definitive[at] = parse_time(match["definitive"])
    discards = _discards(case, results, records.row_of())
    expected = expected_lines(case)
    rows_at = Counter(line.at for line in expected)
    lines = []
    for line in expected:
        assert line.row is not None, "a case expects rows only"
        observed = definitive.get(line.at) if rows_at[line.at] == 1 else None
        known = line.definitive if observed is None else observed
        lines.append(Line(line.at, line.row, known, tuple(outs.pop(line.at, ())), discards.get(line.row)))
    lines += [Line(at, None, None, tuple(out)) for at, out in outs.items()]
    return sorted(lines, key=lambda line: (line.at, line.row or 0))


def results_by_match(
    case: Case, plan: Plan, records: Records | FileRecords, results: Results
) -> Iterator[tuple[int, Plain, list[Any]]]:
    """The matches in order: when each came, µs, and what the lines have of it."""
    for match, outputs in _matches_with_outputs(plan, results, records.row_of()):
        at = parse_time(match["emitted"])
        yield at, match, _outs(case, plan, [match], Step(at=at, matches=[match], outputs=outputs))


def _matches_with_outputs(plan: Plan, results: Results, row_of: RowOf) -> list[tuple[Plain, list[Plain]]]:
    plain = PlainMatches(row_of).of(results)
    outputs: dict[str, list[Plain]] = {}
    for output in plain_outputs(results.outputs):
        outputs.setdefault(output["match_id"], []).append(output)
    ordered = [plain[name][place] for name, place in matches_in_order(plan, results)]
    return [(match, outputs.get(match["match_id"], [])) for match in ordered]


def _discards(case: Case, results: Results, row_of: RowOf) -> dict[int, str]:
    if results.discarded is None:
        return {}
    columns = [results.discarded.column(name).to_pylist() for name in ("source", "partition", "offset", "reason")]
    rows = ((row_number(row_of, *place), reason) for *place, reason in zip(*columns, strict=True))
    return {row - case.rows_before: reason for row, reason in rows if row is not None}


def _outs(case: Case, plan: Plan, matches: Sequence[Plain], step: Step) -> list[Any]:
    """Outputs and matches as text.

    If the case expects lists: matches as the identities of their members or as selected values. An
    event that is selected counts as a member.
    """
    if not any(isinstance(item, list) for row in case.rows for item in row.given.get("out") or ()):
        return step_outputs(plan, replace(step, discarded=None))
    return [_found(case, plan, match) for match in matches]


def _found(case: Case, plan: Plan, match: Plain) -> tuple[Any, ...]:
    if "selected" in match:
        events, selected = plan.query(match["query"]).selected_events, match["selected"]
        return tuple(_identity(case, value) if name in events else value for name, value in selected.items())
    return tuple(_identity(case, member) for member in match["members"].values())


def _identity(case: Case, member: Mapping[str, Any] | list[Any] | None) -> Any:
    """The number of an event's row, or its `id`; of a run a list of them; what has routed it."""
    if member is None:
        return None
    if isinstance(member, list):
        return [_identity(case, event) for event in member]
    if member["row"] is None:
        return f"{ROUTE_SOURCE}{member['route']['query']}"
    number = member["row"] - case.rows_before
    return case.rows[number - 1].given.get("id", number)


def first_difference(expected: Sequence[Line], observed: Sequence[Line]) -> int | None:
    """Index of the first line that differs; None = all are equal."""
    for place, (line, found) in enumerate(zip(expected, observed, strict=False)):
        if line != (replace(found, definitive=None) if line.definitive is None else found):
            return place
    return None if len(expected) == len(observed) else min(len(expected), len(observed))


def side_by_side(expected: Sequence[Line], observed: Sequence[Line], difference: int) -> str:
    """Each row with its event and key, what was expected and what was observed of it.

    The first difference is marked with `>`.
    """
    blank = [""] * len(COMPARED)
    has_texts = any(line.texts and line.texts != line.out for line in observed)
    rows = []
    for place, (wanted, got) in enumerate(_paired(expected, observed)):
        mark = ">" if place == difference else ""
        left, right = blank if wanted is None else wanted.compared(), blank if got is None else got.compared()
        texts = [", ".join(got.texts) if got is not None else ""] if has_texts else []
        rows.append([mark, *_shared(wanted, got), "|", mark, *left, "|", mark, *right, *texts])
    texts = ["text"] if has_texts else []
    first, *others = COMPARED
    wanted_names, found_names = (f"expected {first}", *others), (f"observed {first}", *others)
    return text_table(["", *SHARED, "|", "", *wanted_names, "|", "", *found_names, *texts], rows)


def _paired(expected: Sequence[Line], observed: Sequence[Line]) -> Iterator[tuple[Line | None, Line | None]]:
    """The lines of the same row side by side; those between rows stand alone."""
    left = list(expected)
    for found in observed:
        yield (left.pop(0) if left and left[0].row == found.row else None), found
    for wanted in left:
        yield wanted, None


def _shared(wanted: Line | None, found: Line | None) -> list[str]:
    """The cells of SHARED."""
    line = found or wanted
    assert line is not None, "a pair has a line"
    event = line.event or (wanted.event if wanted is not None else "")
    return [clock_text(line.at), "" if line.row is None else str(line.row), shortened(event, WIDEST_EVENT), line.key]


def _time(given: Any) -> int:
    return parse_time(str(given))


def clock_text(micros: int) -> str:
    """A time without the date 1970-01-01, without zone and zero microseconds."""
    text = format_time(micros).removesuffix("Z").removesuffix(".000000")
    return text.removeprefix("1970-01-01T")


def _frozen(item: Any) -> Any:
    return tuple(item) if isinstance(item, list) else item


def text_of_result(item: Any) -> str:
    """A match or output of a line, as tables show it."""
    return f"({','.join(map(str, item))})" if isinstance(item, tuple) else str(item)


# Rewrite the expectations of a case file in place, for `--ensue-accept`.
#
# Only `dt`, `out` and `discard` change: comments, order and layout of the rest stay as they are. A
# time with results but without a row becomes a row of its own.

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
