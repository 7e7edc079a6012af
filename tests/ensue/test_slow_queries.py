"""`ensue replay` says which queries run on the reference matcher."""

from __future__ import annotations

from pathlib import Path

import pytest

import ensue as in_python
from runtime.matching import choose
from tests.ensue.command import Run

QUERY = """
event A { string s; }
query Slow { inputs { A() within 1 hour; } find A as a -> A as b where a.s + b.s = "xy" }
query Fast { inputs { A() within 1 hour; } find A as a -> A as b where a.s < b.s }
"""
TOLD = (
    "query 'Slow' runs on the reference matcher, about 100 times slower than a kernel: "
    "text put together from several events in a condition\n"
)


@pytest.mark.parametrize("options", [[], ["--out", "matches.jsonl"]])
def test_a_query_on_the_reference_matcher_is_named_once(ensue: Run, tmp_path: Path, options: list[str]) -> None:
    text = QUERY if not options else QUERY.rpartition("query Fast")[0]
    (tmp_path / "slow.query").write_text(text)
    (tmp_path / "events.csv").write_text("at,event,s\n1,A,x\n2,A,y\n")
    done = ensue("replay", "slow.query", "events.csv", *options)
    assert done.returncode == 0
    assert done.stderr == TOLD


def test_python_says_before_the_first_row_how_long_it_will_take(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choose, "EVENTS_A_SECOND", 2)
    query = QUERY.rpartition("query Fast")[0]
    in_python.replay(query, [{"at": float(at), "event": "A", "s": "x"} for at in range(140)])
    (line,) = caplog.messages
    estimate = "a kernel (1 min 10 s for these 140 rows, more where windows hold many events):"
    assert line == TOLD.strip().replace("a kernel:", estimate)
    caplog.clear()
    in_python.replay(query, [{"at": 0.0, "event": "A", "s": "x"}])
    assert not caplog.messages, "what takes less than a second is not worth a line"


def test_open_queries_say_before_the_first_row_how_fast_they_are(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    live = in_python.open(QUERY)
    (line,) = caplog.messages
    estimate = "a kernel (20,000 events a second, more where windows hold many events):"
    assert line == TOLD.strip().replace("a kernel:", estimate.replace("more", "fewer"))
    live.send({"at": 0.0, "event": "A", "s": "x"})
    live.save(tmp_path / "state")
    in_python.open(QUERY, state=tmp_path / "state")
    assert caplog.messages == [line, line]


def test_all_combinations_of_a_find_every_are_in_its_estimate(caplog: pytest.LogCaptureFixture) -> None:
    query = """
    event A { string s; }
    query Q {
        inputs { A() within 1 hour; }
        find every A as a -> A as b where a.s + b.s = "xy" select count() as n having n > 2 { print "n"; }
    }
    """
    in_python.replay(query, [{"at": float(at), "event": "A", "s": "x"} for at in range(4)])
    assert not caplog.messages
    in_python.open(query)
    (line,) = caplog.messages
    assert "(311 events a second where windows hold 20 events: for each event it tries all combinations of 2" in line
    assert "of them, which are 190)" in line
