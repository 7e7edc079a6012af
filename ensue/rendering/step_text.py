"""The results of a replay's steps as text: matches, outputs, reasons of discards."""

from __future__ import annotations

from typing import Any

from querylang.plan.expression import Type, type_of
from querylang.plan.model import Plan
from runtime.interpreter.context import PlanWorld
from runtime.interpreter.values import text_of
from runtime.reading.conversion import Cells, parse_cell
from runtime.replay.stepping import Step
from runtime.results.for_users import Plain


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
        types = {select.name: type_of(select.value) for select in query.selected}
        texts = {
            name: _member(value, plan)
            if value is not None and name in query.selected_events
            else _text(value, types[name], plan)
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
