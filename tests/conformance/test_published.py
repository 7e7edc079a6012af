"""The published tables of Stream Analytics and StreamInsight through replay: every column that can be seen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

import ensue
from ensue.answer import Replay
from runtime.engine.engine import Engine
from runtime.timestamps import parse_time
from tests.conformance.published import (
    INFINITY,
    Idle,
    Incremented,
    Ordered,
    Written,
    idle_cases,
    increment_cases,
    ordered_tables,
    printed,
)
from tests.support.timed import POINT, Timed
from tests.support.timed_engine import arrivals_of, control_text, iso_text, plan_of

ADJUSTED = {"late_adjust": "late", "ooo_adjust": "out_of_order"}
END_OF_TIME = parse_time("9999-12-31T23:59:59.999999Z")
"""How a time beyond all times is shown."""
DROPPED = {"early_drop": "early", "late_drop": "late", "ooo_drop": "out_of_order"}


def text_of(query: Timed) -> str:
    """A query that finds every event of type E."""
    key = f" key {', '.join(query.keys)}" if query.keys else ""
    inputs = " ".join(f"{item.event}(){key} retain 1;" for item in query.inputs)
    events = "".join(f"event {item.event} {{ integer id; string c; }}\n" for item in query.inputs)
    return f"{events}query Q {{ inputs {{ {inputs} }} find E as a; }}"


def table_of(query: Timed, start: str = "ts") -> list[dict[str, Any]]:
    """The stream as users write it. `start`: what the column of source times is called."""
    rows = []
    has_shapes = any(record.shape != POINT for record in query.records)
    for number, record in enumerate(query.records, 1):
        row: dict[str, Any] = {"at": iso_text(record.at), "event": record.event or control_text(record)}
        row |= {"partition": record.partition, "id": record.id or number, "c": record.c}
        row[start] = None if record.time is None else iso_text(record.time)
        if has_shapes:
            row |= {"end": None if record.end is None else iso_text(record.end), "shape": record.shape}
        rows.append(row)
    return rows


def moment(text: str | None) -> int | None:
    """A time of a step."""
    return None if text is None else parse_time(text)


def released(steps: Sequence[dict[str, Any]]) -> list[int]:
    """The rows of the events that came out in these steps."""
    return [match["members"]["a"]["row"] for step in steps for match in step["matches"]]


def by_row(result: Replay) -> list[list[dict[str, Any]]]:
    """The steps up to each row, its timers before it."""
    found: list[list[dict[str, Any]]] = [[]]
    for step in result.steps:
        found[-1].append(step)
        if step["row"] is not None:
            found.append([])
    return found[:-1]


# ------------------------------------------------------------------------------------------------- Stream Analytics


def replayed(table: Ordered, action: str) -> Replay:
    """The table through replay."""
    query = table.timed(action)
    ordering = f"stream_analytics {table.ordering} action={action}"
    return ensue.replay(text_of(query), table_of(query), ordering=ordering)


@pytest.mark.parametrize("table", ordered_tables(), ids=lambda table: table.name)
def test_times_actions_and_watermarks(table: Ordered) -> None:
    for steps, row in zip(by_row(replayed(table, "adjust")), table.rows, strict=True):
        step = steps[-1]
        assert moment(step["time"]) == row.time
        assert (step["adjusted"], step["discarded"]) == (ADJUSTED.get(row.action), DROPPED.get(row.action))
        assert moment(step["definitive"]) == row.after
        assert tuple(sorted(released(steps))) == row.released


@pytest.mark.parametrize("table", ordered_tables(), ids=lambda table: table.name)
def test_where_nothing_is_adjusted(table: Ordered) -> None:
    found = [steps[-1]["discarded"] for steps in by_row(replayed(table, "drop"))]
    assert found == [DROPPED.get(row.action_if_drop) for row in table.rows]


@pytest.mark.parametrize("table", ordered_tables(), ids=lambda table: table.name)
def test_the_watermark_before_each_row(table: Ordered) -> None:
    query = table.timed("adjust")
    plan = plan_of(query)
    engine = Engine(plan)
    for (offset, record), row in zip(query.ordered(), table.rows, strict=True):
        if row.before is not None:
            assert engine.definitive("OfE", record.values(table.keys)) == row.before
        engine.process(arrivals_of(plan, [(offset, record)]))


@pytest.mark.parametrize("table", ordered_tables(), ids=lambda table: table.name)
def test_matches_say_how_their_events_were_adjusted(table: Ordered) -> None:
    expected = {number: row for number, row in enumerate(table.rows, 1) if row.action not in DROPPED}
    matches = replayed(table, "adjust").matches
    adjusted = matches["a.adjusted"].astype(object).where(matches["a.adjusted"].notna(), None)
    assert dict(zip(matches["a.row"], adjusted, strict=True)) == {
        number: ADJUSTED.get(row.action) for number, row in expected.items()
    }


@pytest.mark.parametrize("case", idle_cases(), ids=lambda case: case.name)
def test_when_silent_partitions_let_an_event_pass(case: Idle) -> None:
    result = ensue.replay(text_of(case.query), table_of(case.query), ordering=f"stream_analytics {case.ordering}")
    emitted = {match["members"]["a"]["row"]: match["emitted"] for match in result.match_objects()}
    arrival = case.query.records[case.number - 1].at
    assert moment(emitted[case.number]) == arrival + case.output_after


# ---------------------------------------------------------------------------------------------------- StreamInsight


@pytest.mark.parametrize("case", increment_cases(), ids=lambda case: case.name)
def test_what_a_query_writes_that_passes_everything(case: Incremented) -> None:
    until = None if case.until is None else iso_text(case.until)
    ordering = f"streaminsight {case.ordering}"
    result = ensue.replay(text_of(case.query), table_of(case.query, "start"), ordering=ordering, until=until)
    refused = {step["row"] for step in result.steps if step["discarded"] is not None}
    assert tuple(case.ids[number - 1] for number in sorted(refused)) == case.dropped
    assert printed(case, written(result.steps)) == case.out


def written(steps: Sequence[dict[str, Any]]) -> list[Written]:
    """Events, and definitive times as they move."""
    found: list[Written] = []
    level: float | None = None
    for step in steps:
        for match in step["matches"]:
            member = match["members"]["a"]
            time = moment(member["time"])
            assert time is not None
            found.append((member["row"], time, moment(member["end"])))
        definitive = moment(step["definitive"])
        if definitive is not None and definitive != level:
            found.append(INFINITY if definitive == END_OF_TIME else definitive)
            level = definitive
    return found
