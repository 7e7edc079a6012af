"""Tables of text, as documents print them: correlator time, event, source time, definitive time, output.

Takes steps of a replay, or any rows; gives aligned text. Colour and width of the terminal are left out of it: what is
printed may be compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from querylang.expression import type_of
from querylang.plan import Plan
from querylang.value_types import Type
from runtime.cells import fitted_cell
from runtime.evaluation import Names
from runtime.plain import Plain
from runtime.steps import Step
from runtime.text import text_of
from runtime.times import format_time
from runtime.values import Location

HEADER = ("correlator time", "event", "source time", "definitive time", "output")


def steps_table(plan: Plan, steps: Sequence[Step]) -> str:
    """One line a step; the date is left out where every time is of 1970-01-01."""
    is_keyed = any(query.keys for query in plan.queries)
    header = (*HEADER[:2], "key", *HEADER[2:]) if is_keyed else HEADER
    times = [time for step in steps for time in (step.at, step.source_time, step.definitive) if time is not None]
    is_clock = all(0 <= time < 86_400_000_000 for time in times)
    rows = []
    for step in _without_echoes(steps):
        at, source, definitive = (_time(time, is_clock) for time in (step.at, step.source_time, step.definitive))
        key = [_key(step.key or {})] if is_keyed else []
        rows.append([at, shortened(step.text or ""), *key, source, definitive, "; ".join(step_outputs(plan, step))])
    return text_table(header, rows)


def _without_echoes(steps: Sequence[Step]) -> list[Step]:
    """Not those that say nothing beside another of the same moment: a tick after its timer, a timer before its row."""

    def is_silent(step: Step) -> bool:
        return step.text is None and not (step.matches or step.outputs or step.discarded)

    kept: list[Step] = []
    for place, step in enumerate(steps):
        before = bool(kept) and kept[-1].at == step.at
        after = place + 1 < len(steps) and steps[place + 1].at == step.at
        if not (is_silent(step) and (before or (after and step.row is None))):
            kept.append(step)
    return kept


def step_outputs(plan: Plan, step: Step) -> list[str]:
    """What a step brought, as text: outputs, matches of queries without a block, the reason of a discard."""
    told = [] if step.discarded is None else [f"discarded: {step.discarded}"]
    told += [_output(output) for output in step.outputs]
    silent = {query.name for query in plan.queries if not query.block}
    return told + [match_text(plan, match) for match in step.matches if match["query"] in silent]


def match_text(plan: Plan, match: Plain) -> str:
    """`a1=A(1), a2=A(3)`, without names that are unset; of a `find every` what it selects, `mean=4.0`."""
    if "selected" in match:
        every = plan.query(match["query"]).every
        assert every is not None, "only a `find every` selects"
        types = {select.name: type_of(select.value) for select in every.selects}
        return ", ".join(f"{name}={_text(value, types[name], plan)}" for name, value in match["selected"].items())
    members = [(name, member) for name, member in match["members"].items() if member is not None]
    return ", ".join(f"{name}={_text(item['fields'], Type.event(item['event']), plan)}" for name, item in members)


def _text(value: Any, type_: Type, plan: Plan) -> str:
    """What `toString()` prints of a value that a match holds as JSON."""
    return text_of(fitted_cell(value, type_, Names(plan)), type_)


def _output(output: Plain) -> str:
    match output["kind"]:
        case "send":
            return f"{output['channel']}: {output['text']}"
        case "error":
            return f"error: {output['text']}"
        case _:
            return str(output["text"])


def _key(key: Plain) -> str:
    """`7, true`: the values as `toString()` prints them."""
    return ", ".join(text_of(_corners(value) if isinstance(value, dict) else value) for value in key.values())


def _corners(members: dict[str, Any]) -> Location:
    return Location(*map(float, members.values()))


def _time(micros: int | None, is_clock: bool) -> str:
    if micros is None:
        return ""
    text = format_time(micros).removesuffix("Z")
    text = text.removesuffix(".000000")
    return text.partition("T")[2] if is_clock else text.replace("T", " ")


def text_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns aligned to the left, two spaces between them, a line under the header."""
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    lines = [header, ["-" * width for width in widths], *rows]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )


def shortened(text: str, most: int = 200) -> str:
    """Text for people, cut where it is too long to be looked at."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def counted(count: int, one: str, many: str | None = None) -> str:
    """`1 row`, `2 rows`."""
    return f"{count} {one if count == 1 else many or one + 's'}"
