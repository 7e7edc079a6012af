"""The cases of other engines: the matcher that a query gets, the reference matcher and the oracle find what they say."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

import ensue
from ensue.answer import Replay
from ensue.importing.translation import translate
from querylang.errors import FileErrors
from runtime.replay.replay import measured_replay
from tests.conformance.engine_cases import EngineCase, engine_cases
from tests.oracle.letters import match_text, shown
from tests.oracle.query import Match
from tests.oracle.running import by_query

CASES = engine_cases()
SQL = [case for case in CASES if case.sql]


def found(case: EngineCase) -> dict[str, list[str]]:
    """By who looked, a text per match."""
    query, stream = case.asked(), case.rows()
    replay = ensue.replay(case.text(), case.records())
    results, figures = measured_replay(replay.plan, replay.records, matcher="reference")
    reference = Replay(replay.plan, replay.records, results, figures, None, flush=True)
    return {
        "oracle": shown(query, stream),
        "ensue.replay": as_texts(case, replay),
        "reference matcher": as_texts(case, reference),
    }


def as_texts(case: EngineCase, replay: Replay) -> list[str]:
    """A text per match of a replay."""
    query, stream = case.asked(), case.rows()
    return [match_text(query, Match(*match), stream) for match in by_query(replay, {"Q": ()}).get("Q", [])]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_case_of_another_engine_gives_what_it_says(case: EngineCase) -> None:
    for who, matches in found(case).items():
        assert matches == [*case.matches], f"{who} of\n{case.text()}over {case.events}"


@pytest.mark.parametrize("case", SQL, ids=lambda case: case.name)
def test_a_row_pattern_is_translated_to_what_finds_the_same_or_refused(case: EngineCase) -> None:
    if case.imported != "translated":
        with pytest.raises(FileErrors) as refused:
            translate(case.sql_text(), "rows.sql", "Q")
        assert all(line == 3 for line, _ in refused.value.found)
        assert case.imported in str(refused.value)
        return
    query = translate(case.sql_text(), "rows.sql", "Q")
    assert as_texts(case, ensue.replay(case.definitions() + query, case.records())) == [*case.matches], query


def test_a_wrong_expectation_is_noticed() -> None:
    case = next(case for case in CASES if case.matches)
    wrong = replace(case, matches=case.matches[1:])
    with pytest.raises(AssertionError, match="oracle"):
        test_a_case_of_another_engine_gives_what_it_says(wrong)


def test_names_are_unique_and_a_difference_is_one() -> None:
    assert not [name for name, count in Counter(case.name for case in CASES).items() if count > 1]
    assert not [case.name for case in CASES if case.theirs is not None and sorted(case.theirs) == sorted(case.matches)]
