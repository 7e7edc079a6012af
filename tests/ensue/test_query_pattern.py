"""`--query PATTERN`, and the account of many queries: what is shown of a program that is too long to be read."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from ensue.commands.run import _print_report
from ensue.rendering.account import account_text
from job_engine.job.reports import RunReport
from runtime.results.ledger import ledger_table
from tests.ensue.command import Run

BOOK = """event E { string k; integer code; }
event Found { string k; }

query First {
    inputs { E(code = 1) key k within 1 minute; }
    find E as a { route Found(a.k); }
}

query Second {
    parameters { integer least := 0; }
    inputs { Found() key k within 1 minute; }
    find Found as a
}

query Third {
    inputs { E(code = 3) key k within 1 minute; }
    find E as a
}
"""


@pytest.fixture(autouse=True)
def _book(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("book.query").write_text(BOOK)


def titles(text: str) -> list[str]:
    return [line.removeprefix("query ") for line in text.splitlines() if line.startswith("query ")]


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [("First", ["First"]), ("*d", ["Second", "Third"]), ("?hird", ["Third"]), ("*", ["First", "Second", "Third"])],
)
def test_queries_are_chosen_by_a_pattern(ensue: Run, pattern: str, expected: list[str]) -> None:
    assert titles(ensue("explain", "book.query", "--query", pattern).stdout) == expected
    listed = ensue("list", "book.query", "--query", pattern).stdout.splitlines()[2:]
    assert [line.split()[0] for line in listed] == expected


def test_an_instance_is_chosen_by_its_query_or_its_title(ensue: Run) -> None:
    given = ("--parameters", "{Second: {a: {least: 1}, b: {least: 2}}}")
    for pattern, expected in (("Second", ["Second/a", "Second/b"]), ("Second/b", ["Second/b"]), ("*/a", ["Second/a"])):
        assert titles(ensue("explain", "book.query", *given, "--query", pattern).stdout) == expected


def test_what_feeds_a_chosen_query_is_still_said(ensue: Run) -> None:
    assert "fed by\n    First, with Found" in ensue("explain", "book.query", "--query", "Second").stdout


@pytest.mark.parametrize("command", ["explain", "list"])
def test_a_pattern_that_fits_nothing_is_refused_with_the_nearest_name(ensue: Run, command: str) -> None:
    done = ensue(command, "book.query", "--query", "first")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "--query: no query is called 'first'; did you mean 'First'?\n"


def account(queries: int, used: int) -> str:
    counts: Counter[tuple[str, str, str]] = Counter()
    for number in range(queries):
        wanted = number < used
        counts[f"Q{number}", "s", "received"] = 3
        counts[f"Q{number}", "s", "filtered"] = 2 if wanted else 3
        if wanted:
            counts[f"Q{number}", "s", "late"] = 1
    return account_text(ledger_table(counts))


def test_of_many_accounts_those_are_printed_that_wanted_a_record() -> None:
    lines = account(30, 2).splitlines()
    assert [line.split() for line in lines[2:-1]] == [["Q0", "3", "2", "1"], ["Q1", "3", "2", "1"]]
    assert lines[-1] == "of 28 queries every record was filtered or unrelated"
    assert account(30, 0) == "of 30 queries every record was filtered or unrelated"
    assert account(30, 30).count("\n") == 31
    assert account(20, 2).count("\n") == 21


def report(queries: int, matched: int, capsys: pytest.CaptureFixture[str]) -> list[str]:
    counts = {f"Q{number}": int(number < matched) for number in range(queries)}
    _print_report(RunReport(1, 7, counts, 0, 0.5, {}))
    return capsys.readouterr().out.splitlines()[1:]


def test_at_the_end_of_a_run_of_many_queries_those_are_printed_that_have_matches(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert report(30, 2, capsys) == ["Q0: 1 match", "Q1: 1 match", "28 queries without a match"]
    assert len(report(30, 30, capsys)) == 30
    assert len(report(20, 2, capsys)) == 20
