"""`result.funnel` and `ensue funnel`: as text, data, DataFrame and picture; what they refuse."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

import ensue
from ensue.asking_why import funnels
from querylang.errors import InputError
from querylang.printable import forget_secrets, keep_secret
from tests.ensue.command import runner

EVENTS = "event A { string k; float v; }\nevent B { string k; float v; }\n"
QUERY = (
    EVENTS
    + """
query Q {
    inputs {
        A() key k within 10 seconds;
        B() key k within 10 seconds;
    }
    find A as a -> B as b where b.v > a.v
}
"""
)
TABLE = """at,event,k,v
0,A,x,1.0
1,A,x,5.0
4,B,x,2.0
20,A,y,1.0
40,B,y,3.0
45,A,z,1.0
"""
TEXT = """Q: 1 match

step        reached    share  median time to it  stopped here  because of
----------  -------  -------  -----------------  ------------  -----------------------------
A as a            4  100.0 %                                1  where b.v > a.v
                                                            1  window: A() within 10 seconds
                                                            1  open: more may come
B as b            1   25.0 %  4 seconds
in matches        1   25.0 %
"""


def rows() -> list[dict[str, object]]:
    header, *lines = (line.split(",") for line in TABLE.splitlines())
    found = [dict(zip(header, line, strict=True)) for line in lines]
    return [{**row, "at": float(row["at"]), "v": float(row["v"])} for row in found]


def test_the_command_prints_a_table_or_json_and_draws(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = runner(monkeypatch, capsys)
    (tmp_path / "q.query").write_text(QUERY)
    (tmp_path / "rows.csv").write_text(TABLE)
    names = [str(tmp_path / "q.query"), str(tmp_path / "rows.csv")]
    picture = tmp_path / "q.svg"
    assert run("funnel", *names, "--svg", str(picture)).stdout.split() == TEXT.split()
    assert ElementTree.parse(picture).getroot().tag.endswith("svg")
    (found,) = json.loads(run("funnel", *names, "--json").stdout)["funnels"]
    assert found["steps"][0]["stops"][0] == {"what": "where", "clause": "where b.v > a.v", "count": 1}
    assert (found["matched"], found["matches"]) == (1, 1)


def test_a_data_frame_has_a_row_for_each_reason() -> None:
    frame = ensue.replay(QUERY, rows()).funnel("Q").frame
    assert frame[["name", "reached", "what", "stopped"]].fillna("").values.tolist() == [
        ["a", 4, "where", 1],
        ["a", 4, "window", 1],
        ["b", 1, "", ""],
    ]


def test_the_last_step_is_a_trailing_wait() -> None:
    text = (
        EVENTS
        + "query Q { inputs { A() key k within 1 minute; B() key k within 1 minute; } find A as a -> wait(5 seconds) without B as b }"
    )
    counts = ensue.replay(text, rows()).funnel()
    assert [(step.name, step.reached) for step in counts.steps] == [("a", 4), ("wait(5 seconds)", 2)]
    assert [(stop.what, stop.count) for stop in counts.steps[0].stops] == [("without", 2)]


def test_a_find_all_has_all_that_reach_the_end_in_matches() -> None:
    text = QUERY.replace("find A", "find all A").replace("b.v > a.v", "b.v > 0.0")
    counts = ensue.replay(text, rows()).funnel()
    assert (counts.steps[-1].reached, counts.matched) == (2, 2)
    assert ensue.replay(text.replace("find all", "find"), rows()).funnel().matched == 1


def test_a_find_every_does_not_say_what_is_in_matches() -> None:
    text = EVENTS + "query Q { inputs { A() key k within 1 minute; } find every A as a select count() as n }"
    counts = ensue.replay(text, rows()).funnel()
    assert (counts.steps[0].reached, counts.matched) == (4, None)
    assert "in matches" not in str(counts)


@pytest.mark.parametrize("pattern", ["A as a {1,3} -> B as b", "A as a? -> B as b", "(A as a and B as b)"])
def test_a_pattern_without_steps_in_one_order_is_refused(pattern: str) -> None:
    text = QUERY.replace("A as a -> B as b where b.v > a.v", pattern)
    with pytest.raises(InputError, match="has no steps in one order"):
        ensue.replay(text, rows()).funnel()


def test_one_of_several_queries_is_named() -> None:
    other = QUERY.split("\n", 2)[2].replace("query Q", "query R")
    result = ensue.replay(QUERY + other, rows())
    with pytest.raises(InputError, match="which query\\? `funnel` of one of 'Q' and 'R'"):
        result.funnel()
    assert result.funnel("R").counts.query == "R"
    with pytest.raises(InputError, match="there is no query 'S'"):
        result.funnel("S")
    with pytest.raises(InputError, match="query: 3 is not the name of a query; there are Q and R"):
        result.funnel(3)  # type: ignore[arg-type]


def test_secrets_are_masked() -> None:
    keep_secret("PIN", "secret-word")
    try:
        text = EVENTS + """query Q { inputs { A() key k retain 2; } find A as a -> A as b where b.k = "secret-word" }"""
        answer = ensue.replay(text, rows()).funnel()
        shown = str(answer) + json.dumps(answer.to_plain()) + answer.svg() + answer.frame.to_csv()
        assert "${PIN}" in shown
        assert "secret-word" not in shown
    finally:
        forget_secrets()


def test_of_several_queries_those_that_cannot_be_counted_are_in_a_remark() -> None:
    other = QUERY.split("\n", 2)[2].replace("query Q", "query R").replace("A as a -> B as b", "A as a {1,3} -> B as b")
    result = ensue.replay(QUERY + other.replace("where b.v > a.v", ""), rows())
    (counts,) = funnels(result)
    assert counts.query == "Q"
    assert counts.remarks[0].startswith("query 'R': a pattern with repeats")
