"""The figures of how events fit the settings of time: from the ledger and the clocks."""

from __future__ import annotations

from dataclasses import replace

import pytest

from querylang import compile_text
from querylang.plan.model import Plan, TimePolicy
from runtime.engine.engine import Engine
from runtime.engine.metrics import metrics_table
from runtime.policies.presets import SECOND, stream_analytics, streaminsight
from runtime.replay.replay import measured_replay, read_records

TEXT = "event A { string k; float ts; } query Q { inputs { A() key k retain 2; } find A as a { print a.k; } }"
ROWS: list[dict[str, object]] = [
    {"at": 40.0, "k": "x", "ts": 10.0},  # later than 15 s
    {"at": 41.0, "k": "x", "ts": 400.0},  # earlier than 300 s
    {"at": 42.0, "k": "y", "ts": 42.0},
    {"at": 45.0, "k": "x", "ts": 35.0},  # more than 5 s behind 42
    {"at": 46.0, "k": None, "ts": 46.0},
    {"at": 47.0, "k": "y", "ts": 47.0},
]
LATE, DISORDER = 15 * SECOND, 5 * SECOND


def plan_with(policy: TimePolicy | None, text: str = TEXT) -> Plan:
    plan = compile_text(text).plan
    queries = (
        replace(query, inputs=tuple(replace(item, policy=policy) for item in query.inputs)) for query in plan.queries
    )
    return replace(plan, queries=tuple(queries))


def figures(plan: Plan, rows: list[dict[str, object]] = ROWS, flush: bool = False) -> dict[str, float | None]:
    """The figures of a replay, as `name` or `name: outcome`, without those that are 0."""
    _, table = measured_replay(plan, read_records([rows], plan), flush=flush)
    named = {
        row["metric"] if row["outcome"] is None else f"{row['metric']}: {row['outcome']}": row["value"]
        for row in table.to_pylist()
    }
    return {name: value for name, value in named.items() if value != 0}


def test_adjusted_events() -> None:
    policy = stream_analytics(late=LATE, out_of_order=DISORDER)
    assert figures(plan_with(policy)) == {
        "Input Events": 6,
        "Early Input Events: dropped": 1,
        "Late Input Events: adjusted": 1,
        "Out-of-Order Input Events: adjusted": 1,
        "Backlogged Input Events": 1,
        "Output Events": 3,
        "Watermark Delay": 5.0,
    }


def test_dropped_events() -> None:
    policy = stream_analytics(late=LATE, out_of_order=DISORDER, action="drop")
    assert figures(plan_with(policy)) == {
        "Input Events": 6,
        "Early Input Events: dropped": 1,
        "Late Input Events: dropped": 1,
        "Out-of-Order Input Events: dropped": 1,
        "Backlogged Input Events": 1,
        "Output Events": 1,
        "Watermark Delay": 5.0,
    }


def test_of_several_timelines_the_one_furthest_behind_counts() -> None:
    policy = stream_analytics(late=60 * SECOND, out_of_order=DISORDER, over=("k",))
    rows: list[dict[str, object]] = [{"at": 50.0, "k": "x", "ts": 20.0}, {"at": 50.0, "k": "y", "ts": 48.0}]
    assert figures(plan_with(policy), rows)["Watermark Delay"] == 35.0


WAITING = "event A { float ts; } query Q { inputs { A() retain 2 wait 9.0; } find A as a {} }"


@pytest.mark.parametrize(("wall", "delay"), [(None, 2.0), (60 * SECOND, 12.0)])
def test_delay_is_behind_the_arrival_clock_or_the_wall(wall: int | None, delay: float) -> None:
    plan = compile_text(WAITING).plan
    engine = Engine(plan)
    engine.process(read_records([[{"at": 50.0, "ts": 48.0}]], plan).arrivals)
    assert metrics_table(engine, {}, wall)["value"].to_pylist()[-1] == delay


def test_before_anything_has_come_there_is_no_delay() -> None:
    assert metrics_table(Engine(compile_text(WAITING).plan), {})["value"].to_pylist()[-1] is None


def test_after_the_end_of_all_times_there_is_no_delay() -> None:
    assert figures(plan_with(streaminsight(final=True)), flush=True)["Watermark Delay"] is None


@pytest.mark.parametrize("text", [TEXT, TEXT.replace("retain 2", "retain 2 wait 9.0")])
def test_keys_with_clocks_of_their_own_have_no_delay_together(text: str) -> None:
    assert figures(plan_with(None, text))["Watermark Delay"] is None


def test_ticks_controls_and_rows_of_others_are_no_input_events() -> None:
    text = TEXT + " event B { integer n; } query R { inputs { B() retain 1; } find B as b {} }"
    rows: list[dict[str, object]] = [
        {"at": 1.0, "event": "A", "k": "x", "ts": 1.0},
        {"at": 2.0, "event": None, "k": None, "ts": None},
        {"at": 3.0, "event": "SetDelayedEventsLeeway(5.0, 5.0)", "k": None, "ts": None},
        {"at": 4.0, "event": "nonsense", "k": "x", "ts": 4.0},
    ]
    plan = plan_with(None, text)
    _, table = measured_replay(plan, read_records([rows], plan))
    assert [row["value"] for row in table.to_pylist() if row["metric"] == "Input Events"] == [1, 0]
