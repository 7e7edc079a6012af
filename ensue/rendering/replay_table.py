"""A replay as a table: times, event and output of each step."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ensue.rendering.text_table import TimeFormat, fitted, shortened, text_table
from querylang.errors import counted, listed
from querylang.plan.expression import Type, type_of
from querylang.plan.model import Plan
from querylang.printable import one_line
from runtime.input_policies import adjusts
from runtime.interpreter import Location, PlanWorld, text_of
from runtime.reading import Cells, parse_cell
from runtime.replay import Step
from runtime.results.for_users import Plain
from runtime.results.schemas import Results, matches_in_order

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


# The results of a replay's steps as text: matches, outputs, reasons of discards.


def step_outputs(plan: Plan, step: Step, *, is_named: bool = False) -> list[str]:
    """The results of a step, one text each.

    They are the reason of a discard, outputs, and matches of queries without a block.

    is_named: matches begin with the name of their query
    """
    texts = [] if step.discarded is None else [f"discarded: {step.discarded}"]
    texts += [_output_text(output) for output in step.outputs]
    without_block = {query.name for query in plan.queries if not query.block}
    matches = [match for match in step.matches if match["query"] in without_block]
    return texts + [f"{match['query']}: " * is_named + match_text(plan, match) for match in matches]


def match_text(plan: Plan, match: Plain) -> str:
    """`a1=A(1), a2=A(3)`, without unset names; what it selects instead, if it does: `mean=4.0`."""
    if "selected" in match:
        named = (query for query in plan.queries if query.name == match["query"])
        query = next(own for own in named if {item.name for item in own.selected} == match["selected"].keys())
        events = query.selected_events
        types = {select.name: type_of(select.value) for select in query.selected}
        texts = {
            name: _member(value, plan) if value is not None and name in events else _text(value, types[name], plan)
            for name, value in match["selected"].items()
        }
        return ", ".join(f"{name}={text}" for name, text in texts.items())
    members = [(name, member) for name, member in match["members"].items() if member is not None]
    return ", ".join(f"{name}={_member(member, plan)}" for name, member in members)


def _member(member: Any, plan: Plan) -> str:
    """An event, or the events of a run."""
    if isinstance(member, list):
        return f"[{','.join(_member(event, plan) for event in member)}]"
    return _text(member["fields"], Type.event(member["event"]), plan)


def _text(value: Any, type_: Type, plan: Plan) -> str:
    """What `toString()` prints of a value that a match holds as JSON."""
    return text_of(parse_cell(value, type_, Cells(PlanWorld(plan), may_have_nulls=True)), type_)


def _output_text(output: Plain) -> str:
    match output["kind"]:
        case "send":
            return f"{output['channel']}: {output['text']}"
        case "error":
            return f"error: {output['text']}"
        case _:
            return str(output["text"])


# Which steps of a long replay a person wants to see: those around what happened, and the end.

FIRST, LAST = 9, 3
"""Steps with matches that are shown, and as many with discards, where there are many."""

BEFORE, AFTER = 3, 1
"""Steps around each."""

AT_END = 6
"""Steps at the end."""


def noteworthy(steps: Sequence[Step]) -> tuple[list[Step], str]:
    """The steps to show, and what they are: `the steps around 12 of 90 matches, and the last 6`.

    In place of those between is one step, whose text says how many rows it stands for.
    """
    matched = [place for place, step in enumerate(steps) if step.matches or step.outputs]
    discarded = [place for place, step in enumerate(steps) if step.discarded is not None]
    count = len(steps)
    shown = set(range(max(0, count - AT_END), count))
    parts = []
    for places, one, many in ((matched, "step with results", "steps with results"), (discarded, "discard", "discards")):
        chosen = places if len(places) <= FIRST + LAST else [*places[:FIRST], *places[-LAST:]]
        shown |= {near for place in chosen for near in range(max(0, place - BEFORE), min(count, place + AFTER + 1))}
        if places:
            number = counted(len(places), one, many)
            parts.append(number if len(chosen) == len(places) else f"{len(chosen)} of {number}")
    around = f"what is around {listed(parts)}, and " if parts else ""
    return _with_gaps(steps, sorted(shown)), f"{around}the last {counted(min(AT_END, count), 'step')}"


def _with_gaps(steps: Sequence[Step], shown: Sequence[int]) -> list[Step]:
    found: list[Step] = []
    at = 0
    for place in shown:
        rows = sum(step.row is not None for step in steps[at:place])
        if rows:
            found.append(Step(at=steps[at].at, text=f"… {counted(rows, 'row')}"))
        found.append(steps[place])
        at = place + 1
    return found
