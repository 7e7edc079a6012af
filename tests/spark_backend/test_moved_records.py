"""Records that arrive out of order, too late because time did not wait, or in the far future: each one is counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest

import querylang
from ensue.commands.findings import check_files
from job_engine.operator.step import StepResult, run_step
from job_engine.sources.reading import Read, Reading, pack_parts
from job_engine.wire.clock_sources import ClockSource, Idle, clock_source
from job_engine.wire.packed_rows import Signal, pack_unread
from job_engine.wire.program import Program
from job_engine.wire.reports import UnreadFiles
from job_engine.wire.tagged_rows import Tag, TaggedRow
from runtime.columns.arrivals import place_of
from runtime.policies.plan_policies import parse_ordering
from runtime.reading.tables import iter_arrivals
from spark_backend.frames import pack_rows
from tests.support.buckets import rows_of

SECOND = 1_000_000
DAY = 86_400 * SECOND
PLAN = querylang.compile_text(
    """event A { string k; integer n; float ts; }
    query Pairs { inputs { A() key k within 3000.0 wait 1.0; } find A as a -> A as b where b.n = a.n + 1 }"""
).plan

Row = dict[str, object]


def row(at: float, n: int, ts: float | None = None, k: str = "x") -> Row:
    return {"at": at, "event": "A", "k": k, "n": n, "ts": at if ts is None else ts}


class Job:
    """A job of one bucket; each micro-batch has tables of the source `s`, each a file of its own."""

    def __init__(self, **settings: object) -> None:
        self.program = Program.of(PLAN, buckets=1, sources=[ClockSource("s", **settings)])  # type: ignore[arg-type]
        self.state: bytes | None = None
        self.tagged: list[TaggedRow] = []
        self.files = 0

    def take(
        self,
        tables: Sequence[list[Row]],
        timestamp: int,
        signal: Signal | None = None,
        unread: UnreadFiles | None = None,
    ) -> StepResult:
        packed = [pack_unread(1, {"s": unread}).column(1)[0].as_py()]
        for table in tables:
            self.files += 1
            parts = iter_arrivals(table, PLAN, source=f"{self.files}.csv", place=place_of(0, self.files))
            batches = pack_parts(map(Read, parts), self.program, Reading(name="s"))
            packed += [batch.column(1)[0].as_py() for batch in batches]
        # the order in which Spark brings the files says nothing
        return self.run(packed[::-1], timestamp, signal)

    def run(self, packed: list[bytes], timestamp: int, signal: Signal | None = None) -> StepResult:
        """A micro-batch of packed rows."""
        step = run_step(self.program, 0, self.state, packed, timestamp, signal=signal)
        self.state = step.state
        self.tagged.extend(step.rows)
        return step

    @property
    def account(self) -> Counter[str]:
        account: Counter[str] = Counter()
        for entry in rows_of(self.tagged, Tag.LEDGER):
            account[str(entry["what"])] += entry["count"]  # type: ignore[operator]
        return +account

    @property
    def pairs(self) -> list[tuple[int, int]]:
        found = [entry["members"] for entry in rows_of(self.tagged, Tag.MATCH)]
        return sorted((item["a"]["fields"]["n"], item["b"]["fields"]["n"]) for item in found)  # type: ignore[index]


FILES = [[row(at, at) for at in range(10, 16)], [row(at, at) for at in range(4, 10)], [row(20, 20), row(18, 18)]]
CUTS = pytest.mark.parametrize("cut", [[3], [1, 2], [2, 1], [1, 1, 1]])


@CUTS
def test_files_in_another_order_that_were_listed_together_give_the_answer_of_all_records(cut: list[int]) -> None:
    job, left, firsts = Job(in_files=True), list(FILES), [10, 4, 18]
    for number, count in enumerate(cut):
        left, firsts = left[count:], firsts[count:]
        unread = UnreadFiles("s", min(firsts, default=0) * SECOND, place_of(0, 4 - len(left)), "next.csv")
        job.take(FILES[len(FILES) - len(left) - count :][:count], number * 1000, unread=unread if left else None)
    job.take([], 10_000, Signal.FLUSH)
    assert job.account == {"received": 14, "used": 14}
    assert job.pairs == [(n, n + 1) for n in range(4, 15)]


def test_however_long_a_source_is_silent_time_waits_for_its_listed_files() -> None:
    job = Job(in_files=True, idle=2 * SECOND, ahead=DAY)
    job.take([FILES[1]], 1_000, unread=UnreadFiles("s", 10 * SECOND, place_of(0, 2), "next.csv"))
    job.take([], 600_000, unread=UnreadFiles("s", 10 * SECOND, place_of(0, 2), "next.csv"))
    job.take([FILES[0] + [row(FAR, 7)]], 601_000, unread=UnreadFiles("s", 18 * SECOND, place_of(0, 3), "next.csv"))
    job.take([FILES[2]], 1_200_000)
    job.take([], 1_201_000, Signal.FLUSH)
    assert job.account == {"received": 15, "used": 14, "ahead": 1}
    assert job.pairs == [(n, n + 1) for n in range(4, 15)]


def test_a_file_that_is_listed_later_joins_at_the_clock() -> None:
    job = Job(in_files=True)
    for number, table in enumerate(FILES):
        job.take([table], number * 1000)
    job.take([], 10_000, Signal.FLUSH)
    assert job.account == {"received": 14, "used": 8, "late": 6, "before_clock": 6}
    assert job.pairs == [(n, n + 1) for n in range(10, 15)]


@pytest.mark.parametrize(("partition", "late"), [(None, 2), ("host", 0)])
def test_each_value_of_a_partition_column_of_dataframes_has_a_clock_of_its_own(
    partition: str | None, late: int
) -> None:
    """The first micro-batch has rows of both hosts, later ones have those of one of them."""
    job = Job()
    reading = Reading("A", name="s", source="s", partition=partition, offset="n")
    hosts = [("east", range(3)), ("west", range(3, 6)), ("east", range(6, 9)), ("west", range(9, 12))]
    batches = [
        [row(3 * (n // 6) + n % 3, n) | {"host": host} for n in numbers]  # the hosts lie beside each other in time
        for host, numbers in hosts
    ]
    for number, rows in enumerate([batches[0] + batches[1], *batches[2:]]):
        table = pa.Table.from_pylist(rows)
        packed = pack_rows(job.program.to_text(), reading.to_text(), iter(table.to_batches()))
        job.run([batch.column(1)[0].as_py() for batch in packed], number * 1000)
    job.take([], 10_000, Signal.FLUSH)
    assert job.account["before_clock"] == late
    assert job.account["received"] == 12


@CUTS
def test_batches_of_a_partition_that_are_no_files_give_one_answer_for_every_cut(cut: list[int]) -> None:
    """The second batch is behind the first: its records arrive with the last one of that."""
    job, left = Job(), list(FILES)
    for number, count in enumerate(cut):
        job.take(left[:count], number * 1000)
        left = left[count:]
    job.take([], 10_000, Signal.FLUSH)
    assert job.account == {"received": 14, "used": 8, "late": 6, "before_clock": 6}
    assert job.pairs == [(n, n + 1) for n in range(10, 15)]


def test_what_is_late_only_because_time_did_not_wait_is_counted() -> None:
    job = Job(idle=2 * SECOND)
    job.take([[row(10, 1)]], 1_000)
    job.take([], 13_000)  # silent for 12 s: the clock is at 20
    job.take([[row(12, 2), row(12.5, 3, ts=11), row(22, 5)]], 14_000)
    assert job.account["before_clock"] == 2
    assert job.account["late"] == 2
    assert job.account["late_by_idle"] == 1  # the other one is older than `wait` when it arrives


def test_without_idle_time_waits_and_nothing_is_late() -> None:
    job = Job()
    for second in range(0, 48, 6):
        job.take([[row(second + n, second + n) for n in range(6)]], 1000 * second + 6000)
        job.take([], 1000 * second + 11_000)
    assert job.account == {"received": 48, "used": 48}


@pytest.mark.parametrize(
    ("given", "policy", "idle"),
    [
        (None, None, None),
        (None, "stream_analytics late=5s", 0),
        (None, "streaminsight delay=1s idle=200ms", 0),
        (None, "streaminsight delay=1s", None),
        (Idle(None), "stream_analytics late=5s", None),
        (Idle(7), "stream_analytics late=5s", 7),
    ],
)
def test_a_policy_with_an_idle_rule_keeps_it(given: Idle | None, policy: str | None, idle: int | None) -> None:
    source = clock_source("s", None, given, None if policy is None else parse_ordering(policy))
    assert (source.idle, source.is_policy) == (idle, given is None and idle == 0)


FAR = 253_000_000_000.0
"""In the year 9987."""


@pytest.mark.parametrize("cut", [[1, 1, 1], [3], [2, 1]])
def test_a_record_of_the_far_future_is_discarded_and_moves_no_clock(cut: list[int]) -> None:
    files = [[row(10, 1), row(FAR, 7, k="y"), row(1000, 2)], [row(2000, 3), row(FAR + 1, 8)], [row(3000, 4)]]
    job, left = Job(ahead=DAY), files
    for number, count in enumerate(cut):
        job.take(left[:count], 5_000_000 + number)
        left = left[count:]
    assert job.account == {"received": 6, "ahead": 2, "used": 4}
    assert [(entry["reason"], entry["source"], entry["offset"]) for entry in rows_of(job.tagged, Tag.DISCARDED)] == [
        ("ahead", "1.csv", 2),
        ("ahead", "2.csv", 2),
    ]
    assert job.pairs == [(1, 2), (2, 3), (3, 4)]
    # the furthest source time, which queries are handed over at
    assert max(int(str(entry["newest"])) for entry in rows_of(job.tagged, Tag.METRIC)) == 3000 * SECOND


def test_without_a_limit_a_record_of_the_far_future_is_reported_with_its_place() -> None:
    job = Job()
    job.take([[row(10, 1), row(FAR, 2)]], 5_000_000)
    (report,) = rows_of(job.tagged, Tag.REPORT)
    assert (report["cause"], report["source"], report["count"]) == ("far_ahead", "s", 1)
    assert str(report["example"]).startswith("1.csv, record 2 arrives at 9987-")


def test_so_many_records_of_the_far_future_that_not_all_their_times_are_told() -> None:
    table = [row(10, 1), *(row(FAR + n, n) for n in range(100)), row(1000, 2)]
    job = Job(ahead=DAY)
    job.take([table], 5_000_000)
    assert job.account["ahead"] == 100
    job.take([[row(1500, 3)]], 5_001_000)
    assert job.account == {"received": 103, "ahead": 100, "used": 3}


DEPLOYMENT = """name: waits
queries: [q.query]
sources: {{s: {{format: csv, path: in{source}}}}}
sinks: {{matches: {{format: parquet, path: out}}}}
checkpoint: state
{job}"""
WAITS = "event A {{ integer n; }} query W {{ inputs {{ A() within 9.0 {wait}; }} find A as a -> wait(2.0) }}"


@pytest.mark.parametrize(
    ("source", "job", "wait", "warns"),
    [
        ("", "", "", True),
        (", idle: none", "idle: 3s", "", True),
        (", idle: 3s", "", "", False),
        ("", "idle: 3s", "", False),
        ("", "clock: processing", "", False),
        ("", "", "wait 1.0 or Heartbeat", False),
        (", ordering: {policy: stream_analytics, late: 5s}", "", "", False),
    ],
)
def test_a_last_wait_that_nothing_ends_is_told(
    tmp_path: Path, source: str, job: str, wait: str, *, warns: bool
) -> None:
    (tmp_path / "in").mkdir()
    heartbeat = "event Heartbeat { float ts; } " if wait else ""
    (tmp_path / "q.query").write_text(heartbeat + WAITS.format(wait=wait))
    (tmp_path / "x.yaml").write_text(DEPLOYMENT.format(source=source, job=job))
    report = check_files([tmp_path / "x.yaml"])
    assert report.errors == ()
    expected = f"{tmp_path / 'x.yaml'}: query W: its last wait ends only when a later record arrives; set 'idle'"
    assert list(map(str, report.warnings)) == ([expected] if warns else [])
