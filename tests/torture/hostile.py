"""Broken inputs by the thousand: only errors of our own, none slow, no signal.

`python -m tests.torture.hostile --count 1000000 --seed 1`

Every input has a number, from which it is made again: `--only KIND --seed NUMBER --count 1`.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
import resource
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ensue import EnsueError
from tests.torture import attacks
from tests.torture.attacks import Attack

FIXED_SECONDS, SECONDS_PER_MEGABYTE = 1.0, 1.0
MOST_SECONDS = 60
"""An input that takes longer is stopped."""
MEMORY = 6 << 30
"""What a process may have at most, in bytes."""
ROUND = 2_000
"""So many inputs per process, which is then started again."""


@dataclass(frozen=True, slots=True)
class Round:
    """Attempts of one kind with neighbouring numbers, for one process."""

    kind: str
    first: int
    count: int


class TooLong(BaseException):
    """Not an Exception, so that no handler of the code under test catches it."""


def attempt(attack: Attack, number: int) -> tuple[str, str]:
    """Try one input: how it ended, and what is wrong with that ("" = nothing)."""
    data = attack.make(random.Random(number))
    limit = FIXED_SECONDS + SECONDS_PER_MEGABYTE * len(data) / 1e6
    outcome, wrong, spent = _tried(attack, data)
    if not wrong and spent > limit:
        outcome, wrong, spent = _tried(attack, data)  # what is imported and compiled once is nobody's time
    if not wrong and spent > limit:
        wrong = f"took {spent:.1f} s for {len(data)} bytes"
    return outcome, wrong


def _tried(attack: Attack, data: bytes) -> tuple[str, str, float]:
    """How it ended, what is wrong with that, and the seconds of processor that it took."""
    started = time.process_time()
    signal.signal(signal.SIGVTALRM, _too_long)
    signal.setitimer(signal.ITIMER_VIRTUAL, MOST_SECONDS)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            attack.run(data)
        outcome, wrong = "accepted", ""
    except EnsueError:
        outcome, wrong = "refused", ""
    except TooLong:
        outcome, wrong = "stopped", f"took more than {MOST_SECONDS} s"
    except Exception as error:  # noqa: BLE001 - every kind is a find
        outcome, wrong = "failed", "".join(traceback.format_exception(error)[-3:])
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    return outcome, wrong, time.process_time() - started


def _run(task: Round, folder: str, results: multiprocessing.SimpleQueue[tuple[Counter[str], list[str]]]) -> None:
    """One round, in a process of its own."""
    os.chdir(folder)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    attack, counts, wrongs = attacks.ATTACKS[task.kind](), Counter[str](), []
    attack.run(attack.samples[0])
    for number in range(task.first, task.first + task.count):
        Path(f"at-{os.getpid()}").write_text(str(number))
        outcome, wrong = attempt(attack, number)
        counts[outcome] += attack.together
        if wrong:
            wrongs.append(f"{task.kind} {number}: {wrong}")
    results.put((counts, wrongs))


def _too_long(*_: object) -> None:
    raise TooLong


def rounds(kinds: Sequence[str], first: int, count: int) -> Iterator[Round]:
    """`count` inputs, divided among the kinds as their weights say."""
    weights = {kind: attacks.WEIGHTS[kind] for kind in kinds}
    for kind in kinds:
        end = first + max(1, count * weights[kind] // sum(weights.values()) // attacks.TOGETHER.get(kind, 1))
        for start in range(first, end, ROUND):
            yield Round(kind, start, min(ROUND, end - start))


def hunt(tasks: Iterator[Round], tell: Callable[[str], None]) -> dict[str, Counter[str]]:
    """Run all rounds; `tell` gets each wrong end as a text. Gives counts by kind and outcome."""
    context = multiprocessing.get_context("fork")
    found: dict[str, Counter[str]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for task in tasks:
            results: multiprocessing.SimpleQueue[tuple[Counter[str], list[str]]] = context.SimpleQueue()
            process = context.Process(target=_run, args=(task, folder, results))
            process.start()
            process.join()
            counts = found.setdefault(task.kind, Counter())
            if process.exitcode:
                at = Path(folder, f"at-{process.pid}")
                number = at.read_text() if at.exists() else str(task.first)
                counts["died"] += 1
                tell(f"{task.kind} {number}: the process ended with {process.exitcode}")
                continue
            done, wrongs = results.get()
            counts.update(done)
            for wrong in wrongs:
                tell(wrong)
    return found


def main() -> int:
    """Runs what the arguments say; prints one line of figures per kind."""
    parser = argparse.ArgumentParser(prog="hostile", description=__doc__)
    parser.add_argument("--count", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", choices=sorted(attacks.ATTACKS), action="append")
    given = parser.parse_args()
    problems: list[str] = []

    def tell(problem: str) -> None:
        problems.append(problem)
        print(problem, flush=True)

    started = time.monotonic()
    found = hunt(rounds(given.only or sorted(attacks.ATTACKS), given.seed, given.count), tell)
    for kind, counts in found.items():
        print(f"hostile: {kind}: {counts.total()} inputs: {dict(counts)}")
    print(f"hostile: {len(problems)} problems, {time.monotonic() - started:.0f} s")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
