"""`ensue replay` says which queries run on the reference matcher."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.ensue.command import Run

QUERY = """
event A { string s; }
query Slow { inputs { A() within 1 hour; } find A as a -> A as b where a.s + b.s = "xy" }
query Fast { inputs { A() within 1 hour; } find A as a -> A as b where a.s < b.s }
"""
TOLD = (
    "query 'Slow' runs on the reference matcher, several times slower than the kernel: "
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
