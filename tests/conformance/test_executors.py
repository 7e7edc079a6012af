"""Every case in jobs: in batch, and as a stream of 1, 2, 3 and n micro-batches, stopped and restarted at every cut.

The embedded engine runs the same files as tests of their own (`*.case.yaml`). Here all cases go through one Spark job an
executor, and through worker processes of this machine. That a wrong expectation is noticed is shown for each runner.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from ensue.testing.case_check import first_difference, side_by_side
from ensue.testing.case_run import JobRuns, Outcome, run_embedded
from ensue.testing.cases import Case, Row, read_cases

FOLDERS = (Path(__file__).parent, Path(__file__).parents[2] / "queries")
CASES = [case for folder in FOLDERS for file in sorted(folder.rglob("*.case.yaml")) for case in read_cases(file)]


def altered(case: Case) -> list[Case]:
    """The case with one expectation changed, once for each kind of expectation that it has."""
    changes = {"out": [["none"]], "discard": "early"}
    found = []
    for number, row in enumerate(case.rows):
        for key, wrong in changes.items():
            if key in row.given:
                rows = [*case.rows]
                rows[number] = Row({**row.given, key: wrong})
                found.append(replace(case, rows=tuple(rows)))
    return found


def differences(outcomes: Iterable[Outcome]) -> list[str]:
    """What differs, as printed."""
    told = []
    for outcome in outcomes:
        place = first_difference(outcome.expected, outcome.observed)
        if place is not None:
            told.append(f"{outcome.what}\n{side_by_side(outcome.expected, outcome.observed, place)}")
    return told


WRONG = [wrong for case in CASES if case.name == "case1_out_of_order_annotation" for wrong in altered(case)]


@pytest.mark.parametrize("executor", ["local", "batch", "stream"])
def test_every_case_gives_the_same_in_jobs_and_a_wrong_one_is_noticed(executor: str) -> None:
    runs = JobRuns(executor, [*CASES, *WRONG])
    told = [f"{case.name}: {text}" for case in CASES for text in differences(runs.outcomes(case))]
    assert not told, "\n\n".join(told)
    assert WRONG
    for case in WRONG:
        outcomes = runs.outcomes(case)
        assert len(differences(outcomes)) == len(outcomes)


def test_a_wrong_expectation_is_noticed_by_the_embedded_runs() -> None:
    for case in WRONG:
        assert len(differences(run_embedded(case))) == 2


def test_the_published_cases_are_here() -> None:
    assert len([case for case in CASES if case.file.name == "apama.case.yaml"]) == 13
