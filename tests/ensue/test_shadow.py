"""A shadow finds what its text finds, with another name; `match_difference` compares it with its query."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

import ensue
import querylang
from querylang.changes import reach_of
from querylang.errors import InputError, QueryErrors
from querylang.running import shadow_of
from runtime.results.for_users import match_difference

RISE = """event A { string k; integer v; }
query Rise {
    inputs { A() key k within 6.0; }
    find A as a -> A as b where b.v >= a.v + %s select b.v - a.v as d { print "rise {}"; send A(k, 1) to "alerts"; }
}
"""


def _rows(seed: int, controls: dict[int, str]) -> list[dict[str, Any]]:
    dice = random.Random(seed)
    rows: list[dict[str, Any]] = [
        {"at": float(at), "event": "A", "k": dice.choice("xy"), "v": dice.randint(0, 6)} for at in range(60)
    ]
    for at, text in controls.items():
        rows[at] = {"at": float(at), "event": text, "k": None, "v": None}
    return rows


def _found(text: str, rows: list[dict[str, Any]], name: str, since: int) -> list[dict[str, Any]]:
    matches = ensue.replay(text, rows).match_objects()
    return [row for row in matches if row["query"] == name and row["time"] >= f"1970-01-01T00:00:{since:02}"]


@pytest.mark.parametrize("seed", range(5))
def test_a_shadow_of_the_same_text_differs_in_nothing_and_of_another_one_as_two_replays_do(seed: int) -> None:
    place = 7 + seed
    query = RISE % 2
    live = querylang.compile_text(query).plan.queries[0]
    since = place + (reach_of(live) or 0) // 1_000_000
    for least in (2, 3):
        deploy = json.dumps({"DeployQuery": [shadow_of(RISE % least).text]})
        rows = _rows(seed, {place: deploy})
        both = [_found(query, rows, name, since) for name in ("Rise", "Rise_shadow")]
        alone = [_found(RISE % other, _rows(seed, {place: "Other(1)"}), "Rise", since) for other in (2, least)]
        found, expected = match_difference(*both), match_difference(*alone)
        assert (found.both, found.only_second) == (expected.both, expected.only_second)
        assert found.only_first == expected.only_first
        assert found.is_equal == (least == 2)
        assert found.both > 0, "a comparison of nothing shows nothing"


def test_a_shadow_has_no_effects() -> None:
    shadow = shadow_of(RISE % 2)
    assert shadow.names == {"Rise": "Rise_shadow"}
    assert (len(ensue.replay(shadow.text, _rows(0, {})).outputs), "alerts" in shadow.text) == (0, False)


def test_texts_that_cannot_have_a_shadow_are_refused() -> None:
    with pytest.raises(QueryErrors):
        shadow_of("query Q { inputs {")
    with pytest.raises(InputError, match="write `query NAME"):
        shadow_of("event A { }\ninputs { A() retain 2; } find A as a;")
    with pytest.raises(InputError, match="has no query"):
        shadow_of("event A { }")


def test_what_differs_is_listed_by_time_and_names_do_not_count() -> None:
    first = [{"query": "Q", "match_id": "1", "time": f"0{at}", "key": {"k": at}} for at in (3, 1, 2)]
    second = [{"query": "R", "match_id": "9", "time": f"0{at}", "key": {"k": at}} for at in (2, 4, 2)]
    found = match_difference(first, second)
    assert found.both == 1
    assert [row["time"] for row in found.only_first] == ["01", "03"]
    assert [row["time"] for row in found.only_second] == ["02", "04"]
