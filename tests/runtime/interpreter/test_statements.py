"""Blocks and actions: `blocks.cases` says what each puts out."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

import pytest

import ensue
import querylang
from querylang.plan.model import Plan
from runtime.interpreter.context import MOST_STEPS, Budget, Context, PlanWorld
from runtime.interpreter.statements import run_action, run_block
from runtime.interpreter.values import Dictionary, EvaluationError, Event

FILE = Path(__file__).with_name("blocks.cases")
TEXT = """
event B {{ integer m; action next() returns B {{ return B(m + 1); }} }}
event C {{ integer m; }}
event A {{
    integer i; float x; string s; decimal d; sequence<float> xs; dictionary<string, integer> counts;
    optional<integer> o; B nested;
    action scaled(float factor) returns float {{ return x * factor; }}
}}
query Q {{
    inputs {{ A() retain 1; B() retain 1; }}
    find A as a -> B as b {{
        {block}
    }}
    {actions}
}}
"""


@dataclass(frozen=True, slots=True)
class Case:
    """A block, the actions of its query, and the lines that it puts out."""

    name: str
    block: str
    actions: str
    outputs: list[str]


def cases(text: str) -> Iterator[Case]:
    for part in text.split("\n--- ")[1:]:
        name, *lines = part.splitlines()
        outputs = [line[3:] for line in lines if line.startswith("=> ")]
        rest = [line for line in lines if not line.startswith("=> ")]
        actions = [line for line in rest if line.startswith("action")]
        block = [line for line in rest if not line.startswith("action")]
        yield Case(name, "\n".join(block), "\n".join(actions), outputs)


def compiled(block: str, actions: str = "") -> Plan:
    return querylang.compile_text(TEXT.format(block=block, actions=actions), "q.query").plan


def pattern_events(plan: Plan) -> list[Event]:
    nested = Event(plan.event("B"), {"m": 3})
    fields = {"i": 7, "x": 2.5, "s": "k", "d": Decimal("1.25"), "xs": [1.0, 2.0], "counts": Dictionary.of([("x", 1)])}
    first = Event(plan.event("A"), {**fields, "o": None, "nested": nested}, 12_500_000)
    return [first, Event(plan.event("B"), {"m": 5}, 12_500_000)]


def outputs(plan: Plan, steps: int = MOST_STEPS) -> list[str]:
    query = plan.query("Q")
    world = PlanWorld(plan, query)
    context = Context(
        events=pattern_events(plan),
        is_block=True,
        locals=[None] * query.slots,
        world=world,
        invoke=run_action,
        budget=Budget(steps),
    )
    problem = []
    try:
        run_block(query.block, context)
    except EvaluationError as error:
        problem = [f"error {error}"]
    found = ((output.kind, output.channel, output.text) for output in context.outputs)
    return [" ".join(filter(None, parts)) for parts in found] + problem


def check(case: Case) -> None:
    assert outputs(compiled(case.block, case.actions), steps=10_000) == case.outputs


@pytest.mark.parametrize("case", list(cases(FILE.read_text("utf-8"))), ids=lambda case: case.name)
def test_a_block_puts_out(case: Case) -> None:
    check(case)


@pytest.mark.parametrize("expected", ["=> print y\n", "", "=> print x\n=> print x\n"])
def test_a_wrong_expectation_is_noticed(expected: str) -> None:
    (case,) = cases(f'\n--- wrong\nprint "x";\n{expected}')
    with pytest.raises(AssertionError):
        check(case)


def test_a_match_has_a_million_steps() -> None:
    plan = compiled('integer i := 0; while i < 1000000 { i := i + 1; } print i.toString(); for x in [1] { print "x"; }')
    assert outputs(plan) == ["print 1000000", "error more than 1,000,000 steps of loops and calls"]


def test_the_deepest_calls_are_allowed_on_every_stack() -> None:
    """What a program may do does not depend on how deep the call stack is that runs it, nor on the thread."""
    plan = compiled(
        "print down(498).toString();",
        "action down(integer n) returns integer { if n = 0 { return 0; } return (((1 + (((down(n - 1))))))); }",
    )
    found: list[list[str]] = []
    limit = sys.getrecursionlimit()
    thread = threading.Thread(target=lambda: found.append(outputs(plan)))
    thread.start()
    thread.join()
    assert found == [["print 498"]]
    assert sys.getrecursionlimit() == limit


ROWS = [
    {"event": "A", "at": 0.0, "i": 7, "x": 2.5, "s": "k", "d": "1.25", "xs": "[1,2]", "counts": '{"x":1}', "nested": "B(3)"},
    {"event": "B", "at": 1.0, "m": 5},
    {"event": "B", "at": 2.0, "m": 0},
]  # fmt: skip


def replayed(block: str) -> list[dict[str, object]]:
    result = ensue.replay(TEXT.format(block=block, actions=""), ROWS)
    return [dict(row) for row in result.outputs.to_dict("records")]


def test_a_failure_is_an_error_row_and_the_query_goes_on() -> None:
    rows = replayed('print "m"; print (10 / b.m).toString();')
    assert [(row["kind"], row["text"]) for row in rows] == [
        ("print", "m"),
        ("print", "2"),
        ("print", "m"),
        ("error", "integer division by zero"),
    ]


def test_each_match_has_its_own_copies() -> None:
    rows = replayed("a.xs.append(3.0); a.i := a.i + 1; print a.xs.toString() + a.i.toString();")
    assert [row["text"] for row in rows] == ["[1.0,2.0,3.0]8", "[1.0,2.0,3.0]8"]


def test_outputs_have_kind_channel_and_event() -> None:
    rows = replayed('log "l" at WARN; send a.nested to "c"; emit b; route C(b.m);')[:4]
    assert [(row["kind"], row["channel"], row["event"]) for row in rows] == [
        ("log", "WARN", None),
        ("send", "c", '{"type": "B", "fields": {"m": 3}}'),
        ("emit", None, '{"type": "B", "fields": {"m": 5}}'),
        ("route", None, '{"type": "C", "fields": {"m": 5}}'),
    ]


def test_conditions_call_actions() -> None:
    text = TEXT.format(block='print "x";', actions="").replace("b {", "b where a.scaled(2.0) = b.m.toFloat() {", 1)
    rows = ensue.replay(text, ROWS).outputs
    assert rows["text"].tolist() == ["x"]
