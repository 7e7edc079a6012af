"""The rooms import one way only, and `ensue check` loads nothing that it does not need."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.project.repository import PACKAGES, ROOT

FOREIGN = {
    "querylang": {"ply"},
    "runtime": {"numpy", "numba", "llvmlite", "pyarrow", "pandas", "yaml"},
    "spark_backend": {"numpy", "pyarrow", "pandas", "yaml", "pyspark", "py4j"},
    "ensue": {"numpy", "pyarrow", "pandas", "yaml", "pyspark", "typer", "click", "rich", "pytest", "_pytest"},
}
"""Other people's packages that a room may import."""

SLOW = {"numba", "pandas", "pyarrow", "pyspark"}


def imported_names(source: str) -> Iterator[str]:
    """The top-level name of every import of a module, wherever it stands."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names=names):
                yield from (alias.name.split(".")[0] for alias in names)
            case ast.ImportFrom(module=str(module), level=0):
                yield module.split(".")[0]
            case ast.ImportFrom():
                yield "a relative import"


def allowed(package: str) -> set[str]:
    before = set(PACKAGES[: PACKAGES.index(package) + 1])
    return before | FOREIGN[package] | set(sys.stdlib_module_names)


def refused(package: str, source: str) -> list[str]:
    return sorted(set(imported_names(source)) - allowed(package))


MODULES = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_run_one_way(path: Path) -> None:
    assert refused(path.relative_to(ROOT).parts[0], path.read_text()) == []


def test_a_wrong_import_would_be_seen() -> None:
    assert refused("querylang", "def f():\n    import runtime.columns.arrivals\n") == ["runtime"]
    assert refused("runtime", "from pyspark.sql import SparkSession\n") == ["pyspark"]


DEPLOYMENT = """
name: flights
queries: [a.query]
sources: {records: {format: parquet, path: ., ordering: stream_analytics late=5s start=10:00:00}}
sinks: {matches: {format: parquet, path: out}}
checkpoint: state
"""


def test_check_loads_no_slow_package(tmp_path: Path) -> None:
    files = {"a.query": "inputs { A() within 30.0; }\nfind A as a1 -> A as a2\n", "a.yaml": DEPLOYMENT}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    script = (
        "import json, sys\nfrom ensue.cli import main\n"
        "try:\n    main()\nexcept SystemExit as end:\n    assert not end.code, end.code\n"
        "print(json.dumps(sorted({name.split('.')[0] for name in sys.modules})))\n"
    )
    command = [sys.executable, "-c", script, "check", *(str(tmp_path / name) for name in files)]
    answer = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    loaded = set(json.loads(answer.stdout.splitlines()[-1]))
    assert "querylang" in loaded
    assert loaded & SLOW == set()
