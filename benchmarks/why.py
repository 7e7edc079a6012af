"""What `why` costs beside its replay, by each kind of question, over a table of one key: seconds and memory.

Each question is asked in a process of its own, of a table in a Parquet file, twice: the first time loads what the
second has.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from time import process_time, sleep
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import ensue
from benchmarks.embedded import significant
from ensue.answer import Replay

QUESTIONS = ("by nothing", "by key and time", "by row", "by match")

_FIELDS = "integer k; float v;"
_NEVER, _SOMETIMES = "2.0", "0.9"
"""How much greater `b.v` has to be, where `v` is below 1: asked by match, a query that has some."""

_SPACING = 0.001
"""Seconds from one event to the next."""

_LOOK = 0.002
"""Seconds from one look at the memory to the next."""


@dataclass(frozen=True, slots=True)
class Explained:
    """Seconds of a processor, medians over processes.

    replay: reading the file and replaying it, which comes before
    first, again: the answer, and a second one
    megabytes: by how much the memory of the process grows at most while the first answer is made
    """

    question: str
    events: int
    replay: float
    first: float
    again: float
    megabytes: float


def measure(folder: Path, count: int, rounds: int) -> list[Explained]:
    """All questions about so many events, each `rounds` times in turn."""
    table = folder / "events.parquet"
    pq.write_table(_events(count), table)
    found: dict[str, list[Explained]] = {question: [] for question in QUESTIONS}
    for _ in range(rounds):
        for question in QUESTIONS:
            found[question].append(_in_its_own_process(question, table))
    return [_median_of(own) for own in found.values()]


def _median_of(items: list[Explained]) -> Explained:
    def middle(of: Callable[[Explained], float]) -> float:
        return significant(median(map(of, items)))

    return Explained(
        items[0].question,
        items[0].events,
        middle(lambda item: item.replay),
        middle(lambda item: item.first),
        middle(lambda item: item.again),
        middle(lambda item: item.megabytes),
    )


def _in_its_own_process(question: str, table: Path) -> Explained:
    command = [sys.executable, "-m", "benchmarks.why", question, str(table)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return Explained(**json.loads(done.stdout))


def _events(count: int) -> pa.Table:
    chance = np.random.default_rng(3)
    columns = {
        "at": pa.array(np.arange(count) * _SPACING),
        "event": pa.array(["A", "B"]).take(pa.array(chance.integers(0, 2, count))),
        "k": pa.repeat(0, count),
        "v": pa.array(chance.random(count)),
    }
    return pa.table(columns)


def _query(more: str) -> str:
    inputs = "A() key k within 50 milliseconds; B() key k within 50 milliseconds;"
    events = f"event A {{ {_FIELDS} }}\nevent B {{ {_FIELDS} }}"
    return f"{events}\nquery Q {{ inputs {{ {inputs} }} find A as a -> B as b where b.v > a.v + {more} }}"


def asked(question: str, table: Path) -> Explained:
    """One question in this process."""
    began = process_time()
    replay = ensue.replay(_query(_SOMETIMES if question == "by match" else _NEVER), str(table))
    replayed, ask, count = process_time() - began, _asking(question, replay), len(replay.records)
    with _Growth() as growth:
        first = _seconds(ask)
    return Explained(question, count, replayed, first, _seconds(ask), growth.most / 1e6)


def _asking(question: str, replay: Replay) -> Callable[[], object]:
    rows = len(replay.records)
    match question:
        case "by key and time":
            return lambda: replay.why(key=0, at=rows // 2 * _SPACING)
        case "by row":
            return lambda: replay.why(row=rows // 2)
        case "by match":
            ids = replay.matches["match_id"]
            return lambda: replay.why(ids[len(ids) // 2])
    return replay.why


def _seconds(ask: Callable[[], object]) -> float:
    began = process_time()
    str(ask())
    return process_time() - began


class _Growth:
    """While entered, by how much the resident memory of this process grows at most, in bytes."""

    def __init__(self) -> None:
        self._before, self.most = _resident(), 0
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._done.is_set():
            self.most = max(self.most, _resident() - self._before)
            sleep(_LOOK)


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


if __name__ == "__main__":
    print(json.dumps(asdict(asked(sys.argv[1], Path(sys.argv[2])))))
