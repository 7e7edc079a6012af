"""The text of a plan, whole."""

from __future__ import annotations

import pytest

from querylang import compile_text, describe, describe_plan
from querylang.describe import duration_text, expression_text

CARDS = """
@TimeFrom("ts")
@Heartbeat("Beat")
@OutOfOrder()
event Withdrawal { string card; string country; float amount; float ts; }
event Beat { string card; float ts; }
event Alert { string card; float amount; }
query ImprobableWithdrawals {
    inputs { Withdrawal(amount > 10.0, country = "IE") key card as c within 5 minutes retain 3 wait 20 seconds; }
    find Withdrawal as w1 -> Withdrawal as w2
        where w2.country != w1.country and w2.amount > 3.0
        where c = "a" or w1.amount + 1.0 > w2.amount * (2.0 - w1.ts)
        within 10 minutes
    {
        print "Suspicious: " + w2.toString();
        send Alert(c, w1.amount + w2.amount) to "alerts";
    }
}
"""


def test_a_query_with_everything() -> None:
    assert (
        describe(compile_text(CARDS).plan.queries[0])
        == """\
query ImprobableWithdrawals
  inputs
    Withdrawal key card as c within 5 minutes retain 3
      only amount > 10.0 and country = "IE"
      time: ts, out of order, wait 20 seconds
      heartbeat: Beat, for its card
  pattern
    Withdrawal as w1 -> Withdrawal as w2
    within 10 minutes
  automaton, read backwards from the latest event
    state  consumes    for  checks  then
    0      Withdrawal  w2   2       1
    1      Withdrawal  w1   1, 3    match
  conditions
    1  w2.country != w1.country, checked in state 1
    2  w2.amount > 3.0, checked in state 0
    3  w2.card = "a" or w1.amount + 1.0 > w2.amount * (2.0 - w1.ts), checked in state 1
  for each match
    print "Suspicious: " + w2.toString()
    send Alert(w2.card, w1.amount + w2.amount) to "alerts"
  state
    Withdrawal: those of the last 5 minutes and of these the 3 most recent for each key, and those that wait: at most 20 seconds"""
    )


def test_two_queries_with_little() -> None:
    text = "query One { inputs { A() within 30 wait 20; } find A as a1 -> A as a2 } query Two { inputs { B() retain 1; } find B as b }"
    assert (
        describe_plan(compile_text(text).plan)
        == """\
query One
  inputs
    A within 30 seconds
      time: the source's column, in order, wait 20 seconds
  pattern
    A as a1 -> A as a2
  automaton, read backwards from the latest event
    state  consumes  for  checks  then
    0      A         a2   -       1
    1      A         a1   -       match
  for each match
    output
  state
    A: those of the last 30 seconds, and those that wait: at most 20 seconds

query Two
  inputs
    B retain 1
      time: arrival
  pattern
    B as b
  automaton, read backwards from the latest event
    state  consumes  for  checks  then
    0      B         b    -       match
  for each match
    output
  state
    B: the 1 most recent"""
    )


@pytest.mark.parametrize(
    ("length", "text"),
    [
        (1, "0.000001 seconds"),
        (1_500_000, "1.5 seconds"),
        (1_000_000, "1 second"),
        (90_000_000, "1 minute 30 seconds"),
        (86_400_000_000 + 7_200_000_000, "1 day 2 hours"),
    ],
)
def test_durations(length: int, text: str) -> None:
    assert duration_text(length) == text


EXPRESSIONS = [
    "a.x - (b.x - 1) - 2 = 3",
    "a.x - b.x * (1 + 2) % 3 < -a.x",
    "-(a.x + 1) = 3",
    "not a.b and (a.b or not (a.b xor b.b))",
    "(a.x = 1) = (b.x = 2)",
    "(a.b or b.b) = true",
    '(a.x + 1).toString() + a.toString() = "say \\"hi\\" \\\\ \\n"',
    "a.y < infinity",
    "a.x.toFloat() / 2.5e-07 > 1.0",
]


@pytest.mark.parametrize("text", EXPRESSIONS)
def test_an_expression_is_written_as_it_was_read(text: str) -> None:
    event = "event A { integer x; boolean b; float y; }"
    plan = compile_text(f"{event} inputs {{ A() within 3; }} find A as a -> A as b where ({text}) or false").plan
    assert expression_text(plan.queries[0].conditions[0].left, ["a", "b"]) == text
