"""A process that runs a job on a cluster, as often as a test asks it to."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.support.standalone import JAVA_OPTIONS, Cluster

DRIVER = """
import sys
from job_engine.job.job import run
for line in sys.stdin:
    done = run(sys.argv[1], once=True, flush="flush" in line, progress=lambda batch: print("batch", flush=True))
    print("done", done.records, flush=True)
"""
"""Runs the job once for each line that it reads."""


class Driver:
    def __init__(self, path: Path) -> None:
        self._errors = (path.parent / "driver.log").open("w+")
        self.process = subprocess.Popen(
            [sys.executable, "-c", DRIVER, path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env={key: value for key, value in os.environ.items() if key != "PYTHONPATH"},
        )

    def ask(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()

    def answer(self) -> str:
        assert self.process.stdout is not None
        found = self.process.stdout.readline().strip()
        self._errors.seek(0)
        assert found, self._errors.read()[-3000:]
        return found

    def run(self, line: str = "") -> int:
        """The number of records of one run."""
        self.ask(line)
        while (found := self.answer()) == "batch":
            pass
        return int(found.split()[1])

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


def on_cluster(path: Path, found: Cluster, python: Path | None = None) -> Path:
    """The deployment file, with small executors of a cluster, of which the first one compiles for all."""
    kernels = found.folder / "kernels"
    kernels.mkdir(exist_ok=True)
    options = (
        f"spark.pyspark.python: {python or found.python}, spark.executor.extraJavaOptions: {JAVA_OPTIONS}, "
        f"spark.executorEnv.ENSUE_KERNELS: {kernels}"
    )
    text = f"spark: {{master: '{found.url}', executor_memory: 512m, conf: {{{options}}}}}\n"
    path.write_text(path.read_text() + text)
    return path
