"""`result.why` and `ensue why`: what they answer to each kind of question, in text and as data."""

from __future__ import annotations

import io
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import ensue
from querylang.errors import InputError
from querylang.printable import forget_secrets, keep_secret
from runtime.why import Status
from tests.ensue.command import runner

RISE = """event Reading { string sensor; float value; }

query Rise {
    inputs { Reading() key sensor within 10 minutes; }
    find Reading as low -> Reading as high where high.value >= low.value + 10.0
}
"""
ROWS = [
    {"at": 0.0, "sensor": "n", "value": 20.0},
    {"at": 60.0, "sensor": "n", "value": 25.0},
    {"at": 610.0, "sensor": "n", "value": 31.0},
    {"at": 620.0, "sensor": "m", "value": 1.0},
    {"at": 630.0, "sensor": "m", "value": 21.0},
]


def test_a_match_has_its_conditions_with_values() -> None:
    result = ensue.replay(RISE, ROWS)
    (answer,) = result.why(result.match_objects()[0]["match_id"])
    assert answer.status is Status.MATCHED
    assert [(event.name, event.row) for event in answer.events] == [("low", 4), ("high", 5)]
    assert answer.conditions[0].says == "high.value is 21.0, low.value + 10.0 is 11.0, low.value is 1.0"


def test_a_notebook_shows_what_is_printed() -> None:
    answer, shown = ensue.replay(RISE, ROWS).why(), io.StringIO()
    answer._repr_pretty_(SimpleNamespace(text=shown.write), False)
    assert shown.getvalue() == str(answer)


def test_the_nearest_candidate_comes_first() -> None:
    (answer,) = ensue.replay(RISE, ROWS).why(row=3)
    assert [(item.reason.what, item.reason.by) for item in answer.candidates] == [("window", 10.0), ("where", 4.0)]
    assert all(item.is_whole for item in answer.candidates)


def test_other_candidates_say_why_the_match_is_the_more_recent_one() -> None:
    rows = [{"at": float(at), "sensor": "n", "value": value} for at, value in ((0, 1.0), (1, 2.0), (2, 20.0))]
    result = ensue.replay(RISE, rows)
    (answer,) = result.why(result.match_objects()[0]["match_id"])
    assert [(other.events[0].row, other.says) for other in answer.others] == [
        (1, "the match has low (row 2) instead, which is newer")
    ]


@pytest.mark.parametrize("key", ["n", ["sensor=n"], {"sensor": "n"}])
def test_a_key_is_a_value_or_named_parts(key: object) -> None:
    answer = ensue.replay(RISE, ROWS).why(key=key, at="00:10:10")
    assert [item.event.row for item in answer if item.event is not None] == [3]


def test_a_moment_between_events_means_the_event_before() -> None:
    (answer,) = ensue.replay(RISE, ROWS).why(key="n", at=300.0)
    assert answer.event is not None
    assert answer.event.row == 2


def test_a_part_of_a_key_that_has_another_name_is_told() -> None:
    (answer,) = ensue.replay(RISE, ROWS).why(key="place=n")
    assert answer.says == "no record has this key; if `place` is meant as its name: the key is called `sensor`"


def test_a_moment_without_a_key_is_of_all_keys() -> None:
    replay = ensue.replay(RISE, [*ROWS, {"at": 610.0, "sensor": "m", "value": 3.0}, {"at": 610.0, "sensor": None}])
    says = [(answer.key, answer.event and answer.event.row) for answer in replay.why(at="00:10:10")]
    assert says == [({"sensor": "n"}, 3), ({"sensor": "m"}, 6), ({}, 7)]
    (nothing,) = replay.why(at="00:10:11")
    assert nothing.says.startswith("no record is of that moment; with a key, `--key`,")


