"""`ordering=` and `--ordering`: one policy, policies by source, what is refused, what is warned of."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

import ensue
from ensue.commands.findings import check_files
from querylang.errors import EnsueError
from querylang.plan.model import TimelineKind
from runtime.policies.plan_policies import parse_orderings
from runtime.policies.presets import stream_analytics
from runtime.reading.column_names import ColumnNames
from runtime.replay.loading import plan_for_files
from tests.ensue.command import Run

SECOND = 1_000_000
QUERY = """
event A { integer id; string card; }
event B { integer id; string card; }
query Q {
    inputs { A() within 30.0; B() within 30.0; }
    find A as a -> B as b { print a.id.toString() + "-" + b.id.toString(); }
}
"""
ROWS = [
    {"at": 10, "event": "A", "ts": 9, "id": 1, "card": "x"},
    {"at": 11, "event": "A", "ts": 2, "id": 2, "card": "y"},
    {"at": 12, "event": "B", "ts": 8, "id": 3, "card": "x"},
]


def replay(ordering: Any, events: Any = None, **options: Any) -> ensue.Replay:
    return ensue.replay(QUERY, ROWS if events is None else events, ordering=ordering, **options)


def texts(result: ensue.Replay) -> list[str]:
    return list(result.outputs["text"])


def adjusted(result: ensue.Replay) -> list[Any]:
    return [step["adjusted"] for step in result.steps if step["row"] is not None]


@pytest.mark.parametrize(
    "ordering",
    [
        "stream_analytics late=5s",
        {"policy": "stream_analytics", "late": 5},
        stream_analytics(late=5 * SECOND),
        ["stream_analytics late=5s"],
        {"table": "stream_analytics late=5s"},
        ["apama", "table: stream_analytics late=5s"],
    ],
)
def test_a_policy_may_be_given_in_many_ways(ordering: Any) -> None:
    assert adjusted(replay(ordering)) == [None, "late", "out_of_order"]


def test_without_a_policy_the_queries_say_how_events_are_ordered() -> None:
    result = replay(None)
    assert adjusted(result) == [None, None, None]
    assert texts(result) == ["2-3"]


def test_fields_have_clocks_of_their_own() -> None:
    rows = [ROWS[0], {**ROWS[1], "ts": 11}, {**ROWS[2], "ts": 10}]
    assert adjusted(replay("stream_analytics", rows)) == [None, None, "out_of_order"]
    assert adjusted(replay("stream_analytics over=card", rows)) == [None, None, None]


def test_each_source_has_its_own_policy() -> None:
    tables = [ROWS[:2], ROWS[2:]]
    result = replay({"table": "stream_analytics late=5s", "table#2": "apama"}, tables)
    assert [item.policy and item.policy.name for item in result.plan.queries[0].inputs] == ["stream_analytics", "apama"]
    assert [item.sources for item in result.plan.queries[0].inputs] == [("table",), ("table#2",)]
    assert adjusted(result) == [None, "late", None]


def test_sources_may_stand_in_a_column() -> None:
    rows = [{**row, "source": row["card"]} for row in ROWS]
    result = replay({"x": "stream_analytics late=5s", "y": "stream_analytics late=5s"}, rows)
    assert [item.sources for item in result.plan.queries[0].inputs] == [("x", "y"), ("x",)]


def test_an_event_type_that_no_table_brings_has_the_policy_of_all() -> None:
    (query,) = replay("streaminsight", ROWS[:2]).plan.queries
    assert [item.policy and item.policy.timeline for item in query.inputs] == [
        TimelineKind.EVENT_TYPE,
        TimelineKind.EVENT_TYPE,
    ]


def test_files_on_workers_have_the_plan_of_a_replay(tmp_path: Path) -> None:
    pd.DataFrame(ROWS[:2]).to_csv(tmp_path / "a.csv", index=False)
    pd.DataFrame(ROWS[2:]).to_parquet(tmp_path / "b.parquet")
    paths = [tmp_path / "a.csv", tmp_path / "b.parquet"]
    ordering = {"a.csv": "stream_analytics", "b.parquet": "stream_analytics late=1s"}
    expected = replay(ordering, paths).plan
    plan = ensue.load(QUERY).plan()
    assert plan_for_files(paths, plan, [ColumnNames()] * 2, parse_orderings(ordering)) == expected


@pytest.mark.parametrize(
    ("ordering", "told"),
    [
        ("stream_analytics late=22d", "ordering: 'late' must be a length of time from 0 seconds to 20 days 23 hours 59 minutes 59 seconds, or -1 (for ever), not 22 days"),
        ({"tabel": "apama"}, "ordering: there is no source 'tabel'; did you mean 'table'?"),
        ({"table": "apam"}, "ordering: the source 'table': 'policy' must be apama, stream_analytics or streaminsight, not 'apam'; did you mean 'apama'?"),
        (["apama", "apama"], "ordering: the input has two policies"),
        (["t: apama", "t: apama"], "ordering: the source 't' has two policies"),
        ("stream_analytics over=crd", "ordering: query 'Q', input 'A': 'over=crd', but the event type has the fields id, card; did you mean 'card'?\nordering: query 'Q', input 'B': 'over=crd', but the event type has the fields id, card; did you mean 'card'?"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused(ordering: Any, told: str) -> None:
    with pytest.raises(ensue.InputError) as caught:
        replay(ordering)
    assert str(caught.value) == told


def test_two_sources_of_one_type_must_agree() -> None:
    with pytest.raises(
        EnsueError, match="'table' and 'table#2' can both bring this type, and have different orderings"
    ):
        replay({"table": "stream_analytics"}, [ROWS, ROWS])


def test_a_policy_needs_source_times() -> None:
    with pytest.raises(ensue.InputError, match="has no column 'ts', the source time of 'A'"):
        replay("stream_analytics", [{"at": 1, "event": "A", "id": 1, "card": "x"}])


def test_a_wait_and_a_policy_contradict_each_other() -> None:
    waits = QUERY.replace("A() within 30.0", "A() within 30.0 wait 5.0")
    with pytest.raises(ensue.InputError, match="input 'A': `wait` says how events are put in order"):
        ensue.replay(waits, ROWS, ordering="stream_analytics")
    assert adjusted(ensue.replay(waits, ROWS, ordering="apama leeway=0s")) == [None, None, None]


def test_times_that_can_hardly_be_meant_are_warnings() -> None:
    result = replay("stream_analytics", [{**ROWS[0], "at": 1_700_000_000}])
    assert [warning[:46] for warning in result.warnings] == ["table: 1 row happens more than 1,000 days befo"]
    assert replay("stream_analytics").warnings == ()


# ------------------------------------------------------------------------------------------------ the command line


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "q.query").write_text(QUERY)
    pd.DataFrame(ROWS).to_csv(tmp_path / "e.csv", index=False)
    return tmp_path


def test_the_option_says_how_records_are_ordered(folder: Path, ensue: Run) -> None:
    done = ensue("replay", "q.query", "e.csv", "--ordering", "stream_analytics late=5s action=drop")
    assert (done.returncode, done.stdout.count("discarded: ")) == (0, 2)


def test_the_option_may_be_given_for_each_source(folder: Path, ensue: Run) -> None:
    options = ("--ordering", "apama", "--ordering", "e.csv: stream_analytics action=drop")
    assert ensue("replay", "q.query", "e.csv", *options).stdout.count("discarded: ") == 2


def test_a_wrong_option_is_the_users_mistake(folder: Path, ensue: Run) -> None:
    done = ensue("replay", "q.query", "e.csv", "--ordering", "stream_analytics early=soon")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "ordering: 'early' must be a length of time from 0 seconds, or none, not 'soon'\n"


def test_warnings_go_to_standard_error(folder: Path, ensue: Run) -> None:
    (folder / "e.csv").write_text("at,event,ts,id,card\n1700000000,A,1700000,1,x\n")
    done = ensue("replay", "q.query", "e.csv", "--ordering", "stream_analytics", "--format", "matches")
    assert done.stderr.startswith(
        "warning: e.csv: 1 row happens more than 1,000 days before or after arrival, first row 1"
    )


DEPLOYMENT = """name: x
queries: [q.query]
sources:
  all:
    format: csv
    path: in
    ordering: {policy: stream_analytics, over: [crd], late: 22d}
