"""Pythons that fork from a server are what Spark asked for, and without a server it gets the usual ones."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from job_engine.stopping import Stopped
from spark_backend.launch import fork_server, jvm, worker_python
from spark_backend.launch.session_settings import settings_of_start
from tests.support.waiting import LONGEST, wait_for

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nothing is forked")

CHILD = """
import subprocess, sys
from spark_backend.launch.worker_python import worker_python
program = worker_python()
print(program, flush=True)
sys.stdin.read()
"""
"""A process that starts a server and says where."""

MODULE = "pyspark.find_spark_home"
"""A module of Spark that prints a line."""

AT_START = {"PYTHONPROFILEIMPORTTIME": "1"}
"""What a Python heeds when it starts, and a forked one does not."""


class Driver:
    """The process whose server is tested."""

    def __init__(self) -> None:
        environment = os.environ | {"PYTHONPATH": str(worker_python.ROOT)}
        environment.pop("SPARK_HOME", None)
        self.process = subprocess.Popen(
            [sys.executable, "-c", CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        assert self.process.stdout is not None
        self.program = Path(self.process.stdout.readline().strip())

    def ask(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run the program as the JVM does."""
        given = os.environ | AT_START | {"PYTHONPATH": str(worker_python.ROOT)} | environment
        return subprocess.run(
            [self.program, *arguments], capture_output=True, text=True, env=given, check=True, timeout=LONGEST
        )


@pytest.fixture(scope="module")
def driver() -> Driver:
    return Driver()


def test_a_module_of_spark_runs_in_a_fork(driver: Driver) -> None:
    found = driver.ask("-m", MODULE)
    assert Path(found.stdout.strip()).joinpath("bin").is_dir()
    assert "import time" not in found.stderr


def test_all_else_runs_in_a_python_of_its_own(driver: Driver) -> None:
    found = driver.ask("-c", "import sys; print(sys.executable)")
    assert found.stdout.strip() == sys.executable
    assert "import time" in found.stderr


def test_variables_that_act_at_the_start_get_a_python_of_its_own(driver: Driver) -> None:
    found = driver.ask("-m", MODULE, MALLOC_ARENA_MAX="7")
    assert Path(found.stdout.strip()).joinpath("bin").is_dir()
    assert "import time" in found.stderr


def test_without_a_server_a_python_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_python.atexit, "register", lambda *_: None)
    lost = Driver()
    lost.process.kill()
    place = lost.program.with_name("socket")
    wait_for(lambda: not lost.program.parent.exists())  # the server has ended with its driver, and left nothing
    command = [sys.executable, "-I", "-S", worker_python.forked_python.__file__, str(place), sys.executable]
    found = subprocess.run([*command, "-m", MODULE], capture_output=True, text=True, check=True, timeout=LONGEST)
    assert Path(found.stdout.strip()).joinpath("bin").is_dir()


def test_a_jvm_that_still_starts_has_a_folder_to_write_to(tmp_path: Path) -> None:
    (tmp_path / "place").mkdir()
    (tmp_path / "place" / "spark.properties").write_text("a secret")
    code = "import sys; from pathlib import Path; from spark_backend.launch.fork_server import _end; _end(Path(sys.argv[1]))"
    server = subprocess.Popen([sys.executable, "-c", code, str(tmp_path / "place")], cwd=worker_python.ROOT)
    wait_for(lambda: not (tmp_path / "place" / "spark.properties").exists())
    assert server.poll() is None
    assert (tmp_path / "place").exists()
    (tmp_path / "place").rmdir()  # as the driver does at its end
    assert server.wait(LONGEST) == 0


def test_a_jvm_that_is_waited_for_when_a_signal_arrives_is_ended(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    process = subprocess.Popen(["sleep", "600"], stdin=subprocess.PIPE)

    class Interrupted(jvm._Started):
        def connection(self) -> tuple[int, str] | None:
            raise Stopped(15)

    monkeypatch.setattr("pyspark.SparkContext._gateway", None)  # of an earlier test
    monkeypatch.setattr(jvm, "_started", Interrupted(process, tmp_path / "connection", {}))
    with pytest.raises(Stopped):
        jvm.join({})
    assert process.poll() is not None


def test_variables_of_spark_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert fork_server._is_alike({"OMP_NUM_THREADS": "1", "SPARK_REUSE_WORKER": "1", "PYTHONPATH": "/nowhere"})
    assert not fork_server._is_alike({"OMP_NUM_THREADS": "2"})


def test_a_folder_that_forbids_programs_gets_the_usual_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_python.os, "access", lambda *_: False)
    assert worker_python._started() == sys.executable


def test_a_jvm_that_ends_at_once_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "spark-submit"
    script.write_text("#!/bin/sh\necho 'no Java here' >&2\nexit 1\n", encoding="utf-8")
    script.chmod(0o700)
    place = tmp_path / "connection"
    started = jvm._Started(jvm._process(script, {}, place), place, settings_of_start("test"))
    assert started.connection() is None
    started.end()


def test_a_mistake_of_the_user_is_all_that_is_printed(tmp_path: Path) -> None:
    (tmp_path / "a.query").write_text("event A { float v; } query Q { inputs { A() wait 1 } }", encoding="utf-8")
    (tmp_path / "a.yaml").write_text(
        "name: a\nqueries: [a.query]\nsources: {table: {format: json, path: in}}\n"
        "sinks: {matches: {format: parquet, path: out}}\ncheckpoint: state\n",
        encoding="utf-8",
    )
    (tmp_path / "in").mkdir()
    command = [sys.executable, "-m", "ensue", "run", "a.yaml"]
    environment = os.environ | {"PYTHONPATH": str(worker_python.ROOT)}
    found = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, env=environment, timeout=LONGEST, check=False
    )
    assert found.returncode == 1
    assert found.stderr.startswith(f"{tmp_path}/a.query:1:41: ")
    assert "WARNING" not in found.stderr


def test_arguments_in_quotes_reach_the_jvm_whole(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    commands: list[list[str]] = []
    monkeypatch.setattr(jvm.subprocess, "Popen", lambda command, **_: commands.append(command))
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--conf 'spark.app.name=two words' pyspark-shell")
    jvm._process(Path("spark-submit"), {}, tmp_path / "place")
    assert commands[0][3:] == ["--conf", "spark.app.name=two words", "pyspark-shell"]