def test_a_key_that_no_record_has_is_answered_with_keys_that_are_nearly_it() -> None:
    (answer,) = ensue.replay(RISE, ROWS).why(key="N ")
    assert answer.says == "no record has this key; keys are compared exactly, and there is 'n'"


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"match": "none"}, "there is no match 'none': `--format matches` prints them with their `match_id`"),
        ({"row": 9}, "there is no row 9: the tables have 5 rows"),
        ({"row": 1, "source": "tabel"}, "there is no table 'tabel'; did you mean 'table'?"),
        ({"row": 1, "key": "n"}, "ask by one of `match`, `key` and `row`"),
        ({"row": 1, "query": "Ries"}, "there is no query 'Ries'; did you mean 'Rise'?; there are 'Rise'"),
        ({"query": 3}, "query: 3 is not the name of a query"),
        ({"key": "n", "at": "soon"}, "at: 'soon' is not a time"),
    ],
)
def test_a_question_without_sense_is_refused(asked: dict[str, object], message: str) -> None:
    with pytest.raises(InputError) as caught:
        ensue.replay(RISE, ROWS).why(**asked)  # type: ignore[arg-type]
    assert str(caught.value).startswith(message.split(";", maxsplit=1)[0])


def test_without_any_event_it_says_what_became_of_the_records() -> None:
    rows = [{"at": 0.0, "sensor": None, "value": 1.0}]
    (answer,) = ensue.replay(RISE, rows).why()
    assert answer.says.startswith("no record is an event that the query takes (Reading): 1 null_key; the first: ")


def test_what_is_late_names_the_wait_that_lets_it_in_and_the_match_that_it_cost() -> None:
    text = "@OutOfOrder()\n" + RISE.replace("10 minutes", "10 minutes wait 10 seconds")
    rows = [
        {"at": 1.0, "ts": 0.0, "sensor": "n", "value": 20.0},
        {"at": 30.0, "ts": 5.0, "sensor": "n", "value": 35.0},
    ]
    (answer,) = ensue.replay(text, rows).why(row=2)
    assert answer.status is Status.REFUSED
    assert answer.reason is not None
    assert (answer.reason.what, answer.reason.by) == ("late", 15.0)
    assert answer.change is not None
    assert answer.change.after == "wait 25 seconds"
    assert answer.change.text == "inputs { Reading() key sensor within 10 minutes wait 25 seconds; }"
    assert [event.row for event in answer.candidates[0].events] == [1, 2]
    longer = ensue.replay(answer.change.query, rows)
    assert len(longer) == 1


def test_what_is_late_and_out_of_order_names_both_settings_that_let_it_in() -> None:
    text = RISE.replace("10 minutes", "10 minutes wait 10 seconds")
    rows = [
        {"at": 5.0, "ts": 4.0, "sensor": "n", "value": 20.0},
        {"at": 6.0, "ts": 60.0, "sensor": "n", "value": 50.0},
        {"at": 70.0, "ts": 30.0, "sensor": "n", "value": 35.0},
    ]
    shown = " ".join(str(ensue.replay(text, rows).why(row=3)).split())
    assert "wait 10 seconds -> wait 40 seconds, and `@OutOfOrder()` before `event Reading`" in shown
    longer = text.replace("wait 10 seconds", "wait 40 seconds")
    (answer,) = ensue.replay(longer, rows).why(row=3)
    assert answer.change is not None
    assert (answer.change.before, answer.change.after) == ("event Reading", "@OutOfOrder() event Reading")
    assert ensue.replay(longer.replace(answer.change.before, answer.change.after), rows).discarded.empty


def test_a_line_to_paste_is_not_broken() -> None:
    name = "a name  with gaps " * 8
    text = RISE.replace("high.value >= low.value + 10.0", f'high.value > 40.0 and high.sensor != "{name}"')
    shown = str(ensue.replay(text, ROWS[:2]).why(row=2))
    assert (
        f'the line to paste: find Reading as low -> Reading as high where high.value > 24.9 and high.sensor != "{name}"\n'
        in shown + "\n"
    )


def test_a_key_that_is_nearly_another_one_is_told_where_nothing_else_came() -> None:
    rows = [{"at": 0.0, "sensor": "N", "value": 1.0}, {"at": 700.0, "sensor": "n", "value": 9.0}]
    (answer,) = ensue.replay(RISE, rows).why(row=2)
    assert answer.says.endswith("for this key; keys are compared exactly, and there is 'N'")


DAY = 1_777_593_600.0
"""2026-05-01, in seconds."""


def test_a_moment_without_a_day_is_of_the_day_of_the_records() -> None:
    rows = [{**row, "at": DAY + row["at"]} for row in ROWS]  # type: ignore[operator]
    answer = ensue.replay(RISE, rows).why(key="n", at="00:10:10")
    assert [item.event.row for item in answer if item.event is not None] == [3]
    later = [*rows, {"at": DAY + 90_000.0, "sensor": "n", "value": 1.0}]
    with pytest.raises(InputError, match="'00:10:10' has no day, and the records are of 2026-05-01 to 2026-05-02"):
        ensue.replay(RISE, later).why(key="n", at="00:10:10")


