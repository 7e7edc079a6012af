"""Jobs of the local engine, run in this process, that end where a test says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd
import pytest

from job_engine.errors import JobError
from job_engine.job.checkpoint.job_folder import JobFolder
from job_engine.job.reports import BatchReport
from job_engine.job.stages.prepare import prepare
from job_engine.job.stages.start import Handle, RunKind, start
from job_engine.local.machine import LocalMachine
from job_engine.local.run import Pace
from tests.support.sensors import expected, streamed, table, totals
from tests.support.waiting import LONGEST

NEVER = 1e9
"""Seconds between two commits: only those that do not wait for time."""


def local(path: Path) -> Path:
    """The deployment file, for the local engine."""
    path.write_text(path.read_text("utf-8") + "engine: local\n", "utf-8")
    return path


class Crash(Exception):
    """Ends a run as if its process had ended."""


@dataclass
class CrashAt:
    """Ends a run at a point between two durable writes; `count`: so many times it is passed first."""

    point: str
    count: int = 0
    passed: Counter[str] = field(default_factory=Counter)

    def __call__(self, point: str) -> None:
        if point == self.point and self.passed[point] >= self.count:
            raise Crash(point)
        self.passed[point] += 1


def begun(
    path: Path, at: Callable[[str], None] = id, *, interval: float = NEVER, kind: RunKind | None = None
) -> tuple[Handle, list[BatchReport]]:
    """A run in the background, and the micro-batches that it ends."""
    batches: list[BatchReport] = []
    job = prepare(path)
    assert isinstance(job.machine, LocalMachine)
    job.machine.pace = Pace(interval, at=at)
    return start(job, batches.append, kind or RunKind(is_bounded=True, flush=True)), batches


def run(path: Path, at: Callable[[str], None] = id, *, interval: float = NEVER) -> list[int]:
    """The micro-batches of a run to its end."""
    handle, batches = begun(path, at, interval=interval)
    assert handle.await_termination(LONGEST)
    return [batch.batch for batch in batches]


def crashed(path: Path, at: CrashAt, *, interval: float = NEVER) -> list[int]:
    """The micro-batches of a run that ends with a crash."""
    handle, batches = begun(path, at, interval=interval)
    with pytest.raises(JobError) as found:
        handle.await_termination(LONGEST)
    assert isinstance(found.value.__cause__, Crash), found.value
    return [batch.batch for batch in batches]


def assert_exactly_once(folder: Path) -> None:
    """A job of `sensors` over all of its table has given what an engine gives, and counted each record."""
    assert streamed(folder) == expected(folder)
    counts = totals(JobFolder(folder / "state").ledger.total(), "Rise")
    assert counts.pop("received") == len(table()) == sum(counts.values())
    rows = pd.read_parquet(folder / "out" / "ledger")
    changes = rows[rows["query"] == "Rise"].groupby("what")["count"].sum().to_dict()
    assert {word: count for word, count in changes.items() if count and word != "received"} == {
        word: count for word, count in counts.items() if count
    }
    assert not list((folder / "out").rglob("*.draft"))
