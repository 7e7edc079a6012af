"""Reports, from a packed row to the log and the status: counted, added up, and not warned of too often."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from ensue.commands.status_text import status_text
from ensue.rendering.account import account_text
from job_engine.job.batch_writer import FirstRecords, Reporter
from job_engine.job.checkpoint.job_folder import BatchFiles
from job_engine.job.checkpoint.progress import JobProgress
from job_engine.job.reports import BatchReport, RunTotal
from job_engine.job.status import status_of
from job_engine.operator.step import run_step
from job_engine.wire.clock_sources import ClockSource
from job_engine.wire.packed_rows import HOME, pack_reports
from job_engine.wire.program import Program
from job_engine.wire.reports import CAUSES, FROM_LEDGER, Report, added_up, reports_from_ledger
from job_engine.wire.tagged_rows import Tag
from runtime.results.ledger import Account, ledger_table
from tests.spark_backend.samples import PLAN
from tests.support.buckets import rows_of
from tests.support.sensors import project_of_two

ROOT = Path(__file__).parents[2]


def test_a_reader_s_report_leaves_the_step_as_a_row_for_the_driver() -> None:
    program = Program.of(PLAN, buckets=2)
    packed = pack_reports([Report("lost", "a", 2, "1.csv"), Report("lost", "a", 1, "2.csv")]).to_pylist()
    assert [row["bucket"] for row in packed] == [HOME]
    step = run_step(program, HOME, None, [row["data"] for row in packed], 0)
    assert rows_of(list(step.rows), Tag.REPORT) == [
        {"cause": "lost", "source": "a", "count": 3, "example": "2.csv", "field": ""}
    ]


def test_a_run_counts_the_queries_that_ended_and_those_that_run_at_its_end() -> None:
    total = RunTotal()
    for batch, matches in enumerate(({"Ended": 2}, {"Ended": 1, PLAN.queries[0].title: 5})):
        total.add(BatchReport(batch, 10, matches, 0, 0, 0, 0, 0.1, 0))
    found = total.report(PLAN, {}, 1.0, stopped_by=None, idle=())
    others = {query.title: 0 for query in PLAN.queries[1:]}
    assert found.matches == {PLAN.queries[0].title: 5, "Ended": 3, **others}
    assert found.records == 20


def test_a_ledger_s_words_are_reported_once_per_record_not_once_per_query() -> None:
    changes = {("Rise", "a", "lost"): 3, ("Jump", "a", "lost"): 3, ("Rise", "a", "used"): 9, ("Rise", "a", "ahead"): -1}
    assert reports_from_ledger(changes) == [Report("lost", "a", 3)]


def test_a_cause_is_warned_of_at_once_then_at_most_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    times = iter([0.0, 1.0, 2.0, 61.0])
    reporter = Reporter(lambda: next(times))
    with caplog.at_level(logging.WARNING, "ensue"):
        reporter.add([Report("lost", "a", 1, "1.csv")])
        reporter.add([Report("lost", "a", 2)])
        reporter.add([Report("ahead", "b", 1)])
        reporter.add([Report("lost", "b", 4, "two\nlines\x1b")])
    lost, ahead = CAUSES["lost"], CAUSES["ahead"]
    assert [record.getMessage() for record in caplog.records] == [
        f"lost: {lost}: 1 of 'a'; for example '1.csv'",
        f"ahead: {ahead}: 1 of 'b'",
        f"lost: {lost}: 2 of 'a', 4 of 'b'; for example 'two\\nlines\\x1b'",
    ]


def test_what_waits_for_its_minute_is_warned_of_at_the_end(caplog: pytest.LogCaptureFixture) -> None:
    reporter = Reporter(lambda: 0.0)
    with caplog.at_level(logging.WARNING, "ensue"):
        reporter.add([Report("lost", "a", 1)])
        reporter.add([Report("lost", "a", 5)])
        reporter.finish()
        reporter.finish()
    assert [record.getMessage().rpartition(": ")[2] for record in caplog.records] == ["1 of 'a'", "5 of 'a'"]


def test_reports_are_added_up_in_the_status(tmp_path: Path) -> None:
    path = project_of_two(tmp_path)
    reports = [Report("lost", "south", 2, "1.csv"), Report("before_clock", "north", 7)]
    progress = JobProgress()
    for _ in range(2):
        progress = progress.after([], records=0, matches=0, reports=reports)
    progress = JobProgress.from_plain(json.loads(json.dumps(progress.to_plain())))
    files = BatchFiles(tmp_path / "state" / "ensue" / "progress")
    files.write(0, {"queries": {"Rise": None}, "progress": progress.to_plain()})
    status = status_of(path)
    assert status.to_plain()["reports"] == [
        {"cause": "before_clock", "source": "north", "count": 14, "example": "", "field": ""},
        {"cause": "lost", "source": "south", "count": 4, "example": "1.csv", "field": ""},
    ]
    assert status_text(status).split("\n\n")[-2].split("\n") == [
        "report        source  count  last example",
        "------------  ------  -----  ------------",
        "before_clock  north      14",
        "lost          south       4  '1.csv'",
    ]


def test_what_is_counted_beside_the_sum_follows_it() -> None:
    account = Account({("Q", "a", "received"): 3, ("Q", "a", "used"): 3, ("Q", "a", "lost"): 2})
    assert account_text(ledger_table(account)) == "3 received = 3 used; beside the sum: 2 lost"


def test_every_cause_is_explained_in_the_docs() -> None:
    text = (ROOT / "docs" / "jobs.md").read_text("utf-8")
    assert [cause for cause in CAUSES if f"| `{cause}` |" not in text] == []
    assert set(FROM_LEDGER) <= set(CAUSES)


def test_the_sum_of_reports_keeps_the_last_example() -> None:
    assert added_up([Report("lost", "a", 1, "x"), Report("lost", "a", 1)]) == (Report("lost", "a", 2, "x"),)


@pytest.mark.parametrize(
    ("source", "counts", "text"),
    [
        (
            ClockSource("s", in_files=True),
            {"received": 7060, "before_clock": 2948, "late": 2948},
            (
                "source 's': 2948 of its first 7060 records arrive before the clock: `min_age` of the source lists files of"
                " the same time together; `partition: COLUMN` gives each value a clock of its own"
            ),
        ),
        (
            ClockSource("s"),
            {"received": 100, "before_clock": 11},
            (
                "source 's': 11 of its first 100 records arrive before the clock: a longer `idle`, or none, lets time wait for"
                " them"
            ),
        ),
        (
            ClockSource("s"),
            {"received": 100, "late": 11},
            (
                "source 's': 11 of its first 100 records are late: a longer `wait` of the queries' inputs, or `late` of its"
                " `ordering`, keeps them"
            ),
        ),
        (ClockSource("s"), {"received": 100, "late": 10}, ""),
        (ClockSource("s"), {"received": 5, "late": 5}, ""),
    ],
)
def test_many_late_records_at_the_beginning_are_told_once(
    source: ClockSource, counts: dict[str, int], text: str, caplog: pytest.LogCaptureFixture
) -> None:
    changes = {("Q", "s", word): count for word, count in counts.items()}
    first = FirstRecords([source])
    for _ in range(2):
        first.look_at(changes, changes)
    assert [record.getMessage() for record in caplog.records] == ([text] if text else [])


def test_what_was_told_before_a_change_of_the_job_is_not_told_again(caplog: pytest.LogCaptureFixture) -> None:
    ledger = {("Q", "s", "received"): 200, ("Q", "s", "late"): 90}
    FirstRecords([ClockSource("s")]).look_at(ledger, {("Q", "s", "received"): 100, ("Q", "s", "late"): 45})
    assert not caplog.records


def test_later_records_are_not_looked_at(caplog: pytest.LogCaptureFixture) -> None:
    ledger = {("Q", "s", "received"): 20_000, ("Q", "s", "late"): 9_000}
    FirstRecords([ClockSource("s")]).look_at(ledger, {("Q", "s", "received"): 9_000})
    assert not caplog.records
