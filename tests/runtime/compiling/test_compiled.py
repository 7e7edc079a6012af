"""Compiled code is kept as long as no source of it has changed, wherever that stands."""

from __future__ import annotations

import dis
import importlib
import os
import pkgutil
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import runtime
from runtime.compiling.compiled import Kernel
from runtime.compiling.files import pack, sources_digest
from runtime.compiling.machine_code import KEPT_DAYS
from runtime.progress_line import ONCE

CALLER = """
from runtime.inner.deeper.called import twice
from runtime.compiling.compiled import kernel

@kernel
def four_times(number: int) -> int:
    return twice(twice(number))
"""
CALLED = """
from runtime.compiling.compiled import kernel

@kernel
def twice(number: int) -> int:
    return 2 * number
"""
CALLED_FILE = "inner/deeper/called.py"
"""A kernel's file in a subfolder, called from a file outside of it."""


@pytest.fixture
def package(tmp_path: Path) -> Path:
    return _made(tmp_path / "runtime")


@pytest.fixture(scope="module")
def compiled_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A package whose kernels are stored beside it."""
    package = _made(tmp_path_factory.mktemp("compiled") / "runtime")
    assert _answer(package) == "12 0"
    return package


@pytest.fixture
def stored(compiled_once: Path, tmp_path: Path) -> Path:
    """A copy of that package for each test, with what is stored; a compilation for each would find the same."""
    package = tmp_path / "runtime"
    shutil.copytree(compiled_once, package)
    assert _entries(package)
    return package


def _made(folder: Path) -> Path:
    folder.mkdir()
    source = Path(runtime.__path__[0])
    shutil.copytree(source / "compiling", folder / "compiling", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(source / "progress_line.py", folder)
    (folder / "__init__.py").touch()
    (folder / "caller.py").write_text(CALLER)
    (folder / "inner" / "deeper").mkdir(parents=True)
    (folder / CALLED_FILE).write_text(CALLED)
    return folder


def _answer(package: Path, told: str = "", **settings: str) -> str:
    code = "from runtime.caller import four_times; print(four_times(3), {hits})"
    code = code.format(hits="sum(four_times.machine_code.stats.cache_hits.values())")
    environment = os.environ | {"PYTHONPATH": str(package.parent), "XDG_CACHE_HOME": str(package.parent / "cache")}
    environment["ENSUE_COMPILE"] = "always"
    environment["PYTHONDONTWRITEBYTECODE"] = "1"  # Python's own cache does not see a change within a second
    environment |= settings
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=package.parent, env=environment, capture_output=True, text=True, check=True)
    others = [line for line in done.stderr.splitlines() if line != ONCE]
    assert told in done.stderr
    assert len(others) == bool(told)
    return done.stdout.strip()


def _entries(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*four_times*") if path.suffix in (".nbi", ".nbc"))


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


def test_all_of_a_folder_matters_whose_door_a_kernel_enters(package: Path) -> None:
    other = package / "inner" / "other.py"
    other.write_text("THREE = 3\n")
    (package / "inner" / "__init__.py").write_text("from runtime.inner.other import THREE\n")
    (package / "caller.py").write_text("from runtime.inner import THREE\n" + CALLER)
    before = sources_digest(package)
    other.write_text("THREE = 4\n")
    assert sources_digest(package) != before


@pytest.mark.parametrize("suffix", [".nbi", ".nbc"])
@pytest.mark.parametrize("damage", [lambda _data: b"", lambda data: data[:-10], lambda data: b"garbage" * len(data)])
def test_a_damaged_file_is_compiled_anew(stored: Path, suffix: str, damage: Callable[[bytes], bytes]) -> None:
    for path in stored.rglob(f"*{suffix}"):
        path.write_bytes(damage(path.read_bytes()))
    assert _answer(stored, "a compiled kernel is damaged; it is removed, and the kernel is compiled anew") == "12 0"
    assert _answer(stored) == "12 1"


@pytest.mark.parametrize("mode", [0o777, 0o775])
def test_nothing_is_loaded_from_a_folder_that_others_may_write(package: Path, mode: int) -> None:
    (package / "__pycache__").mkdir(exist_ok=True)
    (package / "__pycache__").chmod(mode)
    assert [_answer(package), _answer(package)] == ["12 0", "12 1"]
    assert not _entries(package)
    entries = _entries(package.parent / "cache")
    assert entries
    assert {path.stat().st_mode & 0o777 for path in entries} == {0o600}
    assert entries[0].parent.stat().st_mode & 0o777 == 0o700


def test_a_file_that_others_may_write_is_not_loaded(stored: Path) -> None:
    assert _answer(stored) == "12 1"
    for path in _entries(stored):
        path.chmod(0o666)
    assert _answer(stored) == "12 0"


def test_older_versions_are_removed_beside_the_module(stored: Path) -> None:
    package, old = stored, _entries(stored)
    (package / CALLED_FILE).write_text(CALLED.replace("2 *", "5 *"))
    assert _answer(package) == "75 0"
    assert old
    assert not set(old) & set(_entries(package))
    assert len(_entries(package)) == len(old)


def test_in_a_shared_folder_older_versions_are_kept_while_they_are_used(package: Path) -> None:
    (package / "__pycache__").mkdir(exist_ok=True)
    (package / "__pycache__").chmod(0o777)  # so the user's folder is taken
    cache = package.parent / "cache"
    versions = []
    for factor, days in ((2, 0), (5, 0), (7, KEPT_DAYS + 1), (9, 0)):
        (package / CALLED_FILE).write_text(CALLED.replace("2 *", f"{factor} *"))
        assert _answer(package) == f"{3 * factor**2} 0"
        versions.append(set(_entries(cache)) - set().union(*versions))
        for path in versions[-1]:
            os.utime(path, (time.time() - 86_400 * days,) * 2)
    assert set(_entries(cache)) == versions[0] | versions[1] | versions[3]


def test_an_archive_serves_another_installation_on_the_same_processor(package: Path, tmp_path: Path) -> None:
    made, archive, elsewhere = tmp_path / "made", tmp_path / "kernels.zip", tmp_path / "elsewhere" / "runtime"
    made.mkdir(mode=0o700)
    assert _answer(package, ENSUE_KERNELS=str(made)) == "12 0"
    pack(made, archive)
    shutil.copytree(package, elsewhere, ignore=shutil.ignore_patterns("__pycache__"))
    for path in elsewhere.rglob("*.py"):
        os.utime(path, (0, 0))
    assert _answer(elsewhere, ENSUE_KERNELS=str(archive)) == "12 1"
    missing = "no code of 'four_times' for this release and processor; it is compiled"
    assert _answer(elsewhere, missing, ENSUE_KERNELS=str(archive), NUMBA_CPU_NAME="generic") == "12 0"


def test_a_field_of_a_tuple_has_not_the_name_of_a_kernel_that_is_not_called() -> None:
    """A function's names do not say which of them are attributes: a kernel that seems to call itself ends in a recursion."""
    modules = [importlib.import_module(item.name) for item in pkgutil.walk_packages(runtime.__path__, "runtime.")]
    kernels = {id(item): item for module in modules for item in vars(module).values() if isinstance(item, Kernel)}
    assert len(kernels) > 100
    for item in kernels.values():
        is_global = {step.argval for step in dis.get_instructions(item.function) if step.opname == "LOAD_GLOBAL"}
        assert item.called.keys() <= is_global, item.function.__qualname__
