"""`ensue.replay` and what it gives."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import ensue
from ensue import embedded
from ensue.data_options import DataOptions
from runtime.engine.engine import Engine
from runtime.timestamps import parse_time

TABLE_1 = """
@OutOfOrder()
event A { integer id; }
query Q {
    inputs { A() within 30.0 wait 20.0; }
    find A as a1 -> A as a2 { print "a1=" + a1.toString() + "; a2=" + a2.toString(); }
}
"""
EVENTS = [
    {"at": "10:00:20", "event": "A", "id": 1, "ts": "10:00:10"},
    {"at": "10:00:30", "event": "A", "id": 4, "ts": "10:00:20"},
    {"at": "10:00:32", "event": "A", "id": 3, "ts": "10:00:15"},
    {"at": "10:00:35", "event": None, "id": None, "ts": None},
    {"at": "10:00:37", "event": "A", "id": 2, "ts": "10:00:12"},
    {"at": "10:00:40", "event": None, "id": None, "ts": None},
]
KEYED = """
event W { string card; integer n; }
event H { }
query Q { inputs { W(n >= 0) key card within 1 minute wait 10.0 or H; } find W as w1 -> W as w2 }
"""


def w(at: str, card: str | None, n: int, ts: str) -> dict[str, Any]:
    return {"at": at, "event": "W", "card": card, "n": n, "ts": ts}


def test_the_table_is_the_published_one() -> None:
    assert ensue.replay(TABLE_1, EVENTS).table() == (
        "correlator time  event  source time  definitive time  output\n"
        "---------------  -----  -----------  ---------------  ----------------\n"
        "10:00:20         A(1)   10:00:10     10:00:00\n"
        "10:00:30         A(4)   10:00:20     10:00:10\n"
        "10:00:32         A(3)   10:00:15     10:00:12\n"
        "10:00:35                             10:00:15         a1=A(1); a2=A(3)\n"
        "10:00:37         A(2)   10:00:12     10:00:17         discarded: late\n"
        "10:00:40                             10:00:20         a1=A(3); a2=A(4)"
    )


def test_steps_come_one_by_one() -> None:
    result = ensue.replay(TABLE_1, EVENTS)
    assert next(result.iter_steps()) == result.steps[0]
    assert list(result.iter_steps()) == result.steps


@pytest.mark.parametrize("changes", [[], ['DeployQuery("query L { inputs { W() within 5.0; } find W as x }")']])
def test_steps_for_machines_are_those_of_the_replay(changes: list[str]) -> None:
    events = [*EVENTS, *({"at": EVENTS[-1]["at"], "event": text} for text in changes)]
    plan, steps = embedded.read(TABLE_1, events, DataOptions()).steps()
    result = ensue.replay(TABLE_1, events)
    assert list(steps) == result.steps
    assert len(plan.queries) == len(result.plan.queries) == 1 + len(changes)


def test_the_first_steps_are_there_before_the_last_records_are_processed(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [{"at": float(second), "event": "W", "ts": float(second)} for second in range(1_000)]
    processed, process = [], Engine.process
    monkeypatch.setattr(Engine, "process", lambda *given: processed.append(len(given[1])) or process(*given))
    _, steps = embedded.read("inputs { W() within 5.0; } find W as a -> W as b", rows, DataOptions()).steps()
    next(steps)
    assert sum(processed) < len(rows)
    assert sum(1 for _ in steps) >= len(rows) - 1


def test_steps_are_rows_and_timers() -> None:
    steps = ensue.replay(TABLE_1, EVENTS).steps
    assert [(step["at"][11:19], step["row"], step["definitive"][11:19]) for step in steps] == [
        ("10:00:20", 1, "10:00:00"),
        ("10:00:30", None, "10:00:10"),
        ("10:00:30", 2, "10:00:10"),
        ("10:00:32", 3, "10:00:12"),
        ("10:00:35", None, "10:00:15"),
        ("10:00:35", 4, "10:00:15"),
        ("10:00:37", 5, "10:00:17"),
        ("10:00:40", None, "10:00:20"),
        ("10:00:40", 6, "10:00:20"),
    ]
    assert [step["discarded"] for step in steps if step["row"] == 5] == ["late"]
    assert [len(step["matches"]) for step in steps] == [0, 0, 0, 0, 1, 0, 0, 1, 0]
    json.dumps(steps, allow_nan=False)


def test_a_step_has_the_promised_form() -> None:
    timer = ensue.replay(TABLE_1, EVENTS).steps[4]
    match_id = timer["matches"][0].pop("match_id")
    output_id = timer["outputs"][0].pop("match_id")
    assert match_id == output_id
    day = "1970-01-01T"
    members = {
        name: {
            "event": "A",
            "time": f"{day}{time}",
            "source_time": f"{day}{time}",
            "arrival": f"{day}{arrival}",
            "row": row,
            "fields": {"id": number},
        }
        for name, time, arrival, row, number in (
            ("a1", "10:00:10.000000Z", "10:00:20.000000Z", 1, 1),
            ("a2", "10:00:15.000000Z", "10:00:32.000000Z", 3, 3),
        )
    }
    times = {"time": f"{day}10:00:15.000000Z", "definitive": f"{day}10:00:15.000000Z"}
    assert timer == {
        "at": f"{day}10:00:35.000000Z",
        "row": None,
        "event": None,
        "source_time": None,
        "time": None,
        "adjusted": None,
        "discarded": None,
        "definitive": f"{day}10:00:15.000000Z",
        "matches": [
            {
                "query": "Q",
                "instance": "",
                "key": {},
                **times,
                "emitted": f"{day}10:00:35.000000Z",
                "waited": "wait",
                "members": members,
            }
        ],
        "outputs": [
            {
                "kind": "print",
                "channel": None,
                "text": "a1=A(1); a2=A(3)",
                "event": None,
                "query": "Q",
                "instance": "",
                "key": {},
                "time": f"{day}10:00:15.000000Z",
            }
        ],
    }


def test_a_whole_replay_gives_what_its_steps_give() -> None:
    result = ensue.replay(TABLE_1, EVENTS)
    assert result.match_objects() == [match for step in result.steps for match in step["matches"]]
    assert result.output_objects() == [output for step in result.steps for output in step["outputs"]]


def test_data_frames_and_accounts() -> None:
    result = ensue.replay(TABLE_1, pd.DataFrame(EVENTS))
    assert result.matches[["a1.id", "a2.row"]].to_numpy().tolist() == [[1, 3], [3, 2]]
    assert result.outputs["text"].tolist() == ["a1=A(1); a2=A(3)", "a1=A(3); a2=A(4)"]
    assert result.discarded[["reason", "event", "offset"]].to_numpy().tolist() == [["late", "A", 5]]
    assert result.discarded["id"].tolist() == [2]
    account = dict(zip(result.ledger["what"], result.ledger["count"], strict=True))
    assert account == {"received": 6, "used": 3, "tick": 2, "late": 1}
    assert repr(result) == "<Replay: 6 rows, 2 matches, 1 discarded (1 late)>"
    assert "<td " in result._repr_html_()


def test_time_goes_on_after_the_last_row_until_nothing_is_due() -> None:
    assert len(ensue.replay(TABLE_1, EVENTS[:3]).matches) == 2
    assert len(ensue.replay(TABLE_1, EVENTS[:3], flush=False).matches) == 0


@pytest.mark.parametrize(
    ("until", "matches"), [("10:00:34.999999", 0), ("10:00:35", 1), ("10:00:40", 2), ("11:00:00", 2)]
)
def test_until_runs_what_is_due_exactly_then(until: str, matches: int) -> None:
    result = ensue.replay(TABLE_1, EVENTS, until=until)
    assert len(result.matches) == matches
    assert sum(len(step["matches"]) for step in result.steps) == matches
    assert all(parse_time(step["at"]) <= parse_time(until) for step in result.steps)


def test_timers_of_one_moment_are_a_step_a_key_in_key_order() -> None:
    events = [w("10:00:10", key, 1, "10:00:01") for key in "ba"]
    events += [{"at": "10:00:09", "event": "SetDelayedEventsLeeway(1.0, 60.0)", "card": None, "n": None, "ts": None}]
    events.sort(key=lambda event: event["at"])
    steps = ensue.replay(KEYED, [*events, w("10:00:10", "a", 2, "10:00:01"), w("10:00:10", "b", 2, "10:00:01")]).steps
    timers = [step for step in steps if step["row"] is None]
    assert [[match["key"] for match in step["matches"]] for step in timers] == [[{"card": "a"}], [{"card": "b"}]]
    assert {step["at"] for step in timers} == {"1970-01-01T10:00:11.000000Z"}


def test_definitive_time_of_a_keyed_query_is_that_of_the_rows_key() -> None:
    events = [
        w("10:00:10", "a", 1, "10:00:05"),
        w("10:00:11", "b", 1, "10:00:07"),
        w("10:00:12", "a", -1, "10:00:08"),
        {"at": "10:00:13", "event": None, "card": None, "n": None, "ts": None},
        w("10:00:14", None, 1, "10:00:08"),
    ]
    steps = ensue.replay(KEYED, events, flush=False).steps
    assert [step["definitive"] and step["definitive"][11:19] for step in steps] == [
        "10:00:05",
        "10:00:07",
        None,
        None,
        None,
    ]
    assert [step["discarded"] for step in steps] == [None, None, None, None, "null_key"]


def test_a_heartbeat_without_the_key_brings_matches_of_all_keys_in_its_step() -> None:
    events = [w("10:00:10", key, n, ts) for key in "ba" for n, ts in ((1, "09:59:59"), (2, "10:00:00"))]
    for event in events:
        event["at"] = "10:00:10"
    control = {"at": "10:00:09", "event": "SetDelayedEventsLeeway(1.0, 60.0)", "card": None, "n": None, "ts": None}
    beat = {"at": "10:00:10", "event": "H", "card": None, "n": None, "ts": "10:00:00"}
    late = KEYED.replace("wait 10.0", "wait 100.0")
    last = ensue.replay(late, [control, *events, beat]).steps[-1]
    assert last["event"] == "H"
    assert [match["key"]["card"] for match in last["matches"]] == ["a", "b"]


def test_several_queries_stand_in_the_order_of_the_text() -> None:
    text = (
        "event A { integer id; }\n"
        "query Z { inputs { A() within 9.0; } find A as a -> A as b }\n"
        "query Y { inputs { A() within 9.0; } find A as a -> A as b { print b.toString(); } }"
    )
    result = ensue.replay(text, [{"at": at, "id": at} for at in (1, 2, 3)])
    assert result.matches["query"].tolist() == ["Z", "Y", "Z", "Y"]
    assert [match["query"] for step in result.steps for match in step["matches"]] == ["Z", "Y", "Z", "Y"]


def test_tables_are_merged_by_arrival_ties_in_the_order_given(tmp_path: Path) -> None:
    for folder, number in (("b", 1), ("a", 2)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "e.csv").write_text(f"at,id\n5,{number}\n")
    text = (
        "event A { integer id; } query Q { inputs { A() within 9.0; } find A as a -> A as b { print a.toString(); } }"
    )
    result = ensue.replay(text, [tmp_path / "b" / "e.csv", tmp_path / "a" / "e.csv"])
    assert result.outputs["text"].tolist() == ["A(1)"]
    assert set(result.ledger["source"]) == {"e.csv", "e.csv#2"}


def test_types_without_a_definition_have_the_fields_of_the_table() -> None:
    text = "inputs { A() within 9.0; } find A as a -> A as b where b.v > a.v and b.name = a.name"
    result = ensue.replay(
        text, [{"at": 1, "v": 1.5, "name": "x"}, {"at": 2, "v": 2.5, "name": "x"}, {"at": 3, "v": 0.5, "name": "x"}]
    )
    assert result.matches[["b.v", "b.name"]].to_numpy().tolist() == [[2.5, "x"]]


def test_numbers_that_json_cannot_hold_are_text() -> None:
    text = "event A { float v; } inputs { A() within 9.0; } find A as a -> A as b"
    (match,) = ensue.replay(text, [{"at": 1, "v": float("inf")}, {"at": 2, "v": 1.0}]).match_objects()
    assert match["members"]["a"]["fields"] == {"v": "Infinity"}


def test_rows_keep_their_number_where_offsets_are_given() -> None:
    text = "event A { integer id; } inputs { A() within 9.0; } find A as a -> A as b"
    (match,) = ensue.replay(text, [{"at": 1, "id": 1, "offset": 70}, {"at": 2, "id": 2, "offset": 71}]).match_objects()
    assert [member["row"] for member in match["members"].values()] == [1, 2]


def test_a_wrong_control_event_is_an_error_output_and_changes_nothing() -> None:
    wrong = {"at": "10:00:19", "event": "SetDelayedEventsLeeway(-1.0)", "id": None, "ts": None}
    result = ensue.replay(TABLE_1, [wrong, *EVENTS])
    assert result.outputs["kind"].tolist() == ["error", "print", "print"]
    assert result.steps[0]["outputs"][0]["kind"] == "error"
    assert result.steps[0]["event"] == "SetDelayedEventsLeeway"


def test_keys_in_the_table_are_written_as_in_the_language() -> None:
    rows = [{"at": 1, "n": 1, "up": True}, {"at": 2, "n": None, "up": False}]
    result = ensue.replay(
        "event B { integer n; boolean up; }\ninputs { B() key n, up retain 1; }\nfind B as b {}\n", rows
    )
    assert result.table().splitlines() == [
        "correlator time  event          key               source time  definitive time  output",
        "---------------  -------------  ----------------  -----------  ---------------  -------------------",
        "00:00:01         B(1,true)      n=1, up=true                   00:00:01         b=B(1,true)",
        "00:00:02         B(null,false)  n=null, up=false                                discarded: null_key",
    ]


def test_a_table_without_types_for_several_undefined_events_is_one_clear_line() -> None:
    query = "inputs { A() key k retain 1; B() key k retain 1; }\nfind A as a -> B as b\n"
    with pytest.raises(ensue.InputError) as told:
        ensue.replay(query, [{"at": 1, "k": 1}])
    assert str(told.value) == (
        "no table has rows with 'event', and the queries need A, B; add one, or name it, `type=\"NAME\"`; or define"
        " the event types: then each table has the only one whose fields it has. By what the data shows:"
        " event NAME { integer k; }"
    )


def test_the_definitions_that_files_show_have_the_names_of_their_event_types(tmp_path: Path) -> None:
    (tmp_path / "orders.csv").write_text("id,placed\n1,2024-05-01\n")
    (tmp_path / "b.csv").write_text("id,up\n1,true\n")
    query = "inputs { Orders() retain 1; Paid() retain 1; }\nfind Orders as a -> Paid as b\n"
    with pytest.raises(ensue.InputError) as told:
        ensue.replay(query, [tmp_path / "orders.csv", tmp_path / "b.csv"])
    shown = "By what the data shows: event Orders { integer id; string placed; } event NAME { integer id; boolean up; }"
    assert str(told.value).endswith(shown)


def test_tables_whose_times_have_different_names_are_told_how() -> None:
    """The option would hold for both."""
    query = (
        '@TimeFrom("placed")\nevent A { float placed; }\n@TimeFrom("paid")\nevent B { float paid; integer n; }\n'
        "query Q { inputs { A() within 9.0; B() within 9.0; } find A as a -> B as b }"
    )
    tables = [[{"placed": 1.0}], [{"paid": 2.0, "n": 1}]]
    with pytest.raises(ensue.InputError, match=r"it has 'paid' and 'n'; where each .* write `@TimeFrom\(\"NAME\"\)`"):
        ensue.replay(query, tables, source_time="placed")
    assert len(ensue.replay(query, tables)) == 1


def test_a_mistake_about_inferred_types_comes_with_what_the_data_shows(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "a.csv"
    file.write_text("at,k,v\n1,a,1\n2,a,oops\n")
    with pytest.raises(ensue.QueryErrors, match="`-` does not take"), caplog.at_level("WARNING", "ensue"):
        ensue.replay("inputs { A() key k retain 2; }\nfind A as a -> A as b where b.k - a.k > 1\n", file)
    assert caplog.messages == [
        'a.csv: v is text: line 3 has "oops"',
        "by what the data shows: event A { string k; string v; }",
    ]


def test_the_summary_counts_the_rows_that_were_taken() -> None:
    rows = [{"at": at, "n": at} for at in (1, 2, 3)]
    result = ensue.replay("event B { integer n; }\ninputs { B() retain 1; }\nfind B as b\n", rows, until=2)
    assert result.summary() == "2 rows, 2 matches"


EVERY_TYPE = """
event I { integer n; }
event A { location l; float f; sequence<float> q; dictionary<string, I> m; optional<I> o; decimal d; }
query Q {
    inputs { A() key l, f within 100.0; }
    find A as a -> wait(5.0) as t { print a.toString() + l.toString(); }
}
"""


@pytest.mark.parametrize("key", [1.5, -0.0, float("nan")])
def test_steps_take_events_and_keys_of_every_type(key: float) -> None:
    corners = {"x1": 0.0, "y1": 1.0, "x2": 2.0, "y2": 3.0}
    row = {"at": 1.0, "l": corners, "f": key, "q": [1.0], "m": {"k": {"n": 1}}, "o": None, "d": 1.5}
    result = ensue.replay(EVERY_TYPE, [row, row | {"at": 2.0, "o": {"n": 2}}])
    assert result.output_objects() == [output for step in result.steps for output in step["outputs"]]
    assert len(result.output_objects()) == 2
    assert result.table().count("(0.0,1.0,2.0,3.0)") == 10


def test_tables_show_values_of_every_type_as_they_print() -> None:
    corners = {"x1": 0.0, "y1": 1.0, "x2": 2.0, "y2": 3.0}
    row = {"at": 1.0, "l": corners, "f": float("inf"), "q": [1.0], "m": {"k": {"n": 1}}, "o": {"n": 2}, "d": 1.5}
    text = 'A((0.0,1.0,2.0,3.0),Infinity,[1.0],{"k":I(1)},optional(I(2)),1.5d)'
    events = EVERY_TYPE.partition("query")[0]
    matches = ensue.replay(f"{events} query Q {{ inputs {{ A() retain 1; }} find A as a }}", [row]).table()
    assert f"a={text}" in matches
    every = "query Q { inputs { A() retain 1; } find every A as a select last(a) as v select last(a.d) as d }"
    assert f"v={text}, d=1.5" in ensue.replay(f"{events} {every}", [row]).table()


def test_an_instance_without_a_window_is_stopped_and_the_others_run() -> None:
    query = 'query Q { parameters { float p; } inputs { A() within p; } find A as a { print "x"; } }'
    parameters = {"Q": {"good": {"p": 1.0}, "bad": {"p": 0.0}}}
    result = ensue.replay(query, pd.DataFrame({"at": [1.0, 2.0], "event": ["A", "A"]}), parameters=parameters)
    told = result.outputs[["kind", "text", "instance"]].to_numpy().tolist()
    reason = "query 'Q', instance 'bad': `within` of 'A' must be greater than 0, but is 0.0 seconds"
    assert told == [["error", reason, "bad"], ["print", "x", "good"], ["print", "x", "good"]]


@pytest.mark.parametrize(("count", "late", "is_told"), [(100, 11, True), (100, 10, False), (19, 9, False)])
def test_many_late_records_are_told_with_what_would_keep_them(count: int, late: int, is_told: bool) -> None:
    moments = [f"10:{second // 60:02}:{second % 60:02}" for second in range(20, count + 20)]
    rows = [w(at, "a", 1, at if place < count - late else "10:00:00") for place, at in enumerate(moments)]
    line = (
        f"{late} of {count} records are late for query 'Q': a longer `wait` of the queries' inputs, or `late` of its"
        " `ordering`, keeps them"
    )
    assert ensue.replay(KEYED, rows).warnings == ((line,) if is_told else ())
