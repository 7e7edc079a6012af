"""Parse control events: records that change how the engine runs, or advance a watermark.

They are written in Apama's event syntax, with or without the package, or as JSON with the arguments
in order or by name:

    SetDelayedEventsLeeway(300.0, 10.0)
    {"SetDelayedEventsLeeway": [300.0, 10.0]}
    {"Heartbeat": {"event": "A", "time": 1384430400.0}}

Those that change the queries (`querylang.plan.routing`) are parsed here, too, and done by whoever
runs the engine: it runs one plan.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from querylang.dataclass import dataclass
from querylang.errors import counted, nearest
from querylang.plan import routing
from querylang.plan.constants import LONGEST
from querylang.plan.model import Plan
from runtime.column_types import one_chunk
from runtime.columns.arrivals import RecordKind
from runtime.instants import EXPECTED, NEVER, SECOND, is_known_time, parse_moment
from runtime.interpreter import written_values

_FORMS = {
    "SetDelayedEventsLeeway": ("delayLeeway", "reorderBuffer"),
    "Heartbeat": ("event", "time"),
    **routing.CHANGES,
}
"""By control event: the names of its arguments."""

_MOST_SECONDS = NEVER // SECOND
"""No time and no length of time has as many."""


_BEGUN = re.compile(r'\s*\{\s*"([\w.]+)"\s*:')
"""The name in JSON that may be broken behind it."""


class ControlError(ValueError):
    """A control event is invalid and has no effect; the message says why."""


@dataclass(frozen=True, slots=True)
class SetDelayedEventsLeeway:
    """New limits for delayed records of every partition, from its arrival on.

    leeway: µs behind arrival that a record may be and still be used at once; NEVER = no limit
    reorder: µs for which a record beyond the leeway is held; NEVER = no limit
    """

    leeway: int
    reorder: int


@dataclass(frozen=True, slots=True)
class HeartbeatControl:
    """A heartbeat for every partition of the inputs of an event type.

    event: the event type
    time: µs UTC; all events up to it have been delivered; NEVER = all events
    """

    event: str
    time: int


EngineControl = SetDelayedEventsLeeway | HeartbeatControl
Control = EngineControl | routing.Change

NOT_HERE = "queries cannot be changed here"
"""In the message for a change that comes where nobody does changes."""

_BARE_NOW = re.compile(r",\s*now\s*\)\s*;?\s*$")
"""The word at the end of `ReplaceQuery("...", now)`: no value of events is a bare word."""


@dataclass(frozen=True, slots=True)
class ControlEvents:
    """What the control events of a batch ask for.

    leeways: the record number from which on a leeway holds; the first is 0, with what was in force
        before; None = what each input starts with
    heartbeats: by record number, event type and time (µs; NEVER = the input is complete)
    errors: record numbers of control events that change nothing, with what is wrong
    """

    leeways: list[tuple[int, SetDelayedEventsLeeway | None]]
    heartbeats: dict[int, tuple[str, int]]
    errors: list[tuple[int, str]]

    @staticmethod
    def of(
        table: pa.Table, plan: Plan, leeway: SetDelayedEventsLeeway | None, *, has_changes: bool = False
    ) -> ControlEvents:
        """The control events of a table of arrivals.

        leeway: what is in force before them
        has_changes: whether somebody does the changes of the queries; otherwise they are errors
        """
        controls = ControlEvents([(0, leeway)], {}, [])
        rows = np.flatnonzero(table.column("_kind").to_numpy() == int(RecordKind.CONTROL))
        text = one_chunk(table.column("_text")) if len(rows) else None
        for row in rows.tolist():
            assert text is not None, "control events have a text"
            try:
                written = text[row].as_py() or ""
                control = parse_control(written, plan) if has_changes else parse_engine_control(written, plan)
            except ControlError as error:
                controls.errors.append((row, str(error)))
                continue
            match control:
                case SetDelayedEventsLeeway():
                    controls.leeways.append((row, control))
                case HeartbeatControl():
                    controls.heartbeats[row] = control.event, control.time
        return controls

    @property
    def leeway(self) -> SetDelayedEventsLeeway | None:
        """What is in force after them."""
        return self.leeways[-1][1]


def parse_control(text: str, plan: Plan | None = None) -> Control:
    """Parse a control event; raises ControlError.

    plan: must have the event types that the control event names; None = they are not checked
    """
    name, written = _name_and_arguments(text)
    short = name.rpartition(".")[2]
    if short not in _FORMS:
        meant = nearest(short, _FORMS)
        usual = " or ".join(_form(known) for known in _FORMS if known not in routing.CHANGES)
        hint = f"; did you mean {_form(meant)}?" if meant is not None else f"; expected {usual}"
        raise ControlError(f"unknown control event {_cut(repr(name))}{hint}")
    arguments = _arguments(short, written)
    if short in routing.CHANGES:
        return _change(short, arguments)
    if short == "SetDelayedEventsLeeway":
        leeway, reorder = (_duration(short, argument) for argument in arguments)
        return SetDelayedEventsLeeway(leeway, reorder)
    event, time = arguments
    return HeartbeatControl(_event(short, event, plan), _time(short, time))


def parse_engine_control(text: str, plan: Plan | None = None) -> EngineControl:
    """As `parse_control`, where nobody changes the queries; ControlError for a change, too."""
    control = parse_control(text, plan)
    if not isinstance(control, EngineControl):
        raise ControlError(
            f"{type(control).__name__}: {NOT_HERE}: a control stream changes them only in a job with `live: true`;"
            " a command such as `ensue deploy` always does"
        )
    return control


def parse_change(text: str) -> routing.Change | None:
    """The change of the queries that a control event asks for; None = it asks for something else.

    Raises ControlError for a change that is not well formed.
    """
    if control_name(text).rpartition(".")[2] not in routing.CHANGES:
        return None
    control = parse_control(text)
    assert not isinstance(control, SetDelayedEventsLeeway | HeartbeatControl), "other control events"
    return control


def _change(name: str, arguments: Sequence[Any]) -> routing.Change:
    match name:
        case "DeployQuery":
            return routing.DeployQuery(_text(name, "the text of queries", arguments[0]))
        case "ReplaceQuery":
            now = arguments[1] if len(arguments) > 1 else False
            if now not in (True, False, "now"):
                raise ControlError(f"{name}: {_shown(now)} is not `now`")
            return routing.ReplaceQuery(_text(name, "the text of queries", arguments[0]), bool(now))
        case "UndeployQuery":
            return routing.UndeployQuery(_text(name, "the name of a query", arguments[0]))
        case "RemoveInstance":
            return routing.RemoveInstance(
                _text(name, "the name of a query", arguments[0]), _instance(name, arguments[1])
            )
        case _:
            query = _text(name, "the name of a query", arguments[0])
            return routing.SetParameters(query, _instance(name, arguments[1]), _values(name, arguments[2]))


def _text(name: str, what: str, argument: Any) -> str:
    if not isinstance(argument, str) or not argument.strip():
        raise ControlError(f"{name}: {_shown(argument)} is not {what}, written in double quotes")
    return argument


def _instance(name: str, argument: Any) -> str:
    if not isinstance(argument, str):
        raise ControlError(f"{name}: {_shown(argument)} is not the name of an instance, written in double quotes")
    return argument


def _values(name: str, argument: Any) -> dict[str, Any]:
    """The values by parameter."""
    pairs = _named(name, argument) if isinstance(argument, written_values.TextPairs) else argument
    if not isinstance(pairs, Mapping) or not all(isinstance(key, str) for key in pairs):
        raise ControlError(f"{name}: {_shown(argument)} does not give values to parameters, in braces")
    return dict(pairs)


def _named(name: str, pairs: written_values.TextPairs) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs.items:
        if not isinstance(key, str) or key in found:
            raise ControlError(f"{name}: {_shown(key)} is not the name of a parameter, or is given twice")
        found[key] = value
    return found


def control_name(text: str) -> str:
    """The name of a control event, also of one that is broken; for any other text its beginning."""
    try:
        name, _ = _name_and_arguments(text)
    except ControlError:
        begun = _BEGUN.match(text)
        return begun[1] if begun is not None else text.partition("(")[0].strip()
    return name


def _form(name: str) -> str:
    return f"{name}({', '.join(_FORMS[name])})"


def _name_and_arguments(text: str) -> tuple[str, Any]:
    """The name, and the arguments as written."""
    return _of_json(text) if text.lstrip().startswith("{") else _of_text(text)


def _of_text(text: str) -> tuple[str, Sequence[Any]]:
    try:
        event = written_values.parse_event_text(_BARE_NOW.sub(", true)", text))
    except written_values.EventTextError as error:
        raise ControlError(f"{_cut(repr(text.strip()))} is not a control event: {error}") from None
    return event.name, event.arguments


def _of_json(text: str) -> tuple[str, Any]:
    try:
        written = written_values.parse_json(text, written_values.Real)
    except written_values.JsonError as error:
        raise ControlError(f"{_cut(repr(text.strip()))} is not JSON: {error}") from None
    if not isinstance(written, dict) or len(written) != 1:
        shown = _cut(repr(text.strip()))
        raise ControlError(f"{shown} is not a control event: as JSON it is one name with its arguments")
    ((name, arguments),) = written.items()
    return name, arguments


def _arguments(name: str, arguments: Any) -> Sequence[Any]:
    """The arguments in order; ControlError if there are too many or too few."""
    names = _FORMS[name]
    if isinstance(arguments, Mapping):
        unknown = [key for key in arguments if key not in names]
        if unknown:
            raise ControlError(f"{_form(name)} has no argument {_cut(repr(unknown[0]))}")
        arguments = [arguments[key] for key in names if key in arguments]
    least = len(names) - (name == "ReplaceQuery")  # `now` may be left out
    if not isinstance(arguments, list | tuple) or not least <= len(arguments) <= len(names):
        raise ControlError(f"{_form(name)} takes {counted(len(names), 'argument')}")
    return arguments


def _duration(name: str, argument: Any) -> int:
    micros = _seconds(argument)
    if micros is None or not (micros == NEVER or 0 <= micros <= LONGEST):
        raise ControlError(
            f"{name}: {_shown(argument)} is not a length of time; expected 0 seconds to 100,000 years, or infinity"
        )
    return micros


def _time(name: str, argument: Any) -> int:
    text = argument.strip() if isinstance(argument, str) else None
    micros = _seconds(argument) if text is None or text == "infinity" else parse_moment(text)
    if micros is None or not (micros == NEVER or is_known_time(micros)):
        raise ControlError(f"{name}: {_shown(argument)} is not {EXPECTED}, or infinity")
    return micros


def _seconds(argument: Any) -> int | None:
    """A number of seconds as microseconds.

    NEVER = infinity; None = not a number, or beyond all times and lengths of time
    """
    number = math.inf if argument == "infinity" else argument
    if isinstance(number, bool) or not isinstance(number, int | float):
        return None
    if number == math.inf and not isinstance(number, written_values.Real):  # `1e400` is not `infinity`
        return NEVER
    return round(number * SECOND) if abs(number) < _MOST_SECONDS else None  # NaN is not less


def _event(name: str, argument: Any, plan: Plan | None) -> str:
    """The event type's name in the plan, with or without its package."""
    if not isinstance(argument, str) or not argument:
        raise ControlError(f"{name}: {_shown(argument)} is not the name of an event type, written in double quotes")
    if plan is None:
        return argument
    known = [event.name for event in plan.events]
    short = argument.rpartition(".")[2]
    found = next((event for event in (argument, short) if event in known), None)
    if found is None:
        meant = nearest(argument, known)
        hint = (
            f"did you mean {meant!r}?" if meant is not None else f"the queries know {_cut(', '.join(known)) or 'none'}"
        )
        raise ControlError(f"{name}: unknown event type {_cut(repr(argument))}; {hint}")
    return found


def _shown(argument: Any) -> str:
    """A number as written, all else as JSON, which is close to the event syntax."""
    return _cut(
        argument.text
        if isinstance(argument, written_values.Real)
        else json.dumps(argument, default=str, ensure_ascii=False)
    )


def _cut(text: str) -> str:
    return text if len(text) <= written_values.LONGEST_SHOWN else f"{text[: written_values.LONGEST_SHOWN]} ..."
