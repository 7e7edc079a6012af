"""Messages to callers in Python name what they can write there."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

import ensue
from ensue.python_words import ARGUMENTS, in_python_words, python_words
from querylang.errors import InputError
from querylang.logger import warn

QUERY = "inputs { A() within 9.0; } find A as a"


@pytest.mark.parametrize(
    ("option", "argument"),
    [
        ("`--arrival NAME`", '`arrival="NAME"`'),
        ("`--time-unit ms`", '`time_unit="ms"`'),
        ('`--time-format "%d.%m.%Y %H"`', '`time_format="%d.%m.%Y %H"`'),
        ("`--csv encoding=latin-1`", '`csv="encoding=latin-1"`'),
        ("`--format steps` or `--no-flush`", "`--format steps` or `--no-flush`"),
    ],
)
def test_an_option_is_an_argument(option: str, argument: str) -> None:
    assert python_words(f"say {option}; please") == f"say {argument}; please"


def test_every_argument_is_one_of_a_replay() -> None:
    assert set(inspect.signature(ensue.replay).parameters) >= ARGUMENTS


def test_a_replay_and_an_open_query_name_arguments() -> None:
    rows = [{"when": 1_714_554_001_897, "v": 1}]
    told = r"`arrival=\"NAME\"`, .* `source_time=\"NAME\"`; 'when' \(`time_unit=\"ms\"`\) could be meant"
    with pytest.raises(ensue.InputError, match=told):
        ensue.replay(QUERY, rows)
    with pytest.raises(ensue.InputError, match=told):
        ensue.open(QUERY).send(rows)
    assert len(ensue.replay(QUERY, rows, arrival="when", time_unit="ms")) == 1


def test_what_files_need_is_an_argument_too(tmp_path: Path) -> None:
    (tmp_path / "e.csv").write_bytes("at,v\n1,2\n".encode("utf-16"))
    with pytest.raises(ensue.InputError, match='say so: `csv="encoding=utf-16"`'):
        ensue.replay(QUERY, tmp_path / "e.csv")


def test_warnings_name_arguments_too(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "e.csv").write_text('at,v\n1,20\n2,"1,5"\n')
    ensue.replay(QUERY, tmp_path / "e.csv")
    warn("`--type NAME`")  # the command line's
    assert caplog.messages == [
        'e.csv: v is text: line 3 has "1,5"; with commas in decimals: `csv="decimal=,"`',
        "`--type NAME`",
    ]


def test_the_kind_of_mistake_stays() -> None:
    class OtherError(InputError):
        pass

    with pytest.raises(OtherError, match=r'^`type="NAME"`$'), in_python_words():
        raise OtherError("`--type NAME`")
