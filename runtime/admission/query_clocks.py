"""All shared clocks of a query together: verdicts, and when a time is definitive for all.

A query whose sources have no policies of their own has no shared clocks; then every method returns
at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from querylang.plan.model import Plan, QueryPlan
from runtime.admission.shared_clock import ClockRun, SharedClock
from runtime.admission.shared_clock_kernel import Verdicts
from runtime.admission.timeline_kinds import NewRecords
from runtime.instants import NEVER, NO_TIME
from runtime.number_arrays import Integers
from runtime.policies.per_input import clock_inputs

CLOCK_SCHEMA = pa.schema(
    [
        ("query", pa.string()),
        ("timeline", pa.string()),
        ("bound", pa.int64()),
        ("newest", pa.int64()),
        ("heard", pa.int64()),
    ]
)
"""One row per timeline. Times are µs, null = none yet.

query: the query's title
timeline: what tells it apart: source and partition, source and values of fields, or event type
bound: its watermark as far as the clock is not concerned
newest: largest source time admitted
`heard`: arrival of the latest record; null also if the timeline is idle since
"""


@dataclass(frozen=True, slots=True)
class ClocksRun:
    """The verdicts of a call by new row, and what each clock did during it."""

    verdicts: Verdicts
    runs: tuple[ClockRun, ...]

    def ready(self, keys: Integers, time: Integers) -> tuple[Integers, Integers]:
        """The step (moment, row) at which each time is definitive for its key by all clocks."""
        if not self.runs:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        moment, row = np.full(len(time), NO_TIME, np.int64), np.full(len(time), -1, np.int64)
        for run in self.runs:
            run.ready(keys, time, moment, row)
        return moment, row

    def lowered(self, keys: Integers, moment: Integers, row: Integers, bound: Integers) -> Integers:
        """`bound`, limited to the key's watermark of each clock at the step (`moment`, `row`)."""
        if not self.runs:
            return bound
        lowest = bound.copy()
        for run in self.runs:
            run.lower(keys, moment, row, lowest)
        return lowest


class QueryClocks:
    """The shared clocks of one query."""

    def __init__(self, plan: Plan, query: QueryPlan) -> None:
        self._query = query
        self._clocks = [SharedClock(plan, query, inputs) for inputs in clock_inputs(query)]

    def run(self, new: NewRecords) -> ClocksRun:
        """Judges the new records of inputs whose sources have a policy."""
        count = len(new.time)
        verdicts = Verdicts(
            refused=np.zeros(count, np.int8),
            adjusted=np.zeros(count, np.int8),
            bound=np.full(count, NO_TIME, np.int64),
            time=new.time.copy() if self._clocks else new.time,
        )
        return ClocksRun(verdicts, tuple(clock.run(new, verdicts) for clock in self._clocks))

    def definitive(self, run: ClocksRun, clock: int, keys: int) -> Integers:
        """The least watermark of each key when the clock is `clock`, µs; NEVER = no clocks."""
        reached = np.full(keys, NEVER, np.int64)
        for shared, its_run in zip(self._clocks, run.runs, strict=True):
            np.minimum(reached, shared.definitive(its_run, clock), out=reached)
        return reached

    def definitive_of(self, key: Sequence[Any], clock: int) -> int:
        """The same for one key."""
        return min((shared.definitive_of(key, clock) for shared in self._clocks), default=NEVER)

    def forget(self, key: Sequence[pa.Scalar]) -> None:
        """Removes the timelines that only this key has."""
        for shared in self._clocks:
            shared.forget(key)

    def evict(self, clock: int) -> None:
        """Removes timelines that cannot hold back a clock any more."""
        for shared in self._clocks:
            shared.evict(clock)

    def header(self) -> list[dict[str, Any]]:
        """The part of the saved state that is plain data."""
        return [shared.header() for shared in self._clocks]

    def tables(self) -> dict[str, pa.Table]:
        """The part of the saved state that is columns."""
        return {f"clock{number}": shared.state for number, shared in enumerate(self._clocks)}

    def restore(self, header: Sequence[dict[str, Any]], tables: dict[str, pa.Table]) -> None:
        """Continues from saved state; raises ValueError if it was written with other policies."""
        if len(header) != len(self._clocks):
            raise ValueError(f"query {self._query.title!r} had {len(header)} shared clocks, now {len(self._clocks)}")
        for number, (shared, own) in enumerate(zip(self._clocks, header, strict=True)):
            shared.restore(own, tables[f"clock{number}"])

    def timelines(self) -> pa.Table:
        """All timelines (CLOCK_SCHEMA)."""
        return pa.concat_tables([CLOCK_SCHEMA.empty_table(), *map(self._rows, self._clocks)])

    def _rows(self, shared: SharedClock) -> pa.Table:
        rows = [
            {
                "query": self._query.title,
                "timeline": "/".join(str(row[name]) for name in row if name == "source" or name.startswith("part")),
                **{name: None if row[name] == NO_TIME else row[name] for name in ("bound", "newest", "heard")},
            }
            for row in shared.state.to_pylist()
        ]
        return pa.Table.from_pylist(rows, schema=CLOCK_SCHEMA)
