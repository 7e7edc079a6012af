"""One change after the other against the tests that reach its line, until the first fails."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from ast import literal_eval
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.mutation.changes import apply, find
from tests.mutation.clones import environment
from tests.mutation.listed import Listed
from tests.mutation.noting import CHOSEN, FAILED
from tests.mutation.reach import Reach, file_of

SECONDS = 100.0
"""A change that tests of so many seconds in all do not notice has survived."""

_BATCHES = (3.0, 12.0, 40.0, SECONDS)
"""Tests up to these seconds are run by one process: to start one takes some seconds."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of a change: killed, survived, not reached by any test, or lost (its line is nowhere).

    test: which test failed, `timeout` if one did not end
    """

    number: int
    outcome: str
    test: str = ""


def verdict(
    listed: Listed, reach: Reach, folder: Path, known: str | None = None, *, only_known: bool = False
) -> Verdict:
    """Run a change in a copy of the tree; the test that killed it before comes first."""
    spot = find(listed.change, folder)
    if spot is None:
        return Verdict(listed.number, "lost")
    tests = reach.in_order(listed.number)
    if known in reach.seconds:
        tests = [known, *(test for test in tests if test != known and not only_known)]
    if not tests:
        return Verdict(listed.number, "not reached")
    before, times = spot.path.read_bytes(), spot.path.stat()
    apply(listed.change, spot)
    # Bytecode is known by time and size: another time each time, and the old one in the end.
    os.utime(spot.path, (times.st_atime, times.st_mtime + 10 * listed.number))
    try:
        compiled = {"ENSUE_COMPILE": "never"} if spot.in_kernel else {}
        for batch in _batches(tests, reach, known):
            failed = failing_test(batch, folder, sum(reach.seconds.get(test, 1.0) for test in batch), compiled)
            if failed is not None:
                return Verdict(listed.number, "killed", failed)
        return Verdict(listed.number, "survived")
    finally:
        spot.path.write_bytes(before)
        os.utime(spot.path, (times.st_atime, times.st_mtime))


def _batches(tests: list[str], reach: Reach, known: str | None) -> Iterator[list[str]]:
    if known in tests:
        yield [known]
        tests = tests[1:]
    batch, seconds, limits = list[str](), 0.0, iter(_BATCHES)
    limit = next(limits)
    for test in tests:
        takes = reach.seconds.get(test, 1.0)
        while batch and seconds + takes > limit:
            yield batch
            batch = []
            following = next(limits, None)
            if following is None:
                return
            limit = following
        batch.append(test)
        seconds += takes
    if batch:
        yield batch


def failing_test(tests: list[str], folder: Path, seconds: float, more: dict[str, str]) -> str | None:
    """The first of some tests that fails in a copy; None if none does."""
    with tempfile.TemporaryDirectory() as place:
        chosen, failed = Path(place) / "chosen", Path(place) / "failed"
        chosen.write_text("".join(f"{test!r}\n" for test in tests), "utf-8")
        files = list(dict.fromkeys(file_of(test) for test in tests))
        command = [
            ".venv/bin/python",
            "-m",
            "pytest",
            "-x",
            "-q",
            "-p",
            "no:cacheprovider",
            "-p",
            "tests.mutation.noting",
        ]
        process = subprocess.Popen(
            [*command, "--basetemp", f"{place}/tests", *files],
            cwd=folder,
            env=environment(folder, **{CHOSEN: str(chosen), FAILED: str(failed)}, **more),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            said, _ = process.communicate(timeout=300 + 10 * seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            return "timeout"
        if process.returncode in {0, 5}:  # 5: the tests are no more
            return None
        if failed.exists():
            return str(literal_eval(failed.read_text("utf-8").splitlines()[0]))
        return f"exit code {process.returncode}: {said.strip().splitlines()[-1] if said.strip() else ''}"