sinks: {matches: {format: json, path: out}}
checkpoint: state
"""


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (DEPLOYMENT, "'late' must be a length of time"),
        (DEPLOYMENT.replace(", late: 22d", ""), "query 'Q', input 'A': 'over=crd', but the event type has"),
    ],
)
def test_check_tells_an_ordering_that_cannot_be(folder: Path, text: str, message: str) -> None:
    (folder / "in").mkdir()
    (folder / "run.yaml").write_text(text)
    found = check_files([folder / "run.yaml"]).to_plain()["errors"]
    assert {item["line"] for item in found} == {7}
    assert found[0]["message"].startswith(message)


@pytest.mark.parametrize(
    ("ordering", "time"),
    [
        ("stream_analytics late=5s out_of_order=2s over=card", "in the order of stream_analytics, a clock for each card, complete up to 2 seconds before the newest event, at most 5 seconds late, at most 5 minutes early, the rest is adjusted"),
        ("stream_analytics late=-1 early=none action=drop", "in the order of stream_analytics, a clock for each partition of a source, complete up to the newest event, the rest is discarded"),
        ("streaminsight every=5 delay=-1s idle=1s action=adjust", "in the order of streaminsight, one clock, complete up to 1 second after the event received last, after each 5 events, complete after 1 second idle, the rest is clipped or discarded"),
        ("streaminsight every=5s", "in the order of streaminsight, one clock, complete up to the event received last, after each 5 seconds of event time, the rest is discarded"),
        ("streaminsight every=none", "in the order of streaminsight, one clock, the rest is discarded"),
    ],
)  # fmt: skip
def test_explain_tells_the_order(folder: Path, ensue: Run, ordering: str, time: str) -> None:
    lines = ensue("explain", "q.query", "--ordering", ordering).stdout.splitlines()
    assert [line.strip() for line in lines if "time:" in line] == [f"time: the source's column, {time}"] * 2


# ------------------------------------------------------------------------------------------------------- bad times

TIMED = '@TimeFrom("t") event A { integer id; float t; } query Q { inputs { A() within 9.0 WAIT; } find A as a -> A as b { } }'


@pytest.mark.parametrize(("wait", "ordering"), [("wait 9.0", None), ("", "stream_analytics"), ("", "streaminsight")])
@pytest.mark.parametrize(
    ("cell", "reason"),
    [
        (None, "null_time"),
        (math.nan, "null_time"),
        (math.inf, "null_time"),
        (-math.inf, "null_time"),
        (1_700_000_000_000.0, "null_time"),
        (8.5, None),
    ],
)
def test_a_field_that_is_no_time_has_a_reason(wait: str, ordering: str | None, cell: float, reason: str | None) -> None:
    table = pa.table({"at": [8.0, 9.0], "id": [1, 2], "t": pa.array([8.0, cell], pa.float64())})
    result = ensue.replay(TIMED.replace("WAIT", wait), table, ordering=ordering)
    assert list(result.discarded["reason"]) == ([] if reason is None else [reason])


@pytest.mark.parametrize("ordering", ["stream_analytics", "streaminsight"])
@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"ts": None}, "null_time"),
        ({"ts": "noon"}, "malformed"),
        ({"at": None}, "malformed"),
        ({"at": "later"}, "malformed"),
        ({"event": "C"}, "unknown_type"),
    ],
)
def test_a_row_that_is_none_has_a_reason(ordering: str, row: dict[str, Any], reason: str) -> None:
    result = replay(ordering, [*ROWS[:1], {**ROWS[0], "id": 2, "at": 11, **row}])
    assert list(result.discarded["reason"]) == [reason]


@pytest.mark.parametrize("ordering", [None, "stream_analytics late=5s", "streaminsight"])
def test_rows_of_a_table_are_taken_in_order_of_arrival(ordering: str | None) -> None:
    steps = replay(ordering, [ROWS[0], {**ROWS[2], "at": 3, "ts": 10}]).steps
    assert [step["at"][11:19] for step in steps if step["row"] is not None] == ["00:00:03", "00:00:10"]
