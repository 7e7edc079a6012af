"""Additions to the language as users of open queries meet them: event by event the same as a replay."""

from __future__ import annotations

import pytest

import ensue

EVENTS = "event A { integer v; } event B { integer v; } inputs { A() within 100; B() within 100; }\n"
ROWS = [
    {"at": float(at), "event": event, "v": v}
    for at, (event, v) in enumerate([("A", 3), ("A", 0), ("B", 2), ("B", 5), ("A", 7), ("B", 0)])
]


@pytest.mark.parametrize(
    "find",
    [
        "find A as a -> B as b select b.v / a.v as n { print n.toString(); }",
        "find all A as a -> B as b",
        "find A as a -> B as b after match skip past last event",
        "find A as a -> wait(1.5) as t {1,3} without B as b where b.v > 4",
    ],
)
def test_single_events_find_what_a_replay_finds(find: str) -> None:
    replayed = ensue.replay(EVENTS + find, ROWS)
    live = ensue.open(EVENTS + find)
    answers = [live.send(row) for row in ROWS]
    answers.append(live.send({"at": 100.0, "event": "A", "v": 0}))
    found = [identity for answer in answers for identity in answer.matches["match_id"]]
    assert found[: len(replayed.matches)] == replayed.matches["match_id"].tolist()
    texts = [text for answer in answers for text in answer.outputs["text"]]
    assert texts[: len(replayed.outputs)] == replayed.outputs["text"].tolist()