def test_a_time_in_milliseconds_is_told_with_its_value() -> None:
    text = """@TimeFrom("t") event A { string k; float t; }
query Q { inputs { A() key k within 1 hour wait 1 minute; } find A as a }"""
    rows = [{"at": DAY, "k": "x", "t": DAY * 1000}, {"at": DAY, "k": "x", "t": None}]
    result = ensue.replay(text, rows)
    says = [answer.says for row in (1, 2) for answer in result.why(row=row)]
    assert says == [
        "its source time is not in the years 1 to 9999: t is 1777593600000.0; it counts in seconds since 1970",
        "it has no source time, and its input asks for one",
    ]


def test_what_waits_says_when_it_comes_at_the_latest() -> None:
    text = "event A { string k; }\nquery Q { inputs { A() key k within 1 hour; } find A as a -> wait(5 minutes) without A as b }"
    result = ensue.replay(text, [{"at": 60.0, "k": "x"}], flush=False)
    (answer,) = result.why(row=1)
    assert answer.status is Status.NOT_YET
    assert answer.awaited is not None
    assert (answer.awaited.due, answer.awaited.latest) == ("1970-01-01T00:06:00.000000Z",) * 2
    later = ensue.replay(text, [{"at": 60.0, "k": "x"}], until=answer.awaited.latest)
    assert len(later) == 1
    assert not len(ensue.replay(text, [{"at": 60.0, "k": "x"}], until=359.999))


def test_what_is_suppressed_names_the_match_given_before() -> None:
    text = "event A { string k; }\nquery Q { inputs { A() key k within 1 hour; } find A as a at most 1 per 1 minute }"
    result = ensue.replay(text, [{"at": 0.0, "k": "x"}, {"at": 30.0, "k": "x"}])
    (answer,) = result.why(row=2)
    assert answer.reason is not None
    assert answer.reason.what == "suppressed"
    assert result.match_objects()[0]["match_id"] in answer.says


def test_what_is_suppressed_by_its_values_names_no_match_of_other_values() -> None:
    text = (
        "event A { string k; integer v; }\n"
        "query Q { inputs { A() key k within 1 hour; } find A as a at most 1 per 1 minute by a.v }"
    )
    rows = [{"at": at, "k": "x", "v": v} for at, v in [(0.0, 1), (10.0, 2), (30.0, 1), (70.0, 1)]]
    result = ensue.replay(text, rows)
    assert len(result) == 3
    (answer,) = result.why(row=3)
    assert answer.reason is not None
    assert answer.reason.clause == "at most 1 per 1 minute by a.v"
    assert "many matches with equal a.v were given in the 1 minute before it" in answer.says
    assert not any(match["match_id"] in answer.says for match in result.match_objects())


def test_what_is_not_new_names_the_event_before() -> None:
    text = "event A { string k; integer v; }\nquery Q { inputs { A() key k within 1 hour new by v within 1 minute; } find A as a }"
    result = ensue.replay(text, [{"at": 0.0, "k": "x", "v": 1}, {"at": 30.0, "k": "x", "v": 1}])
    (answer,) = result.why(row=2)
    assert answer.reason is not None
    assert answer.reason.what == "not new"
    assert answer.reason.event is not None
    assert answer.reason.event.row == 1


def test_what_a_skip_passed_over_names_the_match() -> None:
    text = "event A { string k; }\nquery Q { inputs { A() key k within 1 hour; } find A as a -> A as b after match skip past last event }"
    result = ensue.replay(text, [{"at": float(at), "k": "x"} for at in range(3)])
    (answer,) = result.why(row=3)
    assert answer.candidates[0].reason.what == "used"
    assert answer.candidates[0].reason.says.endswith("after the match of `b` (row 2)")


def test_a_filter_is_told_with_its_values() -> None:
    text = (
        "event A { string k; integer v; }\nquery Q { inputs { A(v > 5) key k within 1 hour; } find A as a -> A as b }"
    )
    result = ensue.replay(text, [{"at": 0.0, "k": "x", "v": 1}, {"at": 1.0, "k": "x", "v": 9}])
    (answer,) = result.why(row=2)
    assert answer.candidates[0].reason.says == "the filter of A refused `a` (row 1): v is 1"


