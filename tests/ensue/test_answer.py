"""The tables of a result: flat, nested, printed, and drawn in a notebook."""

from __future__ import annotations

import re
import sys
from datetime import datetime
from pathlib import Path

import pandas as pd
import pytest

import ensue

EVENTS = "event W { string card; integer time; optional<float> amount; sequence<integer> codes; }\nevent X { string card; }\n"
QUERY = "query Q { inputs { W() key card within 1 hour; X() key card within 1 hour; } find W as a -> (W as b or X as c) -> wait(1.0) as t }\n"
ENDS = "query N { inputs { W() key card within 1 hour; X() key card within 1 hour; } find every W as a or X as b select first(a) as oldest select count() as n select last(b) as x }\n"
EVERY = "query E { inputs { W() key card within 1 hour; } find every W as a select count() as n }\n"
ROWS = [
    {"at": 1.0, "event": "W", "card": "x", "time": 7, "amount": 2.5, "codes": [1, 2]},
    {"at": 2.0, "event": "W", "card": "x", "time": 8, "amount": None, "codes": []},
    {"at": 3.0, "event": "W", "card": None, "time": 9, "amount": 1.0, "codes": [3]},
]
COMMON = ["match_id", "query", "instance", "card", "time", "definitive", "emitted", "waited"]


X_COLUMNS = ["c.card", "c.event", "c.time", "c.source_time", "c.arrival", "c.row"]


def columns_of(term: str) -> list[str]:
    fields = ["card", "time_", "amount", "codes"]
    return [f"{term}.{name}" for name in (*fields, "event", "time", "source_time", "arrival", "row")]


def test_matches_are_flat_with_nullable_types() -> None:
    matches = ensue.replay(EVENTS + QUERY, ROWS).matches
    assert matches.columns.tolist() == [*COMMON, *columns_of("a"), *columns_of("b"), *X_COLUMNS, "t"]
    assert matches[["card", "a.time_", "a.amount", "a.row", "b.row"]].to_numpy().tolist() == [["x", 7, 2.5, 1, 2]]
    assert matches["a.codes"].tolist() == [[1, 2]]
    assert matches[["b.amount", "c.card", "c.row"]].isna().to_numpy().all()
    types = {name: str(matches[name].dtype) for name in ("card", "a.time_", "c.row", "a.amount", "time", "t")}
    assert types == {
        "card": "string",
        "a.time_": "Int64",
        "c.row": "Int64",
        "a.amount": "Float64",
        "time": "datetime64[us, UTC]",
        "t": "datetime64[us, UTC]",
    }


def test_events_that_a_find_every_selects_have_the_columns_of_events() -> None:
    result = ensue.replay(EVENTS + ENDS, ROWS)
    x_columns = [name.replace("c.", "x.") for name in X_COLUMNS]
    assert result.matches.columns.tolist() == [*COMMON, *columns_of("oldest"), "n", *x_columns]
    assert result.matches[["oldest.time_", "oldest.event", "oldest.row", "n"]].to_numpy().tolist() == [
        [7, "W", 1, 1],
        [7, "W", 1, 2],
    ]
    assert result.matches["x.row"].isna().all()
    found = result.to_arrow().to_pylist()[1]
    assert (found["oldest"]["fields"]["time"], found["oldest"]["offset"], found["n"], found["x"]) == (7, 1, 2, None)
    assert 'oldest=W("x",7,' in result.table()
    assert "x=null" in result.table()


def test_a_table_without_matches_has_the_same_columns_and_types() -> None:
    full, empty = (ensue.replay(EVENTS + QUERY, rows).matches for rows in (ROWS, ROWS[:1]))
    assert len(empty) == 0
    pd.testing.assert_series_equal(empty.dtypes, full.dtypes)


def test_several_queries_have_common_columns_and_each_its_own() -> None:
    result = ensue.replay(EVENTS + QUERY + EVERY, ROWS)
    assert result.matches.columns.tolist() == COMMON
    assert result.matches["query"].tolist() == ["E", "E", "Q"]
    assert result.matches_of("E")["n"].tolist() == [1, 2]
    assert result.matches_of("Q")["a.time_"].tolist() == [7]
    with pytest.raises(ensue.InputError, match="there is no query 'QQ'; did you mean 'Q'"):
        result.matches_of("QQ")


def test_queries_without_matches_decide_about_common_columns_too() -> None:
    keyless = "query K { inputs { X() within 1 hour; } find X as x }\n"
    told = 'query T { metadata { "severity": "low" } inputs { X() key card within 1 hour; } find X as x }\n'
    found = ensue.replay(EVENTS + EVERY + keyless, ROWS)
    assert found.matches.columns.tolist() == [name for name in COMMON if name != "card"]
    found = ensue.replay(EVENTS + EVERY + told, ROWS)
    assert found.matches.columns.tolist() == [*COMMON, "metadata", "severity"]
    assert found.matches["severity"].isna().all()
    assert found.matches["query"].tolist() == found.to_arrow()["query"].to_pylist() == ["E", "E"]
    assert ensue.replay(EVENTS + keyless + told, ROWS).matches.columns.tolist() == [
        *(name for name in COMMON if name != "card"),
        *("metadata", "severity"),
    ]


