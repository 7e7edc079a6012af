"""What `benchmarks.stages` measures is there."""

import runpy
from importlib import import_module
from pathlib import Path

import pytest

import benchmarks.stages as tool

HOOKS = Path(tool.__file__).parent / "hooks" / "sitecustomize.py"
STAGES: dict[str, dict[str, str]] = runpy.run_path(str(HOOKS), run_name="hooks")["STAGES"]


@pytest.mark.parametrize("module", STAGES)
def test_the_functions_that_are_timed_exist(module: str) -> None:
    for path in STAGES[module]:
        owner = import_module(module)
        *parents, last = path.split(".")
        for parent in parents:
            owner = getattr(owner, parent)
        assert last in vars(owner), f"{module}: {path}"
