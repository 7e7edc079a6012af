"""Patterns and letters in, matches out: every rule of what a match is, as a table (`tests.support.letters`).

The letters A B C D X Y are event types with an integer `v`, the number behind the letter, and a string `g`. Without `inputs` the
windows hold 100 seconds.
"""

from __future__ import annotations

import pytest

from tests.support.letters import matches

BOTH_KEYED = "inputs { A() key g within 100.0; B() key g within 100.0; }"
UNIQUE = "inputs { A() retain 3 with unique g; }"

OWN_ACTION = (
    "query Q { inputs { A() within 9.0; B() within 9.0; } find A as a -> B as b where big(a.v) "
    "action big(integer n) returns boolean { if n > 1 { return true; } return false; } }"
)
WITH_KEY = (
    f"query Q {{ {BOTH_KEYED} find A as a -> B as b where is(a.v) "
    'action is(integer n) returns boolean { return n > 1 and g = "x"; } }'
)
ONLY_KEYS = (
    f'query Q {{ {BOTH_KEYED} find A as a or B as b where is() action is() returns boolean {{ return g = "x"; }} }}'
)
OVER_AGGREGATES = (
    f'query Q {{ {BOTH_KEYED} find every A as a select text(sum(a.v)) as s having g = "x" '
    "action text(integer n) returns string { return g + n.toString(); } }"
)

WINDOWS = [
    ("within is strict", "inputs { A() within 3.0; } find A as a -> A as b", "A1@1 A2@4 A3@6.9", ["a=A2 b=A3"]),
    (
        "each input has its own window",
        "inputs { A() within 3.0; B() within 1.0; } find A as a and B as b",
        "A1@1 B1@2 A2@3 B2@4",
        ["a=A1 b=B1", "a=A2 b=B2"],
    ),
    (
        "retain counts events of its input",
        "inputs { A() retain 1; B() retain 2; } find A as a -> B as b -> A as c",
        "A1 B1 B2 A2",
        [],
    ),
    ("retain three, other place", "inputs { A() retain 3; } find A as a -> A as b where a.g != b.g",
     "A1:D A2:L A3:L A4:L A5:P", ["a=A1 b=A2", "a=A1 b=A3", "a=A4 b=A5"]),
    ("what a filter refuses takes no slot", "inputs { A(v > 0) retain 2; } find A as a -> A as b", "A1 A0 A0 A2",
     ["a=A1 b=A2"]),
    ("of a unique value the newest counts, in its slot", f"{UNIQUE} find every A as a select sum(a.v) as sum select count() as n",
     "A1:A A2:B A3:B A4:C A5:D A6:C A7:D",
     ["sum=1 n=1", "sum=3 n=2", "sum=4 n=2", "sum=7 n=2", "sum=12 n=3", "sum=11 n=2", "sum=13 n=2"]),
    ("a key parts the events", f"{BOTH_KEYED} find A as a -> B as b", "A1:x B2:y A3:y B4:y B5:x", ["a=A3 b=B4", "a=A1 b=B5"]),
    ("two keys", "inputs { A() key v, g within 9.0; } find A as a -> A as b", "A1:x A1:y A2:x A1:x", ["a=A1 b=A1"]),
    ("a null key is no partition", f"{BOTH_KEYED} find A as a -> B as b", "A1 B2", []),
    ("an input that no name takes", "inputs { A() within 9.0; B() within 9.0; C() within 9.0; } find A as a -> B as b",
     "A1 C1 B1", ["a=A1 b=B1"]),
]  # fmt: skip

