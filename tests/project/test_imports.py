"""Packages, folders and modules import in one direction, and `ensue check` loads nothing that it does not need."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.project.import_rules import BORROWED, DOORS, FOREIGN, LAYERS, MOST_IMPORTS
from tests.project.modules import FILES, cycles, imported_names, imports, part_of
from tests.project.repository import PACKAGES, ROOT

SLOW = {"numba", "pandas", "pyarrow", "pyspark"}


def allowed(package: str) -> set[str]:
    before = set(PACKAGES[: PACKAGES.index(package) + 1])
    return before | FOREIGN[package] | set(sys.stdlib_module_names)


def refused(package: str, source: str) -> list[str]:
    return sorted({name.split(".")[0] for name in imported_names(source)} - allowed(package))


def upward(folder: str, order: str, imports: dict[str, set[str]]) -> list[str]:
    """Imports inside a folder that go to a part further right, and parts that the order does not have."""
    place = {part: at for at, part in enumerate(order.split())}
    found = []
    for module, targets in imports.items():
        own = part_of(folder, module)
        for target in sorted(targets):
            other = part_of(folder, target)
            if own is not None and other is not None and place.get(other, len(place)) > place.get(own, -1):
                found.append(f"{module} imports {target}")
    return found


def through_walls(folder: str, doors: str, imports: dict[str, set[str]]) -> list[str]:
    """Imports from outside a folder of modules that are not its doors."""
    return [
        f"{module} imports {target}"
        for module, targets in imports.items()
        for target in sorted(targets)
        if target.startswith(f"{folder}.")
        and not f"{module}.".startswith(f"{folder}.")
        and target.removeprefix(f"{folder}.") not in doors.split()
    ]


@pytest.mark.parametrize("module", FILES)
def test_packages_import_in_one_direction(module: str) -> None:
    assert refused(module.split(".", maxsplit=1)[0], FILES[module].read_text()) == []


@pytest.mark.parametrize("folder", LAYERS)
def test_the_parts_of_a_folder_import_in_one_direction(folder: str) -> None:
    assert upward(folder, LAYERS[folder], imports()) == []


def test_every_part_has_its_place_in_the_order() -> None:
    for folder, order in LAYERS.items():
        parts = {part_of(folder, module) for module in FILES} - {None, "__main__"}
        assert parts - set(order.split()) == set(), folder


@pytest.mark.parametrize("folder", DOORS)
def test_a_folder_is_entered_by_its_doors(folder: str) -> None:
    assert through_walls(folder, DOORS[folder], imports()) == []


def test_every_folder_has_doors_and_every_door_is_used() -> None:
    used = {
        target for module, targets in imports().items() for target in targets if folder_of(module) != folder_of(target)
    }
    listed = {f"{folder}.{door}".removesuffix(".__init__") for folder, doors in DOORS.items() for door in doors.split()}
    assert {target for target in used if folder_of(target) is not None} == listed


def folder_of(module: str) -> str | None:
    """The folder of a package that a module is in, as its `__init__` is; None for those at the package's root."""
    parts = module.split(".")
    is_folder = len(parts) == 2 and FILES[module].name == "__init__.py"
    return ".".join(parts[:2]) if len(parts) > 2 or is_folder else None


@pytest.mark.parametrize("module", MOST_IMPORTS)
def test_what_tells_the_stages_imports_little(module: str) -> None:
    modules = {name.rpartition(".")[0] or name for name in imported_names(FILES[module].read_text())}
    assert len(modules) <= MOST_IMPORTS[module], sorted(modules)


def test_there_is_no_cycle() -> None:
    assert cycles(imports()) == []


@pytest.mark.parametrize("package", BORROWED)
def test_what_is_taken_from_packages_before(package: str) -> None:
    taken = {
        ".".join(target.split(".")[:2])
        for module, targets in imports().items()
        if module.startswith(f"{package}.")
        for target in targets
        if not target.startswith(package)
    }
    assert taken <= BORROWED[package]


def from_test_modules(source: str) -> list[str]:
    """Imports from test modules: what tests share is in modules that hold no tests."""
    return [name for name in imported_names(source) if re.search(r"(?:^|\.)test_", name)]


def test_no_test_module_is_imported() -> None:
    found = {
        str(path.relative_to(ROOT)): from_test_modules(path.read_text()) for path in (ROOT / "tests").rglob("*.py")
    }
    assert {path: names for path, names in found.items() if names} == {}


def test_wrong_imports_are_noticed() -> None:
    assert refused("querylang", "def f():\n    import runtime.columns\n") == ["runtime"]
    assert refused("runtime", "from pyspark.sql import SparkSession\n") == ["pyspark"]
    inside_a_function = "def f():\n    from runtime.engine.engine import Engine\n"
    assert set(imported_names(inside_a_function)) == {"runtime.engine.engine.Engine"}
    wrong = {"runtime.columns.keys": {"runtime.engine.engine"}, "ensue.executors": {"runtime.matching.kernel.search"}}
    assert upward("runtime", LAYERS["runtime"], wrong) == ["runtime.columns.keys imports runtime.engine.engine"]
    assert through_walls("runtime.matching", DOORS["runtime.matching"], wrong) == [
        "ensue.executors imports runtime.matching.kernel.search"
    ]
    assert from_test_modules("from tests.support import sensors\nfrom tests.a import test_b, c\nimport test_d\n") == [
        "tests.a.test_b",
        "test_d",
    ]
    assert cycles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": set()}) == ["a", "b", "c"]


DEPLOYMENT = """
name: flights
queries: [a.query]
sources: {records: {format: parquet, path: in, ordering: stream_analytics late=5s start=10:00:00}}
sinks: {matches: {format: parquet, path: out}}
checkpoint: state
"""


COMMANDS = {
    "check": (["check", "a.query", "a.yaml"], SLOW | {"numpy"}),
    "check of queries": (["check", "a.query"], SLOW | {"numpy", "yaml"}),
    "replay": (["replay", "a.query", "a.csv"], SLOW - {"pyarrow"}),
    "status": (["status", "a.yaml"], SLOW - {"pyarrow"}),
}
"""Commands on small inputs, and the packages that they do without."""


@pytest.mark.parametrize("name", COMMANDS)
def test_small_commands_load_no_slow_package(name: str, tmp_path: Path) -> None:
    files = {
        "a.query": "inputs { A() within 30.0; }\nfind A as a1 -> A as a2\n",
        "a.yaml": DEPLOYMENT,
        "a.csv": "at,n\n10:00:00,1\n10:00:01,2\n10:00:02,x\n",
    }
    for file, text in files.items():
        (tmp_path / file).write_text(text)
    (tmp_path / "in").mkdir()
    script = (
        "import json, sys\nfrom ensue.cli import main\n"
        "try:\n    main()\nexcept SystemExit as end:\n    assert not end.code, end.code\n"
        "print(json.dumps(sorted({name.split('.')[0] for name in sys.modules})))\n"
    )
    arguments, slow = COMMANDS[name]
    environment = {key: value for key, value in os.environ.items() if key != "ENSUE_COMPILE"}
    command = [sys.executable, "-c", script, *arguments]
    environment |= {"PYTHONPATH": str(ROOT), "CI": "1"}
    answer = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True, env=environment)
    loaded = set(json.loads(answer.stdout.splitlines()[-1]))
    assert "querylang" in loaded
    assert loaded & slow == set()
