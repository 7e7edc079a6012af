"""Listed changes are found again when their functions move, and are tried against the tests that reach them."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from tests.mutation.changes import PACKAGES, Change, apply, find, possible_changes
from tests.mutation.listed import read_list, redrawn
from tests.mutation.reach import Reach, read_reach

SOURCE = """\
class A:
    def least(self, low, high):
        if low < high:
            return low
        if low < high:
            return high
        return min(low, high)
"""
SECOND = Change("runtime", "A.least", "if low < high:", "if low <= high:", 2, "comparison")


def tree(folder: Path, **files: str) -> Path:
    for package in PACKAGES:
        (folder / package).mkdir()
    for name, text in files.items():
        (folder / name.replace("__", "/")).with_suffix(".py").write_text(text, "utf-8")
    return folder


def test_a_change_is_made_at_its_occurrence(tmp_path: Path) -> None:
    root = tree(tmp_path, runtime__a=SOURCE)
    spot = find(SECOND, root)
    assert spot is not None
    apply(SECOND, spot)
    assert (root / "runtime/a.py").read_text("utf-8").splitlines()[4] == "        if low <= high:"


@pytest.mark.parametrize(
    "moved",
    [
        {"runtime__b": f"\n\n{SOURCE}"},
        {"ensue__a": SOURCE},
        {"runtime__a": SOURCE.replace("least", "smallest")},
        {"runtime__a": SOURCE, "ensue__a": SOURCE},
    ],
    ids=["another module", "another package", "another name", "the package decides"],
)
def test_it_is_found_wherever_its_function_is(tmp_path: Path, moved: dict[str, str]) -> None:
    assert find(SECOND, tree(tmp_path, **moved)) is not None


@pytest.mark.parametrize(
    "now",
    [{"runtime__a": SOURCE.replace("<", "!=")}, {"runtime__a": SOURCE, "runtime__b": SOURCE}],
    ids=["its text is gone", "two functions fit"],
)
def test_it_is_lost_rather_than_made_elsewhere(tmp_path: Path, now: dict[str, str]) -> None:
    assert find(SECOND, tree(tmp_path, **now)) is None


def test_all_kinds_of_changes_of_a_text(tmp_path: Path) -> None:
    found = [change for change, _ in possible_changes("runtime", tree(tmp_path, runtime__a=SOURCE))]
    assert [(change.operator, change.after, change.occurrence) for change in found] == [
        ("comparison", "if low <= high:", 1),
        ("answer", "return None", 1),
        ("comparison", "if low <= high:", 2),
        ("answer", "return None", 1),
        ("answer", "return None", 1),
        ("function", "return max(low, high)", 1),
    ]


def test_the_list_has_enough_changes_of_every_package() -> None:
    counts = Counter(listed.change.package for listed in read_list() if not listed.equivalent)
    assert sum(counts.values()) >= 120
    assert min(counts[package] for package in PACKAGES) >= 15


def test_notes_of_a_run_say_who_reaches_what(tmp_path: Path) -> None:
    (tmp_path / "gw0.tests").write_text("'a.py::one'\n'a.py::two'\n'b.py::three'\n", "utf-8")
    (tmp_path / "gw0.notes").write_text("1 2\n2 3\n1 6\n3 0\n", "utf-8")
    (tmp_path / "gw0.durations").write_text("('a.py::one', 'call', 0.5, 'passed', 0.4)\n", "utf-8")
    reach = read_reach(tmp_path)
    assert reach == Reach(
        {1: frozenset({"a.py::one", "b.py::three"}), 2: frozenset({"a.py::one", "a.py::two"})}, {"a.py::one": 0.5}
    )
    assert reach.in_order(1) == ["a.py::one", "b.py::three"]
    assert reach.in_order(3) == []


def test_what_is_lost_is_drawn_anew_and_the_rest_stays() -> None:
    kept, lost = read_list()[:2]
    gone = replace(lost, change=replace(lost.change, before="nobody writes this"))
    found = redrawn([kept, gone], 3)
    assert found[0] == kept
    assert (found[1].number, found[1].change.package) == (lost.number, lost.change.package)
    assert find(found[1].change) is not None