def test_a_having_is_told_with_its_values() -> None:
    text = "event A { string k; integer v; }\nquery Q { inputs { A() key k within 1 hour; } find every A as a select sum(a.v) as s having s > 5 }"
    result = ensue.replay(text, [{"at": 0.0, "k": "x", "v": 1}, {"at": 1.0, "k": "x", "v": 3}])
    (answer,) = result.why(row=2)
    assert answer.reason is not None
    assert (answer.reason.what, answer.reason.by) == ("having", 1)


def test_secrets_are_masked() -> None:
    keep_secret("PIN", "n-and-more")
    try:
        rows = [{"at": 0.0, "sensor": "n-and-more", "value": 1.0}]
        answer = ensue.replay(RISE, rows).why(row=1)
        assert "n-and-more" not in str(answer) + json.dumps(answer.to_plain())
        assert "${PIN}" in str(answer)
    finally:
        forget_secrets()


def test_the_command_prints_text_or_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = runner(monkeypatch, capsys)
    (tmp_path / "rise.query").write_text(RISE)
    (tmp_path / "rows.csv").write_text("at,sensor,value\n00:00:00,n,20\n00:10:00,n,35\n")
    names = [str(tmp_path / "rise.query"), str(tmp_path / "rows.csv")]
    text = run("why", *names, "--row", "2").stdout
    assert "exactly that long is too long" in text
    found = json.loads(run("why", *names, "--row", "2", "--json").stdout)
    assert found["answers"][0]["candidates"][0]["reason"]["what"] == "window"


def test_nothing_is_changed_by_asking() -> None:
    result = ensue.replay(RISE, ROWS)
    before = result.match_objects()
    result.why()
    result.why(row=1)
    assert result.match_objects() == before
    assert ensue.replay(RISE, ROWS).match_objects() == before


def test_a_query_that_others_feed_is_asked_about_what_was_routed_to_it() -> None:
    text = """event Tick { string k; float v; }
event Alarm { string k; }

query High { inputs { Tick() key k within 1 hour; } find Tick as a where a.v > 5.0 { route Alarm(a.k); } }

query Twice { inputs { Alarm() key k within 1 minute; } find Alarm as x -> Alarm as y }
"""
    rows = [{"at": float(at), "event": "Tick", "k": "a", "v": 9.0} for at in (0, 200)]
    result = ensue.replay(text, rows)
    for answer in (*result.why(query="Twice"), *result.why(key="a", query="Twice")):
        assert answer.event is not None
        assert (answer.event.event, answer.event.row) == ("Alarm", None)
    (nearest, *_) = result.why(query="Twice")
    assert nearest.candidates[0].reason.what == "window"
    assert [event.name for event in nearest.candidates[0].events] == ["x", "y"]
    assert nearest.candidates[0].change is not None
    assert nearest.candidates[0].change.after == "within 3 minutes 21 seconds"


FAR = """event A { integer k; float v; }
query Far { inputs { A() key k within 2 hours; } find A as x -> A as y where x.v > 0.5 and y.v > 0.9 }"""


def test_a_match_of_events_far_apart_is_explained_as_one() -> None:
    rows = [{"at": at, "event": "A", "k": 1, "v": {10: 0.6, 1500: 0.95}.get(at, 0.0)} for at in range(1600)]
    replay = ensue.replay(FAR, rows)
    (match,) = replay.match_objects()
    (answer,) = replay.why(match["match_id"])
    assert (answer.status, [event.row for event in answer.events]) == (Status.MATCHED, [11, 1501])


def test_the_nearest_misses_of_a_query_that_others_feed_may_have_several_keys() -> None:
    text = """event A { integer k; } event Alarm { integer k; }
    query First { inputs { A() key k within 1 hour; } find A as a -> wait(1.0) { route Alarm(a.k); } }
    query Second { inputs { Alarm() key k within 1 hour; } find Alarm as x -> Alarm as y -> Alarm as z }"""
    replay = ensue.replay(text, [{"at": 2 * at, "event": "A", "k": at % 2} for at in range(4)])
    found = [answer for answer in replay.why() if answer.query == "Second"]
    assert {(answer.status, answer.key["k"]) for answer in found} == {(Status.NOT, 0), (Status.NOT, 1)}


