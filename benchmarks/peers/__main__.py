"""`python -m benchmarks.peers`: the same pattern with every system, in turn; writes `build/peers.json` and the table and chart of the docs.

Then books of rules (`book_figures`), into `build/peers_books.json` and a table.

Every system answers in a process of its own that is held to as many cores as it may use. The processes of one round follow
each other, so that a noisy machine is noisy for all. All checksums of matches must be equal. Systems that would need hours
answer over a tenth of the stream, where ours answers too, for the checksum.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.peers import book_figures, java, pages
from benchmarks.peers.answers import Answer, Measured
from benchmarks.peers.stream import write_stream

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class Question:
    """How the stream is made, what is looked for in it, and who answers.

    margin: by how much more than the value of A that of B must be
    pattern: `latest`, the latest A before each B; `valley`, a fall and the rise behind it
    """

    name: str
    keys: int
    margin: float
    systems: Sequence[str]
    pattern: str = "latest"

    @property
    def types(self) -> int:
        """How many types of events the stream has."""
        return 1 if self.pattern == "valley" else 2


LATEST = ("ensue", "ensue-spark", "duckdb-sliced", "duckdb-window", "flink-by-hand", "flink-cep", "esper", "siddhi")
VALLEY = ("ensue", "ensue-spark", "duckdb-turns", "flink-sql")
QUESTIONS = (
    Question("light", 10_000, 0.0, LATEST),
    Question("heavy", 500, 0.99, LATEST),
    Question("valley", 10_000, 0.0, VALLEY, "valley"),
)
SYSTEMS = tuple(dict.fromkeys((*LATEST, *VALLEY)))
SLOW = ("flink-cep", "flink-sql")
"""They answer over a tenth of the stream, since they have a tenth of the others' rate or less."""
PASSES = {"ensue-spark": 1}
"""Passes in one process, the last of which counts; the job's first micro-batch is what warms it up."""


def measure(
    folder: Path,
    question: Question,
    systems: Sequence[str],
    threads: Sequence[int],
    events: int,
    rounds: int,
    slow: Sequence[str] = SLOW,
) -> list[Measured]:
    """All systems in turn, `rounds` times. Raises AssertionError where two answers differ."""
    folders = {False: folder / "all", True: folder / "tenth"}
    for is_slow, own in folders.items():
        own.mkdir()
        write_stream(own, events // 10 if is_slow else events, question.keys, question.types)
    answers: dict[tuple[str, int], list[Answer]] = {}
    for _ in range(rounds):
        for system in systems:
            for count in threads:
                answer = _ask(system, folders[system in slow], count, question)
                answers.setdefault((system, count), []).append(answer)
    for is_slow, own in folders.items():
        given = [answer for (system, _), each in answers.items() if (system in slow) == is_slow for answer in each]
        if is_slow and given:
            given.append(_ask("ensue", own, 1, question))
        found = {(answer.matches, answer.checksum) for answer in given}
        assert len(found) <= 1, f"{question.name}: the answers differ: {answers}"
    return [
        Measured(
            question.name,
            system,
            count,
            own[0].events,
            own[0].matches,
            tuple(each.events / each.seconds for each in own),
        )
        for (system, count), own in answers.items()
    ]


def _ask(system: str, folder: Path, threads: int, question: Question) -> Answer:
    passes = PASSES.get(system, 2)
    arguments = [system, str(folder), str(threads), str(passes), str(question.margin), question.pattern]
    program = java.command() if system in java.SYSTEMS else [sys.executable, "-m", "benchmarks.peers.one_system"]
    cores = set(sorted(os.sched_getaffinity(0))[:threads])
    done = subprocess.run(
        [*program, *arguments],
        cwd=ROOT,
        text=True,
        capture_output=True,
        preexec_fn=lambda: os.sched_setaffinity(0, cores),
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{system}: {done.stderr[-2000:]}")
    return Answer.last_of(done.stdout)


def main() -> None:
    """Runs what the arguments say."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=__doc__)
    parser.add_argument("--events", type=int, default=5_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", choices=SYSTEMS, action="append", help="these systems; default: all")
    questions = [*(question.name for question in QUESTIONS), "books"]
    parser.add_argument("--question", choices=questions, action="append", help="default: all")
    parser.add_argument("--book", type=_book, action="append", help="KIND:RULES, of the books; default: all")
    parser.add_argument("--threads", type=int, action="append", help="default: 1 and 2")
    parser.add_argument("--docs", action="store_true", help="write the tables and the chart of docs/benchmarks.md")
    given = parser.parse_args()
    systems = given.only or SYSTEMS
    if set(systems) & set(java.SYSTEMS):
        java.build()
    wanted = given.question or questions
    if set(wanted) - {"books"}:
        _patterns(given, systems, wanted)
    if "books" in wanted:
        _books(given, systems)


def _patterns(given: argparse.Namespace, systems: Sequence[str], wanted: Sequence[str]) -> None:
    measured: list[Measured] = []
    for question in QUESTIONS:
        own = [system for system in question.systems if system in systems]
        if own and question.name in wanted:
            with TemporaryDirectory() as folder:
                measured += measure(Path(folder), question, own, given.threads or [1, 2], given.events, given.rounds)
    print(pages.table(measured))
    target = ROOT / "build" / "peers.json"
    target.parent.mkdir(exist_ok=True)
    target.write_text(json.dumps([asdict(item) for item in measured], indent=2) + "\n", encoding="utf-8")
    if given.docs:
        pages.write(ROOT / "docs", measured)


def _books(given: argparse.Namespace, systems: Sequence[str]) -> None:
    own = [system for system in book_figures.SYSTEMS if system in systems]
    for book, rules in given.book or book_figures.BOOKS:
        taken = book_figures.measure(book, rules, own)
        print(book_figures.table(taken), flush=True)
        book_figures.write(ROOT / "build" / "peers_books.json", ROOT / "docs" if given.docs else None, taken)


def _book(text: str) -> tuple[str, int]:
    kind, _, rules = text.partition(":")
    if (kind, int(rules or 0)) not in book_figures.BOOKS:
        raise argparse.ArgumentTypeError(f"one of {', '.join(f'{kind}:{count}' for kind, count in book_figures.BOOKS)}")
    return kind, int(rules)


if __name__ == "__main__":
    main()
