"""What a match says of events that queries have routed: they are in no row, and `route` says whence they are."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import ensue
from ensue.testing.case_check import first_difference
from ensue.testing.case_run import run_embedded
from ensue.testing.cases import read_cases
from tests.ensue.command import runner
from tests.support.books import book, rows

CHAIN = """event Login {
    string host;
    boolean ok;
}

event Suspect {
    string host;
    integer count;
}

query Burst {
    inputs {
        Login() key host within 1 minute;
    }
    find Login as a -> Login as b where not a.ok and not b.ok
    {
        print "burst";
        route Suspect(b.host, 2);
    }
}

query Takeover {
    inputs {
        Suspect() key host within 10 minutes;
        Login() key host within 10 minutes;
    }
    find Suspect as s -> Login as won where won.ok
}
"""
TABLE = "at,event,host,ok,offset\n0,Login,web,false,7\n5,Login,web,false,8\n9,Login,web,true,10\n"


def routed_of(match: dict[str, Any]) -> list[dict[str, Any]]:
    """The events of a match that were routed."""
    events = [item for part in match["members"].values() for item in (part if isinstance(part, list) else [part])]
    return [event for event in events if event is not None and "route" in event]


def assert_known(matches: list[dict[str, Any]], outputs: list[dict[str, Any]]) -> int:
    """Each routed event is an output of a match that is there; gives how many there are."""
    ids = {(match["query"], match["instance"], match["match_id"]) for match in matches}
    by_match: dict[str, list[dict[str, Any]]] = {}
    for output in outputs:
        by_match.setdefault(output["match_id"], []).append(output)
    found = [event for match in matches for event in routed_of(match)]
    for event in found:
        route = event["route"]
        assert event["row"] is None
        assert (route["query"], route["instance"], route["match_id"]) in ids
        output = by_match[route["match_id"]][route["output"]]
        assert output["event"] == {"type": event["event"], "fields": event["fields"]}
    return len(found)


def test_rows_that_are_not_offsets_do_not_disturb_routed_events(tmp_path: Path) -> None:
    (tmp_path / "logins.csv").write_text(TABLE)
    replay = ensue.replay(CHAIN, tmp_path / "logins.csv")
    assert assert_known(replay.match_objects(), replay.output_objects()) == 1
    (match,) = [item for item in replay.match_objects() if item["query"] == "Takeover"]
    assert (match["members"]["s"]["route"]["output"], match["members"]["won"]["row"]) == (1, 3)
    frame = replay.matches_of("Takeover")
    assert frame["s.row"].isna().tolist() == [True]
    assert frame["won.row"].tolist() == [3]
    rows, (routed,) = ([step for step in replay.steps if ("source" in step) is it] for it in (False, True))
    assert [step["matches"] for step in rows][2] == [match]
    assert [routed[name] for name in ("row", "event", "source", "at")] == [
        None,
        "Suspect",
        "route:Burst",
        rows[1]["at"],
    ]
    assert replay.steps.index(routed) == 2


def test_rows_that_are_offsets_are_not_those_of_routed_events() -> None:
    events = pd.DataFrame({"at": [0.0, 5.0, 9.0], "event": "Login", "host": "web", "ok": [False, False, True]})
    replay = ensue.replay(CHAIN, events)
    assert replay.matches_of("Takeover")["s.row"].isna().tolist() == [True]
    assert assert_known(replay.match_objects(), replay.output_objects()) == 1
    live = ensue.open(CHAIN)
    answers = [live.send(events[place : place + 1]) for place in range(3)]
    assert answers[2].matches_of("Takeover")["s.row"].isna().tolist() == [True]
    (match,) = [item for item in answers[2].match_objects() if item["query"] == "Takeover"]
    assert match["members"]["s"]["row"] is None
    assert match["members"]["s"]["route"]["query"] == "Burst"


def test_a_file_of_matches_says_it_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = runner(monkeypatch, capsys)
    (tmp_path / "q.query").write_text(CHAIN)
    (tmp_path / "logins.csv").write_text(TABLE)
    out = tmp_path / "found.jsonl"
    found = run("replay", str(tmp_path / "q.query"), str(tmp_path / "logins.csv"), "--out", str(out))
    assert found.returncode == 0, found
    matches = [json.loads(line) for line in out.read_text().splitlines()]
    assert [event["route"]["output"] for match in matches for event in routed_of(match)] == [1]


def test_a_case_names_what_has_routed_an_event_and_passes_over_routed_ones_that_are_late(tmp_path: Path) -> None:
    late = CHAIN.replace("event Suspect {", '@OutOfOrder()\n@TimeFrom("at")\nevent Suspect {\n    float at;')
    late = late.replace("Suspect(b.host, 2)", "Suspect(LATENESS, b.host, 2)")
    late = late.replace("Suspect() key host within 10 minutes", "Suspect() key host within 10 minutes wait 1 second")
    (tmp_path / "given.query").write_text(CHAIN)
    (tmp_path / "late.query").write_text(late.replace("LATENESS", "1.0"))
    (tmp_path / "chains.case.yaml").write_text(
        "".join(
            f"""- name: {name}
  query: {name}.query
  rows:
    - {{at: "10:00:00", event: Login, host: web, ok: false}}
    - {{at: "10:00:05", event: Login, host: web, ok: false, out: [[1, 2]]}}
    - {{at: "10:00:09", event: Login, host: web, ok: true{out}}}
"""
            for name, out in (("given", ', out: [["route:Burst", 3]]'), ("late", ""))
        )
    )
    for case in read_cases(tmp_path / "chains.case.yaml"):
        for outcome in run_embedded(case):
            assert first_difference(outcome.expected, outcome.observed) is None, (case, outcome)


def test_routed_events_of_random_books_lead_to_the_matches_that_routed_them() -> None:
    seen: Counter[str] = Counter()
    for seed in range(25):
        chance = random.Random(seed)
        program = book(chance)
        replay = ensue.replay(program.text, rows(chance, program.from_sources))
        seen["routed"] += assert_known(replay.match_objects(), replay.output_objects())
        for match in [item for item in replay.match_objects() if routed_of(item)][:1]:
            (answer,) = replay.why(match["match_id"])
            ids = {event["route"]["match_id"] for event in routed_of(match)}
            assert {cause.match_id for cause in answer.causes} == ids, seed
            seen["why"] += 1
    assert min(seen["routed"], seen["why"]) > 5, seen
