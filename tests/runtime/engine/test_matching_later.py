"""What an engine leaves to whoever gathers its matches."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from querylang import compile_text
from runtime.engine.engine import Engine
from runtime.matching.interface import Found, Matcher, Ordered
from runtime.matching.matchers import ChainMatcher, KernelMatcher, RunKernelMatcher
from runtime.replay.replay import read_records
from runtime.results.match_table import gather_table

INPUTS = "event A { integer v; } query Q { inputs { A() within 1 minute; } "
ROWS = [{"at": float(number), "event": "A", "v": number % 3} for number in range(9)]


@pytest.fixture
def searches(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A list that gets an entry with each search."""
    made: list[int] = []
    for matcher in (ChainMatcher, KernelMatcher, RunKernelMatcher):
        monkeypatch.setattr(matcher, "match", _noted(matcher.match, made))
    return made


def _noted(search: Callable[..., Found], made: list[int]) -> Callable[..., Found]:
    """The same search; each one adds its number of events to `made`."""

    def match(matcher: Matcher, events: Ordered) -> Found:
        made.append(len(events.row))
        return search(matcher, events)

    return match


@pytest.mark.parametrize("pattern", ["A as a -> A as b where b.v = a.v", "A as a+ -> A as b where b.v < 0"])
def test_a_search_that_only_finds_matches_is_left_to_whoever_gathers_them(searches: list[int], pattern: str) -> None:
    plan = compile_text(INPUTS + f"find {pattern}; }}").plan
    arrivals = read_records([ROWS], plan).arrivals
    results = Engine(plan, "kernel", gathers_later=True).process(arrivals)
    assert not searches
    later = results.found["Q"]()
    assert len(searches) == 1
    at_once = Engine(plan, "kernel").process(arrivals)
    assert not at_once.found
    if len(later.matched):
        assert gather_table(later) == at_once.matches["Q"]
    else:
        assert not at_once.matches


@pytest.mark.parametrize(
    "pattern",
    [
        "A as a -> A as b where b.v = a.v after match skip past last event",
        "A as a -> A as b -> wait(5 seconds) as w where b.v = a.v",
        "all A as a -> A as b where b.v = a.v",
    ],
)
def test_a_search_that_the_next_call_depends_on_is_not_left(searches: list[int], pattern: str) -> None:
    plan = compile_text(INPUTS + f"find {pattern}; }}").plan
    Engine(plan, "kernel", gathers_later=True).process(read_records([ROWS], plan).arrivals)
    assert searches
