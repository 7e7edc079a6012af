"""State that earlier releases saved is read by every later one.

`tests/snapshots/bucket-3.state` is the state of a bucket, of version 3, after the rows of BEFORE.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import querylang
from runtime.replay.replay import read_records, replay_records
from spark_backend.operator.step import StepResult, run_step
from spark_backend.wire.packed_rows import Signal, pack_arrivals
from spark_backend.wire.program import Program
from spark_backend.wire.tagged_rows import Tag
from tests.support.buckets import rows_of

SNAPSHOTS = Path(__file__).parents[1] / "snapshots"
QUERY = (SNAPSHOTS / "without-clocks.query").read_text("utf-8")
PLAN = querylang.compile_text(QUERY).plan


def rows(numbers: range) -> list[dict[str, Any]]:
    return [
        {"at": 1_000.0 + n, "event": "AB"[n % 2], "ts": 990.0 + n, "k": n % 3, "v": n * 7 % 10 / 2, "offset": n}
        for n in numbers
    ]


BEFORE, AFTER = rows(range(40)), rows(range(40, 80))


def step(state: bytes | None, given: list[dict[str, Any]], timestamp: int, signal: Signal | None = None) -> StepResult:
    program = Program.of(PLAN, buckets=1)
    packed = pack_arrivals(read_records([given], PLAN).arrivals, program.groups(), 1)
    return run_step(program, 0, state, [packed.column(1)[0].as_py()], timestamp, signal=signal)


def test_a_bucket_of_version_3_continues() -> None:
    begun = step(None, BEFORE, 1)
    saved = (SNAPSHOTS / "bucket-3.state").read_bytes()
    continued = step(saved, AFTER, 2, Signal.FLUSH)
    found = [row["match_id"] for part in (begun, continued) for row in rows_of(list(part.rows), Tag.MATCH)]
    everything = replay_records(PLAN, read_records([BEFORE + AFTER], PLAN)).matches.values()
    expected = [match for table in everything for match in table.column("match_id").to_pylist()]
    assert sorted(found) == sorted(expected)
    assert len(found) > len(rows_of(list(begun.rows), Tag.MATCH)) > 0
