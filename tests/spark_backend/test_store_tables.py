"""Event tables in stores, for commands and functions that read local ones."""

from __future__ import annotations

from pathlib import Path

import pytest

import ensue
from ensue.cli import main
from ensue.event_tables import table_paths, tables_in_store
from querylang.errors import InputError
from tests.support.stores import StoreServer

QUERY = """\
event Reading { string sensor; float value; }
query Rise {
    inputs { Reading() key sensor within 1 hour; }
    find Reading as a -> Reading as b where b.value > a.value
}
"""
HEAD = "at,sensor,value\n"


@pytest.fixture
def filled(store: StoreServer) -> StoreServer:
    tables_in_store.cache_clear()
    for hour, name in enumerate(("day=1/9.csv", "day=1/10.csv", "day=2/a b.csv", "day=1/.c.csv", "day=1/note.txt")):
        store.put(name, f"{HEAD}00:{hour}0:00,s,{hour}.5\n")
    return store


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ("s3://bucket/day=1", ["9.csv", "10.csv"]),
        ("s3a://bucket/day=1/", ["9.csv", "10.csv"]),
        ("s3://bucket/day=2/a b.csv", ["a b.csv"]),
        ("s3://bucket/*/*.csv", ["9.csv", "10.csv", "a b.csv"]),
        ("s3://bucket", ["9.csv", "10.csv", "a b.csv"]),
        ("s3://bucket/day=[12]", ["9.csv", "10.csv", "a b.csv"]),
        ("s3://bucket/day=1/?.csv", ["9.csv"]),
    ],
)
def test_files_folders_and_patterns_mean_what_they_mean_on_a_disk(
    filled: StoreServer, given: str, names: list[str]
) -> None:
    assert [path.name for path in table_paths(given)] == names
    assert [path.name for path in table_paths(Path(given))] == names  # a Path has one `/` of two
    assert filled.keys()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("s3://bucket/none.csv", "s3://bucket/none.csv: no such file or folder in the store"),
        ("s3://bucket/*.csv", r"s3://bucket/\*.csv: no such file, and no file matches it as a pattern"),
        ("s3://nowhere/a.csv", "s3://nowhere/a.csv: there is no such bucket"),
    ],
)
def test_what_is_not_there_is_one_clear_line(filled: StoreServer, given: str, message: str) -> None:
    assert filled.keys()
    with pytest.raises(InputError, match=message):
        table_paths(given)


def test_a_store_that_refuses_says_so(filled: StoreServer) -> None:
    filled.refuse = lambda _method, _path: (403, "AccessDenied")
    with pytest.raises(InputError, match="s3://bucket/day=1: the store refuses access"):
        table_paths("s3://bucket/day=1")


def test_a_replay_reads_them_and_writes_nothing_there(
    filled: StoreServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert filled.keys()
    (tmp_path / "rise.query").write_text(QUERY)
    result = ensue.replay(tmp_path / "rise.query", ["s3://bucket/day=1", "s3://bucket/day=2/a b.csv"])
    assert [len(table) for table in result.results.matches.values()] == [2]
    arguments = ["match", str(tmp_path / "rise.query"), "s3://bucket/day=1", "--out", "s3://bucket/out"]
    monkeypatch.setattr("sys.argv", ["ensue", *arguments])
    with pytest.raises(SystemExit):
        main()
    assert capsys.readouterr().err.startswith("--out: 's3://bucket/out' is in a store; write to a local path")
