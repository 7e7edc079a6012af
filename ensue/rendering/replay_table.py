"""A replay as a table: times, event and output of each step."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ensue.rendering.step_text import step_outputs
from ensue.rendering.text_table import fitted, shortened, text_table
from ensue.rendering.time_format import TimeFormat
from querylang.plan.model import Plan
from querylang.printable import one_line
from runtime.interpreter.values import Location, text_of
from runtime.policies.per_input import adjusts
from runtime.replay.order import matches_in_order
from runtime.replay.stepping import Step
from runtime.results.for_users import Plain
from runtime.results.schemas import Results

WIDEST_EVENT = 100
WIDEST_KEY = 40
LESS_WANTED = ("source time", "adjusted time", "definitive time")
"""The columns that are left out, in this order, where a terminal is too narrow."""
"""Longer cells are cut, so that the columns to their right stay in view."""


def steps_table(plan: Plan, steps: Sequence[Step], width: int | None = None) -> str:
    """One line per step, and one more per further output.

    width: columns of the terminal that the table has to fit into; None = as wide as it is

    If all times are of one day, the day is written above the table. 1970-01-01, the day of times
    without a date, is not written.
    """
    shown = _without_redundant(steps)
    times = [time for step in shown for time in (step.at, step.source_time, step.end, step.time) if time is not None]
    format_ = TimeFormat.of(times, [step.definitive for step in shown if step.definitive is not None])
    columns = _columns(plan, format_)
    rows: list[Sequence[str]] = []
    for step in shown:
        first, *further = _output_cells(plan, step, format_) or [""]
        rows.append([*(cell(step) for cell in columns.values()), first])
        rows += [[*("" for _ in columns), text] for text in further]
    table = text_table(*fitted([*columns, "output"], rows, width, LESS_WANTED))
    return table if format_.day in {None, "1970-01-01"} else f"{format_.day} (UTC)\n\n{table}"


def match_steps(plan: Plan, results: Results, matches: Sequence[Plain], outputs: Sequence[Plain]) -> list[Step]:
    """One step per match, for a table of the matches alone.

    matches, outputs: those of `results` as JSON objects, in order
    """
    outputs_of: dict[str, list[Plain]] = {}
    for output in outputs:
        outputs_of.setdefault(output["match_id"], []).append(output)
    times = {name: _times(table) for name, table in results.matches.items()}
    steps = []
    for match, (name, row) in zip(matches, matches_in_order(plan, results), strict=True):
        at, definitive = times[name][row]
        own = outputs_of.get(match["match_id"], [])
        steps.append(Step(at=at, definitive=definitive, matches=[match], outputs=own, key=match["key"]))
    return steps


def _times(matches: pa.Table) -> list[tuple[int, int]]:
    """Of each match when it was emitted, and definitive time then (µs)."""
    columns = (pc.cast(matches[name], pa.int64()).to_pylist() for name in ("emitted", "definitive"))
    return list(zip(*columns, strict=True))


def _columns(plan: Plan, format_: TimeFormat) -> dict[str, Callable[[Step], str]]:
    """The columns before the output.

    Keys are shown if a query has some, adjusted times if a policy adjusts times.
    """
    keys = {query.key_names for query in plan.queries if query.keys}
    is_named = len(keys) > 1 or any(len(names) > 1 for names in keys)
    columns: dict[str, Callable[[Step], str]] = {
        "correlator time": lambda step: format_.text(step.at),
        "event": lambda step: "" if _is_malformed(step) else shortened(one_line(step.text or ""), WIDEST_EVENT),
        "key": lambda step: shortened(one_line(key_text(step.key or {}, is_named=is_named)), WIDEST_KEY),
        "source time": lambda step: format_.text(step.source_time) + _end_text(step, format_),
        "adjusted time": lambda step: format_.text(step.time),
        "definitive time": lambda step: format_.bound(step.definitive),
    }
    is_shown = {"key": bool(keys), "adjusted time": any(map(adjusts, plan.queries))}
    return {name: cell for name, cell in columns.items() if is_shown.get(name, True)}


def _end_text(step: Step, format_: TimeFormat) -> str:
    """The end of an interval event, after its start: `10:00:05 .. 10:00:20`."""
    return "" if step.end is None else f" .. {format_.text(step.end)}"


def _without_redundant(steps: Sequence[Step]) -> list[Step]:
    """Leave out empty steps beside another step of the same time.

    They are a tick after its timer, and a timer before its row.
    """

    def is_empty(step: Step) -> bool:
        return step.text is None and not (step.matches or step.outputs or step.discarded)

    kept: list[Step] = []
    for place, step in enumerate(steps):
        before = bool(kept) and kept[-1].at == step.at
        after = place + 1 < len(steps) and steps[place + 1].at == step.at
        if not (is_empty(step) and (before or (after and step.row is None))):
            kept.append(step)
    return kept


def _output_cells(plan: Plan, step: Step, format_: TimeFormat) -> list[str]:
    """The output column: the record's discard or adjustment, and the results of the step."""
    if _is_malformed(step):
        return [f"discarded: malformed, {step.text or ''}"]
    texts = step_outputs(plan, step, is_named=len({query.name for query in plan.queries}) > 1)
    if step.adjusted is not None:
        texts.insert(0, f"adjusted: {step.adjusted}, {format_.text(step.source_time)} -> {format_.text(step.time)}")
    return texts


def _is_malformed(step: Step) -> bool:
    """Whether the row could not be read: then the text of the step is the reason, not an event."""
    return step.discarded == "malformed"


def key_text(key: Mapping[str, Any], *, is_named: bool) -> str:
    """The values as `toString()` prints them: `7`; of several `card=7, up=true`."""
    texts = {name: text_of(_location(value) if isinstance(value, dict) else value) for name, value in key.items()}
    return ", ".join(f"{name}={text}" if is_named else text for name, text in texts.items())


def _location(members: Mapping[str, Any]) -> Location:
    return Location(*map(float, members.values()))
