"""Which queries are searched behind looser ones, and that each search is made once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
import pytest

from querylang import compile_text
from querylang.plan.model import QueryPlan
from runtime.matching.interface import Found, Ordered
from runtime.matching.serving import Search, Tighter, from_loosest_on, in_known_order

TYPES = "event A { integer n; float f; string s; decimal d; }\n"


def queries(conditions: list[str], form: str = "find A as a -> A as b where {}") -> list[QueryPlan]:
    texts = [
        f"query Q{number} {{ inputs {{ A() within 9.0; }} {form.replace('{}', own)} }}"
        for number, own in enumerate(conditions)
    ]
    return list(compile_text(TYPES + "\n".join(texts)).plan.queries)


@pytest.mark.parametrize(
    ("looser", "tighter"),
    [
        ("b.f > 1.0", "b.f > 2.0"),
        ("1.0 <= b.f", "2.0 <= b.f"),
        ("b.f < 2.0", "b.f < 1.0"),
        ("b.n >= -2", "b.n >= 1"),
        ("b.n - a.n > 1", "b.n - a.n > 2"),
        ("b.f > a.f + 1.0", "b.f > a.f + 2.0"),
        ("b.f > a.f - 2.0", "b.f > a.f - 1.0"),
        ("b.f > -(a.f + 2.0)", "b.f > -(a.f + 1.0)"),
        ("b.f > 1.0 - (a.f - 1.0)", "b.f > 1.0 - (a.f - 2.0)"),
        ("b.f + 2.0 > a.f", "b.f + 1.0 > a.f"),
        ("b.f > a.f + 1.0 and b.n < 5", "b.f > a.f + 1.0 and b.n < 4"),
        ("b.f > a.f + 1.0 or b.n < 5", "b.f > a.f + 2.0 or b.n < 4"),
        ("b.f > a.f * 2.0 + 1.0", "b.f > a.f * 2.0 + 2.0"),
        ("(b.f - a.f).abs() > 1.0", "(b.f - a.f).abs() > 2.0"),
    ],
)
def test_a_tighter_query_is_searched_behind_the_looser_one(looser: str, tighter: str) -> None:
    assert from_loosest_on(queries([tighter, looser])) == [Tighter(1), Tighter(0, 1)]


@pytest.mark.parametrize(
    "conditions",
    [
        ["b.n > a.n + 1", "b.n > a.n + 2"],  # sums of integers overflow
        ["b.f > a.f * 1.0", "b.f > a.f * 2.0"],
        ["b.f > a.f / 1.0", "b.f > a.f / 2.0"],
        ["b.n = 1", "b.n = 2"],
        ["b.n != 1", "b.n != 2"],
        ["not b.n > 1", "not b.n > 2"],
        ["(b.n > 1) = (a.n > 1)", "(b.n > 2) = (a.n > 1)"],
        ['b.s > "a"', 'b.s > "b"'],
        ["b.f > 1.0", "b.f >= 2.0"],
        ["b.f > 1.0 and b.n < 5", "b.f > 2.0 and b.n < 6"],
        ["b.f / -0.0 > 1.0", "b.f / -0.0 > 1.0"],
        ["b.f >= a.f - float.INFINITY", "b.f >= a.f - 1.0"],  # infinity less infinity is NaN
    ],
)
def test_other_queries_are_searched_alone(conditions: list[str]) -> None:
    assert all(item.looser is None for item in from_loosest_on(queries(conditions)))


def test_thresholds_of_a_without_are_none() -> None:
    form = "find A as a -> A as b without A as w where {}"
    assert all(item.looser is None for item in from_loosest_on(queries(["w.f > 1.0", "w.f > 2.0"], form)))


def test_queries_that_differ_in_results_search_for_the_same() -> None:
    found = queries(["b.f > 1.0 select a.n as x", 'b.f > 1.0 { print "x"; }', "b.f > 1.0 select b.n + 1 as y"])
    assert from_loosest_on(found) == [Tighter(0), Tighter(1, 0, is_equal=True), Tighter(2, 1, is_equal=True)]


def test_other_aggregates_are_another_search() -> None:
    every = "find every A as a select count() as n having {}"
    assert from_loosest_on(queries(["count() > 1", "count() > 2"], every))[1] == Tighter(1, 0, is_equal=True)
    assert from_loosest_on(queries(["count() > 1", "sum(a.n) > 2"], every))[1] == Tighter(1)


def test_the_order_of_the_same_queries_is_found_once() -> None:
    found = queries(["b.f > 1.0", "b.f > 2.0"])
    assert in_known_order(found) is in_known_order(list(found))
    assert in_known_order(found) == from_loosest_on(found)
    assert in_known_order(found[:1]) == [Tighter(0)]


def test_each_query_comes_once_and_behind_its_looser_one() -> None:
    found = from_loosest_on(queries([f"b.f > {n % 7}.0 and b.n > {n * 5 % 11}" for n in range(50)]))
    assert sorted(item.query for item in found) == list(range(50))
    places = {item.query: place for place, item in enumerate(found)}
    assert all(places[item.looser] < places[item.query] for item in found if item.looser is not None)
    assert sum(item.looser is None for item in found) == 1, "one is the loosest"


class _Matcher:
    """Finds each event that may end a match and has at least some position."""

    only_finds = takes_may_end = True

    def __init__(self, least: int) -> None:
        self.least, self.seen = least, list[int]()

    def match(self, events: Ordered) -> Found:
        allowed = np.flatnonzero(events.may_end) if len(events.may_end) else np.arange(len(events.row))
        self.seen.append(len(allowed))
        found = allowed[allowed >= self.least]
        return Found(found, np.empty((len(found), 0), np.int64))


def test_a_chain_of_searches_is_as_long_as_it_is_and_asks_each_once() -> None:
    count = 3_000
    none = np.empty(0, np.int64)
    events = Ordered(none, none, np.arange(count, dtype=np.int32), none.astype(np.int16), none, none, pa.table({}))
    matchers, searches = [_Matcher(number) for number in range(count)], list[Search]()
    for matcher in matchers:
        searches.append(Search(matcher, events, looser=searches[-1] if searches else None))
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda search: len(search.found().latest), reversed(searches)))
    assert found == list(range(1, count + 1))
    assert [matcher.seen for matcher in matchers] == [[count], *([n] for n in range(count, 1, -1))]
