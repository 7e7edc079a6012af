"""A plugin of pytest: which test runs, for the processes in which listed lines note that they are reached.

The number of the running test is in a file that they map into memory. So workers of Spark, started under an
earlier test, know it too. Runs chosen tests in a chosen order as well: `ENSUE_CHOSEN_TESTS` names their file.
"""

from __future__ import annotations

import mmap
import os
from ast import literal_eval
from collections.abc import Iterator
from pathlib import Path

import pytest

FOLDER = "ENSUE_NOTES_OF_TESTS"
CHOSEN = "ENSUE_CHOSEN_TESTS"
FAILED = "ENSUE_FAILED_TESTS"
WIDE = {"session", "package", "module", "class"}

NOTE = '''"""Notes that a line is reached, once a test and process."""

import mmap
import os

_SEEN = set()
_FOLDER = os.environ.get("ENSUE_NOTES_OF_TESTS")
_WORKER = os.environ.get("PYTEST_XDIST_WORKER", "main")
_NOTES = _NUMBER = None
if _FOLDER and os.path.exists(f"{_FOLDER}/{_WORKER}.number"):
    _NOTES = os.open(f"{_FOLDER}/{_WORKER}.notes", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    with open(f"{_FOLDER}/{_WORKER}.number", "rb") as _file:
        _NUMBER = mmap.mmap(_file.fileno(), 8, access=mmap.ACCESS_READ)


def note(change):
    if _NUMBER is None:
        return
    seen = (change, _NUMBER[:8])
    if seen not in _SEEN:
        _SEEN.add(seen)
        os.write(_NOTES, b"%d %d\\n" % (change, int.from_bytes(seen[1], "little")))
'''
"""A module that is written beside the product's: no package imports tests."""


class Running:
    """Says which test runs. Its number is twice its place among the tests of this worker, plus one while a fixture
    that other tests share is made."""

    def __init__(self, folder: Path) -> None:
        name = os.environ.get("PYTEST_XDIST_WORKER", "main")
        number = folder / f"{name}.number"
        number.write_bytes(bytes(8))
        with number.open("r+b") as file:
            self._number = mmap.mmap(file.fileno(), 8)
        self._tests = (folder / f"{name}.tests").open("w", encoding="utf-8", buffering=1)
        self._durations = (folder / f"{name}.durations").open("w", encoding="utf-8", buffering=1)
        self._count = 0
        self._used = sum(os.times()[:4])

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self._count += 1
        self._tests.write(f"{item.nodeid!r}\n")
        self._say(2 * self._count)
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[object]) -> Iterator[None]:
        if fixturedef.scope in WIDE:
            self._say(2 * self._count + 1)
        try:
            return (yield)
        finally:
            self._say(2 * self._count)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        now = os.times()
        used, self._used = sum(now[:4]) - self._used, sum(now[:4])
        told = (report.nodeid, report.when, round(report.duration, 4), report.outcome, round(used, 2))
        self._durations.write(f"{told!r}\n")

    def _say(self, number: int) -> None:
        self._number[:8] = number.to_bytes(8, "little")


def pytest_configure(config: pytest.Config) -> None:
    folder = os.environ.get(FOLDER)
    if folder is not None and (hasattr(config, "workerinput") or not config.getoption("numprocesses", None)):
        config.pluginmanager.register(Running(Path(folder)))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    failed = os.environ.get(FAILED)
    if failed is not None and report.failed:
        with Path(failed).open("a", encoding="utf-8") as file:
            file.write(f"{report.nodeid!r}\n")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    chosen = os.environ.get(CHOSEN)
    if chosen is None:
        return
    order = {literal_eval(line): at for at, line in enumerate(Path(chosen).read_text("utf-8").splitlines())}
    others = [item for item in items if item.nodeid not in order]
    config.hook.pytest_deselected(items=others)
    items[:] = sorted((item for item in items if item.nodeid in order), key=lambda item: order[item.nodeid])