def test_an_event_of_a_find_all_has_matched_though_others_of_its_matches_were_suppressed() -> None:
    text = """event A { integer v; }
    query Q { inputs { A() within 1 hour; } find all A as a -> A as b at most 2 per 1 minute }"""
    replay = ensue.replay(text, [{"at": at, "event": "A", "v": at} for at in range(3)])
    _, given = replay.match_objects()
    assert [given["members"][name]["row"] for name in "ab"] == [1, 3]
    (answer,) = replay.why(row=3)
    assert (answer.status, answer.match_id) == (Status.MATCHED, given["match_id"])


def test_an_event_that_ends_no_candidate_of_a_find_every_has_not_come_too_early() -> None:
    text = """event A { integer v; } event B { integer v; }
    query Q { inputs { A() within 1 hour; B() within 1 hour; }
        find every A as a -> B as b select count() as n having count() > 5 }"""
    replay = ensue.replay(text, [{"at": at, "event": event, "v": 1} for at, event in enumerate("ABAB")])
    (answer,) = replay.why(row=3)
    assert answer.says == (
        "a match ends with B that could be `b`, and A (row 3) could not; the first one came 1 second after it, B (row 4):"
        " a match ends with its newest event"
    )


def test_what_was_not_searched_is_said_each_time() -> None:
    rows = [{"at": at, "event": "A", "k": 1, "v": {10: 0.4, 1500: 0.95}.get(at, 0.0)} for at in range(1600)]
    replay = ensue.replay(FAR, rows)
    for _ in range(2):
        why = replay.why(key=1, at=1500)
        assert [answer.status for answer in why] == [Status.NOT]
        assert any("only the 1,000 events before" in remark for remark in why.remarks)
    assert replay.why(key=1, at=900).remarks == ()


SPAWN = """@OutOfOrder()
event Process { integer pid; integer ppid; string name; }

query Spawn {
    inputs {
        Process() as parent key pid as process within 1 hour wait 1 minute;
        Process() as child key ppid as process within 1 minute wait 10 seconds;
    }
    find parent as p -> child as c where c.name = "cmd" without child as x where x.name = "ok"
}
"""


def spawned(*processes: tuple[float, int | None, int | None, str], ts: dict[int, float] | None = None) -> list[Any]:
    """Rows of a time, a process, its parent and its name; `ts`: by process, when it really began."""
    began = ts or {}
    return [
        {"at": at, "ts": began.get(pid or 0, at), "event": "Process", "pid": pid, "ppid": parent, "name": name}
        for at, pid, parent, name in processes
    ]


FAMILY = spawned((0, 1, None, "init"), (10, 2, 1, "word"), (20, 3, 2, "cmd"), (40, 5, 2, "ok"), (50, 6, 2, "cmd"))


def test_a_record_of_several_roles_is_explained_in_each_of_its_keys() -> None:
    replay = ensue.replay(SPAWN, FAMILY)
    answers = list(replay.why(row=2))
    assert [(answer.status, answer.key["process"]) for answer in answers] == [(Status.MATCHED, 2), (Status.NOT, 1)]
    assert [(event.name, event.row) for event in answers[0].events] == [("p", 2), ("c", 3)]
    (word,) = answers[1].candidates
    assert word.reason.says == '`where c.name = "cmd"` does not hold: c.name is "word"'
    assert word.change is not None
    assert len(ensue.replay(word.change.query, FAMILY)) == 1  # in the key 1 instead


def test_a_without_of_a_role_names_the_event_that_broke_it() -> None:
    (answer,) = ensue.replay(SPAWN, FAMILY).why(key=2, at=50.0)
    assert answer.reason is not None
    assert answer.reason.event is not None
    assert (answer.status, answer.reason.what, answer.reason.event.row) == (Status.NOT, "without", 4)


def test_a_window_of_a_role_is_its_own() -> None:
    rows = spawned((0, 1, None, "init"), (3700, 2, 1, "cmd"))
    (_, answer) = sorted(ensue.replay(SPAWN, rows).why(row=2), key=lambda one: str(one.key))[::-1]
    assert answer.reason is not None
    assert (answer.reason.clause, answer.reason.by) == ("Process() as parent within 1 hour", 100.0)
    assert answer.candidates[0].change is not None
    assert (
        answer.candidates[0].change.text
        == "Process() as parent key pid as process within 1 hour 1 minute 41 seconds wait 1 minute;"
    )
    assert len(ensue.replay(answer.candidates[0].change.query, rows)) == 1


