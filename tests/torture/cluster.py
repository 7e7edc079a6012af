"""`python -m tests.torture.cluster [ROUNDS]`: a job on a cluster whose executors come, go and are killed at random.

Each round adds files, runs the job, and kills an executor, a worker or nothing while a micro-batch is at work. At the end the
matches are those of one engine. Executors that lack packages are refused before anything starts.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from tests.support.cluster_driver import Driver, on_cluster
from tests.support.sensors import add_files, expected, project, streamed, table
from tests.support.standalone import ROOT, Cluster, bare_python, cluster

FILES = 4
"""A round."""


def torture(folder: Path, rounds: int, seed: int) -> bool:
    """Whether the results are right."""
    chance, path, rows = random.Random(seed), project(folder, buckets=6), table(1000 * rounds, seed)
    with cluster(folder, 1) as found:
        driver = Driver(on_cluster(path, found))
        try:
            for number, part in enumerate(np.array_split(np.arange(len(rows)), rounds)):
                add_files(folder, rows.iloc[part], FILES, first=FILES * number)
                driver.ask("flush" if number == rounds - 1 else "")
                time.sleep(chance.uniform(1.0, 6.0))
                print(f"round {number}: {attack(found, chance)}", flush=True)
                while driver.answer() == "batch":
                    pass
        finally:
            driver.end()
    return streamed(folder) == expected(folder)


def attack(found: Cluster, chance: random.Random) -> str:
    alive = [number for number, worker in enumerate(found.workers) if worker.poll() is None]
    match chance.choice(["executor", "add", "worker"]):
        case "executor":
            found.kill_executor(chance.choice(alive))
            return "an executor was killed"
        case "worker" if len(alive) > 1:
            number = chance.choice(alive)
            found.workers[number].kill()
            found.kill_executor(number)
            return "a worker was killed, and its executor"
        case _:
            found.add_worker()
            return "a worker was added"


def refuses_lacking(folder: Path) -> bool:
    """Whether executors without numpy and others are refused in one line."""
    path, bare = project(folder), folder / "bare"
    bare.mkdir()
    with cluster(folder, 1) as found:
        on_cluster(path, found, bare_python(bare, with_packages=False))
        command = [sys.executable, "-m", "ensue", "run", str(path), "--once"]
        environment = os.environ | {"PYTHONPATH": str(ROOT)}
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    print(done.stderr.strip())
    is_plain = "lacks numba, numpy, pandas, pyarrow" in done.stderr and "Traceback" not in done.stderr
    return done.returncode == 1 and is_plain and not (folder / "state" / "ensue.json").exists()


if __name__ == "__main__":
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    with tempfile.TemporaryDirectory() as first, tempfile.TemporaryDirectory() as second:
        is_right = [torture(Path(first), count, seed=count), refuses_lacking(Path(second))]
    print("right" if all(is_right) else "wrong", is_right)
    sys.exit(not all(is_right))