CANDIDATES = [
    ("an earlier name never fires", "find A as a -> B as b", "B1 A2", []),
    ("nothing is consumed", "find A as a -> B as b", "A1 B2 B3", ["a=A1 b=B2", "a=A1 b=B3"]),
    ("at equal times arrival decides", "find A as a -> A as b", "A1@1 A2@1 A3@1", ["a=A1 b=A2", "a=A2 b=A3"]),
    ("the sides of -> share no event", "find A as a -> (A as b and A as c)", "A1 A2", ["a=A1 b=A2 c=A2"]),
    ("one event serves a name on each side of and", "find (X as x -> A as a) and (Y as y -> A as b)", "X1 A1 Y1 A2",
     ["x=X1 a=A2 y=Y1 b=A2"]),
    ("and takes any order", "find A as a and B as b", "A1 B1 A2", ["a=A1 b=B1", "a=A2 b=B1"]),
    ("and lets its sides interleave", "find (A as a -> B as b) and (C as c -> D as d)", "A1 C1 B1 D1",
     ["a=A1 b=B1 c=C1 d=D1"]),
    ("or takes one side", "find A as a or B as b", "A1 B1", ["a=A1", "b=B1"]),
    ("or takes the side with the newer events", "find (A as a or B as b) -> C as c", "A1 B1 C1", ["b=B1 c=C1"]),
    ("or takes the side with more of them", "find (A as a -> C as c) or C as d", "A1 C1", ["a=A1 c=C1"]),
    ("or takes both sides of the same events", "find (A as a -> B as b) or (A as c -> B as d)", "A1 B1",
     ["a=A1 b=B1 c=A1 d=B1"]),
    ("of the same events, however often they are taken", "find (A as a and A as b) or A as c", "A1", ["a=A1 b=A1 c=A1"]),
    ("but not of some of them", "find ((A as a -> B as b) or B as c) -> C as d", "A1 B1 C1", ["a=A1 b=B1 d=C1"]),
    ("or under and", "find (A as a or B as b) and C as c", "B1 C1 A1", ["b=B1 c=C1", "a=A1 c=C1"]),
    ("or of three", "find A as a or A as b or B as c", "A1 B1", ["a=A1 b=A1", "c=B1"]),
    ("ors within an or", "find (A as a -> (B as b or C as c)) or (X as x -> Y as y)", "X1 A1 Y1 C1",
     ["x=X1 y=Y1", "a=A1 c=C1"]),
]  # fmt: skip

CONDITIONS = [
    ("wheres are and-ed", "find A as a -> B as b where a.v > 1 where b.v > 1", "A2 B1 B2", ["a=A2 b=B2"]),
    ("a where of an unset name is ignored", "find (A as a or B as b) -> C as c where a.v > 5", "A1 C1 B1 C2",
     ["b=B1 c=C2"]),
    ("all of it", "find (A as a or B as b) -> C as c where a.v > 5 and c.v > 5", "A9 C1 B1 C1", ["b=B1 c=C1"]),
    ("what has no value is false", "find A as a -> B as b where a.v > b.v", "A B1 A3 B B2", ["a=A3 b=B2"]),
    ("its opposite too", "find A as a -> B as b where not (a.v > b.v)", "A B1", []),
    ("and what fails", "find A as a -> B as b where a.v / b.v >= 0", "A1 B0 B1", ["a=A1 b=B1"]),
    ("a where of keys only", f'{BOTH_KEYED} find A as a and B as b where g = "x"', "A1:x B1:x A1:y B1:y B2:x A2:x",
     ["a=A1 b=B1", "a=A1 b=B2", "a=A2 b=B2"]),
    ("a where of keys only, every name may be unset", f'{BOTH_KEYED} find A as a or B as b where g = "x"',
     "A1:x B1:x A1:y B1:y", ["a=A1", "b=B1"]),
    ("a where of keys and a name", f"{BOTH_KEYED} find A as a -> B as b where a.v + b.v > g.length()", "A1:xx B1:xx B2:xx",
     ["a=A1 b=B2"]),
    ("within is strict", "find A as a -> B as b within 2.0", "A1@1 B1@3 A2@4 B2@5.999999", ["a=A2 b=B2"]),
    ("within between", "find A as a -> B as b -> C as c within 2.0 between (b c)", "A1@1 B1@5 C1@7 B2@8 C2@9",
     ["a=A1 b=B2 c=C2"]),
    ("within between an unset name is ignored", "find (A as a or B as b) -> C as c within 2.0 between (a c)",
     "A1@1 C1@3 B1@4 C2@9", ["b=B1 c=C2"]),
    ("without", "find A as a -> B as b without C as x", "A1 C1 B1 A2 B2", ["a=A2 b=B2"]),
    ("without is strict at equal times", "find A as a -> B as b without C as x", "C1@1 A1@1 B1@1 C2@1", ["a=A1 b=B1"]),
    ("an event of the candidate is no without event", "find A as a -> A as b -> B as c without A as x", "A1 A2 A3 B1",
     ["a=A2 b=A3 c=B1"]),
    ("without between", "find A as a -> B as b -> C as c without X as x between (b c)", "A1 X1 B1 X2 C1 B2 C2",
     ["a=A1 b=B2 c=C2"]),
    ("without between an unset name is ignored",
     "find (A as a or B as b) -> C as c without X as x between (a c)", "A1 X1 C1 B1 X1 C2", ["b=B1 c=C2"]),
    ("without where", "find A as a -> B as b without X as x where x.v > a.v", "A5 X3 B1 X9 B2", ["a=A5 b=B1"]),
    ("a without where without a value does not block", "find A as a -> B as b without X as x where x.v > a.v", "A5 X B1",
     ["a=A5 b=B1"]),
    ("any of several withouts blocks", "find A as a -> B as b without X as x without Y as x", "A1 Y1 B1", []),
    ("without looks at the window", "inputs { A() within 9.0; B() within 9.0; X() within 2.0; } find A as a -> B as b without X as x",
     "A1@1 X1@2 B1@3.9 B2@4", ["a=A1 b=B2"]),
    ("an older candidate may pass", "find A as a -> B as b where a.v = b.v", "A1 A2 B1", ["a=A1 b=B1"]),
    ("an action of one event", OWN_ACTION, "A1 B1 A2 B2", ["a=A2 b=B2"]),
    ("an action that mentions a key", WITH_KEY, "A1:x B1:x A2:x B2:x A3:y B3:y", ["a=A2 b=B2"]),
    ("an action of keys only", ONLY_KEYS, "A1:y B1:x", ["b=B1"]),
]  # fmt: skip