def test_what_one_role_refused_is_said_beside_what_the_other_made_of_it() -> None:
    rows = spawned((0, 1, 9, "init"), (100, 2, 1, "cmd"), (130, 3, 2, "cmd"), ts={2: 70})
    replay = ensue.replay(SPAWN, rows)
    assert replay.discarded["event"].tolist() == ["Process as child"]
    matched, refused = replay.why(row=2)
    assert (matched.status, matched.key["process"]) == (Status.MATCHED, 2)
    assert (refused.status, refused.key["process"]) == (Status.REFUSED, 1)
    assert refused.reason is not None
    assert (refused.reason.what, refused.reason.by) == ("late", 20.0)
    assert refused.reason.says.startswith("as `child`: ")
    assert refused.change is not None
    assert refused.change.after == "wait 30 seconds"
    assert [event.row for event in refused.candidates[0].events] == [1, 2]
    assert len(ensue.replay(refused.change.query, rows)) == 2


def test_an_event_that_serves_both_roles_of_a_key_is_one_event() -> None:
    text = SPAWN.replace("key ppid", "key pid")
    rows = spawned((0, 1, None, "cmd"), (5, 1, None, "cmd"))
    first, second = (list(ensue.replay(text, rows).why(row=row)) for row in (1, 2))
    assert [(answer.status, [event.row for event in answer.events]) for answer in (*first, *second)] == [
        (Status.MATCHED, [1, 2])
    ] * 2
    assert [step.reached for step in ensue.replay(text, rows).funnel().steps] == [2, 1]


def test_a_record_that_has_a_role_waits_for_the_time_of_its_key() -> None:
    answers = ensue.replay(SPAWN, FAMILY, flush=False).why(row=5)
    assert {answer.key["process"]: answer.status for answer in answers} == {2: Status.NOT_YET, 6: Status.NOT_YET}


def test_what_no_role_takes_is_refused_once() -> None:
    (answer,) = ensue.replay(SPAWN, spawned((0, None, None, "x"))).why(row=1)
    assert answer.reason is not None
    assert (answer.status, answer.reason.what) == (Status.REFUSED, "null_key")


def test_a_filter_of_a_role_says_which_role_it_is_of() -> None:
    text = SPAWN.replace("Process() as child", 'Process(name = "cmd") as child').replace('where c.name = "cmd" ', "")
    (_, answer) = sorted(ensue.replay(text, FAMILY).why(row=2), key=lambda one: -one.key["process"])
    assert answer.says == 'the filter of child refused it: name is "word"'


def test_roles_that_routed_events_have_are_explained() -> None:
    text = (
        SPAWN.replace('cmd"', 'never"')
        .replace("@OutOfOrder()\n", "")
        .replace(" wait 1 minute", "")
        .replace(" wait 10 seconds", "")
    )
    text = text.replace("event Process", "event Start { integer pid; integer ppid; string name; }\nevent Process")
    text += """
query Route {
    inputs { Start() key pid within 1 minute; }
    find Start as s { route Process(s.pid, s.ppid, s.name); }
}
"""
    rows = [row | {"event": "Start"} for row in FAMILY[1:]]
    (nearest, *_) = ensue.replay(text, rows).why(query="Spawn")
    assert nearest.candidates[0].change is not None
    assert nearest.candidates[0].change.what == "where"
    assert "Spawn" in set(ensue.replay(nearest.candidates[0].change.query, rows).matches["query"])


def test_a_key_that_may_be_missing_is_shown_as_its_value() -> None:
    query = RISE.replace("key sensor", "key sensor?")
    assert query != RISE
    rows = [{"at": 1.0, "event": "Reading", "sensor": None, "value": 1.0}]
    rows += [{"at": 2.0, "event": "Reading", "sensor": "north", "value": 2.0}]
    replay = ensue.replay(query, rows)
    assert [dict(answer.key) for row in (1, 2) for answer in replay.why(row=row)] == [
        {"sensor": None},
        {"sensor": "north"},
    ]
