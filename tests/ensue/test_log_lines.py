"""With a log of JSON objects each line on standard output and error is one, whatever writes it or dies."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from typing import Any

import pytest

from ensue.commands.json_log import KILLED, asks_for_objects
from job_engine.threads import in_background

BEGIN = """
import os, signal, sys, threading, warnings, subprocess, logging
from ensue.commands.json_log import JsonLog, end_beside
from querylang.printable import keep_secret
log = JsonLog()
log.install()
keep_secret("PASSWORD", "sesame-open")
log.know("cards")
"""


def written_by(code: str, ends: str = "end_beside()") -> tuple[int, list[dict[str, Any]], list[str]]:
    """The exit code of a process that does this, the objects of its log, and its lines on standard output."""
    command = [sys.executable, "-c", f"{BEGIN}{code}\n{ends}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    return done.returncode, [json.loads(line) for line in done.stderr.splitlines()], done.stdout.splitlines()


def messages(log: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(entry["event"], entry["message"]) for entry in log]


@pytest.mark.parametrize(
    "code",
    [
        "print('a word', file=sys.stderr)",
        "print('a word', flush=True)",
        "os.write(1, b'a word')",
        "os.write(2, b'\\n\\na word\\n')",
        "subprocess.run(['sh', '-c', 'echo a word >&2'])",
        "logging.getLogger('py4j').error('a word')",
    ],
)
def test_a_line_of_others_becomes_an_object(code: str) -> None:
    code_, log, out = written_by(code)
    assert (code_, messages(log), out) == (0, [("output", "a word")], [])
    assert (log[0]["level"], log[0]["job"]) == ("error", "cards")


def test_a_worker_that_compiles_kernels_says_so_as_the_run_does() -> None:
    _, log, _ = written_by("from runtime.progress_line import ONCE; print(ONCE)")
    assert [(entry["event"], entry["level"]) for entry in log] == [("compiling", "info")]


def test_what_python_warns_of_is_one_object() -> None:
    _, log, _ = written_by("warnings.warn('old', UserWarning)")
    assert messages(log) == [("warning", "UserWarning: old")]


def test_a_secret_is_masked_in_the_lines_of_others() -> None:
    _, log, _ = written_by('os.write(2, b\'it is sesame-open\\n{"a": "sesame-open"}\\n\')')
    assert [entry["message"] for entry in log] == ["it is ${PASSWORD}", '{"a": "${PASSWORD}"}']


def test_a_result_on_standard_output_stays_as_it_is() -> None:
    assert written_by("print('{\"batches\": 2}')") == (0, [], ['{"batches": 2}'])


def test_an_uncaught_error_is_in_objects() -> None:
    code, log, out = written_by("raise RuntimeError('a promise broke')", "")
    assert (code, out) == (1, [])
    assert ("output", "RuntimeError: a promise broke") in messages(log)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGUSR1])
def test_the_death_of_the_process_is_the_last_object(number: int) -> None:
    code, log, _ = written_by(f"os.write(2, b'last words'); os.kill(os.getpid(), {number:d})", "")
    assert code == -number
    assert sorted(messages(log)) == [("failed", KILLED), ("output", "last words")]


def test_lines_of_a_process_that_lives_longer_are_objects_too() -> None:
    _, log, _ = written_by("child = subprocess.Popen(['sh', '-c', 'read it; echo a word >&2'], stdin=subprocess.PIPE)")
    assert messages(log) == [("output", "a word")]


@pytest.mark.parametrize(
    ("arguments", "is_asked"),
    [
        (["run", "a.yaml", "--log", "json"], True),
        (["run", "--log=json"], True),
        (["run", "a.yaml", "--log", "text"], False),
        (["replay", "--log", "json"], False),
    ],
)
def test_objects_are_wanted_where_the_arguments_say_so(arguments: list[str], is_asked: bool) -> None:
    assert asks_for_objects(arguments) == is_asked


def test_wrong_usage_is_in_objects() -> None:
    command = [sys.executable, "-m", "ensue", "run", "--log", "json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert [json.loads(line)["event"] for line in done.stderr.splitlines()] == ["output"] * 3


def test_a_thread_of_ours_leaves_one_line_and_no_traceback(caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> None:
        raise RuntimeError("a promise\nbroke")

    in_background(fail, "ensue test").join()
    assert [record.getMessage() for record in caplog.records] == [
        "what 'ensue test' does beside the job has ended: RuntimeError: a promise"
    ]
