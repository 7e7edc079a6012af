"""Compare what a case expects with the results of an executor, line by line.

A line is a row of the case, or a time between rows that has results. Definitive time (if the case
has one), matches or outputs, and discards are compared.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ensue.rendering.step_text import step_outputs
from ensue.rendering.text_table import text_table
from ensue.testing.cases import Case
from querylang.plan.model import Plan
from runtime.columns.timestamps import format_time, parse_time
from runtime.replay.replay import Records, in_order, matches_in_order
from runtime.replay.steps import Step, row_numbers
from runtime.results.json_objects import Plain, RowOf, plain_matches, plain_outputs
from runtime.results.schemas import Results

HEADER = ("", "at", "row", "definitive", "out", "discard")


@dataclass(frozen=True, slots=True)
class Line:
    """A row of a case, or a time between rows that has results.

    at: arrival time, µs
    row: number of the row in the case, from 1; None = between rows
    definitive: definitive time after it, µs; None = not known or not expected
    out: matches as the identities of their members or selected values, or outputs as text
    discard: why the row's record was discarded; None = it was not
    """

    at: int
    row: int | None
    definitive: int | None
    out: tuple[Any, ...] = ()
    discard: str | None = None

    def cells(self) -> list[str]:
        """As printed."""
        definitive = "" if self.definitive is None else clock_text(self.definitive)
        out = " ".join(map(_text, self.out))
        return [clock_text(self.at), "" if self.row is None else str(self.row), definitive, out, self.discard or ""]


def expected_lines(case: Case) -> list[Line]:
    """The lines that the case expects."""
    return [
        Line(
            at=_time(row.given["at"]),
            row=number,
            definitive=None if row.given.get("dt") is None else _time(row.given["dt"]),
            out=tuple(_frozen(item) for item in row.given.get("out") or ()),
            discard=row.given.get("discard"),
        )
        for number, row in enumerate(case.rows, 1)
    ]


def observed_by_step(case: Case, plan: Plan, steps: Sequence[Step]) -> list[Line]:
    """The lines of a replay: each row with the results of timers at the same time before it."""
    lines: list[Line] = []
    pending: list[Any] = []  # results of timers, not in a line yet
    time: int | None = None
    for step in steps:
        if pending and time is not None and time != step.at:
            lines.append(Line(time, None, None, tuple(pending)))
            pending = []
        time = step.at
        pending += _outs(case, plan, step.matches, step)
        number = None if step.row is None else step.row - case.rows_before
        if number is not None and number > 0:
            lines.append(Line(step.at, number, step.definitive, tuple(pending), step.discarded))
            pending = []
    if pending and time is not None:
        lines.append(Line(time, None, None, tuple(pending)))
    return lines


def at_times(lines: Sequence[Line]) -> list[Line]:
    """The same lines, with all results of a time at its first row.

    Results without steps do not say more.
    """
    outs: dict[int, list[Any]] = {}
    for line in lines:
        outs.setdefault(line.at, []).extend(line.out)
    return [replace(line, out=tuple(outs.pop(line.at, ()))) for line in lines]


def observed_by_time(case: Case, plan: Plan, records: Records, results: Results) -> list[Line]:
    """The lines of an executor that gives results without steps, as `at_times`.

    Definitive time is known if a match has it and the time has one row; else the case's is taken.
    """
    results = in_order(plan, results)
    row_of = row_numbers(records)
    outs: dict[int, list[Any]] = {}
    definitive: dict[int, int] = {}
    for match, outputs in _matches_with_outputs(plan, results, row_of):
        at = parse_time(match["emitted"])
        step = Step(at=at, matches=[match], outputs=outputs)
        outs.setdefault(at, []).extend(_outs(case, plan, [match], step))
        definitive[at] = parse_time(match["definitive"])
    discards = _discards(case, results, row_of)
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


def _matches_with_outputs(plan: Plan, results: Results, row_of: RowOf) -> list[tuple[Plain, list[Plain]]]:
    plain = {name: plain_matches(table, row_of) for name, table in results.matches.items()}
    outputs: dict[str, list[Plain]] = {}
    for output in plain_outputs(results.outputs):
        outputs.setdefault(output["match_id"], []).append(output)
    ordered = [plain[name][place] for name, place in matches_in_order(plan, results)]
    return [(match, outputs.get(match["match_id"], [])) for match in ordered]


def _discards(case: Case, results: Results, row_of: RowOf) -> dict[int, str]:
    if results.discarded is None:
        return {}
    columns = [results.discarded.column(name).to_pylist() for name in ("source", "partition", "offset", "reason")]
    return {row_of(*place) - case.rows_before: reason for *place, reason in zip(*columns, strict=True)}


def _outs(case: Case, plan: Plan, matches: Sequence[Plain], step: Step) -> list[Any]:
    """Matches as identities of their members or as selected values.

    If the case expects text somewhere: outputs instead.
    """
    if any(isinstance(item, str) for row in case.rows for item in row.given.get("out") or ()):
        return step_outputs(plan, replace(step, discarded=None))
    return [_found(case, match) for match in matches]


def _found(case: Case, match: Plain) -> tuple[Any, ...]:
    if "selected" in match:
        return tuple(match["selected"].values())
    return tuple(_identity(case, member) for member in match["members"].values())


def _identity(case: Case, member: Mapping[str, Any] | None) -> Any:
    if member is None:
        return None
    number = member["row"] - case.rows_before
    return case.rows[number - 1].given.get("id", number)


def first_difference(expected: Sequence[Line], observed: Sequence[Line]) -> int | None:
    """Index of the first line that differs; None = all are equal."""
    for place, (line, found) in enumerate(zip(expected, observed, strict=False)):
        if line != (replace(found, definitive=None) if line.definitive is None else found):
            return place
    return None if len(expected) == len(observed) else min(len(expected), len(observed))


def side_by_side(expected: Sequence[Line], observed: Sequence[Line], difference: int) -> str:
    """The two tables, the first difference marked with `>`."""
    blank = [""] * (len(HEADER) - 1)
    rows = []
    for place in range(max(len(expected), len(observed))):
        mark = ">" if place == difference else ""
        left = expected[place].cells() if place < len(expected) else blank
        right = observed[place].cells() if place < len(observed) else blank
        rows.append([mark, *left, "|", mark, *right])
    header = ["", *(f"expected {HEADER[1]}", *HEADER[2:]), "|", "", *(f"observed {HEADER[1]}", *HEADER[2:])]
    return text_table(header, rows)


def _time(given: Any) -> int:
    return parse_time(str(given))


def clock_text(micros: int) -> str:
    """A time without the date 1970-01-01, without zone and zero microseconds."""
    text = format_time(micros).removesuffix("Z").removesuffix(".000000")
    return text.removeprefix("1970-01-01T")


def _frozen(item: Any) -> Any:
    return tuple(item) if isinstance(item, list) else item


def _text(item: Any) -> str:
    return f"({','.join(map(str, item))})" if isinstance(item, tuple) else str(item)
