"""What a replay and a job tell of columns of times that do nothing, and of matches that only the end brought."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import ensue
from ensue.commands.findings import check_files

EVENT = "event Order { string id; } "
PLAIN = EVENT + "query Q { inputs { Order() key id within 1 hour; } find Order:a -> Order:b }"
WAITS = PLAIN.replace("1 hour;", "1 hour wait 1.0;")
SILENCE = (
    EVENT + "query Q { inputs { Order() key id within 1 hour; } find Order:a -> wait(600.0) as t without Order:b }"
)
UNUSED = (
    "source_time 'ts' does nothing: no input has a 'wait' and there is no ordering policy, so events are taken in order"
    " of arrival"
)
ROWS = [{"at": 10.0 + number, "ts": 9.0 + number, "id": "x"} for number in range(3)]


@pytest.mark.parametrize(
    ("text", "options", "warnings"),
    [
        (PLAIN, {"source_time": "ts"}, (UNUSED,)),
        (PLAIN, {}, ()),
        (WAITS, {"source_time": "ts"}, ()),
        (PLAIN, {"source_time": "ts", "ordering": "stream_analytics late=5s"}, ()),
    ],
)
def test_a_column_of_source_times_that_does_nothing_is_told_once(
    text: str, options: dict[str, str], warnings: tuple[str, ...]
) -> None:
    assert ensue.replay(text, [ROWS, ROWS], **options).warnings == warnings  # type: ignore[arg-type]


def test_records_without_arrival_come_at_their_source_time_so_the_column_does_something() -> None:
    history = [{"ts": row["ts"], "id": row["id"]} for row in ROWS]
    assert ensue.replay(PLAIN, history, source_time="ts").warnings == ()


@pytest.mark.parametrize(("text", "source", "is_told"), [(PLAIN, {}, True), (WAITS, {}, False)])
def test_check_tells_it_of_a_source(tmp_path: Path, text: str, source: dict[str, str], is_told: bool) -> None:
    (tmp_path / "q.query").write_text(text)
    (tmp_path / "in").mkdir()
    given = {"format": "csv", "path": "in", "event": "Order", "arrival": "at", "source_time": "ts", **source}
    job = {"name": "j", "queries": "q.query", "sources": {"in": given}, "checkpoint": "state"}
    sinks = {"matches": {"format": "json", "path": "out"}}
    (tmp_path / "job.yaml").write_text(json.dumps({**job, "sinks": sinks}))
    report = check_files([tmp_path / "job.yaml"])
    assert (f"source in: {UNUSED}" in "\n".join(map(str, report.warnings))) == is_told


def test_the_account_tells_how_many_matches_only_the_end_brought() -> None:
    rows = [{"at": 0.0, "id": "a"}, {"at": 1000.0, "id": "b"}]
    assert ensue.replay(SILENCE, rows).account() == (
        "2 received = 2 used\n1 match came only because time advanced at the end: `--no-flush` stops at the last row"
    )
    assert "only because" not in ensue.replay(SILENCE, rows, flush=False).account()
    assert "only because" not in ensue.replay(PLAIN, ROWS).account()