def test_the_instances_of_a_query_are_one_table() -> None:
    text = EVENTS + "query P { parameters { integer least := 0; } inputs { W(time >= least) within 9.0; } find W as a }"
    result = ensue.replay(text, ROWS, parameters={"P": {"all": {}, "some": {"least": 8}}})
    assert result.matches_of("P")["instance"].tolist() == ["all", "all", "some", "all", "some"]
    assert result.matches_of("P/some")["a.time_"].tolist() == [8, 9]


def test_arrow_is_nested_as_on_spark() -> None:
    result = ensue.replay(EVENTS + QUERY + EVERY, ROWS)
    (row,) = result.to_arrow("Q").to_pylist()
    assert (row["key"], row["a"]["fields"]["time"], row["c"]) == ({"card": "x"}, 7, None)
    assert result.to_arrow().column_names == [name for name in COMMON if name != "card"]


def test_a_missing_polars_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(ensue.InputError, match=r"^Polars is not installed"):
        ensue.replay(EVENTS + QUERY, ROWS).to_polars()


def test_discards_have_their_fields_as_columns() -> None:
    (row,) = ensue.replay(EVENTS + QUERY, ROWS).discarded.to_dict("records")
    assert (row["reason"], row["offset"], row["time"], row["amount"], row["codes"]) == ("null_key", 3, 9, 1.0, [3])


def test_print_shows_the_first_rows_and_the_account() -> None:
    text = "event A { integer n; string s; }\ninputs { A() retain 1; } find A as a { print a.s; }"
    shown = str(ensue.replay(text, [{"at": at, "n": at, "s": "x" * at} for at in range(1, 13)]))
    lines = shown.splitlines()
    assert lines[0] == "12 rows, 12 matches"
    assert lines[3].split() == ["query", "time", "a.n", "a.s", "a.time", "a.row"]
    assert "… 2 more" in lines
    assert lines[-1] == "12 received = 12 used"


def test_a_notebook_shows_escaped_tables() -> None:
    text = "event A { string s; }\ninputs { A() retain 1; } find A as a { print a.s; }"
    page = ensue.replay(text, [{"at": 1, "s": "<script>\x1b&"}])._repr_html_()
    assert page.count("<table>") == 2
    assert "&lt;script&gt;\\x1b&amp;" in page
    assert "<script>" not in page
    assert "\x1b" not in page


KEYED = """event A { string k; float v; string s; }
query Q { inputs { A() key k within 30 seconds; } find A as low -> A as high where high.v > low.v }"""
RISING = [{"at": at, "k": "x", "v": value, "s": "y"} for at, value in ((0.0, 1.0), (10.5, 3.0), (20.25, 2.0))]


def test_a_key_is_shown_once_and_times_without_zeros() -> None:
    shown = str(ensue.replay(KEYED, RISING)).splitlines()
    assert shown[3].split()[:4] == ["query", "k", "time", "low.v"]
    assert "low.k" not in shown[3]
    assert [line.split()[3] for line in shown[5:7]] == ["00:00:10.5", "00:00:20.25"]


class Axes:
    """What `plot` asks of axes."""

    def __init__(self) -> None:
        self.lines: list[tuple[list[float], list[float]]] = []
        self.labels: list[str] = []

    def plot(self, times: list[datetime], values: list[float], *, marker: str) -> None:
        assert marker == "o"
        self.lines.append(([time.timestamp() for time in times], values))

    def set_xlabel(self, text: str) -> None:
        self.labels.append(text)

    set_ylabel = set_xlabel


def test_plot_draws_a_line_per_match_over_a_field() -> None:
    axes = Axes()
    assert ensue.replay(KEYED, RISING).plot("v", axes=axes) is axes
    assert axes.lines == [([0.0, 10.5], [1.0, 3.0]), ([0.0, 20.25], [1.0, 2.0])]
    assert axes.labels == ["time (UTC)", "v"]


def test_plot_draws_all_events_of_a_run() -> None:
    axes = Axes()
    run = KEYED.replace("A as low -> A as high where high.v > low.v", "A as a {2}")
    ensue.replay(run, RISING[:2]).plot("v", axes=axes)
    assert axes.lines == [([0.0, 10.5], [1.0, 3.0])]


@pytest.mark.parametrize(
    ("field", "message"),
    [
        ("w", "`plot`: 'w' is not a field of an event of the matches; numbers are v"),
        ("s", "`plot`: 's' is not a number; numbers are v"),
    ],
)
def test_plot_refuses_what_it_cannot_draw(field: str, message: str) -> None:
    with pytest.raises(ensue.InputError, match=f"^{re.escape(message)}"):
        ensue.replay(KEYED, RISING).plot(field, axes=Axes())


def test_without_matplotlib_plot_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ensue.InputError, match=r"^matplotlib is not installed: `pip install matplotlib`$"):
        ensue.replay(KEYED, RISING).plot("v")


def test_a_notebook_shows_the_line_of_the_user_and_the_message_last() -> None:
    with pytest.raises(ensue.QueryErrors) as found:
        ensue.load("inputs { A() retain 1; } find A as a where a.s == null")
    shown = found.value._render_traceback_()
    assert "test_answer.py" in shown[0]
    assert shown[1].strip().startswith("ensue.load(")
    assert shown[-1].endswith(" ^^^^")
    assert not [line for line in shown if "querylang/" in line or "ensue/queries" in line]


def test_a_public_call_shows_none_of_the_frames_below_it() -> None:
    with pytest.raises(ensue.InputError) as found:
        ensue.replay(KEYED, 5)
    files = [Path(entry.path).name for entry in found.traceback]
    assert files == ["test_answer.py", "data_options.py"]
