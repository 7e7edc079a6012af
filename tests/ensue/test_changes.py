"""Control events that change the queries of a replay."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import ensue
from ensue.data_options import DataOptions
from ensue.queries import load
from ensue.replay_to_file import replay_to_file
from ensue.testing.case_run import run_embedded
from ensue.testing.cases import read_cases
from querylang.errors import InputError

EVENT = "event A { string k; float v; }\n"
HIGH = f"{EVENT}query High {{ parameters {{ float least := 2.0; }} inputs {{ A() key k within 9.0; }} find A:a where a.v > least }}"
RISING = f"{EVENT}query Rising {{ inputs {{ A() key k within 9.0; }} find A:a -> A:b where b.v > a.v }}"


def replay(queries: str, *rows: Any) -> ensue.Replay:
    """Rows are values of `v`, one a second, or control events."""
    table = [
        {"at": float(at), "event": row, "ts": None, "k": None, "v": None}
        if isinstance(row, str)
        else {"at": float(at), "event": "A", "ts": float(at), "k": "x", "v": float(row)}
        for at, row in enumerate(rows)
    ]
    return ensue.replay(queries, table)


def found(result: ensue.Replay) -> list[tuple[str, int]]:
    """Query, with its instance, and second of each match."""
    return [
        (match["query"] + (f"/{match['instance']}" if match["instance"] else ""), int(match["time"][17:19]))
        for match in result.match_objects()
    ]


def told(result: ensue.Replay) -> list[tuple[str, str, str]]:
    return [(row["kind"], row["query"], row["text"]) for row in result.output_objects()]


def test_a_deployed_query_begins_empty_and_leaves_others_alone() -> None:
    result = replay(HIGH, 1, 3, json.dumps({"DeployQuery": [RISING]}), 2, 5)
    assert found(result) == [("High", 1), ("High", 4), ("Rising", 4)]
    assert told(result) == [("deployed", "Rising", "'Rising' is deployed")]
    counts = {(row["query"], row["what"]): row["count"] for row in result.results.ledger.to_pylist()}
    assert counts["High", "received"] == 5
    assert counts["Rising", "received"] == 2


TIMED = """
@TimeFrom("seen") @Heartbeat("Beat")
event A { float v; float ts; action seen() returns float { return ts; } }
@TimeFrom("ts") event Beat { float ts; }
@OutOfOrder() event Late { float v; float ts; }
"""


@pytest.mark.parametrize("query", ["A() within 9.0 wait 2.0", "Late() within 9.0"])
def test_a_text_without_definitions_times_events_as_the_others_do(query: str) -> None:
    name = query.split("(", maxsplit=1)[0]
    text = f"query NAME {{ inputs {{ {query}; }} find {name}:a -> {name}:b where a.v > b.v }}"
    rows: list[dict[str, Any]] = [
        {"at": at, "event": event, "v": v, "ts": ts}
        for at, event, v, ts in [
            (1.0, name, 5.0, 0.5),
            (2.0, name, 1.0, 1.5),
            (2.5, name, 2.0, 1.0),
            (3.0, "Beat", None, 2.8),
            (4.0, name, 4.0, 3.5),
            (4.5, name, 3.0, 3.0),
            (9.0, name, 0.0, 8.5),
        ]
    ]
    own = {"DeployQuery": [text.replace("NAME", "Other")]}
    rows.insert(0, {"at": 0.0, "event": json.dumps(own), "v": None, "ts": None})
    result = ensue.replay(TIMED + text.replace("NAME", "Q"), rows, source_time="ts", flush=True)
    matches = [(row["query"], row["time"], row["definitive"]) for row in result.match_objects()]
    assert [row for row in matches if row[0] == "Q"]
    assert [row[1:] for row in matches if row[0] == "Q"] == [row[1:] for row in matches if row[0] == "Other"]


def test_the_last_definition_says_how_later_texts_time_a_type() -> None:
    query = "query Q { inputs { A() within 9.0 wait 5.0; } find A:a }"
    other, third = query.replace("Q", "Other"), query.replace("Q", "Third")
    plain = "event A { float v; float seen; }"
    rows: list[dict[str, Any]] = [
        {"at": 1.0, "event": json.dumps({"DeployQuery": [f"{plain} {other}"]}), "ts": None, "v": None, "seen": None},
        {"at": 2.0, "event": json.dumps({"DeployQuery": [third]}), "ts": None, "v": None, "seen": None},
        {"at": 5.0, "event": "A", "ts": 5.0, "v": 1.0, "seen": 3.0},
    ]
    result = ensue.replay(f'@TimeFrom("seen") {plain} {query}', rows, flush=True)
    times = {row["query"]: row["time"][17:19] for row in result.match_objects()}
    assert times == {"Q": "03", "Other": "05", "Third": "05"}


def test_actions_of_a_known_type_are_those_of_its_definition() -> None:
    event = "event A { float v; action isBig() returns boolean { if v > LEAST { return true; } return false; } }"
    query = "query NAME { inputs { A() within 9.0; } find A:a where a.isBig() }"
    first, other = (event.replace("LEAST", least) for least in ("2.0", "5.0"))
    rows = [
        {"at": 1.0, "event": json.dumps({"DeployQuery": [query.replace("NAME", "Other")]}), "v": None},
        {"at": 2.0, "event": json.dumps({"DeployQuery": [other + query.replace("NAME", "Third")]}), "v": None},
        {"at": 3.0, "event": "A", "v": 3.0},
    ]
    result = ensue.replay(first + query.replace("NAME", "Q"), rows)
    assert sorted(row["query"] for row in result.match_objects()) == ["Other", "Q"]
    reason = "event type 'A' is known with another action 'isBig'; rename the new one"
    assert told(result)[1] == ("error", "", f"DeployQuery: {reason}")


def test_types_of_a_text_are_unknown_before_it_is_deployed() -> None:
    text = "event B { string k; } query Q { inputs { B() key k within 9.0; } find B:b }"
    table: list[dict[str, Any]] = [
        {"at": 0.0, "event": 'B("x")'},
        {"at": 1.0, "event": json.dumps({"DeployQuery": [text]})},
        {"at": 2.0, "event": 'B("x")'},
    ]
    result = ensue.replay(HIGH, [row | {"k": None, "v": None} for row in table])
    assert found(result) == [("Q", 2)]
    assert [row["reason"] for row in result.results.discarded.to_pylist()] == ["unknown_type"]


def test_values_of_an_instance_hold_from_the_next_event_on() -> None:
    rows = (3, 'SetParameters("High", "", {"least": 4.0})', 3, 5, 'SetParameters("High","eu",{"least":1})', 2)
    result = replay(HIGH, *rows, 'RemoveInstance("High", "eu")', 3)
    assert found(result) == [("High", 0), ("High", 3), ("High/eu", 5)]
    assert [kind for kind, _, _ in told(result)] == ["set", "deployed", "removed"]


def test_a_list_of_values_is_changed_as_any_other() -> None:
    query = f"{EVENT}query L {{ parameters {{ sequence<float> some := [1.0]; }} inputs {{ A() key k within 9.0; }} find A:a where a.v in some }}"
    rows = (1, 2, 'SetParameters("L", "", {"some": [2.0, 3]})', 1, 2, '{"SetParameters": ["L", "eu", {"some": []}]}', 3)
    result = replay(query, *rows)
    assert found(result) == [("L", 0), ("L", 4), ("L", 6)]
    assert told(result)[0] == ("set", "L", "instance '' of 'L' has some=[2.0, 3]")


def test_a_smaller_window_forgets_and_a_larger_one_brings_nothing_back() -> None:
    query = (
        f"{EVENT}query W {{ parameters {{ float length := 9.0; }} inputs {{ A() key k within length; }}"
        " find A:a -> A:b where a.v = 7.0 and b.v = 8.0 }"
    )
    smaller, larger = 'SetParameters("W", "", {"length": 2.5})', 'SetParameters("W", "", {"length": 9.0})'
    assert found(replay(query, 7, smaller, 1, 8)) == []
    assert found(replay(query, 7, 1, smaller, larger, 8)) == []
    assert found(replay(query, 7, smaller, larger, 8)) == [("W", 3)]


def test_a_running_wait_keeps_its_length() -> None:
    query = (
        f"{EVENT}query W {{ parameters {{ float length := 3.0; }} inputs {{ A() key k within 9.0; }}"
        " find A:a -> wait(length):w }"
    )
    assert found(replay(query, 1, 'SetParameters("W", "", {"length": 1.0})', 2)) == [("W", 3), ("W", 3)]


def test_what_an_undeployed_query_holds_is_counted() -> None:
    waiting = f"{EVENT}query W {{ inputs {{ A() key k within 9.0; }} find A:a -> wait(3.0):w }}"
    result = replay(waiting, 1, 1, 'UndeployQuery("W")')
    counts = {row["what"]: row["count"] for row in result.results.ledger.to_pylist()}
    assert counts == {"received": 3, "used": 2, "control": 1, "ended_waits": 2}
    late = "inputs { A() key k within 9.0 wait 5.0; B() key k within 9.0 wait 5.0; } find A:a -> B:b"
    result = replay(f"{EVENT}event B {{ string k; }}\nquery L {{ {late} }}", 1, 1, 'UndeployQuery("L")')
    counts = {row["what"]: row["count"] for row in result.results.ledger.to_pylist()}
    assert counts == {"received": 3, "control": 1, "undeployed": 2}
    assert "2 undeployed" in result.account()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (json.dumps({"DeployQuery": [HIGH]}), "'High' runs already; replace or undeploy first"),
        (json.dumps({"ReplaceQuery": [RISING]}), "there is no query 'Rising'"),
        (json.dumps({"DeployQuery": ["query Q { inputs { A() key k; } find A:a }"]}), "line 1: "),
        (json.dumps({"DeployQuery": ["event A { string k; }"]}), "the text has no query"),
        (json.dumps({"DeployQuery": ["event A { string k; integer v; } query Q { inputs { A() within 1.0; } find A:a }"]}), "event type 'A' is known with other fields"),
        ("DeployQuery(3)", "3 is not the text of queries, written in double quotes"),
        ('UndeployQuery("Hihg")', "there is no query 'Hihg'; did you mean 'High'?"),
        ('SetParameters("High", "", {"last": 1.0})', "unknown parameter 'last'; did you mean 'least'?"),
        ('SetParameters("High", "", {"least": "x"})', "parameter 'least' must be float, not the string 'x'"),
        ('SetParameters("High", "a/b", {"least": 1.0})', "'a/b' is not a name of an instance"),
        ('SetParameters("High", "eu", 3)', "3 does not give values to parameters, in braces"),
        ('RemoveInstance("High", "eu")', "query 'High' has no instance 'eu'"),
        ('RemoveInstance("High")', "RemoveInstance(query, instance) takes 2 arguments"),
    ],
)  # fmt: skip
def test_a_wrong_change_is_an_error_and_changes_nothing(change: str, reason: str) -> None:
    result = replay(HIGH, 3, change, 3)
    assert found(result) == [("High", 0), ("High", 2)]
    ((kind, _, text),) = told(result)
    assert kind == "error"
    assert reason in text


def test_the_word_now_needs_no_quotes() -> None:
    other = HIGH.replace("within 9.0", "within 5.0").replace('"', "'").replace("\n", " ")
    result = replay(HIGH, 3, f'ReplaceQuery("{other}", now)', 3)
    assert [row["event"] for row in result.output_objects()] == [
        {"handover": "1970-01-01T00:00:01.000000Z", "state": "new"}
    ]
    assert found(result) == [("High", 0), ("High", 2)]


def test_matches_in_a_file_do_not_leave_out_changes(tmp_path: Path) -> None:
    table = tmp_path / "events.jsonl"
    table.write_text(json.dumps({"at": 0, "event": 'UndeployQuery("High")', "k": None, "v": None}) + "\n")
    with pytest.raises(InputError, match="replay them without --out"):
        replay_to_file(load(HIGH), [table], DataOptions(), tmp_path / "out.jsonl")
    assert not (tmp_path / "out.jsonl").exists()


def test_a_case_may_change_the_queries(tmp_path: Path) -> None:
    (tmp_path / "high.query").write_text(HIGH.replace("v > least", "v > least { print a.v.toString(); }")[:-1] + "}")
    file = tmp_path / "high.case.yaml"
    file.write_text(
        "- name: a_higher_limit\n  query: high.query\n  rows:\n"
        "    - {at: '10:00:00', event: A, k: x, v: 3.0, out: ['3']}\n"
        '    - {at: \'10:00:01\', event: \'SetParameters("High", "", {"least": 4.0})\'}\n'
        "    - {at: '10:00:02', event: A, k: x, v: 3.0}\n"
    )
    (case,) = read_cases(file)
    for outcome in run_embedded(case):
        found = [text for line in outcome.observed for text in line.out]
        assert found == ["3.0"], outcome.what


WAITING = """
using com.apama.queries.*;
@OutOfOrder() event A { string k; float v; float ts; } event Beat { string k; float ts; }
query Held { inputs { A() key k within 4.0 time from ts wait 1.5 or Beat; } find A as a where a.v > LEAST }
"""


def test_steps_list_each_match_once_while_a_text_hands_over() -> None:
    change = json.dumps({"ReplaceQuery": [WAITING.replace("LEAST", "0.5")]})
    result = replay(WAITING.replace("LEAST", "0.0"), 1, 2, change, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14)
    listed = [match["match_id"] for step in result.steps for match in step["matches"]]
    assert listed == [match["match_id"] for match in result.match_objects()]
    assert len(set(listed)) == len(listed) > 10


def test_of_a_file_with_several_queries_those_that_have_not_changed_are_said_and_left_alone() -> None:
    whole = HIGH + RISING.removeprefix(EVENT)
    other = whole.replace("b.v > a.v", "b.v >= a.v")
    result = replay(whole, 3, json.dumps({"ReplaceQuery": [other, "now"]}), 1, 1, 3)
    assert told(result) == [
        ("unchanged", "High", "'High' has this text already"),
        ("replaced", "Rising", "'Rising' is replaced"),
    ]
    assert found(result) == [("High", 0), ("Rising", 3), ("High", 4), ("Rising", 4)]


def test_a_replacement_with_the_same_text_changes_nothing() -> None:
    result = replay(RISING, 1, json.dumps({"ReplaceQuery": [RISING]}), 2)
    assert told(result) == [("unchanged", "Rising", "'Rising' has this text already")]
    assert found(result) == [("Rising", 2)]


def test_of_a_file_that_is_deployed_what_runs_already_may_be_there_unchanged() -> None:
    result = replay(HIGH, 3, json.dumps({"DeployQuery": [HIGH + RISING.removeprefix(EVENT)]}), 1, 3)
    assert [(kind, query) for kind, query, _ in told(result)] == [("unchanged", "High"), ("deployed", "Rising")]
    assert found(result) == [("High", 0), ("High", 3), ("Rising", 3)]
