"""The part *books* of `make peers`: books of rules with every system in turn, and the table of the docs.

Each system takes a book in a process of its own, on one core, until it has done so five times or for long enough; the last time counts, and
of loading the first. What each rule has found must be equal.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks import page
from benchmarks.peers import java
from benchmarks.peers.rule_books import write_book

COMMAND = "make peers, books"
BOOKS = (
    *(("rules", count) for count in (10, 100, 1_000, 3_000)),
    *(("disjoint", count) for count in (1, 10, 100, 1_000)),
)
SYSTEMS = ("ensue", "esper", "siddhi", "flink-cep")
LABELS = {"ensue": "Ensue", "esper": "Esper 9", "siddhi": "Siddhi 5.1", "flink-cep": "Flink CEP 2.3"}
EVENTS = 200_000
LIMIT = 300
"""Seconds of the processor that a process may take before its first answer counts as missing."""
_PASSES, _ENOUGH = 5, 20
"""Times that a process takes a book, and seconds after which it does not begin again."""
_ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class BookTaken:
    """What a system took for a book. Times in seconds, all zero if it is missing.

    loading: of the processor, from the text to the first event, the first time in a process
    seconds: of the processor, for all events
    wall: the same by the clock
    memory: bytes that the process had at most
    missing: why there is no answer
    """

    book: str
    rules: int
    system: str
    events: int
    loading: float = 0.0
    seconds: float = 0.0
    wall: float = 0.0
    memory: int = 0
    matches: int = 0
    missing: str = ""


@dataclass(frozen=True, slots=True)
class Answers:
    """The lines of a process, and why there are none."""

    lines: Sequence[Mapping[str, Any]]
    missing: str = ""


def measure(book: str, rules: int, systems: Sequence[str], events: int = EVENTS, keys: int = 1_000) -> list[BookTaken]:
    """All systems in turn over one book. Raises AssertionError where two of them have found other matches of a rule."""
    with TemporaryDirectory() as folder:
        write_book(Path(folder), book, rules, events, keys)
        answers = {system: _ask(system, folder) for system in systems}
    refuse_differences({system: own.lines[-1] for system, own in answers.items() if own.lines})
    return [_taken(BookTaken(book, rules, system, events), own) for system, own in answers.items()]


def _taken(empty: BookTaken, answers: Answers) -> BookTaken:
    if not answers.lines:
        return BookTaken(empty.book, empty.rules, empty.system, empty.events, missing=answers.missing)
    first, last = answers.lines[0], answers.lines[-1]
    own = {name: last[name] for name in ("seconds", "wall", "memory")} | {"matches": sum(last["matches"])}
    return BookTaken(empty.book, empty.rules, empty.system, empty.events, first["loading"], **own)


def refuse_differences(last: Mapping[str, Mapping[str, Any]]) -> None:
    """Raises AssertionError with the first rule of which two systems say something else. `last`: the last line of each."""
    found = {system: list(zip(line["matches"], line["checksums"], strict=True)) for system, line in last.items()}
    for system, own in found.items():
        for other, theirs in found.items():
            for number, (mine, its) in enumerate(zip(own, theirs, strict=True)):
                assert mine == its, f"rule {number}: {system} has found {mine}, {other} {its}"


def _ask(system: str, folder: str) -> Answers:
    arguments = [folder, str(_PASSES), str(_ENOUGH)]
    if system == "ensue":
        command = [sys.executable, "-m", "benchmarks.peers.one_book", *arguments]
    else:
        command = [*java.book_command(), system, *arguments]
    return answers_of(command)


def answers_of(command: Sequence[str], limit: int = LIMIT) -> Answers:
    """What a process answers on one core. Raises RuntimeError if it fails otherwise than by time or memory."""

    def confine() -> None:
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        resource.setrlimit(resource.RLIMIT_CPU, (limit, limit))

    done = subprocess.run(command, cwd=_ROOT, text=True, capture_output=True, preexec_fn=confine, check=False)
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{") and line.endswith("}")]
    if lines or not done.returncode:
        return Answers(lines)
    if "OutOfMemoryError" in done.stderr:
        return Answers((), f"more than {java.BOOK_HEAP} of memory")
    if done.returncode < 0:
        return Answers((), f"more than {limit // 60} minutes")
    raise RuntimeError(f"{command[0]}: {done.stderr[-2000:]}")


def table(taken: Sequence[BookTaken]) -> str:
    """Markdown: a row per book and system."""
    names = (
        "book",
        "rules",
        "system",
        "loading",
        "run, processor",
        "run, clock",
        "events a second",
        "memory",
        "matches",
    )
    lines = [f"| {' | '.join(names)} |", "|---" * len(names) + "|"]
    for item in sorted(taken, key=lambda item: (BOOKS.index((item.book, item.rules)), SYSTEMS.index(item.system))):
        start = f"| {item.book} | {item.rules:,} | {LABELS[item.system]} |"
        if item.missing:
            lines.append(f"{start} | {item.missing} | | | | |")
            continue
        rate = f"{round(item.events / item.seconds, -2 if item.events / item.seconds < 100_000 else -3):,.0f}"
        lines.append(
            f"{start} {item.loading:.2f} s | {item.seconds:.2f} s | {item.wall:.2f} s | {rate} "
            f"| {item.memory / 1e6:,.0f} MB | {item.matches:,} |"
        )
    return "\n".join(lines)


def write(target: Path, docs: Path | None, taken: Sequence[BookTaken]) -> list[BookTaken]:
    """Put them into a file of figures, in place of those of the same books and systems, and all of these into the docs."""
    before = [BookTaken(**item) for item in json.loads(target.read_text("utf-8"))] if target.exists() else []
    new = {(item.book, item.rules, item.system) for item in taken}
    every = [item for item in before if (item.book, item.rules, item.system) not in new] + list(taken)
    target.parent.mkdir(exist_ok=True)
    target.write_text(json.dumps([asdict(item) for item in every], indent=2) + "\n", encoding="utf-8")
    if docs:
        page.put(docs / "benchmarks.md", COMMAND, table(every))
    return every
