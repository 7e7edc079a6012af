"""Ensue, with both matchers, finds what the oracle finds, in examples and in random queries.

`--streams N` runs twice as many queries, `--streams-seed S` others than those of every day.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.oracle import examples
from tests.oracle.letters import rows
from tests.oracle.random_patterns import ALL, EACH, TODAY, Switches
from tests.oracle.random_queries import Draw, random_draw
from tests.oracle.reader import read_find
from tests.oracle.running import differences

TOGETHER = 20
"""So many queries read one stream."""

REPEATS = replace(TODAY, repeats=True, groups=True, prev=True, folds=True)

IN_THE_LANGUAGE: dict[str, Switches] = {
    "today": TODAY,
    "selects, skip, find all, a wait that repeats": replace(
        TODAY, selects=True, skip=True, finds_all=True, repeated_wait=True
    ),
    "repeats": REPEATS,
    "repeats, strictly next": replace(REPEATS, next=True),
    "a wait in the middle": EACH["waits_in_sides"],
    "all": ALL,
}
"""What random queries use."""

EXAMPLES_IN_THE_LANGUAGE = (
    *examples.TODAY,
    *(
        example
        for example in (
            *examples.AFTER_MATCH,
            *examples.FIND_ALL,
            *examples.RUNS,
            *examples.RUN_CONDITIONS,
            *examples.NEXT,
            *examples.WAITS_IN_THE_MIDDLE,
        )
        # A side of an `or` that may be empty is refused.
        if " * or " not in example[0]
    ),
    *examples.SELECTS,
)
"""Without what is refused."""


@pytest.mark.parametrize("switches", IN_THE_LANGUAGE.values(), ids=IN_THE_LANGUAGE.keys())
def test_random_queries_find_what_the_oracle_finds(switches: Switches, request: pytest.FixtureRequest) -> None:
    draws = max(1, request.config.getoption("--streams") * 2 // TOGETHER)
    first = request.config.getoption("--streams-seed") * 1_000_000
    for seed in range(first, first + draws):
        found = differences(random_draw(seed, switches, TOGETHER))
        assert not found, f"{len(found)} differences with seed {seed}, the first:\n{found[0]}"


def test_examples_are_found() -> None:
    for find, inputs, events, _ in EXAMPLES_IN_THE_LANGUAGE:
        found = differences(Draw(tuple(rows(events)), (read_find(find, inputs),), late=False))
        assert not found, found[0]


def test_a_wrong_oracle_is_noticed() -> None:
    draw = random_draw(3, TODAY, TOGETHER)
    wrong = tuple(replace(query, leading=None, conditions=()) for query in draw.queries)
    assert differences(draw, oracle=wrong)
