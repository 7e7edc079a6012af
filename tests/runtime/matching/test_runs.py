"""Runs: no match misses an event that was evicted, and results hold lists of events."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

import ensue
import querylang
from ensue.rendering.explanation import explain
from querylang.plan import remembering

HEAD = "event A { integer v; } event B { integer v; } event C { integer v; }\n"

FINDS = (
    "A as a {2,} consecutive -> B as b",
    "A as a+ -> B as b? -> C as c where sum(a.v) < 9",
    "(A as a -> B as b) {2} consecutive",
    "C as c -> A as a {2,3} consecutive where a.v > prev(a).v",
    "A as a* -> B as b without C as x where x.v > a.v",
)


def _inputs(window: str) -> str:
    return f"inputs {{ A() {window}; B() {window}; C() {window}; }}\n"


def _members(found: ensue.Replay) -> list[dict[str, Any]]:
    return [match["members"] for match in found.match_objects()]


def _records(seed: int) -> list[dict[str, Any]]:
    dice = random.Random(seed)
    return [{"at": float(at), "event": dice.choice("AAABC"), "v": dice.randint(0, 4)} for at in range(40)]


@pytest.mark.parametrize("find", FINDS)
def test_matches_depend_neither_on_eviction_nor_on_restarts(find: str, tmp_path: Path) -> None:
    """Record by record, with a restart now and then, events are evicted early; at once, never."""
    query, records = f"{HEAD}{_inputs('within 7.0')}find {find}", _records(0)
    live = ensue.open(query)
    one_by_one: list[str] = []
    for number, record in enumerate(records):
        one_by_one += live.send([record]).matches["match_id"].tolist()
        if number % 17 == 16:
            live.save(tmp_path / f"{number}")
            live = ensue.open(query, state=tmp_path / f"{number}")
    assert one_by_one == ensue.replay(query, records).matches["match_id"].tolist()
    assert one_by_one, "a comparison of nothing shows nothing"


def test_a_run_is_a_list_in_results() -> None:
    records = [{"at": float(at), "event": event, "v": at} for at, event in enumerate("AABA", 1)]
    found = ensue.replay(f"{HEAD}{_inputs('within 100.0')}find A as a+ -> B as b? -> A as c", records)
    last = found.matches.iloc[-1]
    assert (list(last["a.v"]), last["b.v"], last["c.v"]) == ([1, 2], 3, 4)
    assert [event["fields"]["v"] for event in _members(found)[-1]["a"]] == [1, 2]


WITHOUT_END = "A as a {2,} -> A as b {2,} -> B as c where sum(a.v) = -1 and sum(b.v) = -1"


def test_a_search_without_end_is_ended_and_the_next_one_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remembering, "MOST_BOUND", 1000)
    records = [{"at": float(at), "event": "A", "v": 3} for at in range(20)]
    records += [{"at": 20.0, "event": "B", "v": 0}]
    records += [{"at": float(at), "event": event, "v": v} for at, event, v in [(40, "A", 0), (41, "A", -1)]]
    records += [
        {"at": float(at), "event": event, "v": v} for at, event, v in [(42, "A", 0), (43, "A", -1), (44, "B", 0)]
    ]
    query = f"{HEAD}{_inputs('within 21.0')}find {WITHOUT_END}"
    found = ensue.replay(query, records)
    assert found.outputs[["kind", "time"]].astype(str).to_numpy().tolist() == [["error", "1970-01-01 00:00:20+00:00"]]
    assert found.outputs["text"][0].startswith("the search was ended after")
    assert [str(at) for at in found.matches["time"]] == ["1970-01-01 00:00:44+00:00"]


@pytest.mark.parametrize(
    ("find", "is_limited"),
    [
        (WITHOUT_END, True),
        ("find all A as a+ -> B as b".removeprefix("find "), True),
        ("A as a+ -> B as b where last(a).v > 7 and first(a).v > 3 and count(a) > 5", False),
        ("A as a -> B as b", False),
    ],
)
def test_explain_says_where_a_search_has_a_limit(find: str, *, is_limited: bool) -> None:
    plan = querylang.compile_text(f"{HEAD}{_inputs('within 7.0')}find {find}").plan
    assert ("a search of more than 100,000 steps is ended" in explain(plan)[0].text()) == is_limited


RISING = "where a.v > prev(a).v where b.v > prev(b).v"


@pytest.mark.parametrize(
    ("find", "limit"),
    [
        (f"A as a+ -> A as b+ -> B as c {RISING} where last(a).v > 7", None),
        (f"A as a+ -> A as b+ -> B as c {RISING} where last(a).v > last(b).v", "square"),
        (f"A as a+ -> A as b+ -> B as c {RISING} where last(a).v > last(b).v where a.v > c.v", "cube"),
        ("A as a+ consecutive -> B as b where a.v > prev(a).v where last(a).v > first(a).v", None),
    ],
)
def test_explain_names_what_makes_a_search_dear(find: str, limit: str | None) -> None:
    (found,) = explain(querylang.compile_text(f"{HEAD}{_inputs('within 7.0')}find {find}").plan)
    assert ("a search that finds nothing may take" in found.text()) == (limit is not None)
    if limit is not None:
        assert f"the {limit} of the events in the windows; `consecutive`, a `within`" in found.text()


def test_dead_ends_of_many_repeats_are_stored() -> None:
    """Without that, six repeats over 30 events would be searched for hours."""
    find = " -> ".join(f"A as a{number}+" for number in range(6))
    records = [{"at": float(at), "event": "A", "v": 3} for at in range(30)]
    found = ensue.replay(f"{HEAD}{_inputs('within 100.0')}find {find} where last(a0).v > 7", records)
    assert (len(found.matches), len(found.outputs)) == (0, 0)


def test_of_more_than_ten_thousand_matches_the_most_recent_are_given() -> None:
    records = [{"at": float(at), "event": "A", "v": at} for at in range(14)] + [{"at": 14.0, "event": "B", "v": 0}]
    query = f"{HEAD}{_inputs('within 100.0')}find all A as a+ -> B as b"
    found = ensue.replay(query, records)
    chosen = sorted(sum(1 << at for at in run) for run in found.matches["a.v"])
    assert chosen == list(range(2**14 - 10_000, 2**14))
    assert len(found.outputs) == 1


def test_the_first_and_the_last_event_of_a_run_are_selected_as_events() -> None:
    query = f"{HEAD}{_inputs('within 9.0')}find A as a* -> B as b select first(a) as f select last(a) as l"
    query += " { ifpresent f { print f.v.toString(); } }"
    records = [{"at": float(at), "event": event, "v": at} for at, event in enumerate("BAAB")]
    found = ensue.replay(query, records)
    selected = [match["selected"] for match in found.match_objects()]
    rows = [tuple(item[name] and item[name]["row"] for name in "fl") for item in selected]
    assert rows == [(None, None), (2, 3)]
    assert found.outputs["text"].tolist() == ["1"]


def test_a_wait_between_steps_is_explained_with_its_point_and_where_it_is_checked() -> None:
    find = "A as a -> wait(10.0) as t -> B as b without C as x between (a t)"
    (found,) = explain(querylang.compile_text(f"{HEAD}{_inputs('within 1 minute')}find {find}").plan)
    text = found.text()
    assert "A as a -> wait(10 seconds) as t -> B as b" in text
    assert "1  wait(10 seconds) as t from a to b, checked in state 1" in text
    assert "2  without C as x between (a t), checked in state 1" in text


def test_the_point_of_a_wait_is_null_where_it_is_unset() -> None:
    find = "(A as a -> wait(2.0) as t -> A as b) or B as c"
    records = [{"at": float(at), "event": event, "v": at} for at, event in enumerate("AAAB")]
    found = ensue.replay(f"{HEAD}{_inputs('within 9.0')}find {find}", records)
    assert [match["points"]["t"] for match in found.match_objects()] == ["1970-01-01T00:00:02.000000Z", None]