RECENT = [
    ("newest events first", "find A as a -> A as b -> A as c", "A1 A2 A3 A4", ["a=A1 b=A2 c=A3", "a=A2 b=A3 c=A4"]),
    ("a newer middle before a newer first", "find A as a -> B as b -> C as c", "A1 B1 A2 B2 A3 C1", ["a=A2 b=B2 c=C1"]),
    ("an event bound twice stands twice", "find A as a and A as b", "A1 A2", ["a=A1 b=A1", "a=A2 b=A2"]),
    ("equal events: the last written name decides", "find A as a and A as b where a.v != b.v", "A1 A2 A3",
     ["a=A1 b=A2", "a=A2 b=A3"]),
    ("then the one before", "find A as a and A as b and A as c where a.v != b.v and b.v != c.v and a.v != c.v", "A1 A2 A3",
     ["a=A1 b=A2 c=A3"]),
    ("an unset name is the oldest", "find A as a or (A as b -> A as c)", "A1 A2", ["a=A1", "b=A1 c=A2"]),
]  # fmt: skip

EVERY = [
    ("all candidates", "find every A as a -> B as b where b.v >= 2 select avg(a.v + b.v) as mean", "A1 A3 B2 B4 B1",
     ["mean=4.0", "mean=5.0"]),
    ("first, last, nth: the oldest candidate first",
     "find every A as a -> B as b select first(a.v) as f select last(a.v) as l select nth(a.v, 1) as n", "A1 A2 B1 B2",
     ["f=1 l=2 n=2", "f=1 l=2 n=2"]),
    ("havings are and-ed", "find every A as a select sum(a.v) as s having s > 1 having count() < 3", "A1 A2 A3",
     ["s=3"]),
    ("or: a candidate without the name gives nothing", "find every A as a or B as b select sum(a.v) as s select count() as n",
     "A1 B1 A2", ["s=1 n=1", "s=1 n=2", "s=3 n=3"]),
    ("and of one type", "find every A as a and A as b select count() as n", "A1 A2", ["n=1", "n=4"]),
    ("older pairs count only while they are in the windows", "inputs { A() within 3.0; } find every A as a -> A as b select count() as n",
     "A1@1 A2@2 A3@3 A4@5", ["n=1", "n=3", "n=1"]),
    ("aggregates of keys", f"{BOTH_KEYED} find every A as a or B as b select sum(g.length()) as s select last(g) as l", "A1:xx B1:xx B1:y",
     ["s=2 l=xx", "s=4 l=xx", "s=1 l=y"]),
    ("an action over aggregates", OVER_AGGREGATES, "A1:x A2:x A3:y", ["s=x1", "s=x3"]),
]  # fmt: skip

