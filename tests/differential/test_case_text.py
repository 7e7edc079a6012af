"""A counter-example is printed as a case that can be put beside the others: such cases are read and hold."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from ensue.testing.case_check import first_difference, side_by_side
from ensue.testing.case_run import run_embedded
from ensue.testing.cases import read_cases
from tests.differential.patterns import random_queries
from tests.support.case_text import case_lines
from tests.support.scenario import Scenario

KINDS = ("A", "B", "C", "HA", "HB", "HC", "H", "U", "tick", "control")


def tellable(scenario: Scenario) -> Scenario:
    """The scenario with rows of one source, without what a case tells in other words."""
    rows = tuple(replace(row, source="t", partition=0) for row in scenario.rows if row.kind in KINDS)
    return replace(scenario, rows=rows, name="Q", prints=scenario.every is not None)


@cache
def drawn(number: int) -> list[Scenario]:
    return random_queries(number, 4)


@pytest.mark.parametrize("place", range(4))
@pytest.mark.parametrize("number", range(7_000_000, 7_000_012))
def test_a_scenario_as_a_case_holds(number: int, place: int, tmp_path: Path) -> None:
    scenario = tellable(drawn(number)[place])
    (tmp_path / "Q.query").write_text(scenario.query(), "utf-8")
    (tmp_path / "Q.case.yaml").write_text("\n".join(case_lines(scenario)), "utf-8")
    (case,) = read_cases(tmp_path / "Q.case.yaml")
    for outcome in run_embedded(case):
        place = first_difference(outcome.expected, outcome.observed)
        assert place is None, f"{outcome.what}\n{side_by_side(outcome.expected, outcome.observed, place or 0)}"
