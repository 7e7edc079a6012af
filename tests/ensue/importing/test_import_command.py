"""`ensue import`: what it reads, prints and warns of."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from tests.ensue.command import Done, Run

SQL = """SELECT * FROM T MATCH_RECOGNIZE (
  PARTITION BY k ORDER BY ts
  ONE ROW PER MATCH AFTER MATCH SKIP PAST LAST ROW
  PATTERN (A B) DEFINE B AS B.x > 2
)
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_query_file_is_named(ensue: Run, folder: Path) -> None:
    (folder / "t.sql").write_text(SQL)
    assert ensue("import", "t.sql", "--out", "t.query") == Done(0, "t.query\n", "")
    assert "key k? " in (folder / "t.query").read_text()


def test_a_dash_is_standard_input(ensue: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(SQL.replace("FROM T", "FROM T WHERE k IS NOT NULL")))
    done = ensue("import", "-")
    assert (done.returncode, done.stderr) == (0, "")
    assert "query Query {" in done.stdout


def test_a_byte_order_mark_is_no_part_of_the_text(ensue: Run, folder: Path) -> None:
    (folder / "t.sql").write_text(SQL, encoding="utf-8-sig")
    assert ensue("import", "t.sql").returncode == 0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "t.sql:1: this text has no MATCH_RECOGNIZE clause"),
        (SQL.replace("PATTERN", "ROWS"), "t.sql:1: this MATCH_RECOGNIZE has no PATTERN"),
        (SQL.replace("BY k", "k"), "t.sql:2: the SQL is not understood: "),
        (SQL.replace("T MATCH", "T\nMATCH") + ";" + SQL, "t.sql:8: this text has several MATCH_RECOGNIZE clauses"),
    ],
)
def test_each_error_names_the_file_and_a_line(ensue: Run, folder: Path, text: str, said: str) -> None:
    (folder / "t.sql").write_text(text)
    done = ensue("import", "t.sql")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(said)