WAITS = [
    ("a match waits", "find A as a -> wait(5.0) as t", "A1@1 A2@2 A3@9", ["a=A1 at 6", "a=A2 at 7", "a=A3 at 14"]),
    ("an event exactly when it is over is outside", "find A as a -> wait(5.0) as t without B as x between (a t)",
     "A1@1 B1@6", ["a=A1 at 6"]),
    ("one just before is inside", "find A as a -> wait(5.0) as t without B as x between (a t)", "A1@1 B1@5.999999", []),
    ("what has left its window counts",
     "inputs { A() within 100.0; B() within 1.0; } find A as a -> wait(5.0) as t without B as x between (a t)",
     "A1@1 B1@2 A2@8", ["a=A2 at 13"]),
    ("without as a whole reaches the wait", "find A as a -> B as b -> wait(5.0) without X as x",
     "A1@1 B1@2 X1@3 A2@10 B2@11", ["a=A2 b=B2 at 16"]),
    ("without that does not reach it", "find A as a -> B as b -> wait(5.0) as t without X as x between (a b)",
     "A1@1 B1@2 X1@3", ["a=A1 b=B1 at 7"]),
    ("within to the wait", "find A as a -> B as b -> wait(5.0) as t within 7.0 between (a t)", "A1@1 B1@2 B2@3",
     ["a=A1 b=B1 at 7"]),
    ("the match set is the one that began", "find A as a -> B as b -> wait(5.0) as t", "A1@1 B1@2 A2@3 B2@4",
     ["a=A1 b=B1 at 7", "a=A2 b=B2 at 9"]),
    ("own events are no without events", "find A as a -> A as b -> wait(2.0) without A as x", "A1@1 A2@2 A3@5",
     ["a=A1 b=A2 at 4", "a=A2 b=A3 at 7"]),
    ("silence before", "find wait(3.0) as t -> A as a without B as x between (t a)", "B1@1 A1@3 A2@4.5", ["a=A2"]),
    ("an event exactly at its beginning is outside", "find wait(3.0) as t -> A as a without B as x between (t a)",
     "B1@1 A1@4", ["a=A1"]),
    ("without as a whole reaches a leading wait", "find wait(3.0) -> A as a -> B as b without X as x",
     "X1@1 A1@3 B1@6 A2@7 B2@8", ["a=A2 b=B2"]),
    ("both waits, no name", "find wait(2.0) as t -> A as a -> wait(2.0) as u without X as x between (t u)",
     "X1@1 A1@2 A2@4 X2@6 A3@7 A4@9", ["a=A2 at 6", "a=A4 at 11"]),
    ("a where of a without that reaches the wait",
     "find A as a -> wait(5.0) as t without B as x where x.v > a.v between (a t)", "A5@1 B4@2 A3@3 B4@4", ["a=A5 at 6"]),
    ("what had left its window before the wait began does not count",
     ("inputs { A() within 9.0; B() retain 1; } "
     "find wait(5.0) as s -> A as a -> wait(1.0) as t without B as x where x.v > 3 between (s t)"),
     "B5@1 B1@2 A1@3 B5@5 A2@6", ["a=A1 at 4"]),
    ("within of an input, before both waits", ("inputs { A() within 9.0; B() within 2.0; } "
     "find wait(5.0) as s -> A as a -> wait(1.0) as t without B as x between (s t)"),
     "B1@1 A1@3 B2@5 A2@6.9", ["a=A1 at 4"]),
    ("of an or, the unset side's condition is ignored",
     "find (A as a or B as b) -> wait(2.0) as t without X as x between (a t)", "A1@1 X1@2 B1@5 X2@6", ["b=B1 at 7"]),
    ("what takes an event's place in its window has come all the same",
     "inputs { A() within 100.0; B() within 100.0 with unique g; } find A as a -> wait(5.0) as t without B as x where x.v > a.v between (a t)",
     "A5@1 B9:x@2 B1:x@3", []),
]  # fmt: skip

TABLES = {
    "windows": WINDOWS,
    "candidates": CANDIDATES,
    "conditions": CONDITIONS,
    "recent": RECENT,
    "every": EVERY,
    "waits": WAITS,
}


@pytest.mark.parametrize(
    ("pattern", "letters", "expected"),
    [pytest.param(*case, id=f"{section}: {rule}") for section, table in TABLES.items() for rule, *case in table],
)
def test_patterns(pattern: str, letters: str, expected: list[str]) -> None:
    assert matches(pattern, letters) == expected
