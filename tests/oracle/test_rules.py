"""Random queries are legal text, find something, and tell each rule of the oracle from its opposite."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest

from tests.oracle import conditions, expressions, inputs, placements, query
from tests.oracle.conditions import Moment, Without
from tests.oracle.expressions import Scope
from tests.oracle.query import Match, Skip
from tests.oracle.random_patterns import ALL, EACH, TODAY, Switches
from tests.oracle.random_queries import random_draw
from tests.oracle.reader import Reader

SWITCHES = {"today": TODAY, **EACH, "all": ALL}
TRUE_RECENCY = placements.recency

OPPOSITES: dict[str, tuple[object, str, Any, Switches]] = {
    "-> is strict": (placements, "is_before", lambda *_: True, TODAY),
    "the most recent wins": (query, "recency", lambda one, _: [-event.place for event in one.entries()], TODAY),
    "the last written name decides": (query, "recency", lambda one, names: TRUE_RECENCY(one, names[::-1]), TODAY),
    "unique": (inputs, "newest_of_each", lambda events, _: events, TODAY),
    "strictly after the first": (Moment, "is_before", lambda one, event: one.time <= event.time, TODAY),
    "strictly before the last": (Moment, "is_after", lambda one, event: one.time >= event.time, TODAY),
    "unset is ignored": (conditions, "named_moments", lambda *_: [conditions.Moment(0)], TODAY),
    "events added since": (query, "later", lambda *_: [], TODAY),
    "up to the wait's point": (Without, "reaches", lambda one, wait: wait in one.between, TODAY),
    "taken apart": (conditions, "is_addition", lambda *_: False, ALL),
    "empty counts like unset": (conditions.Candidate, "moments", lambda *_: [conditions.Moment(0)], EACH["repeats"]),
    "consecutive": (placements, "is_dense", lambda *_: True, EACH["repeats"]),
    "consecutive groups": (placements, "is_dense", lambda *_: True, EACH["groups"]),
    "=>": (placements, "may_follow", lambda left, _, right: placements.is_before(left, right), EACH["next"]),
    "waits": (placements, "may_follow", lambda left, _, right: placements.is_before(left, right), EACH["middle_waits"]),
    "prev": (Scope, "before", lambda scope, _: scope.members[0], EACH["prev"]),
    "prev that does not exist": (conditions, "lacks", lambda *_: True, EACH["prev"]),
    "skip": (Skip, "mark", lambda *_: 0, EACH["skip"]),
    "a side that is null": (
        *(expressions, "decided"),
        lambda one, other, by: None not in (one, other) and by in (one, other),
        ALL,
    ),
    "both sides are one": (query, "without_covered", lambda found, _: found, EACH["finds_all"]),
}
"""By rule: what is replaced by its opposite, and which queries have to notice it."""


def answers(switches: Switches, draws: int = 30) -> Iterator[list[Match]]:
    for seed in range(draws):
        draw = random_draw(seed, switches, 20)
        yield from (one.matches(draw.rows) for one in draw.queries)


@cache
def right_answers(switches: Switches) -> list[list[Match]]:
    return [*answers(switches)]


@pytest.mark.parametrize("rule", OPPOSITES)
def test_random_queries_notice_when_a_rule_is_broken(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, name, opposite, switches = OPPOSITES[rule]
    right = right_answers(switches)
    monkeypatch.setattr(owner, name, opposite)
    assert any(wrong != matches for wrong, matches in zip(answers(switches), right, strict=True))


@pytest.mark.parametrize("switches", SWITCHES.values(), ids=SWITCHES.keys())
def test_queries_are_read_from_their_own_text(switches: Switches) -> None:
    for one in random_draw(1, switches, 100).queries:
        found = one.find_text()
        again = Reader(found.removeprefix("find ")).query(one.inputs, one.keys)
        assert again.find_text() == found


@pytest.mark.parametrize("switches", SWITCHES.values(), ids=SWITCHES.keys())
def test_many_random_queries_find_something(switches: Switches) -> None:
    found = [bool(matches) for matches in answers(switches, 5)]
    assert sum(found) > len(found) / 5
