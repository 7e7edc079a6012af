"""Keys that may be missing: what conditions, selects, blocks and actions see, by both matchers."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

import ensue
import querylang
from querylang.changes import keeps_state
from querylang.plan.describe import describe_plan
from querylang.plan.model import from_dict, to_dict
from runtime.replay.replay import measured_replay

EVENTS = """
event Ip { string ip; integer port; }
event A {
    string host; string user; optional<integer> o; float f; decimal d; boolean b; location l; Ip src; integer n;
    action up() returns string { return user.toUpper(); }
    action late() returns optional<string> { optional<string> none; if n > 3 { return host; } return none; }
}
event B { string host; string user; }
"""
GIVEN: dict[str, Any] = {"user": "x", "o": 2, "f": 1.5, "d": "1.5", "b": True, "src": {"ip": "1", "port": 1}}
PLACE = dict.fromkeys(("x1", "y1", "x2", "y2"), 0.0)
ROWS = [
    {"host": "h", "at": n, "n": n, **dict.fromkeys((*GIVEN, "l")), **({**GIVEN, "l": PLACE} if n in (1, 4) else {})}
    for n in range(1, 6)
]
"""Events 1 and 4 have values, 2, 3 and 5 have none."""


def replayed(text: str, rows: list[dict[str, Any]] = ROWS) -> tuple[list[Any], list[str]]:
    """The keys of matches, and what blocks put out; the same by both matchers."""
    read = ensue.replay(EVENTS + text, rows)
    other, *_ = measured_replay(read.plan, read.records, matcher="reference")
    again = replace(read, results=other)
    assert again.match_objects() == read.match_objects()
    assert again.output_objects() == read.output_objects()
    return [match["key"] for match in read.match_objects()], [row["text"] for row in read.output_objects()]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("user? as u", "x"),
        ("o? as u", 2),
        ("f? as u", 1.5),
        ("d? as u", "1.5"),
        ("b? as u", True),
        ("l? as u", PLACE),
        ("src.ip? as u", "1"),
        ("up()? as u", "X"),
    ],
)
def test_events_without_a_value_are_together(key: str, value: Any) -> None:
    text = (
        f"query Q {{ inputs {{ A() key {key} within 9.0; }} find A as a -> A as b {{ print u.empty().toString(); }} }}"
    )
    none = {"u": None}
    assert replayed(text) == ([none, {"u": value}, none], ["true", "false", "true"])


def test_an_action_may_give_no_key() -> None:
    text = "query Q { inputs { A() key late()? as u within 9.0; } find A as a -> A as b }"
    assert replayed(text)[0] == [{"u": None}, {"u": None}, {"u": "h"}]


@pytest.mark.parametrize(
    ("condition", "count"),
    [
        ("u is null", 2),
        ("u is not null", 1),
        ('u = "x"', 1),
        ('u != "x"', 0),
        ('not (u = "x")', 0),
        ('u = "x" or b.n = 3', 2),
        ("a.user = b.user", 1),
        ("isNone()", 2),
    ],
)
def test_in_conditions_it_is_null(condition: str, count: int) -> None:
    text = f"""query Q {{
        inputs {{ A() key user? as u within 9.0; }}
        find A as a -> A as b where {condition} select u as who {{ print u.getOr("none"); }}
        action isNone() returns boolean {{ return u.empty(); }}
    }}"""
    keys, texts = replayed(text)
    assert len(keys) == count
    assert texts == ["none" if key["u"] is None else "x" for key in keys]


def test_it_is_a_value_for_every_clause() -> None:
    every = """query Q {
        inputs { A() key user? as u within 9.0; }
        find every A as a select count() as many select u as who having count() > 1 { print u.getOr("none"); }
    }"""
    assert replayed(every)[1] == ["none", "x", "none"]
    limited = "query Q { inputs { A() key user? within 9.0; } find A as a -> A as b at most 1 per 1 hour }"
    assert replayed(limited)[0] == [{"user": None}, {"user": "x"}]
    new = "query Q { inputs { A() key user? within 9.0 new by host within 1 hour; } find A as a }"
    assert replayed(new)[0] == [{"user": "x"}, {"user": None}]


def test_inputs_may_differ_and_each_discards_what_it_does_not_take() -> None:
    text = "query Q { inputs { A() key user? within 9.0; B() key user within 9.0; } find A as a -> B as b }"
    rows = [{**ROWS[1], "at": at, "event": event} for at, event in ((1, "A"), (2, "B"))]
    found = ensue.replay(EVENTS + text, rows)
    assert (len(found), found.discarded["event"].tolist()) == (0, ["B"])
    found = ensue.replay(EVENTS + text.replace("key user within", "key user? within"), rows)
    assert (len(found), len(found.discarded)) == (1, 0)


def test_a_plan_has_them_and_a_query_that_gets_one_hands_over() -> None:
    text = EVENTS + "query Q { inputs { A() key host, user? as u within 9.0; } find A as a }"
    plan = querylang.compile_text(text).plan
    assert (to_dict(plan)["version"], from_dict(to_dict(plan))) == (9, plan)
    assert "A key host, user? as u within 9 seconds" in describe_plan(plan)
    without = querylang.compile_text(text.replace("?", "")).plan
    assert to_dict(without)["version"] == 6
    assert not keeps_state(without.queries[0], plan.queries[0], plan.events)


def test_open_queries_keep_the_missing_key() -> None:
    live = ensue.open(EVENTS + "query Q { inputs { A() key user? within 9.0; } find A as a -> A as b }")
    assert [len(live.send(row)) for row in ROWS] == [0, 0, 1, 1, 1]


@pytest.mark.parametrize("earlier", [False, True], ids=["as in SQL", "earlier"])
@pytest.mark.parametrize(
    "condition",
    [
        'src.ip = "1"',
        'not (src.ip = "1")',
        "src.ip is null",
        "src.port > 0 or n = 2",
        "box.src.ip.length() = 1",
        "box.src.port = 1 and box.ok",
    ],
)
def test_a_member_of_a_field_is_the_same_in_filters_and_in_conditions(condition: str, *, earlier: bool) -> None:
    """A filter reads columns, the reference matcher event by event."""
    events = """event Ip { string ip; integer port; } event Box { Ip src; boolean ok; }
    event A { Ip src; integer n; Box box; } """
    ip, other = {"ip": "1", "port": 1}, {"ip": None, "port": 0}
    sources = [ip, other, None, ip, None]
    inner = [
        {"src": ip, "ok": True},
        {"src": None, "ok": True},
        None,
        {"src": other, "ok": None},
        {"src": ip, "ok": False},
    ]
    rows = [{"at": n, "n": n, "src": src, "box": own} for n, (src, own) in enumerate(zip(sources, inner, strict=True))]
    filtered = f"query F {{ inputs {{ A({condition}) retain 9; }} find A as a }}"
    where = re.sub(r"(?<![\w.])(src|n|box)\b", r"a.\1", condition)
    asked = f"query W {{ inputs {{ A() retain 9; }} find A as a where {where} }}"
    read = ensue.replay(events + filtered + asked, rows)
    plan = read.plan.with_failing_nulls() if earlier else read.plan
    found, *_ = measured_replay(plan, read.records, matcher="reference")
    members = [table.column("members").to_pylist() for name in "FW" if (table := found.matches.get(name)) is not None]
    offsets = [[row["a"]["offset"] for row in rows] for rows in members]
    assert not offsets or offsets == [offsets[0]] * 2
