"""A standalone cluster of Spark for tests: a master and workers on loopback, each in a process of its own.

Executors have a Python that sees numpy, numba, pyarrow and pandas, and no Ensue.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pyspark

from spark_backend.launch.session_settings import class_options
from tests.support.waiting import wait_for

ROOT = Path(__file__).resolve().parents[2]

JAVA_OPTIONS = f"-XX:+UseSerialGC -XX:TieredStopAtLevel=1 {class_options()}"


@dataclass(slots=True)
class Cluster:
    """A master, and workers of one core each.

    python: what executors are to run as Python
    """

    folder: Path
    python: Path
    url: str = ""
    master: subprocess.Popen[bytes] | None = None
    workers: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def add_worker(self) -> None:
        number = len(self.workers)
        place = self.folder / f"worker{number}"
        place.mkdir()
        arguments = ["--cores", "1", "--memory", "1g", "--host", "127.0.0.1", "--webui-port", "0", "-d", str(place)]
        process = self._start("worker.Worker", f"worker{number}", *arguments, self.url)
        self.workers.append(process)
        self._log_of(f"worker{number}", r"Successfully registered with master", process)

    def executors(self, worker: int) -> list[int]:
        """The process ids of a worker's executors."""
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                words = (entry / "cmdline").read_bytes().decode(errors="replace")
                parent = re.search(r"^PPid:\s+(\d+)", (entry / "status").read_text(), re.MULTILINE)
            except OSError:
                continue
            if "CoarseGrainedExecutorBackend" in words and parent and int(parent[1]) == self.workers[worker].pid:
                found.append(int(entry.name))
        return found

    def kill_executor(self, worker: int) -> None:
        """SIGKILL: what it was about to write stays as it is."""
        for process in self.executors(worker):
            os.kill(process, signal.SIGKILL)

    def stop(self) -> None:
        for process in (*self.workers, *([self.master] if self.master else [])):
            process.terminate()
            process.wait()

    def _start(self, kind: str, name: str, *arguments: str) -> subprocess.Popen[bytes]:
        home = Path(pyspark.__file__).parent
        environment = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "PYSPARK"))}
        environment |= {
            "SPARK_DAEMON_JAVA_OPTS": JAVA_OPTIONS,
            "SPARK_DAEMON_MEMORY": "128m",
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
        with (self.folder / f"{name}.log").open("wb") as log:
            return subprocess.Popen(
                [home / "bin" / "spark-class", f"org.apache.spark.deploy.{kind}", *arguments],
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment,
                cwd=self.folder,
            )

    def _log_of(self, name: str, pattern: str, process: subprocess.Popen[bytes]) -> re.Match[str]:
        log = self.folder / f"{name}.log"
        found = wait_for(lambda: re.search(pattern, log.read_text(errors="replace")) or process.poll())
        assert isinstance(found, re.Match), log.read_text(errors="replace")[-2000:]
        return found


@contextmanager
def cluster(folder: Path, workers: int) -> Iterator[Cluster]:
    started = Cluster(folder, bare_python(folder))
    try:
        arguments = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
        started.master = started._start("master.Master", "master", *arguments)
        started.url = started._log_of("master", r"spark://127\.0\.0\.1:\d+", started.master)[0]
        for _ in range(workers):
            started.add_worker()
        yield started
    finally:
        started.stop()


def bare_python(folder: Path, *, with_packages: bool = True) -> Path:
    """The Python of a new environment: the packages of this one are seen, this source tree is not."""
    environment = folder / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    (packages,) = (environment / "lib").glob("python*/site-packages")
    if with_packages:  # lines of other `.pth` files there, such as Ensue's, are not read
        (packages / "packages.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    return environment / "bin" / "python"
