"""No text that leaves shows a value of a variable or a password: errors, warnings, tracebacks, causes."""

from __future__ import annotations

import json
import traceback

import pytest

from ensue import cli
from ensue.commands.common import print_error, print_failure
from job_engine.errors import JobError, as_job_errors, in_plain_words
from job_engine.yaml_document import Mistakes, Node, read_document
from querylang.printable import keep_secret, masked, warn

HIDDEN = "sesame-open"
SECRET = "p#s \"w'ör\\d\n\x1b[0m"


@pytest.mark.parametrize(
    "text",
    [SECRET, repr(SECRET), json.dumps(SECRET), "p%23s%20%22w%27%C3%B6r%5Cd%0A%1B%5B0m"],
    ids=lambda text: text[:3],
)
def test_a_value_is_hidden_however_it_is_written(text: str) -> None:
    keep_secret("WORD", SECRET)
    assert masked(f"before {text} behind").replace('"', "").replace("'", "") == "before ${WORD} behind"


def test_the_traceback_of_a_failure_hides_it(capsys: pytest.CaptureFixture[str]) -> None:
    keep_secret("WORD", "sesame-open")
    try:
        {}[HIDDEN]
    except KeyError:
        print_failure()
    print_error("not sesame-open")
    shown = capsys.readouterr().err
    assert "sesame" not in shown
    assert "KeyError: '${WORD}'" in shown


def test_a_warning_hides_it(caplog: pytest.LogCaptureFixture) -> None:
    keep_secret("WORD", "sesame-open")
    warn("no user sesame-open")
    assert caplog.messages == ["no user ${WORD}"]


def test_the_causes_of_an_error_of_a_job_hide_it() -> None:
    keep_secret("WORD", "sesame-open")
    with pytest.raises(JobError) as caught, as_job_errors():
        raise RuntimeError("login sesame-open failed")
    assert "sesame" not in "".join(traceback.format_exception(caught.value))
    with pytest.raises(JobError) as caught, as_job_errors():
        raise RuntimeError("something else")
    assert "RuntimeError: something else" in "".join(traceback.format_exception(caught.value))
    with pytest.raises(Exception, match="plain") as other, in_plain_words({"WORD": HIDDEN}):
        raise OSError(2, "plain", HIDDEN)
    assert "sesame" not in "".join(traceback.format_exception(other.value))


def test_the_next_command_of_a_process_shows_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    keep_secret("WORD", "sesame-open")
    monkeypatch.setattr("sys.argv", ["ensue", "--version"])
    with pytest.raises(SystemExit):
        cli.main()
    assert masked("sesame-open") == "sesame-open"


def _entry(text: str, environment: dict[str, str]) -> Node:
    return next(iter(read_document(text, Mistakes("d.yaml", environment)).mapping().values()))


@pytest.mark.parametrize("value", ["a: b", "#x", "[x", "*x", "!x", '"', "- x", "x # y"])
def test_a_value_of_a_variable_is_one_text_whatever_it_is_as_yaml(value: str) -> None:
    assert _entry("name: '${WORD}'", {"WORD": value}).scalar() == value


def test_numbers_and_words_of_variables_keep_their_types() -> None:
    found = [_entry("name: ${WORD}", {"WORD": value}).scalar() for value in ("2.5", "7", "true", "x")]
    assert found == [2.5, 7, True, "x"]


def test_a_password_in_the_file_is_hidden_too() -> None:
    assert _entry("kafka.sasl.password: sesame-open", {}).text() == "sesame-open"
    assert masked("refuses sesame-open") == "refuses ${kafka.sasl.password}"
