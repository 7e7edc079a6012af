"""Compactions beside a tortured job: one after the other, in processes that are killed at random moments."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
from pathlib import Path
from typing import Self

from tests.torture.victims import ROOT

COMPACT = """
import sys, time
from job_engine.job.upkeep import compact_job
compact_job.KEPT_RUNNING = 2
while True:
    done = compact_job.compact_job(sys.argv[1], int(sys.argv[2]))
    if any(sink.replaced for sink in done.sinks.values()):
        print(sum(sink.replaced for sink in done.sinks.values()), flush=True)
    time.sleep(0.2)
"""


class Compactor:
    """A thread that starts compactions and kills them; `replaced`: files that those which ended have replaced."""

    def __init__(self, deployment: Path, seed: int) -> None:
        self.kills = 0
        self.replaced = 0
        self.problems: list[str] = []
        self._deployment = deployment
        self._chooser = random.Random(seed)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.is_set():
            target = str(self._chooser.choice((20_000, 100_000, 1_000_000)))
            command = [sys.executable, "-c", COMPACT, str(self._deployment), target]
            environment = os.environ | {"PYTHONPATH": str(ROOT)}
            process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
            )
            self._stop.wait(self._chooser.uniform(0.8, 4.0))
            process.kill()
            output, errors = process.communicate()
            self.kills += process.returncode < 0
            self.replaced += sum(map(int, output.split()))
            if "Traceback" in errors and "has not run yet" not in errors:
                self.problems.append(f"a compaction failed: {errors[-500:]}")
