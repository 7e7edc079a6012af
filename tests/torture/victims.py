"""A run of a job as a process, and the ways in which it is killed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

_PYTHON_OF_SPARK = re.compile(r"pyspark|fork_server")


@dataclass(slots=True)
class Victim:
    """A running job; `log`: where its standard error goes."""

    process: subprocess.Popen[bytes]
    log: Path

    @staticmethod
    def start(deployment: Path, *options: str) -> Victim:
        """Run a deployment in a process group of its own."""
        log = deployment.with_name("run.log")
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-m", "ensue.cli", "run", str(deployment), *options]
        with log.open("ab") as file:
            process = subprocess.Popen(command, stdout=file, stderr=file, env=environment, start_new_session=True)
        return Victim(process, log)

    @property
    def is_running(self) -> bool:
        """Whether the driver still runs."""
        return self.process.poll() is None

    def kill(self, way: str) -> None:
        """SIGKILL to `driver`, `worker` (one Python worker) or `group`; of the group nothing is left."""
        match way:
            case "driver":
                os.kill(self.process.pid, signal.SIGKILL)
            case "worker":
                workers = self._python_workers()
                for worker in workers[-1:]:
                    _kill(worker)
                if workers:
                    return
        self.end()

    def end(self) -> None:
        """Kill everything that the run has started, and wait until it has ended."""
        for process in [*members(self.process.pid), self.process.pid]:
            _kill(process)
        self.process.wait()
        while members(self.process.pid):
            time.sleep(0.01)

    def finish(self, seconds: float) -> int:
        """Wait for the end of a run; gives its exit code."""
        try:
            return self.process.wait(seconds)
        finally:
            self.end()

    def _python_workers(self) -> list[int]:
        """Process numbers of Spark's Python workers."""
        return [process for process in members(self.process.pid) if _PYTHON_OF_SPARK.search(_command(process))]


def members(session: int) -> list[int]:
    """The processes of a session that still run, its leader excepted."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and int(folder.name) != session:
            try:
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue  # it has just ended
            if int(fields[3]) == session and fields[0] != "Z":
                found.append(int(folder.name))
    return sorted(found)


def _command(process: int) -> str:
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def _kill(process: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(process, signal.SIGKILL)
