"""Messages to callers in Python name what they can write there."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import pytest

import ensue
from ensue.commands.common import with_data_options
from ensue.data_options import ARGUMENTS, DataOptions, FrameOptions, TableOptions, in_python_words, python_words
from querylang.errors import InputError
from querylang.printable import warn

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


def test_a_keyword_stands_once_in_the_table() -> None:
    assert list(ARGUMENTS) == [field.name for field in fields(DataOptions)]
    assert set(ARGUMENTS) == set(TableOptions.__annotations__)
    assert set(ARGUMENTS) - set(FrameOptions.__annotations__) == {"csv"}


def test_commands_have_the_keywords_as_options() -> None:
    options = inspect.signature(with_data_options(lambda data, file, events: None)).parameters
    assert [name.strip("_") for name in options][: len(ARGUMENTS)] == list(ARGUMENTS)


@pytest.mark.parametrize("function", [ensue.replay, ensue.open])
def test_calls_for_tables_have_each_keyword(function: Callable[..., object]) -> None:
    own = [name for name in inspect.signature(function).parameters if name in ARGUMENTS]
    assert own == list(ARGUMENTS)


@pytest.mark.parametrize("function", [ensue.match, ensue.batch, ensue.stream, ensue.streams])
def test_calls_for_frames_have_each_keyword_of_frames(function: Callable[..., object]) -> None:
    parameters = inspect.signature(function).parameters.values()
    own = {item.name: (item.default, item.annotation) for item in parameters if item.name in ARGUMENTS}
    assert own == {name: (None, DataOptions.__annotations__[name]) for name in ARGUMENTS if name != "csv"}


def test_a_wrong_keyword_is_refused_with_the_nearest() -> None:
    with pytest.raises(TypeError) as told:
        ensue.replay(QUERY, [], arrivals="when")  # type: ignore[call-arg]
    assert str(told.value) == "replay() got an unexpected keyword argument 'arrivals'; did you mean 'arrival'?"
    with pytest.raises(TypeError) as told:
        ensue.match({}, QUERY, csv="delimiter=;")  # type: ignore[call-arg]
    assert str(told.value) == "match() got an unexpected keyword argument 'csv'"


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
