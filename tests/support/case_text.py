"""A scenario as a ready `*.case.yaml`: its rows, and what the oracles expect at each of them."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from tests.support import pattern_oracle
from tests.support.pattern_oracle import Found
from tests.support.scenario import EVENTS, PAYLOAD, SECOND, Row, Scenario, field_name, leeway_text

SHOWN = ("late", "out_of_order", "null_key", "null_time", "malformed", "unknown_type")


def case_lines(scenario: Scenario, name: str = "counter_example") -> list[str]:
    """The case in YAML; its query is in `Q.query` beside it."""
    admitted, found = pattern_oracle.run(scenario)
    fates = {fate.offset: fate.what for fate in admitted.fates if fate.what in SHOWN}
    outs: dict[int, list[Found]] = defaultdict(list)
    for match in found:
        outs[match.emitted].append(match)
    lines = [f"- name: {name}", "  query: Q.query", "  rows:"]
    for number, (offset, row) in enumerate(scenario.ordered(), 1):
        earlier = sorted(moment for moment in outs if moment < row.at and outs[moment])
        lines += [_line({"at": clock_text(moment), "out": _out(outs.pop(moment))}) for moment in earlier]
        given = {"at": clock_text(row.at)} | _event(offset, row)
        given |= {} if row.time is None else {"ts": row.time / SECOND}
        own = [match for match in outs.get(row.at, []) if match.step in {number, -1}]
        given |= {"out": _out(own)} if own else {}
        outs[row.at] = [match for match in outs[row.at] if match not in own]
        given |= {"discard": fates[offset]} if offset in fates else {}
        lines.append(_line(given))
    lines += [_line({"at": clock_text(moment), "out": _out(outs[moment])}) for moment in sorted(outs) if outs[moment]]
    return lines


def _event(offset: int, row: Row) -> dict[str, Any]:
    match row.kind:
        case "tick":
            return {}
        case "control":
            return {"event": row.text if row.leeway is None else leeway_text(*row.leeway)}
        case "malformed":
            return {"event": "A("}
        case "unknown":
            return {"in": "Unknown"}
        case "U":
            return {"in": "U", "id": offset}
    event = row.kind.removeprefix("H")
    names = PAYLOAD if row.kind in EVENTS else ("k", "c") if event else ()
    fields = {field_name(event, name): getattr(row, name) for name in names}
    own = {"id": offset} if row.kind in EVENTS else {}
    return {"in": row.kind} | own | {name: value for name, value in fields.items() if value is not None}


def _out(matches: Sequence[Found]) -> list[Any]:
    return [list(match.offsets) if match.offsets else _printed(match.selected) for match in matches]


def _printed(selected: tuple[Any, ...]) -> str:
    return "error: the selected value is null" if None in selected else "|".join(map(text_of, selected))


def text_of(value: Any) -> str:
    """What `toString()` gives."""
    match value:
        case bool():
            return str(value).lower()
        case float() if math.isnan(value):
            return "NaN"
    return str(value)


def _line(given: Mapping[str, Any]) -> str:
    return f"    - {yaml.safe_dump(dict(given), default_flow_style=True, width=10_000, sort_keys=False).strip()}"


def clock_text(micros: int) -> str:
    """`HH:MM:SS.ffffff`."""
    seconds, rest = divmod(micros, SECOND)
    text = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return f"{text}.{rest:06}" if rest else text
