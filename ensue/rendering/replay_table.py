"""Tables of text, as documents print them: correlator time, event, source time, definitive time, output.

Takes steps of a replay, or any rows; gives aligned text. Colour and width of the terminal are left out of it: what is
printed may be compared. The account under the table is `ensue.rendering.account`'s.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from unicodedata import combining, east_asian_width

from querylang.plan.expression import type_of
from querylang.plan.model import Plan
from querylang.plan.value_types import Type
from runtime.columns.timestamps import format_time
from runtime.instants import LATEST, NO_TIME
from runtime.interpreter.context import Names
from runtime.interpreter.value_text import text_of
from runtime.interpreter.values import Location
from runtime.policies.per_input import adjusts
from runtime.reading.cell_parser import fitted_cell
from runtime.replay.steps import Step
from runtime.results.json_objects import Plain

WIDEST_EVENT = 100
WIDEST_KEY = 40
"""Longer cells are cut, so that the columns to their right stay in view."""

_DAY = 86_400_000_000


@dataclass(frozen=True, slots=True)
class Clock:
    """How the times of one table are written: with the date if they are of several days, all with equally many digits.

    `day`: that of all times, where they are of one.
    """

    day: str | None
    digits: int

    @staticmethod
    def of(times: Sequence[int]) -> Clock:
        """The shortest form that tells these times (microseconds) apart."""
        written = [time for time in times if NO_TIME < time < LATEST]
        days = {time // _DAY for time in written} or {0}
        digits = next(digits for digits in (0, 3, 6) if all(time % 10 ** (6 - digits) == 0 for time in written))
        return Clock(format_time(min(days) * _DAY).partition("T")[0] if len(days) == 1 else None, digits)

    def text(self, micros: int | None) -> str:
        """One cell; empty where there is no time yet, `infinity` after the end of all times."""
        if micros is None or micros == NO_TIME:
            return ""
        if micros >= LATEST:
            return "infinity"
        day, _, time = format_time(micros).removesuffix("Z").partition("T")
        time = time[: len("00:00:00.") + self.digits].removesuffix(".")
        return f"{day} {time}" if self.day is None else time


def steps_table(plan: Plan, steps: Sequence[Step]) -> str:
    """A line a step, and one more for each further output. The day of times that are all of one stands above the
    table; 1970-01-01, the day of times without a date, does not."""
    shown = _without_echoes(steps)
    moments = (moment for step in shown for moment in (step.at, step.source_time, step.end, step.time, step.definitive))
    clock = Clock.of([moment for moment in moments if moment is not None])
    columns = _columns(plan, clock)
    rows: list[Sequence[str]] = []
    for step in shown:
        first, *further = _told(plan, step, clock) or [""]
        rows.append([*(cell(step) for cell in columns.values()), first])
        rows += [[*("" for _ in columns), text] for text in further]
    table = text_table([*columns, "output"], rows)
    return table if clock.day in {None, "1970-01-01"} else f"{clock.day} (UTC)\n\n{table}"


def _columns(plan: Plan, clock: Clock) -> dict[str, Callable[[Step], str]]:
    """What the table has beside the output: keys where a query has some, times after adjustment where one can adjust."""
    keys = {query.key_names for query in plan.queries if query.keys}
    is_named = len(keys) > 1 or any(len(names) > 1 for names in keys)
    columns: dict[str, Callable[[Step], str]] = {
        "correlator time": lambda step: clock.text(step.at),
        "event": lambda step: "" if _is_unreadable(step) else shortened(one_line(step.text or ""), WIDEST_EVENT),
        "key": lambda step: shortened(one_line(_key(step.key or {}, is_named)), WIDEST_KEY),
        "source time": lambda step: clock.text(step.source_time) + _to_end(step, clock),
        "adjusted time": lambda step: clock.text(step.time),
        "definitive time": lambda step: clock.text(step.definitive),
    }
    is_there = {"key": bool(keys), "adjusted time": any(map(adjusts, plan.queries))}
    return {name: cell for name, cell in columns.items() if is_there.get(name, True)}


def _to_end(step: Step, clock: Clock) -> str:
    """Behind the start of what lasts its end: `10:00:05 .. 10:00:20`."""
    return "" if step.end is None else f" .. {clock.text(step.end)}"


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


def _told(plan: Plan, step: Step, clock: Clock) -> list[str]:
    """The output column: what became of the record, if it was not simply taken, and what came of it."""
    if _is_unreadable(step):
        return [f"discarded: malformed, {one_line(step.text or '')}"]
    told = step_outputs(plan, step, is_named=len({query.name for query in plan.queries}) > 1)
    if step.adjusted is not None:
        told.insert(0, f"adjusted: {step.adjusted}, {clock.text(step.source_time)} -> {clock.text(step.time)}")
    return [one_line(text) for text in told]


def _is_unreadable(step: Step) -> bool:
    """Whether the text of a step is the reason why its row is no record."""
    return step.discarded == "malformed"


def step_outputs(plan: Plan, step: Step, *, is_named: bool = False) -> list[str]:
    """What a step brought, as text: outputs, matches of queries without a block, the reason of a discard.

    `is_named`: matches say of which query they are, as outputs cannot.
    """
    told = [] if step.discarded is None else [f"discarded: {step.discarded}"]
    told += [_output(output) for output in step.outputs]
    silent = {query.name for query in plan.queries if not query.block}
    own = [match for match in step.matches if match["query"] in silent]
    return told + [f"{match['query']}: " * is_named + match_text(plan, match) for match in own]


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


def _key(key: Plain, is_named: bool) -> str:
    """The values as `toString()` prints them: `7`; of several `card=7, up=true`."""
    texts = {name: text_of(_corners(value) if isinstance(value, dict) else value) for name, value in key.items()}
    return ", ".join(f"{name}={text}" if is_named else text for name, text in texts.items())


def _corners(members: dict[str, Any]) -> Location:
    return Location(*map(float, members.values()))


def text_table(header: Sequence[str], rows: Sequence[Sequence[str]], right: frozenset[str] = frozenset()) -> str:
    """Columns aligned to the left, or those named `right` to the right; two spaces between them, a line under the header."""
    widths = [max(map(width_of, column)) for column in zip(header, *rows, strict=True)]
    lines = [header, ["-" * width for width in widths], *rows]
    return "\n".join(
        "  ".join(
            _padded(cell, width, name in right) for cell, width, name in zip(line, widths, header, strict=True)
        ).rstrip()
        for line in lines
    )


def _padded(cell: str, width: int, is_right: bool) -> str:
    spaces = " " * (width - width_of(cell))
    return spaces + cell if is_right else cell + spaces


def width_of(text: str) -> int:
    """How many columns of a terminal a text takes: letters of East Asian scripts two, combining marks none."""
    if text.isascii():
        return len(text)
    return sum(0 if combining(letter) else 2 if east_asian_width(letter) in "WF" else 1 for letter in text)


def one_line(text: str) -> str:
    """Text that stays in its cell: line breaks, tabs and other control characters as they are written in the language."""
    return text if text.isprintable() else "".join(_visible(letter) for letter in text)


def _visible(letter: str) -> str:
    return letter if letter.isprintable() or letter == "\u00a0" else letter.encode("unicode_escape").decode()


def shortened(text: str, most: int = 200) -> str:
    """Text for people, cut where it is too long to be looked at."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def counted(count: int, one: str, many: str | None = None) -> str:
    """`1 row`, `2 rows`."""
    return f"{count} {one if count == 1 else many or one + 's'}"
