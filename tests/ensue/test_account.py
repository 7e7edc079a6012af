"""The account that is printed under the table: it adds up, in a line or in a table."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest

import ensue
from ensue.rendering.account import account_text, left_text
from runtime.results.ledger import ledger_table
from tests.ensue.command import Run
from tests.support.linear import MOST, growth

QUERY = '@OutOfOrder() event A { integer id; } query Q { inputs { A(id > 0) within 9.0 wait 5.0; } find A as a { print "x"; } }'
TABLE = "at,event,ts,id\n00:00:10,A,00:00:09,1\n00:00:20,A,00:00:02,2\n00:00:21,A,00:00:20,0\n00:00:22,,,\n"


def account_of(**counts: int) -> str:
    return account_text(ledger_table(Counter({("Q", "s", word): count for word, count in counts.items()})))


def test_one_account_is_one_line() -> None:
    assert account_of(received=6, used=3, tick=2, late=1) == "6 received = 3 used + 2 tick + 1 discarded (late)"


def test_reasons_are_told_apart() -> None:
    assert account_of(received=9, used=2, late=4, null_key=1, pending=2) == (
        "9 received = 2 used + 5 discarded (4 late, 1 null_key) + 2 pending"
    )


def test_nothing_is_an_account_too() -> None:
    assert account_of() == "nothing received"


def test_the_account_of_very_many_queries_takes_time_by_their_number() -> None:
    ledger = ledger_table(
        Counter({(f"Q{n}", "s", word): 1 for n in range(64_000) for word in ("received", "filtered")})
    )

    def shown(count: int) -> str:
        return account_text(ledger.slice(0, 2 * count))

    assert growth(shown, 500) < MOST


def test_several_queries_and_sources_are_a_table() -> None:
    ledger = ledger_table(
        Counter(
            {
                ("P", "a.csv", "received"): 12,
                ("P", "a.csv", "used"): 12,
                ("P", "b.csv", "received"): 3,
                ("P", "b.csv", "late"): 3,
                ("Q", "a.csv", "received"): 12,
                ("Q", "a.csv", "pending"): 12,
            }
        )
    )
    assert account_text(ledger) == (
        "query  source  received  used  discarded: late  pending\n"
        "-----  ------  --------  ----  ---------------  -------\n"
        "P      a.csv         12    12\n"
        "P      b.csv          3                      3\n"
        "Q      a.csv         12                              12"
    )


def test_what_all_accounts_share_is_not_said() -> None:
    ledger = ledger_table(Counter({("P", "s", "received"): 1, ("Q", "s", "received"): 1, ("P", "s", "used"): 1}))
    assert account_text(ledger).splitlines()[0] == "query  received  used"


def test_the_account_of_a_replay_adds_up(tmp_path: Path) -> None:
    (tmp_path / "e.csv").write_text(TABLE)
    account = ensue.replay(QUERY, tmp_path / "e.csv").account()
    assert account == "4 received = 1 used + 1 filtered + 1 tick + 1 discarded (late)"


@pytest.mark.parametrize(
    ("until", "arrived"), [("00:00:10", 1), ("00:00:13", 1), ("00:00:14", 1), ("00:00:20", 2), ("00:00:21", 3)]
)
def test_the_account_adds_up_at_every_moment(tmp_path: Path, until: str, arrived: int) -> None:
    (tmp_path / "e.csv").write_text(TABLE)
    account = ensue.replay(QUERY, tmp_path / "e.csv", until=until).account().splitlines()[0]
    received, *parts = map(int, re.findall(r"\d+", account))
    assert (received, sum(parts)) == (arrived, arrived)


@pytest.mark.parametrize(("format_", "lines"), [("steps", 5), ("matches", 1), ("outputs", 1)])
def test_what_machines_read_has_no_account(ensue: Run, tmp_path: Path, format_: str, lines: int) -> None:
    (tmp_path / "q.query").write_text(QUERY)
    (tmp_path / "e.csv").write_text(TABLE)
    done = ensue("replay", "q.query", "e.csv", "--format", format_)
    assert done.returncode == 0
    assert [type(json.loads(line)) for line in done.stdout.splitlines()] == [dict] * lines


def test_the_table_ends_with_the_account(ensue: Run, tmp_path: Path) -> None:
    (tmp_path / "q.query").write_text(QUERY)
    (tmp_path / "e.csv").write_text(TABLE + "oops,A,00:00:20,2\n")
    done = ensue("replay", "q.query", "e.csv")
    assert done.stdout.splitlines()[-2:] == [
        "",
        "5 received = 1 used + 1 filtered + 1 tick + 2 discarded (1 late, 1 malformed)",
    ]
    assert done.stderr == "  line 6: 'oops' in 'at' is not a time: oops,A,00:00:20,2\n"


WAITS = "event A { string k; } query W { inputs { A() key k within 1 hour; } find A as a -> wait(1 minute) }"


def test_matches_that_wait_are_told_where_a_replay_ends_early() -> None:
    rows = [{"at": second, "k": key} for second, key in ((0, "a"), (5, "b"), (58, "c"))]
    told = "; the next is due at 1970-01-01T00:01:0"
    assert ensue.replay(WAITS, rows, flush=False).account() == f"3 received = 3 used\n3 matches wait{told}0.000000Z"
    assert ensue.replay(WAITS, rows, until=62).account() == f"3 received = 3 used\n2 matches wait{told}5.000000Z"
    assert ensue.replay(WAITS, rows).account().split("\n") == [
        "3 received = 3 used",
        "3 matches came only because time advanced at the end: `--no-flush` stops at the last row",
    ]


def test_events_that_are_held_are_told() -> None:
    ledger = pa.table({"query": ["Q"], "source": ["s"], "what": ["pending"], "count": [1]})
    assert left_text(0, None, ledger) == ["1 event is held until time is definitive"]
    assert left_text(0, None, ledger.slice(1)) == []
