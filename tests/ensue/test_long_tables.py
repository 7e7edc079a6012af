"""Tables of long replays: the rows around what happened, cut to fit a terminal."""

from __future__ import annotations

import pytest

import ensue
from ensue.rendering.text_table import fitted, text_table, width_of

QUERY = """@OutOfOrder() @TimeFrom("getTime")
event A { integer n; float ts; action getTime() returns float { return ts; } }
query Q { inputs { A() within 30.0 wait 4.0; } find A as a -> A as b where b.n = a.n + 1000 { print b.toString(); } }
"""


def rows(count: int) -> list[dict[str, object]]:
    return [{"at": 10.0 * at + 1, "n": 1000 if at == 500 else 0, "ts": 10.0 * at} for at in range(count)]


def test_a_long_table_shows_what_is_around_results_and_the_end() -> None:
    text = ensue.replay(QUERY, rows(3000)).table()
    assert (
        "(what is around 1 step with results, and the last 6 steps, because the tables have 3000 rows;"
        " `--format steps` prints them all)"
    ) in text
    gaps = [line.split()[1:] for line in text.splitlines() if "…" in line]
    assert gaps == [["…", "499", "rows"], ["…", "2495", "rows"]]
    assert "01:23:24                                      01:23:20         A(1000,5000.0)\n" in text


@pytest.mark.parametrize("width", [40, 60, 200])
def test_a_table_fits_the_terminal(width: int) -> None:
    header, body = ("time", "event", "output"), [("12:00:00", "Ä" * 50, "x"), ("12:00:01", "e", "日本" * 20)]
    lines = text_table(*fitted(header, body, width)).splitlines()
    assert max(map(width_of, lines)) <= width
    assert ("…" in lines[2]) == (width < 200)


def test_the_least_wanted_columns_are_left_out_first() -> None:
    header, body = ("time", "event", "output"), [("12:00:00", "e" * 50, "x" * 50)]
    assert fitted(header, body, 36, ("time",)) == (("event", "output"), [("e" * 16 + "…", "x" * 16 + "…")])
    assert fitted(header, body, None, ("time",)) == (header, body)
