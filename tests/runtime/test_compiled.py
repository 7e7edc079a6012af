"""Compiled code is kept as long as no source of it has changed, wherever that stands."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import runtime
from runtime.compiled import sources_digest

CALLER = """
from runtime.inner.deeper.called import twice
from runtime.compiled import kernel

@kernel
def four_times(number: int) -> int:
    return twice(twice(number))
"""
CALLED = """
from runtime.compiled import kernel

@kernel
def twice(number: int) -> int:
    return 2 * number
"""
CALLED_FILE = "inner/deeper/called.py"
"""A kernel's file in a subfolder, called from a file outside of it."""


@pytest.fixture
def package(tmp_path: Path) -> Path:
    folder = tmp_path / "runtime"
    folder.mkdir()
    shutil.copy(Path(runtime.__path__[0]) / "compiled.py", folder)
    (folder / "__init__.py").touch()
    (folder / "caller.py").write_text(CALLER)
    (folder / "inner" / "deeper").mkdir(parents=True)
    (folder / CALLED_FILE).write_text(CALLED)
    return folder


def _answer(package: Path) -> str:
    code = "from runtime.caller import four_times; print(four_times(3), sum(four_times.stats.cache_hits.values()))"
    environment = os.environ | {"PYTHONPATH": str(package.parent)}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=package.parent, env=environment, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_a_change_in_a_kernel_that_another_file_calls_is_seen(package: Path) -> None:
    assert [_answer(package), _answer(package)] == ["12 0", "12 1"]
    (package / CALLED_FILE).write_text(CALLED.replace("2 *", "5 *"))
    assert [_answer(package), _answer(package)] == ["75 0", "75 1"]


def test_only_kernels_and_what_they_import_matter(package: Path) -> None:
    before = sources_digest(package)
    other = package / "inner" / "other.py"
    other.write_text("THREE = 3\n")
    assert sources_digest(package) == before
    (package / "caller.py").write_text("from runtime.inner.other import THREE\n" + CALLER)
    after = sources_digest(package)
    other.write_text("THREE = 4\n")
    assert len({before, after, sources_digest(package)}) == 3
