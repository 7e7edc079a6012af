"""Nulls in conditions, folds, selects and blocks, by both matchers, and by the rule of plans of earlier versions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import ensue
from ensue.answer import Replay
from runtime.replay.replay import measured_replay

EVENTS = """
event A { string k; integer v; integer w; optional<integer> o; boolean isHigh; action over(integer n) returns boolean { return v > n or w > n; } }
event B { string k; integer v; integer w; }
"""
INPUTS = "inputs { A() key k within 60 seconds; B() key k within 60 seconds; }"


def query(name: str, find: str) -> str:
    return f"query {name} {{ {INPUTS} find {find} }}\n"


def rows(text: str) -> list[dict[str, Any]]:
    """`A v=1 w=; B v=2`: what is not written is null; times count up."""
    found = []
    for at, word in enumerate(text.split(";"), 1):
        type_, *fields = word.split()
        values: dict[str, Any] = dict.fromkeys(("v", "w", "o"))
        values |= {name: int(value) for name, value in (field.split("=") for field in fields)}
        found.append({"at": float(at), "event": type_, "k": "k", "isHigh": None, **values})
    return found


def replays(text: str, stream: str, *, earlier: frozenset[str] = frozenset()) -> list[Replay]:
    """By the kernel and by the reference matcher; `earlier`: the queries that have the earlier rule."""
    read = ensue.replay(EVENTS + text, rows(stream))
    queries = (replace(query, nulls_fail=query.name in earlier) for query in read.plan.queries)
    plan = replace(read.plan, queries=tuple(queries))
    return [
        Replay(plan, read.records, *measured_replay(plan, read.records, matcher=matcher), None, flush=True)
        for matcher in ("auto", "reference")
    ]


def matched(replay: Replay, name: str = "Q") -> list[dict[str, Any]]:
    """By match the rows of its names."""
    return [
        {
            name: [event["row"] for event in one] if isinstance(one, list) else one and one["row"]
            for name, one in match["members"].items()
        }
        for match in replay.match_objects()
        if match["query"] == name
    ]


CASES = [
    # find, events, whether there is a match, whether there was one in earlier versions
    ("A as a -> B as b where a.v = b.v", "A v=1; B", False, False),
    ("A as a -> B as b where not a.v = b.v", "A v=1; B", False, False),
    ("A as a -> B as b where a.v = b.v or b.w = 1", "A v=1; B w=1", True, False),
    ("A as a -> B as b where b.w = a.v or a.v = b.v", "A v=1; B w=1", True, True),
    ("A as a -> B as b where not (a.v = b.v and b.w = a.v)", "A v=1; B w=2", True, False),
    ("A as a -> B as b where not (b.w = a.v and a.v = b.v)", "A v=1; B w=2", True, True),
    ("A as a -> B as b where (a.v = b.v or b.w = a.v) = (a.v = 1)", "A v=1; B w=1", True, False),
    ("A as a -> B as b where (a.v < b.v or b.w = a.v) xor a.v = 1", "A v=1; B w=0", False, False),
    ("A as a -> B as b where a.v + b.v > 0 or a.v < b.w", "A v=1; B w=2", True, False),
    ("A as a -> B as b where a.isHigh or b.v = 1", "A; B v=1", True, False),
    # About one event.
    ("A as a where a.v > 5 or a.w > 5", "A w=9", True, False),
    ("A as a where a.over(5)", "A w=9", True, False),
    ("A as a where a.over(a.v) or a.w = 9", "A w=9", True, False),
    # What fails is not a null: left to right, short circuit, and the whole clause is false.
    ("A as a -> B as b where a.v / b.v > 0 or a.v = 1", "A v=1; B v=0", False, False),
    ("A as a -> B as b where a.v = 1 or a.v / b.v > 0", "A v=1; B v=0", True, True),
    ("A as a -> B as b where (a.w = b.w and a.v / b.v > 0) or a.v = 1", "A v=1; B v=0", False, False),
    ("A as a where a.v / a.w > 0 or a.v = 1", "A v=1 w=0", False, False),
    ("A as a where a.v / a.w > 0 or a.v = 1", "A v=1", True, False),
    # Of another type than the pattern's first name.
    ("A as a -> B as b {2} where first(b).v >= last(b).w", "A v=1; B v=3 w=1; B v=3", False, False),
    ("A as a -> B as b {2} where last(b).v >= first(b).w", "A v=1; B v=3; B v=3 w=1", False, False),
    ("A as a -> B as b {2} where last(b).v >= first(b).w", "A v=1; B v=3 w=1; B v=3", True, True),
    ("A as a -> B as b -> B as c where c.v + a.v >= prev(c).w", "A v=1; B v=3; B v=3 w=1", False, False),
    ("A as a -> B as b -> B as c where c.v + a.v >= prev(c).w", "A v=1; B v=3 w=1; B v=3", True, True),
    # Asked for.
    ("A as a where a.v is null", "A", True, False),
    ("A as a where a.v is not null", "A v=1", True, True),
    ("A as a where not a.v is null", "A", False, False),
    ("A as a where a.o is null", "A v=1", True, True),
    ("A as a where a.o is not null", "A v=1", False, False),
    ("A as a where a.isHigh is null or a.v = 1", "A", True, False),
    ("A as a where (a.v / a.w) is null", "A v=1", True, False),
    ("A as a where (a.v / a.w) is null or a.v = 1", "A v=1 w=0", False, False),
    ("A as a -> B as b where (a.v + b.v) is null", "A v=1; B", True, False),
    ("A as a -> B as b where (a.v + b.v) is null or a.v = b.v", "A v=1; B v=1", True, True),
    ("A as a {2} -> B as b where max(a.v) is null", "A; A; B", True, False),
    ("A as a {2} where a.v is not null and prev(a).v is null", "A; A v=1", False, False),
    ("A as a where a.v in [1, 2]", "A v=2", True, True),
    ("A as a where a.v in [1, 2] or a.w = 1", "A w=1", True, False),
    ("A as a where a.v not in [1, 2]", "A", False, False),
    ("A as a where a.v not in [1, 2]", "A v=3", True, True),
    ("A as a -> B as b where a.v + b.v in [3, 4]", "A v=1; B v=2", True, True),
    ("A as a -> B as b where a.v in [b.v, b.w]", "A v=1; B v=2 w=1", True, True),
    # Optionals.
    ("A as a where a.o = a.o", "A v=1", False, True),
    ("A as a where a.o = a.o or a.v = 1", "A v=1", True, True),
    ("A as a where a.o.empty()", "A v=1", True, True),
    ("A as a where a.o.getOr(7) = 7", "A", True, True),
    ("A as a where a.o.getOr(a.v) = 3", "A o=3", True, False),
    # A `without` needs a condition that holds, and one that is null does not.
    (
        "A as a -> B as b where a.v = 7 without A as x where x.v = 1 or x.w = 1 between (a b)",
        "A v=7; A w=1; B",
        False,
        True,
    ),
    (
        "A as a -> B as b where b.v = 1 without A as x where x.v = a.v or x.w = a.w between (a b)",
        "A w=1; A w=1; B v=1",
        True,
        True,
    ),
    # A name that an `or` leaves unset: the clause is ignored.
    ("A as a or B as b where a.v > 5 or a.w > 5", "B", True, True),
    # Folds leave nulls out; one of none is null, a count counts events.
    ("A as a {2} -> B as b where sum(a.v) = 3", "A v=3; A; B", True, False),
    ("A as a {2} -> B as b where avg(a.v) = 3.0", "A v=3; A; B", True, False),
    ("A as a {2} -> B as b where min(a.v) = 3 and max(a.v) = 3", "A; A v=3; B", True, False),
    ("A as a {2} -> B as b where count(a) = 2", "A; A; B", True, True),
    ("A as a {2} -> B as b where avg(a.v) > 0.0 or count(a) = 2", "A; A; B", True, False),
    ("A as a {2} -> B as b where not (avg(a.v) > 0.0)", "A; A; B", False, False),
    ("A as a {2} -> B as b where sum(a.v) = 0", "A; A; B", True, False),
    ("A as a * -> B as b where max(a.v) > 5 or b.v = 1", "B v=1", True, False),
    ("A as a {2} -> B as b where sum(a.v / a.w) > 100 or count(a) = 2", "A v=1 w=0; A v=1 w=1; B", False, False),
    ("A as a {2} where a.v > prev(a).v or a.w = 1", "A v=1 w=1; A w=1", True, False),
    ("A as a {2} -> B as b where first(a).v = b.v or last(a).v = b.v", "A; A v=2; B v=2", True, False),
]


@pytest.mark.parametrize(
    ("find", "stream", "is_found", "was_found"), CASES, ids=[case[0] + " of " + case[1] for case in CASES]
)
def test_a_null_decides_nothing(find: str, stream: str, is_found: bool, was_found: bool) -> None:
    text = query("Now", find + ";") + query("Before", find + ";")
    last = stream.count(";") + 1
    for replay in replays(text, stream, earlier=frozenset({"Before"})):
        found = {name: any(last in _all(match) for match in matched(replay, name)) for name in ("Now", "Before")}
        assert found == {"Now": is_found, "Before": was_found}


def _all(match: dict[str, Any]) -> list[int]:
    return [row for one in match.values() for row in (one if isinstance(one, list) else [one])]


def test_what_a_match_selects_is_null_and_what_fails_is_an_error() -> None:
    find = "A as a select a.v + 1 as more select a.v / a.w as ratio select a.v > 0 or a.w > 0 as either;"
    for replay in replays(query("Q", find), "A v=4 w=2; A w=2; A v=4 w=0"):
        chosen = [match["selected"] for match in replay.match_objects()]
        assert chosen == [{"more": 5, "ratio": 2, "either": True}, {"more": None, "ratio": None, "either": True}]
        errors = [(output["kind"], output["text"]) for output in replay.output_objects()]
        assert errors == [("error", "select ratio: integer division by zero")]


def test_having_has_nulls_too() -> None:
    find = "every A as a where a.w >= 0 select avg(a.v) as mean select count() / count(a.isHigh) as ratio having {};"
    wanted = {
        "mean > 0.0": 0,
        "not mean > 0.0": 0,
        "mean > 0.0 or count() = 2": 1,
        # What fails in a select fails in a `having`.
        "ratio > 0 or count() = 2": 0,
        "count() = 2 or ratio > 0": 1,
    }
    for having, count in wanted.items():
        for replay in replays(query("Q", find.format(having)), "A w=1; A w=1"):
            assert len(replay.match_objects()) == count


BLOCK = """A as a {
    if a.v > 5 { print "high"; } else { print "not high"; }
    while a.v < 0 { print "never"; }
    if not a.v > 5 { print "low"; }
    if a.over(5) { print "over"; }
    print "v is " + a.v.toString();
    print "and on";
}
"""


def test_a_condition_in_a_block_that_is_null_does_not_hold_and_a_statement_needs_a_value() -> None:
    both = query("Now", BLOCK) + query("Before", BLOCK)
    for replay in replays(both, "A w=9", earlier=frozenset({"Before"})):
        outputs = [(output["query"], output["kind"], output["text"]) for output in replay.output_objects()]
        assert [item[1:] for item in outputs if item[0] == "Now"] == [
            ("print", "not high"),
            ("print", "over"),
            ("error", "field 'v' is null"),
        ]
        assert [item[1:] for item in outputs if item[0] == "Before"] == [("error", "field 'v' is null")]


STATEMENTS = ["integer n := a.v;", "xs.append(a.v);", "xs := [a.v];", 'send B("k", a.v, 1) to "c";', "f(a.v);"]


@pytest.mark.parametrize("statement", STATEMENTS)
def test_a_statement_that_needs_a_value_says_what_is_null(statement: str) -> None:
    text = f"""query Q {{ {INPUTS} find A as a {{ sequence<integer> xs := []; {statement} print "on"; }}
    action f(integer n) {{ print n.toString(); }} }}"""
    for replay in replays(text, "A w=9"):
        assert [output["text"] for output in replay.output_objects()] == ["field 'v' is null"]
