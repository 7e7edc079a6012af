"""Which tests reach a listed line, and how long each test takes: read from the notes of one run of the suite."""

from __future__ import annotations

from ast import literal_eval
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Reach:
    """What a run has noted.

    tests: per number of a change the tests that reach it
    seconds: per test what it takes with its fixtures
    """

    tests: dict[int, frozenset[str]]
    seconds: dict[str, float]

    def in_order(self, change: int) -> list[str]:
        """The tests of a change, cheap ones first. A file's fourth one comes after the first three of all files:
        tests of other files look at other things."""
        of_file: dict[str, int] = defaultdict(int)
        ordered = list[tuple[int, float, str]]()
        for test in sorted(self.tests.get(change, ()), key=lambda test: (self._seconds(test), test)):
            file = file_of(test)
            ordered.append((of_file[file] // 3 if self._seconds(test) < 1 else 0, self._seconds(test), test))
            of_file[file] += 1
        return [test for _, _, test in sorted(ordered)]

    def _seconds(self, test: str) -> float:
        return self.seconds.get(test, 1.0)


def file_of(test: str) -> str:
    return test.split("::", maxsplit=1)[0]


def read_reach(*folders: Path) -> Reach:
    """The notes of one or more runs. A line that a shared fixture reaches is reached by all tests of its file."""
    tests = defaultdict[int, set[str]](set)
    seconds = defaultdict[str, float](float)
    for folder in folders:
        for names in folder.glob("*.tests"):
            run = [literal_eval(line) for line in names.read_text("utf-8").splitlines()]
            for change, number in _notes(names.with_suffix(".notes")):
                if number < 2:  # while tests are collected
                    continue
                test = run[number // 2 - 1]
                wide = number % 2 == 1
                tests[change].update([other for other in run if file_of(other) == file_of(test)] if wide else [test])
            for line in names.with_suffix(".durations").read_text("utf-8").splitlines():
                test, _, duration, *_ = literal_eval(line)
                seconds[test] += duration
    return Reach({change: frozenset(found) for change, found in tests.items()}, dict(seconds))


def _notes(path: Path) -> Iterator[tuple[int, int]]:
    if path.exists():
        for line in path.read_text("utf-8").splitlines():
            change, number = line.split()
            yield int(change), int(number)
