"""Worlds after worlds, over nights: a record says which seeds were run, of which commit, and what went wrong.

`python -m tests.simulation.hunt build/hunt.jsonl` continues where the record ends, until it is interrupted. Beside the
record, `hunt.met.json` counts how often each call of each commit has failed in each way; `--coverage` shows it.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.simulation.__main__ import AT_ONCE, coverage, met_all, told
from tests.simulation.faults import Met


@dataclass(frozen=True, slots=True)
class Part:
    """Seeds that were run one after the other.

    commit: of the code
    lives: of processes, in all worlds
    faults: that have struck
    wrong: the seeds of worlds with problems
    """

    commit: str
    first: int
    seeds: int
    lives: int
    faults: int
    seconds: float
    wrong: list[int]


def parts_of(record: Path) -> list[Part]:
    """What a record has; a line that a crash has cut is left out."""
    if not record.exists():
        return []
    lines = record.read_text("utf-8").split("\n")
    return [Part(**json.loads(line)) for line in lines[:-1] if line]


def next_seed(parts: list[Part]) -> int:
    """The first seed that was not run."""
    return max((part.first + part.seeds for part in parts), default=0)


def summary(parts: list[Part]) -> Iterator[str]:
    """A line per commit."""
    for commit in dict.fromkeys(part.commit for part in parts):
        own = [part for part in parts if part.commit == commit]
        wrong = [seed for part in own for seed in part.wrong]
        yield (
            f"{commit}: {sum(part.seeds for part in own)} worlds from seed {own[0].first} on,"
            f" {sum(part.lives for part in own)} lives, {sum(part.faults for part in own)} faults,"
            f" {sum(part.seconds for part in own) / 3600:.1f} h, with problems: {wrong or 'none'}"
        )


class Coverage:
    """What all worlds of a record have met, kept in a file beside it."""

    def __init__(self, record: Path) -> None:
        self._file = record.with_suffix(".met.json")
        rows = json.loads(self._file.read_text("utf-8")) if self._file.exists() else []
        self.met = Met({(operation, function, fault): count for operation, function, fault, count in rows})

    def add(self, met: Met) -> None:
        """Count what some more worlds have met; the file is whole at any moment."""
        self.met.update(met)
        new = self._file.with_suffix(".new")
        new.write_text(json.dumps([[*place, count] for place, count in sorted(self.met.items())]), "utf-8")
        new.replace(self._file)

    def lines(self) -> Iterator[str]:
        """How often each call was made and has failed, and a sum."""
        yield from coverage(self.met)
        pairs, of_ = met_all(self.met)
        yield f"{pairs} of {of_} ways to fail"


def hunted(first: int, seeds: int, processes: int, commit: str, folder: Path) -> tuple[Part, Met]:
    """Run some seeds; what went wrong is written to a file for each, and the smallest world in which it does."""
    started, lives, total, wrong = time.monotonic(), 0, Met(), []
    for story, met in told(first, seeds, processes):
        total.update(met)
        lives += story.lives
        if story.problems:
            wrong.append(story.seed)
            found = folder / f"seed-{story.seed}.txt"
            found.write_text(f"{story.text()}\n", "utf-8")
            smallest = (
                subprocess.run(  # in a process of its own: the package of Delta tables cannot be forked behind it
                    [sys.executable, "-W", "ignore", "-m", "tests.simulation", "--seed", str(story.seed), "--shrink"],
                    capture_output=True,
                    text=True,
                    check=False,
                )
            )
            found.write_text(f"{story.text()}\n\nThe same with less:\n\n{smallest.stdout}\n", "utf-8")
    faults = sum(count for (_, _, fault), count in total.items() if fault)
    return Part(commit, first, seeds, lives, faults, round(time.monotonic() - started, 1), wrong), total


def main() -> int:
    """Runs until it is interrupted."""
    parser = argparse.ArgumentParser(prog="hunt", description=__doc__)
    parser.add_argument("record", nargs="?", type=Path, default=Path("build/hunt.jsonl"))
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--worlds", type=int, help="end after so many; else none")
    parser.add_argument("--coverage", action="store_true", help="run nothing: show what was met so far")
    given = parser.parse_args()
    record: Path = given.record
    counted = Coverage(record)
    if given.coverage:
        print(*counted.lines(), sep="\n")
        return 0
    record.parent.mkdir(parents=True, exist_ok=True)
    asked = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True)
    commit = asked.stdout.strip()
    parts = parts_of(record)
    text = record.read_text("utf-8") if record.exists() else ""
    if text and not text.endswith("\n"):  # a crash has cut its last line
        record.write_text(text[: text.rfind("\n") + 1], "utf-8")
    left = given.worlds
    while left is None or left > 0:
        seeds = AT_ONCE * given.processes if left is None else min(left, AT_ONCE * given.processes)
        try:
            part, met = hunted(next_seed(parts), seeds, given.processes, commit, record.parent)
        except KeyboardInterrupt:
            break
        parts.append(part)
        counted.add(met)
        with record.open("a", encoding="utf-8") as file:
            file.write(f"{json.dumps(asdict(part))}\n")
        left = None if left is None else left - seeds
    print(*summary(parts), sep="\n")
    return 1 if any(part.wrong for part in parts if part.commit == commit) else 0


if __name__ == "__main__":
    sys.exit(main())
