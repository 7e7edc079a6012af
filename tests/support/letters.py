"""A pattern and letters in, matches out as text: `A1 B2` are events of types A and B, a second apart.

A letter's number is its field `v`; behind it may stand `:x`, its field `g`, and `@1.5`, the second at which it arrives (else a second
after the one before). `v` is null for a letter without number. Every pattern runs on both matchers, in one call and
in one call a letter with the state saved in between.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import pyarrow as pa

import querylang
from querylang.plan.model import Plan
from runtime.columns.arrivals import Arrivals
from runtime.engine.engine import Engine
from runtime.instants import NO_TIME
from runtime.matching.kernel.program import NotForKernel
from runtime.results.schemas import Results, in_order

SECOND = 1_000_000
_LETTER = re.compile(r"(?P<type>[A-Z])(?P<v>-?\d*)(:(?P<g>\w+))?(@(?P<at>[\d.]+))?")
TYPES = "ABCDXY"


class Letter(NamedTuple):
    """One event."""

    type: str
    v: int | None
    g: str | None
    at: int


def read(text: str) -> list[Letter]:
    """The letters with the moments at which they arrive, in microseconds."""
    letters, at = list[Letter](), 0
    for word in text.split():
        match = _LETTER.fullmatch(word)
        assert match is not None, f"{word!r} is no letter"
        at = round(float(match["at"]) * SECOND) if match["at"] else at + SECOND
        letters.append(Letter(match["type"], int(match["v"]) if match["v"] else None, match["g"], at))
    return letters


def compiled(query: str) -> Plan:
    """The plan of a query over letters; one without inputs takes those of the last 100 seconds of every type it names."""
    used = sorted(set(re.findall(rf"\b[{TYPES}]\b", query)))
    inputs = "" if "inputs" in query else f"inputs {{ {' '.join(f'{name}() within 100.0;' for name in used)} }} "
    events = " ".join(f"event {name} {{ integer v; string g; }}" for name in TYPES)
    return querylang.compile_text(f"{events} {inputs}{query}").plan


def matches(query: str, letters: str) -> list[str]:
    """The matches in order: names with their letters, or what was selected; with a trailing wait the second of the match.

    Raises AssertionError where the ways of running differ.
    """
    plan, events = compiled(query), read(letters)
    runs = {name: [*_run(plan, events, name)] for name in _ways(plan)}
    (_, first), *others = runs.items()
    for name, other in others:
        assert other == first, f"{name} finds {other}, kernel or reference in one call {first}"
    return first


def _ways(plan: Plan) -> list[str]:
    """Matchers, in one call and in pieces."""
    try:
        Engine(plan, matcher="kernel")
    except NotForKernel:
        return ["reference", "reference in pieces"]
    return ["reference", "kernel", "kernel in pieces", "reference in pieces"]


def _run(plan: Plan, events: list[Letter], way: str) -> Iterator[str]:
    matcher, _, pieces = way.partition(" ")
    engine = Engine(plan, matcher)
    for first, part in enumerate([[event] for event in events]) if pieces else [(0, events)]:
        yield from _shown(plan, events, engine.process(_arrivals(plan, part, first)))
        if pieces:
            engine = Engine.restore(plan, engine.snapshot(), matcher)
    yield from _shown(plan, events, engine.flush())


def _arrivals(plan: Plan, events: list[Letter], first: int) -> Arrivals:
    kinds = {event.name: kind for kind, event in enumerate(plan.events)}
    count = len(events)
    columns = {
        "_kind": pa.array([kinds[event.type] for event in events], pa.int16()),
        "_arrival": pa.array([event.at for event in events], pa.int64()),
        "_source": pa.array(["letters"] * count, pa.string()).dictionary_encode(),
        "_partition": pa.array([0] * count, pa.int64()),
        "_place": pa.array([0] * count, pa.int64()),
        "_offset": pa.array(range(first, first + count), pa.int64()),
        "_source_time": pa.array([NO_TIME] * count, pa.int64()),
        "v:integer": pa.array([event.v for event in events], pa.int64()),
        "g:string": pa.array([event.g for event in events], pa.string()),
    }
    return Arrivals(pa.table(columns))


def _shown(plan: Plan, events: list[Letter], results: Results) -> Iterator[str]:
    (query,) = plan.queries
    table = in_order(plan, results).matches.get(query.title)
    for row in [] if table is None else table.to_pylist():
        members: dict[str, Any] = {name: member for name, member in row["members"].items() if member is not None}
        shown = [f"{name}={_name(events[member['offset']])}" for name, member in members.items()]
        shown += [f"{name}={value}" for name, value in row.get("selected", {}).items()]
        late = [] if query.trailing is None else [f"at {row['time'].timestamp():g}"]
        yield " ".join([*shown, *late])


def _name(letter: Letter) -> str:
    return f"{letter.type}{'' if letter.v is None else letter.v}"
