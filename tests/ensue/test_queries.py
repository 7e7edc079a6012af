"""Where queries are asked for: paths and text."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import ensue

TEXT = "event A { integer id; }\ninputs { A() within 9.0; }\nfind A as a -> A as b\n"


def test_text_is_a_query_named_query() -> None:
    assert ensue.load(TEXT).names == ("query",)


def test_queries_show_their_names() -> None:
    assert repr(ensue.load(TEXT)) == "<Queries: query>"


def test_a_path_is_a_file_or_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "rise.query").write_text(TEXT)
    assert ensue.load(tmp_path / "rise.query").names == ("rise",)
    assert ensue.load(str(tmp_path)).names == ("rise",)
    monkeypatch.chdir(tmp_path)
    assert ensue.load("rise.query").names == ("rise",)
    assert ensue.load(["rise.query"]).names == ("rise",)


@pytest.mark.parametrize("text", ["no.query", "cards", "a/b.qry", "x.mon", "run.yaml"])
def test_what_looks_like_a_path_and_is_not_there_is_a_missing_file(text: str) -> None:
    with pytest.raises(ensue.InputError, match=f"^{text}: no such file or folder$"):
        ensue.load(text)


def test_an_empty_text_is_neither_a_query_nor_this_folder() -> None:
    with pytest.raises(ensue.InputError, match="it is empty"):
        ensue.load("")


def test_all_mistakes_are_raised_at_once() -> None:
    with pytest.raises(ensue.QueryErrors) as raised:
        ensue.load(TEXT.replace("as b", "as b where b.idd > a.x"))
    assert [error.code for error in raised.value.errors] == ["unknown-field", "unknown-field"]
    assert issubclass(ensue.QueryErrors, ensue.EnsueError)


def test_a_loaded_set_can_be_run_again_and_again() -> None:
    queries = ensue.load(TEXT)
    for _ in range(2):
        assert len(ensue.replay(queries, [{"at": 1, "id": 1}, {"at": 2, "id": 2}]).matches) == 1


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (
            lambda: ensue.load(None),  # type: ignore[arg-type]
            "None is not a query; give a path, a list of paths, or query text",
        ),
        (
            lambda: ensue.load([5]),  # type: ignore[list-item]
            "number 1 of the list of queries: expected a path, not int",
        ),
        (
            lambda: ensue.replay("inputs { A() retain 1; } find A as a", [{"at": 1}], parameters=5),  # type: ignore[arg-type]
            "parameters: int is neither a mapping nor a path nor text",
        ),
    ],
)
def test_values_of_other_types_are_refused_in_one_line(call: Callable[[], object], told: str) -> None:
    with pytest.raises(ensue.InputError) as raised:
        call()
    assert str(raised.value) == told


def test_what_is_suspicious_in_a_text_is_logged_once_it_runs(caplog: pytest.LogCaptureFixture) -> None:
    text = 'inputs { A() key k within 9.0; } find A as d -> wait(5.0) without A as x where d.s = "down"'
    rows = [{"at": 1, "k": "a", "s": "up"}]
    ensue.replay(text, rows)
    told = "query:1:74: idle-where: this `where` belongs to the `without` before it and does not mention its 'x'"
    assert caplog.messages == [told]
    ensue.replay(ensue.load(text), rows)  # which has `warnings`
    ensue.replay("inputs { A() key k retain 1; } find A as a", rows)
    assert caplog.messages == [told]
