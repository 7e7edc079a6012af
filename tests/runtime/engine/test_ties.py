"""Records that arrive together are processed in one order."""

from __future__ import annotations

import ensue

QUERY = """\
event A { integer n; }
inputs { A() within 10.0; }
find A as a -> A as b { print a.n.toString() + " " + b.n.toString(); }
"""


def test_rows_of_one_table_that_arrive_together_are_in_the_order_of_their_offsets() -> None:
    rows = [
        {"at": 1.0, "event": "A", "n": 1, "source": "x", "partition": 1, "offset": 5},
        {"at": 1.0, "event": "A", "n": 2, "source": "a", "partition": 0, "offset": 1},
    ]
    assert ensue.replay(QUERY, rows).outputs["text"].tolist() == ["2 1"]
    assert ensue.replay(QUERY, rows[::-1]).outputs["text"].tolist() == ["2 1"]


def test_rows_of_several_tables_that_arrive_together_are_in_the_order_of_the_tables() -> None:
    first = [{"at": 1.0, "event": "A", "n": 1, "offset": 5}]
    second = [{"at": 1.0, "event": "A", "n": 2, "offset": 1}]
    assert ensue.replay(QUERY, [first, second]).outputs["text"].tolist() == ["1 2"]


def test_rows_without_offsets_that_arrive_together_keep_their_order() -> None:
    rows = [{"at": 1.0, "event": "A", "n": 1, "source": "x"}, {"at": 1.0, "event": "A", "n": 2, "source": "a"}]
    assert ensue.replay(QUERY, rows).outputs["text"].tolist() == ["1 2"]
    assert ensue.replay(QUERY, rows[::-1]).outputs["text"].tolist() == ["2 1"]
