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

from job_engine.setting_keys import Engine
from querylang.errors import ExitCode

ROOT = Path(__file__).resolve().parents[2]

WAYS = {
    Engine.SPARK: ("driver", "worker", "group"),
    Engine.LOCAL: ("driver", "worker", "server", "group"),
}
"""What is killed: the driver, one worker, the process that forks workers, or all at once."""

TRIES = 3
"""Of a run whose exit code says that it may end well without a change."""

ENDS_WITHIN = 20.0
"""Seconds that the processes of a killed driver may take to end."""

_PYTHON_OF_DRIVER = re.compile(r"pyspark|fork_server")


@dataclass(slots=True)
class Victim:
    """A running job; `log`: where its standard error goes."""

    process: subprocess.Popen[bytes]
    log: Path
    engine: Engine = Engine.SPARK

    @staticmethod
    def start(deployment: Path, *options: str, engine: Engine = Engine.SPARK) -> Victim:
        """Run a deployment in a process group of its own, with a temporary folder of its own."""
        log, temporary = deployment.with_name("run.log"), deployment.with_name("tmp")
        temporary.mkdir(exist_ok=True)
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "ENSUE_ENGINE": engine, "TMPDIR": str(temporary)}
        command = [sys.executable, "-m", "ensue.cli", "run", str(deployment), *options]
        with log.open("ab") as file:
            process = subprocess.Popen(command, stdout=file, stderr=file, env=environment, start_new_session=True)
        return Victim(process, log, engine)

    @property
    def is_running(self) -> bool:
        """Whether the driver still runs."""
        return self.process.poll() is None

    def kill(self, way: str) -> list[str]:
        """SIGKILL in one of `WAYS`; gives what has outlived the driver of a local job, a line each."""
        found = []
        match way:
            case "driver":
                os.kill(self.process.pid, signal.SIGKILL)
                self.process.wait()
                if self.engine is Engine.LOCAL:
                    found = self._outliving()
            case "worker" | "server":
                workers = self._python_workers()
                for worker in workers[-1:] if way == "worker" else workers[:1]:
                    _kill(worker)
                if workers:
                    return []
        self.end()
        return found

    def _outliving(self) -> list[str]:
        """The processes that a driver has left, a line each."""
        limit = time.monotonic() + ENDS_WITHIN
        while members(self.process.pid) and time.monotonic() < limit:
            time.sleep(0.01)
        return [f"process {process} outlives the driver" for process in members(self.process.pid)]

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
        """Process numbers of the driver's Python processes; what forks workers comes first."""
        return [process for process in members(self.process.pid) if _PYTHON_OF_DRIVER.search(_command(process))]


def finished(path: Path, engine: Engine, seconds: float) -> int:
    """Run a job to its end, again as its unit would where that may help; gives the exit code."""
    code: int = ExitCode.PASSES
    for _ in range(TRIES):
        if code == ExitCode.PASSES:
            code = Victim.start(path, "--once", "--flush", engine=engine).finish(seconds)
    return code


def left_over(temporary: Path) -> list[Path]:
    """What jobs have left in their temporary folder; the file of a lock stays there."""
    return sorted(path for path in temporary.glob("ensue-*") if path.suffix != ".lock")


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
