"""`ensue run --log json`: every line is one JSON object, and none shows a secret."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer

from ensue.commands import run as commands
from ensue.commands.run import JsonLog
from job_engine.deployment_file import ENGINE_VARIABLE
from job_engine.errors import Unreachable
from job_engine.job.batch_writer import Reporter
from job_engine.setting_keys import Engine
from job_engine.wire.reports import Report
from querylang.printable import LOGGER, LogForm, keep_secret, warn
from tests.support.sensors import add_files, project, table


def run_it(path: Path, *options: str, **environment: str) -> tuple[int, list[dict[str, Any]]]:
    """The exit code and what the local engine has logged."""
    done = subprocess.run(
        [sys.executable, "-m", "ensue", "run", str(path), *options],
        capture_output=True,
        check=False,
        env=os.environ | {ENGINE_VARIABLE: Engine.LOCAL} | environment,
    )
    assert done.stdout == b""
    return done.returncode, [json.loads(line) for line in done.stderr.decode().splitlines()]


def test_a_run_is_logged_from_its_start_to_its_end(tmp_path: Path) -> None:
    path = project(tmp_path)
    path.write_text(path.read_text() + "log: json\n")
    add_files(tmp_path, table(300), 2)
    (tmp_path / "data" / "900.parquet").write_bytes(b"no table")
    code, log = run_it(path, "--once")
    assert code == 0
    assert [entry["event"] for entry in log if entry["event"] not in ("warning", "compiling")] == [
        "start",
        *["micro_batch"] * 2,
        "report",
        *["micro_batch"] * (len([entry for entry in log if entry["event"] == "micro_batch"]) - 2),
        "end",
    ]
    assert {entry["job"] for entry in log} == {"sensors"}
    report = next(entry for entry in log if entry["event"] == "report")
    assert (report["level"], report["cause"], report["found"][0]["count"]) == ("warning", "malformed_file", 1)
    end = log[-1]
    assert (end["exit_code"], end["records"]) == (0, 301)
    for count in ("records", "discarded"):
        assert end[count] == sum(entry.get(count, 0) for entry in log if entry["event"] == "micro_batch")


def test_a_mistake_in_the_file_is_logged_without_values_from_the_environment(tmp_path: Path) -> None:
    path = project(tmp_path)
    path.write_text(path.read_text().replace("buckets: 3", "buckets: ${HIDDEN}"))
    code, log = run_it(path, "--log", "json", HIDDEN="sesame-open")
    assert code == 1
    (entry,) = log
    assert (entry["event"], entry["level"], entry["exit_code"]) == ("failed", "error", 1)
    assert "sesame" not in json.dumps(log)


def test_an_error_keeps_its_exit_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object) -> None:
        raise Unreachable("no broker answers")

    monkeypatch.setattr(commands, "_run", fail)
    monkeypatch.setattr(JsonLog, "install", lambda _: None)
    with pytest.raises(typer.Exit) as ended:
        commands.run(project(tmp_path), log=LogForm.JSON)
    entry = json.loads(capsys.readouterr().err.splitlines()[-1])
    assert (ended.value.exit_code, entry["exit_code"], entry["event"]) == (4, 4, "failed")


def test_warnings_and_reports_are_events_with_fields(capsys: pytest.CaptureFixture[str]) -> None:
    log = JsonLog()
    log.job = "sensors"
    keep_secret("PASSWORD", "sesame-open")
    logger = logging.getLogger(LOGGER)
    logger.addHandler(log)
    try:
        warn("the key sesame-open is wrong")
        Reporter().add([Report("lost", "north", 2, "a sesame-open.csv")])
    finally:
        logger.removeHandler(log)
    first, second = (json.loads(line) for line in capsys.readouterr().err.splitlines())
    assert first["message"] == "the key ${PASSWORD} is wrong"
    assert second["found"] == [{"source": "north", "count": 2, "example": "a ${PASSWORD}.csv"}]
    assert (second["event"], second["cause"], second["job"], second["level"]) == (
        "report",
        "lost",
        "sensors",
        "warning",
    )


def test_a_failure_of_our_own_has_its_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    JsonLog().failed(AssertionError("a promise broke"), 3, is_ours=True)
    entry = json.loads(capsys.readouterr().err)
    assert (entry["exit_code"], entry["message"]) == (3, "a promise broke")
    assert entry["traceback"] == "AssertionError: a promise broke\n"
    assert "job" not in entry
