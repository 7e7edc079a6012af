"""Runs of jobs in processes of their own, which a test kills."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from job_engine.job.job import run
from tests.support.waiting import wait_for

ROOT = Path(__file__).resolve().parents[2]

RUN = """
import json, sys
from job_engine.job.job import run
report = run(sys.argv[1], once=True, flush=True, progress=lambda batch: print("batch", batch.batch, flush=True))
print(json.dumps([[*key, count] for key, count in report.ledger.items()]), flush=True)
"""


def start(path: Path, *command: str) -> subprocess.Popen[str]:
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        [sys.executable, *(command or ("-c", RUN)), str(path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE if command else subprocess.DEVNULL,
        text=True,
        env=environment,
        start_new_session=True,
    )


def restarted(path: Path) -> tuple[list[int], Counter[tuple[str, str, str]]]:
    """Run the job to its end in this process, which shares nothing with a killed one but the disk.

    Gives the numbers of its micro-batches, and its account.
    """
    batches: list[int] = []
    report = run(path, once=True, flush=True, progress=lambda batch: batches.append(batch.batch))
    return batches, Counter(report.ledger)


def wait_until(process: subprocess.Popen[str], is_time: Callable[[], object]) -> None:
    def is_at_work() -> None:
        assert process.poll() is None, f"the run ended before it could be killed: {_errors(process)}"

    wait_for(is_time, meanwhile=is_at_work)


def _errors(process: subprocess.Popen[str]) -> str:
    return process.stderr.read() if process.stderr is not None else f"exit code {process.returncode}"


def kill_when(process: subprocess.Popen[str], is_time: Callable[[], object]) -> None:
    """Kill the whole group, JVM and workers included."""
    wait_until(process, is_time)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
