"""Each error says what a command ends with, and keeps it where it travels as text."""

from __future__ import annotations

import errno
import pickle
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest
import yaml

from job_engine.errors import KINDS, failed, in_plain_words, plain_error
from job_engine.job.checkpoint.locks import RunLock
from job_engine.local.pool import failure_of
from job_engine.local.worker import _failed
from querylang.errors import EnsueError, ExitCode, InputError, Mistake, PassingError, QueryError, exit_code_of
from spark_backend import plain_errors
from tests.project.modules import FILES
from tests.project.repository import ROOT

CODES = {
    "EnsueError": ExitCode.INPUT,
    "JobError": ExitCode.OURS,
    "PassingError": ExitCode.PASSES,
}
"""Of each class of errors that names a code; the others have that of the class above them."""


def classes(of: type[EnsueError]) -> Iterator[type[EnsueError]]:
    """A class of errors, and all below it."""
    yield of
    for below in of.__subclasses__():
        yield from classes(below)


def all_classes() -> list[type[EnsueError]]:
    for name, file in FILES.items():
        if re.search(r"^class \w+\(", file.read_text(), re.MULTILINE) and not name.endswith("pytest_plugin"):
            import_module(name)
    return list(dict.fromkeys(classes(EnsueError)))


def test_the_classes_that_name_a_code_are_these() -> None:
    found = {one.__name__: one.exit_code for one in all_classes() if "exit_code" in vars(one)}
    assert found == CODES


def test_every_mistake_of_a_query_is_wrong_input() -> None:
    assert {QueryError.exit_code} == {ExitCode.INPUT}
    assert all(mistake.code for mistake in Mistake)


@pytest.mark.parametrize("name", KINDS)
def test_an_error_that_travels_as_text_keeps_its_code(name: str) -> None:
    error = KINDS[name]("what it says sesame-open")
    text = f"Traceback ...\n{type(error).__module__}.{name}: {error}\n"
    travelled = [
        pickle.loads(pickle.dumps(error)),
        failure_of(_failed(error)),
        plain_errors.plain_error(RuntimeError(text)),
    ]
    with pytest.raises(InputError) as masked, in_plain_words({"WORD": "sesame-open"}):
        raise error
    for found in (*travelled, masked.value):
        assert (type(found), exit_code_of(found)) == (type(error), error.exit_code)


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (errno.ENOSPC, ExitCode.PASSES),
        (errno.EIO, ExitCode.PASSES),
        (errno.ECONNREFUSED, ExitCode.PASSES),
        (errno.EACCES, ExitCode.INPUT),
        (errno.EROFS, ExitCode.INPUT),
        (errno.ENOENT, ExitCode.INPUT),
    ],
)
def test_what_the_system_says_has_a_code(number: int, code: ExitCode) -> None:
    error = OSError(number, "as the system says it", "/some/file")
    assert exit_code_of(failed(error, "a text")) == exit_code_of(plain_error(error)) == code


@pytest.mark.parametrize(
    "text",
    [
        "Python worker failed to connect back",
        "Python worker exited unexpectedly (crashed)",
        "java.lang.OutOfMemoryError: Java heap space",
        "OSError: [Errno 28] No space left on device",
        "Traceback ...\nMemoryError\n",
    ],
)
def test_what_ends_a_run_of_spark_and_may_pass_has_the_code_for_it(text: str) -> None:
    assert exit_code_of(plain_errors.plain_error(RuntimeError(text))) == ExitCode.PASSES


def test_what_has_no_plain_words_is_our_failure() -> None:
    assert exit_code_of(RuntimeError("a promise broke")) == ExitCode.OURS
    assert exit_code_of(MemoryError()) == ExitCode.PASSES


def test_a_checkpoint_that_another_run_has_may_be_free_later(tmp_path: Path) -> None:
    first, second = RunLock(tmp_path / "ensue" / "lock"), RunLock(tmp_path / "other" / ".." / "ensue" / "lock")
    first.acquire()
    try:
        with pytest.raises(PassingError):
            second.acquire()
    finally:
        first.release()


def test_services_are_not_started_again_with_wrong_input() -> None:
    unit = (ROOT / "docs" / "deploy" / "ensue@.service").read_text()
    never = f"{ExitCode.INPUT:d} {ExitCode.USAGE:d}"
    assert f"RestartPreventExitStatus={never}\n" in unit
    page = (ROOT / "docs" / "jobs.md").read_text()
    job = yaml.safe_load(page.split("```yaml cards-job.yaml\n", 1)[1].split("```")[0])
    (rule,) = job["spec"]["podFailurePolicy"]["rules"]
    assert rule["onExitCodes"]["values"] == [ExitCode.INPUT, ExitCode.USAGE]
