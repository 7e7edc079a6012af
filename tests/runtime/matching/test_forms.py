"""Queries that differ in constants only are compiled as one: to the tables of each by itself."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

import querylang
from querylang.errors import QueryErrors
from querylang.load import compile_paths
from querylang.parameters import instances_of
from querylang.plan.constants import Constant, Numbers, numbers_of
from querylang.plan.model import QueryPlan
from querylang.plan.questions import has_additions
from querylang.source import Source
from runtime.matching.kernel import compilation, forms
from runtime.matching.kernel.forms import _OWN, Shared, _is_equal
from runtime.matching.kernel.program import NotForKernel
from tests.support.rule_books import EVENTS, rule_book


def _outcome(compiled: Any, query: QueryPlan) -> Any:
    try:
        return compiled(query, ())
    except NotForKernel as reason:
        return str(reason)


def _queries(seed: int) -> list[QueryPlan]:
    """The instances of a book without mistakes."""
    for number in range(100):
        try:
            plan = compile_paths(rule_book(random.Random(f"{seed} {number}"), has_mistakes=False)).plan
        except QueryErrors:
            continue
        return [own for query in plan.queries for own in instances_of(query)]
    raise AssertionError("some book has no mistakes")


@pytest.mark.parametrize("seed", range(10))
def test_tables_are_those_of_each_query_by_itself(seed: int) -> None:
    queries, runs = Shared(compilation._compiled_query), Shared(compilation._compiled_runs)
    for query in _queries(seed):
        is_run = has_additions(query)
        alone = compilation._compiled_runs if is_run else compilation._compiled_query
        assert _is_equal(_outcome(runs if is_run else queries, query), _outcome(alone, query)), query


def _limited() -> tuple[QueryPlan, ...]:
    """Queries that differ in their `at most`."""
    form = "query %s { inputs { E() key k within 60.0; } find every E as a select count() as n at most 1 per 1.0%s }"
    text = "".join(
        form % (f"Q{number}", by) for number, by in enumerate(("", " by sum(a.v)", " by max(a.v), avg(a.v)"))
    )
    return compile_paths([Source("book.query", EVENTS + text)]).plan.queries


@pytest.mark.parametrize("seed", range(3))
def test_what_no_form_depends_on_is_in_no_table(seed: int) -> None:
    """Each field of a query that is left out of forms may be that of another query."""
    for query, donor in pairwise([*_queries(seed), *_limited()]):
        is_run = has_additions(query)
        alone = compilation._compiled_runs if is_run else compilation._compiled_query
        other = replace(query, **{name: getattr(donor, name) for name in _OWN - {"inputs"}})
        assert _is_equal(_outcome(alone, other), _outcome(alone, query)), (query, donor)


def _counted(text: str) -> tuple[int, int]:
    """How many queries a text has, and how often something is compiled for them."""
    count = 0

    def compiled(query: QueryPlan, types: Any) -> Any:
        nonlocal count
        count += 1
        return compilation._compiled_query(query, types)

    shared = Shared(compiled)
    queries = compile_paths([Source("book.query", EVENTS + text)]).plan.queries
    for query in queries:
        shared(query)
    return len(queries), count


def test_a_form_is_compiled_twice() -> None:
    form = 'inputs { E(code = %d) key k within 60.0; } find E as a -> E as b where b.v > a.v + %d.5 and b.s = "%d" and a.code = %d'
    assert _counted("".join(f"query Q{n} {{ {form.replace('%d', str(n))} }}" for n in range(1, 30))) == (29, 2)


def test_a_constant_that_is_not_in_the_tables_as_it_is_keeps_queries_apart() -> None:
    form = "inputs { E() key k within 60.0; } find E as a -> E as b where b.getTime() < a.getTime() + %d.5"
    assert _counted("".join(f"query Q{n} {{ {form.replace('%d', str(n))} }}" for n in range(1, 30))) == (29, 30)


def test_zero_and_minus_zero_are_not_the_same() -> None:
    form = "inputs { E() key k within 60.0; } find E as a -> E as b where b.v * %s > a.v * %s"
    values = [("0.0", "0.0"), ("-0.0", "0.0"), ("0.0", "-0.0"), ("1.0", "2.0"), ("2.0", "-0.0"), ("-0.0", "-0.0")]
    text = "".join(f"query Q{n} {{ {form % pair} }}" for n, pair in enumerate(values))
    shared = Shared(compilation._compiled_query)
    for query in compile_paths([Source("book.query", EVENTS + text)]).plan.queries:
        assert _is_equal(shared(query), compilation._compiled_query(query, ()))


@pytest.mark.parametrize(
    "form",
    [
        "a.code > %d and (a.code + b.code) %% %d = 0",
        'b.s = "%d" and a.s.split("%d").size() > 1 and a.s < b.s',
        'b.s = "10.0.0.%d/32" and a.s.inNetwork("10.0.0.%d/32")',
    ],
)
def test_a_constant_that_is_also_where_none_is_free(form: str) -> None:
    """One and the same number on both sides in one query, and different ones in the next."""
    start = "inputs { E() key k within 60.0; } find E as a -> E as b where "
    values = [(5, 5, 5), (7, 5, 6), (5, 7, 5), (5, 5, 7), (7, 7, 5), (3, 5, 5), (5, 3, 3)]
    text = "".join(f"query Q{n} {{ {start}{form % own[: form.count('%d')]} }}" for n, own in enumerate(values))
    shared = Shared(compilation._compiled_query)
    for query in compile_paths([Source("book.query", EVENTS + text)]).plan.queries:
        assert _is_equal(shared(query), compilation._compiled_query(query, ()))


def test_aggregates_of_at_most_are_in_the_tables() -> None:
    shared = Shared(compilation._compiled_query)
    for query in _limited():
        assert _is_equal(shared(query), compilation._compiled_query(query, ()))


def test_constants_are_numbered_once_however_many_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def counted(marks: Sequence[Constant]) -> Numbers:
        asked.append(len(marks))
        return numbers_of(marks)

    monkeypatch.setattr(forms, "numbers_of", counted)
    for first in (1, 9_001):
        numbers = ", ".join(map(str, range(first, first + 400)))
        plan = querylang.compile_text(
            f"event A {{ integer n; }} query Q {{ inputs {{ A() within 9.0; }} find A as a -> A as b where [{numbers}].contains(a.n) }}"
        ).plan
        compilation.compile_query(plan.queries[0])
    assert asked == [400]
