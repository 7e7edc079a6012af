"""`result.backtest`, `ensue.sweep` and their commands: against plain loops, and what they refuse."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from statistics import median
from typing import Any
from xml.etree import ElementTree

import pandas as pd
import pytest

import ensue
from querylang.errors import InputError
from tests.ensue.command import runner

QUERY = """event A { string k; string land; float v; }

query Q {
    parameters { float least := 1.0; }
    inputs { A() key k, land within 20.0; }
    find A as a -> A as b where b.v >= a.v + least
}
"""
SECOND = 1_000_000


def micros(column: pd.Series) -> list[int]:
    return [int(value.value // 1000) for value in column]


def table(rng: random.Random, count: int) -> pd.DataFrame:
    rows = [(rng.randrange(300), rng.choice("xyz"), rng.choice("pq"), float(rng.randrange(5))) for _ in range(count)]
    return pd.DataFrame(sorted(rows), columns=["at", "k", "land", "v"]).astype({"at": float})


def time_labels(rng: random.Random, is_span: bool) -> list[dict[str, Any]]:
    """Labels of which some say both keys, some one, and some none."""
    found = []
    for _ in range(rng.randrange(1, 12)):
        start = rng.randrange(300)
        label: dict[str, Any] = {"start": float(start), "end": float(start + rng.randrange(20))} if is_span else {}
        label |= {} if is_span else {"time": float(start)}
        label |= {"k": rng.choice(["x", "y", None]), "land": rng.choice(["p", None])}
        found.append(label)
    return found


def counts_for(label: dict[str, Any], match: dict[str, Any], within: int) -> bool:
    """As the page says it."""
    if any(label.get(name) is not None and label[name] != match[name] for name in ("k", "land")):
        return False
    if "row" in label:
        return label["row"] in (match["a.row"], match["b.row"])
    start = label.get("time", label.get("start"))
    end = label.get("end", start)
    return int(start * SECOND) <= match["time_us"] <= int(end * SECOND) + within * SECOND


def scored(matches: pd.DataFrame, labels: Sequence[dict[str, Any]], within: int) -> dict[str, Any]:
    """Precision and the others, in plain loops."""
    rows = matches.assign(time_us=micros(matches["time"])).to_dict("records") if len(matches) else []
    hits = [row for row in rows if any(counts_for(label, row, within) for label in labels)]
    delays, missed = [], []
    for number, label in enumerate(labels, 1):
        own = [row for row in rows if counts_for(label, row, within)]
        if not own:
            missed.append(number)
            continue
        first = min(own, key=lambda row: row["time_us"])
        if "row" in label:
            begin = micros(pd.Series([first["a.time"] if label["row"] == first["a.row"] else first["b.time"]]))[0]
        else:
            begin = int(label.get("time", label.get("start")) * SECOND)
        delays.append((first["time_us"] - begin) / SECOND)
    return {
        "hits": len(hits),
        "matches": len(rows),
        "found": len(labels) - len(missed),
        "delay": median(delays) if delays else None,
        "missed": missed,
        "false": [row["match_id"] for row in rows if row not in hits],
    }


@pytest.mark.parametrize("seed", range(60))
def test_scores_are_those_of_plain_loops(seed: int) -> None:
    rng = random.Random(seed)
    events = table(rng, rng.randrange(2, 60))
    kind = seed % 3
    within = 0 if kind == 2 else rng.choice([0, 3, 30])
    if kind == 2:
        labels = [{"row": rng.randrange(1, len(events) + 1), "k": rng.choice(["x", None])} for _ in range(8)]
    else:
        labels = time_labels(rng, is_span=kind == 0)
    replay = ensue.replay(QUERY, events)
    answer = replay.backtest(labels, within=None if kind == 2 else f"{within} seconds")
    (score,) = answer.scores
    expected = scored(replay.matches, labels, within)
    assert (score.hits, score.matches, score.found, score.labels) == (
        *(expected[name] for name in ("hits", "matches", "found")),
        len(labels),
    )
    assert score.delay == expected["delay"]
    assert [label.number for label in score.missed] == expected["missed"]
    assert [match.match_id for match in score.false_alarms] == expected["false"]
    assert len(answer.missed) == len(score.missed)


@pytest.mark.parametrize("seed", range(8))
def test_a_sweep_gives_what_each_value_gives_alone(seed: int) -> None:
    rng = random.Random(1000 + seed)
    events, labels = table(rng, 50), time_labels(rng, is_span=True)
    swept = ensue.sweep(QUERY, events, labels, {"least": [0.0, 1.5, 4.0, 9.0]})
    for score in swept.scores:
        (alone,) = ensue.replay(QUERY, events, parameters=dict(score.parameters)).backtest(labels).scores
        for name in ("hits", "matches", "found", "labels", "precision", "recall", "f1", "delay", "wait"):
            assert getattr(score, name) == getattr(alone, name), name
    assert [score.parameters["least"] for score in swept.scores] == [0.0, 1.5, 4.0, 9.0]
    assert swept.best.f1 == max(score.f1 or 0.0 for score in swept.scores)


def test_no_match_and_no_label_of_a_query_divide_by_nothing() -> None:
    two = QUERY + QUERY.partition("\n\n")[2].replace("query Q", "query R")
    events = table(random.Random(1), 30)
    labels = [{"time": 1000.0, "query": "Q"}]
    first, second = ensue.replay(two, events).backtest(labels, within="1 second").scores
    assert (first.recall, first.f1, first.labels) == (0.0, 0.0, 1)
    assert (second.recall, second.f1, second.labels) == (None, None, 0)
    (none,) = ensue.replay(QUERY, events, parameters={"least": 99.0}).backtest(labels, within="1 second").scores
    assert (none.precision, none.recall, none.f1, none.delay) == (None, 0.0, 0.0, None)


def test_rows_of_several_tables_and_of_runs(tmp_path: Path) -> None:
    for name, shift in (("one", 0.0), ("two", 0.5)):
        pd.DataFrame(
            {"at": [shift + 0.0, shift + 1.0, shift + 50.0], "k": ["x"] * 3, "land": ["p"] * 3, "v": [1.0, 2.0, 9.0]}
        ).to_csv(tmp_path / f"{name}.csv", index=False)
    text = QUERY.replace("A as a -> A as b where b.v >= a.v + least", "A as a -> A as run+ -> A as z where z.v > 1.5")
    replay = ensue.replay(text, [tmp_path / "one.csv", tmp_path / "two.csv"])
    labels = [{"source": "one.csv", "row": 2}, {"source": "two.csv", "row": 3}]
    (score,) = replay.backtest(labels).scores
    assert score.matches
    assert (score.found, [label.row for label in score.missed]) == (1, [3])
    with pytest.raises(InputError, match=r"row 1 of the labels: of which table\? 'source' is one of one.csv and two"):
        replay.backtest([{"row": 2}])
    with pytest.raises(InputError, match=r"there is no table 'three\.csv'; there are one\.csv and two\.csv"):
        replay.backtest([{"row": 2, "source": "three.csv"}])


@pytest.mark.parametrize(
    ("labels", "within", "message"),
    [
        ([{"k": "x"}], None, "labels have one of the columns 'time', 'start' (with 'end') and 'row'; there is k"),
        ([{"time": 1.0, "row": 1}], None, "'start' (with 'end') and 'row'; there are time and row"),
        ([{"time": 1.0}], None, "labels with 'time' need a length"),
        ([{"time": 1.0}], "soon", "within: 'soon' is not a length of time, such as `5 minutes`"),
        ([{"row": 1}], "1 s", "`within` is for labels with times; these have rows"),
        ([{"time": "yesterday"}], "1 s", "row 1 of the labels: 'time' is 'yesterday', not a time"),
        ([{"time": None, "k": "x"}], "1 s", "row 1 of the labels: 'time' has no value"),
        ([{"start": 5.0, "end": 1.0}], None, "row 1 of the labels: 'end' is before 'start'"),
        ([{"row": "one"}], None, "row 1 of the labels: 'row' is 'one', not integer"),
        ([], None, "there are no labels"),
    ],
)
def test_labels_that_cannot_be_meant_are_named(labels: list[Any], within: str | None, message: str) -> None:
    replay = ensue.replay(QUERY, table(random.Random(2), 10))
    with pytest.raises(InputError) as caught:
        replay.backtest(labels, within=within)
    assert message in str(caught.value)


def test_keys_that_labels_do_not_say_are_named() -> None:
    (score,) = ensue.replay(QUERY, table(random.Random(2), 10)).backtest([{"start": 1.0, "K": "x"}]).scores
    assert score.remarks == ("labels do not say land: they count for any",)


def test_rows_of_a_query_without_events_are_refused() -> None:
    text = QUERY.partition("    parameters")[0] + (
        "    inputs { A() key k within 20.0; }\n    find every A as a\n    select count() as n\n    having n > 1\n}\n"
    )
    replay = ensue.replay(text, table(random.Random(2), 30))
    with pytest.raises(InputError, match="query 'Q': a `find every` does not keep its events"):
        replay.backtest([{"row": 1}])
    (score,) = replay.backtest([{"start": 0.0, "end": 300.0}]).scores
    assert score.matches == score.hits > 0


@pytest.mark.parametrize(
    ("vary", "message"),
    [
        ({}, "nothing is varied: name a parameter and its values"),
        ({"most": [1.0]}, "there is no parameter 'most'; there are least"),
        ({"least": []}, "vary: 'least' needs a list of values"),
        ({"least": "123"}, "vary: 'least' needs a list of values"),
        ({"least": range(10_001)}, "10,001 combinations of values are more than 10,000"),
    ],
)
def test_values_that_cannot_be_tried_are_named(vary: Any, message: str) -> None:
    with pytest.raises(InputError) as caught:
        ensue.sweep(QUERY, table(random.Random(2), 10), [{"row": 1}], vary)
    assert message in str(caught.value)


def test_other_parameters_are_given_once_and_stopped_values_are_named() -> None:
    text = QUERY.replace("float least := 1.0;", "float least;\n        float period;").replace("20.0", "period")
    events, labels = table(random.Random(3), 30), [{"start": 0.0, "end": 300.0}]
    swept = ensue.sweep(text, events, labels, {"period": [0.0, 20.0]}, parameters={"least": 1.0})
    assert [dict(score.parameters) for score in swept.scores] == [{"period": 20.0}]
    assert swept.remarks == ("period = 0.0 was not tried: `within` of 'A' must be greater than 0, but is 0.0 seconds",)
    with pytest.raises(InputError, match="a sweep makes the instances of 'Q'; give the values of its other parameters"):
        ensue.sweep(text, events, labels, {"period": [1.0]}, parameters={"Q": {"eu": {"least": 1.0}}})


def test_the_commands_print_tables_or_json_and_draw(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = runner(monkeypatch, capsys)
    (tmp_path / "q.query").write_text(QUERY)
    table(random.Random(5), 40).to_csv(tmp_path / "rows.csv", index=False)
    (tmp_path / "labels.csv").write_text("start,end,k\n0,100,x\n250,260,y\n")
    names = [str(tmp_path / "q.query"), str(tmp_path / "rows.csv"), "--labels", str(tmp_path / "labels.csv")]
    before = sorted(tmp_path.iterdir())
    (score,) = json.loads(run("backtest", *names, "--json").stdout)["scores"]
    text = run("backtest", *names).stdout
    assert f"({score['hits']} of {score['matches']})" in text
    assert "(labels do not say land: they count for any)" in text
    assert sorted(tmp_path.iterdir()) == before
    picture = tmp_path / "q.svg"
    swept = json.loads(run("sweep", *names, "--vary", "least=1..4 by 1.5", "--svg", str(picture), "--json").stdout)
    assert [item["parameters"] for item in swept["scores"]] == [{"least": 1.0}, {"least": 2.5}, {"least": 4.0}]
    assert {key: swept["scores"][0][key] for key in ("hits", "found")} == {key: score[key] for key in ("hits", "found")}
    assert ElementTree.parse(picture).getroot().tag.endswith("svg")
    assert "highest F1: " in run("sweep", *names, "--vary", "least=1,2").stdout
    for given in ("least", "least=", "least=3..1", "least=a..b", "least=1..9 by 0", "least=["):
        found = run("sweep", *names, "--vary", given)
        assert (found.returncode, found.stderr.startswith("--vary: ")) == (1, True), found


def test_a_length_is_text_or_a_timedelta() -> None:
    replay = ensue.replay("inputs { A() key k within 20.0; } find A as a", [{"at": 5.0, "k": "x"}])
    labels = [{"time": 0.0, "k": "x"}]
    for within in ("6 seconds", timedelta(seconds=6), pd.Timedelta("6s")):
        assert replay.backtest(labels, within=within).scores[0].hits == 1
    for wrong in (6, "6", timedelta(seconds=-1)):
        with pytest.raises(InputError, match="is not a length of time, such as `5 minutes`"):
            replay.backtest(labels, within=wrong)  # type: ignore[arg-type]


def test_labels_that_count_rows_from_0_are_refused() -> None:
    replay = ensue.replay("inputs { A() key k within 20.0; } find A as a", [{"at": 5.0, "k": "x"}])
    with pytest.raises(InputError, match="row 2 of the labels: 'row' is less than 1, the number of the first row"):
        replay.backtest([{"row": 1}, {"row": 0}])


def test_labels_of_rows_that_no_table_has_are_counted() -> None:
    replay = ensue.replay("inputs { A() key k within 20.0; } find A as a", [{"at": 5.0, "k": "x"}])
    (score,) = replay.backtest([{"row": 1}, {"row": 1200}, {"row": 2}]).scores
    assert score.remarks == ("2 labels are behind the last row, 1: such as label 2, row 1,200",)
    assert score.found == 1


def test_values_to_try_are_a_list() -> None:
    text = "query Q { parameters { float least := 1.0; } inputs { A(v > least) within 20.0; } find A as a }"
    with pytest.raises(InputError, match="vary: 'least' needs a list of values"):
        ensue.sweep(text, [{"at": 5.0, "v": 1.0}], [{"row": 1}], {"least": 1.0})  # type: ignore[dict-item]
