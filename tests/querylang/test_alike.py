"""Queries that differ in constants and names are checked as one: with the plans, warnings and mistakes of each by itself."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from querylang.checker.alike import pieces
from querylang.checker.checked import Checked
from querylang.checker.query.check_query import check_query
from querylang.errors import QueryErrors
from querylang.load import check_paths
from querylang.source import Source
from tests.support.rule_books import EVENTS, rule_book


def _outcome(sources: list[Source]) -> tuple[Checked | None, list[str]]:
    """What is checked, and all warnings or mistakes."""
    try:
        checked = check_paths(sources)
    except QueryErrors as errors:
        return None, list(map(str, errors.errors))
    return replace(checked, warnings=()), list(map(str, checked.warnings))


def _each_by_itself(sources: list[Source], patch: pytest.MonkeyPatch) -> tuple[Checked | None, list[str]]:
    with patch.context() as own:
        own.setattr("querylang.checker.alike.FEWEST", 1 << 40)
        return _outcome(sources)


@pytest.mark.parametrize("has_mistakes", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_books_have_the_plans_warnings_and_mistakes_of_each_query_by_itself(
    seed: int, has_mistakes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    sources = rule_book(random.Random(f"{seed}{has_mistakes}"), has_mistakes=has_mistakes)
    assert _outcome(sources) == _each_by_itself(sources, monkeypatch)


def _checked_by_themselves(text: str, patch: pytest.MonkeyPatch) -> int:
    """How many queries of a text are checked, by themselves or with marks."""
    count = 0

    def counted(*given: Any) -> Any:
        nonlocal count
        count += 1
        return check_query(*given)

    with patch.context() as own:
        own.setattr("querylang.checker.alike.check_query", counted)
        check_paths([Source("book.query", EVENTS + text)])
    return count


@pytest.mark.parametrize(
    "form",
    [
        "inputs {{ E(code = {n} or code in [{n}, 77]) key k within 60.0; }} find E as a where a.v > {n} and a.code = {n}",
        'inputs {{ E(s.like("*{n}*")) key k within 60.0; }} find E as a -> E as b where b.v > a.v - {n}.5 {{ print "{n}"; }}',
        "// {n}\n inputs {{ E() key k within 60.0; }} find every E as a select sum(a.v) as t having t > -{n}",
    ],
)
def test_many_queries_of_a_form_are_checked_twice(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "".join(f"query Q{n} {{ {form.format(n=n + 1000)} }}\n" for n in range(30))
    assert _checked_by_themselves(text, monkeypatch) == 2


def test_a_constant_that_the_plan_does_not_have_as_it_is_makes_other_forms(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "".join(
        f"query Q{n} {{ inputs {{ E() key k within {n % 3 + 1}.0; }} find E as a where a.v > {n} }}\n"
        for n in range(30)
    )
    assert _checked_by_themselves(text, monkeypatch) == 6


@pytest.mark.parametrize(
    "text",
    [
        "query A { inputs { E(code = 1) key `k` within 1.0; } find E as a }",
        'query A { inputs { E(s = "a\n") key k within 1.0; } find E as a }',
        "query A { inputs { E(code = 1) key k within 1.0; } find E as a } }",
        "query A { inputs { E(code = 1) key k within 1.0; } find E as a",
        "query find { inputs { E(code = 1) key k within 1.0; } find E as a }",
    ],
)
def test_an_unusual_text_has_no_pieces(text: str) -> None:
    assert pieces(text) == []


def test_braces_in_strings_and_comments_are_not_the_end_of_a_query() -> None:
    text = 'query A { /* } */ inputs { E(s = "}") key k within 1.0; } // }\n find E as a } query B{}'
    assert [(piece.name, text[piece.start : piece.end][-2:]) for piece in pieces(text)] == [("A", " }"), ("B", "{}")]


def test_a_book_of_files_is_checked_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    header, query = "package p; using q.*;", "inputs { E(code = 1) key k within 1.0; } find E as a where a.code = 1"
    files = [Source(f"{n}.query", f"{header} query Q{n} {{ {query.replace('1', str(n))} }}") for n in range(1, 9)]
    found = _outcome([Source("events.query", EVENTS), *files])
    assert found == _each_by_itself([Source("events.query", EVENTS), *files], monkeypatch)
