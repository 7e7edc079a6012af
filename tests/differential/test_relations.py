"""What follows from a query's matches over one stream holds for the changed query, or the changed stream."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.differential import relations
from tests.differential.book_relations import BOOK_RELATIONS, tried_book
from tests.differential.relations import RELATIONS, tried


@pytest.mark.parametrize("name", [*RELATIONS, *BOOK_RELATIONS])
def test_what_must_follow_follows(name: str, request: pytest.FixtureRequest) -> None:
    ask, per_stream = (tried_book, 30) if name in BOOK_RELATIONS else (tried, 5)
    count: int = max(1, request.config.getoption("--streams") // per_stream)
    first: int = request.config.getoption("--streams-seed") * 1_000_000
    said = [own for seed in range(first, first + count) if (own := ask(seed, name)) is not None]
    wrong = [own.wrong for own in said if own.wrong]
    assert not wrong, wrong[0]
    assert count < 30 or any(own.has_matches for own in said), f"{name}: no scenario with matches"


@pytest.mark.parametrize("name", RELATIONS)
def test_a_lost_match_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = relations.Side.answer
    originals = [relations.side_of(relations.scenario_of(seed)) for seed in range(60)]

    def without_one(side: relations.Side) -> relations.Answer:
        found = whole(side)
        is_original = any((own.scenario, own.rows) == (side.scenario, side.rows) for own in originals)
        return found if is_original or not found else found - Counter([max(found, key=repr)])

    monkeypatch.setattr(relations.Side, "answer", without_one)
    said = (tried(seed, name) for seed in range(60))
    assert any(own is not None and own.wrong for own in said)
