"""Tables of which no row can be read end a command with exit code 1, not in silence."""

from __future__ import annotations

from pathlib import Path

import pytest

from ensue import load
from ensue.data_options import DataOptions
from ensue.plans import any_row_is_read
from job_engine.job.reports import BatchReport, RunTotal
from tests.ensue.command import Run

QUERY = """event A { string k; integer n; }
query Q { inputs { A() key k within 20.0; } find A as a -> A as b }
"""
TABLES = {
    "bad.csv": "at,k,n\nx,a,1\ny,a,2\n",
    "bad.jsonl": "nonsense\n[1\n",
    "half.csv": "at,k,n\nx,a,1\n1,a,2\n",
    "none.csv": "at,k,n\n",
}


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The current folder, with a query and tables."""
    monkeypatch.chdir(tmp_path)
    for name, text in {"q.query": QUERY, **TABLES}.items():
        Path(name).write_text(text, "utf-8")


@pytest.mark.parametrize("options", [[], ["--format", "matches"], ["--json"], ["--out", "found.jsonl"]])
@pytest.mark.parametrize(
    ("table", "code"), [("bad.csv", 1), ("bad.jsonl", 1), ("half.csv", 0), ("none.csv", 0)], ids=TABLES
)
def test_a_replay_of_no_row_that_can_be_read_fails(ensue: Run, table: str, code: int, options: list[str]) -> None:
    done = ensue("replay", "q.query", table, *options)
    assert done.returncode == code
    assert ("no row could be read: all are malformed\n" in done.stderr) == bool(code)


@pytest.mark.parametrize(
    ("tables", "is_read"),
    [(["bad.csv"], False), (["bad.csv", "bad.jsonl"], False), (["bad.csv", "half.csv"], True), (["none.csv"], True)],
)
def test_a_match_on_spark_knows_whether_any_row_is_read(tables: list[str], is_read: bool) -> None:
    assert any_row_is_read(load(Path("q.query")), [Path(table) for table in tables], DataOptions()) == is_read


@pytest.mark.parametrize(
    ("batches", "is_unreadable"), [([], False), ([(2, 2), (1, 1)], True), ([(2, 2), (3, 2)], False), ([(0, 0)], False)]
)
def test_a_run_knows_whether_all_of_its_batches_were_malformed(
    batches: list[tuple[int, int]], is_unreadable: bool
) -> None:
    total = RunTotal()
    for number, (records, malformed) in enumerate(batches):
        total.add(BatchReport(number, records, {}, 0, 0, malformed, 0, 0.1, malformed))
    assert (
        total.report(load(Path("q.query")).template(), {}, 1.0, stopped_by=None, idle=()).is_unreadable == is_unreadable
    )
