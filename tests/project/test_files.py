"""How many files a package has, how many of its modules are doors, and how many lines are imports: bounds that only go
down. And which names of classes a package has."""

from __future__ import annotations

import ast
from collections import Counter

import pytest

from tests.project.import_rules import DOORS, MOST_DOORS, MOST_FILES, MOST_IMPORT_LINES
from tests.project.modules import FILES
from tests.project.repository import PACKAGES


def import_lines(source: str) -> int:
    """The lines of a file that are imports, function-level ones too."""
    nodes = [node for node in ast.walk(ast.parse(source)) if isinstance(node, (ast.Import, ast.ImportFrom))]
    return sum((node.end_lineno or node.lineno) - node.lineno + 1 for node in nodes)


def sources(package: str) -> list[str]:
    """The text of each file of a package."""
    return [path.read_text() for module, path in FILES.items() if f"{module}.".startswith(f"{package}.")]


def doors(package: str) -> int:
    """The doors of all folders of a package."""
    return sum(len(names.split()) for folder, names in DOORS.items() if folder.startswith(f"{package}."))


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_has_few_files(package: str) -> None:
    assert len(sources(package)) <= MOST_FILES[package]


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_has_few_doors(package: str) -> None:
    assert doors(package) <= MOST_DOORS[package]


def test_at_most_one_module_in_four_is_a_door() -> None:
    assert 4 * sum(map(doors, PACKAGES)) <= len(FILES)


@pytest.mark.parametrize("package", PACKAGES)
def test_few_lines_of_a_package_are_imports(package: str) -> None:
    texts = sources(package)
    of_a_thousand = 1000 * sum(map(import_lines, texts)) // sum(len(text.splitlines()) for text in texts)
    assert of_a_thousand <= MOST_IMPORT_LINES[package]


def test_lines_of_imports_are_counted() -> None:
    assert import_lines("import a\nfrom b import (\n    c,\n    d,\n)\n\ndef f():\n    import e\n") == 6


TREE = "querylang.syntax.ast"
"""The syntax tree and the plan name what they have in common alike."""

OF_EACH_KIND = {"Publishing", "Writing"}
"""What each kind of sink has, in a module that is named alike (`job_engine/sinks/kinds.py`)."""


@pytest.mark.parametrize("package", PACKAGES)
def test_a_class_has_a_name_of_its_own_in_its_package(package: str) -> None:
    names = Counter(
        node.name
        for module, path in FILES.items()
        if f"{module}.".startswith(f"{package}.") and module != TREE
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    assert {name for name, count in names.items() if count > 1} <= OF_EACH_KIND
