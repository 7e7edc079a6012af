"""The engine: records in, matches out; composes the other rooms and holds no logic of its own.

`Engine.process` takes arrivals in any order and the moment that the clock has reached; the answer does not depend on how
arrivals are grouped into calls. Each query keys, judges, orders and matches on its own (`runtime.engine.query_runner`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from querylang.plan.model import Plan
from runtime.admission.query_clocks import CLOCK_SCHEMA
from runtime.arrow_types import one_chunk
from runtime.columns.arrival_order import in_arrival_order
from runtime.columns.arrivals import Arrivals, RecordKind
from runtime.engine.call_rows import Clocked, Leeway
from runtime.engine.query_runner import QueryOutcome, QueryRunner
from runtime.engine.snapshot import StateError, decode, encode
from runtime.instants import EARLIEST, LATEST, NEVER, NO_TIME
from runtime.reading.control_events import ControlError, HeartbeatControl, parse_control
from runtime.results.discards import refused_at_source
from runtime.results.ledger import Account, ledger_table
from runtime.results.schemas import ADJUSTED_SCHEMA, OUTPUT_SCHEMA, TIMESTAMP, Results, discard_schema


class Engine:
    """Runs the queries of one plan. Times are microseconds UTC.

    `matcher`: "auto" (the kernel where it can), "kernel" (raises `NotForKernel`) or "reference". `sources`: of records that arrive at
    the same moment, those of the sources named first come first; the others follow by name.
    """

    def __init__(self, plan: Plan, matcher: str = "auto", sources: Sequence[str] = ()) -> None:
        self.plan = plan
        self._runners = [QueryRunner(plan, query, matcher) for query in plan.queries]
        self._sources = tuple(sources)
        self._clock = NO_TIME
        self._leeway: Leeway | None = None
        self._account: Account = Counter()
        self._told: list[list[str]] = []

    @property
    def clock(self) -> int | None:
        """The largest arrival time or tick so far."""
        return None if self._clock == NO_TIME else self._clock

    def process(self, arrivals: Arrivals, now: int | None = None) -> Results:
        """Takes records, runs what is due up to the clock, and gives what came of it.

        `now` moves the clock after the records; it never goes back. A record whose arrival lies before the clock arrives at it.
        """
        table = in_arrival_order(arrivals.table, self._sources)
        arrival = np.maximum(table.column("_arrival").to_numpy(), self._clock)
        if len(arrival):
            self._clock = int(arrival[-1])
        if now is not None:
            self._clock = max(self._clock, now)
        return self._run(table, arrival, self._clock)

    def flush(self) -> Results:
        """Lets time go on until nothing is due any more; the clock stops at the last moment at which something was."""
        return self._run(Arrivals.empty(self.plan).table, np.empty(0, np.int64), NEVER, is_over=True)

    def end(self) -> Results:
        """The part of `flush` that is not time's: what the end of the input brings, where that is a bound beyond all times."""
        return self._run(Arrivals.empty(self.plan).table, np.empty(0, np.int64), self._clock, is_over=True)

    def next_wake(self) -> int | None:
        """The earliest moment at which time alone does something; None if nothing is waiting for it."""
        due = min((runner.next_due for runner in self._runners), default=NEVER)
        return None if due >= NEVER else due

    def definitive(self, query: str, key: tuple[object, ...]) -> int | None:
        """The definitive time of the query of that title for a key, at the engine's clock; None before there is any.

        A bound beyond all times is the last moment of the year 9999.
        """
        if self._clock == NO_TIME:
            return None
        runner = next(runner for runner in self._runners if runner.query.title == query)
        reached = runner.definitive(key, self._clock)
        return None if reached == NO_TIME else max(EARLIEST, min(reached, LATEST))

    def retained(self) -> int:
        """How many events are remembered: in windows, and pending."""
        self._gather()
        return sum(runner.retained for runner in self._runners)

    def remembered(self) -> int:
        """The same at a glance: events of keys that rest are counted though time may be over for them."""
        return sum(runner.retained for runner in self._runners)

    def ledger(self) -> pa.Table:
        """The accounts of all calls since this object was made (LEDGER_SCHEMA)."""
        return ledger_table(self._account)

    def clocks(self) -> pa.Table:
        """The timelines that keys share, of all queries (`runtime.admission.query_clocks.CLOCK_SCHEMA`)."""
        return pa.concat_tables([CLOCK_SCHEMA.empty_table(), *(runner.clocks() for runner in self._runners)])

    def snapshot(self) -> bytes:
        """All that a later `restore` needs to go on: clocks, windows, what is pending."""
        self._gather()
        header = {
            "clock": self._clock,
            "leeway": None if self._leeway is None else [self._leeway.leeway, self._leeway.reorder],
            "queries": {runner.query.title: runner.header() for runner in self._runners},
            "told": self._told,
        }
        tables = {
            f"{runner.query.title}/{name}": table for runner in self._runners for name, table in runner.tables().items()
        }
        return encode(header, tables)

    @staticmethod
    def restore(plan: Plan, data: bytes, matcher: str = "auto", sources: Sequence[str] = ()) -> Engine:
        """An engine that goes on from a snapshot; queries that are not in it start afresh. Raises StateError."""
        header, tables = decode(data)
        engine = Engine(plan, matcher, sources)
        try:
            engine._clock = int(header["clock"])
            engine._leeway = None if header["leeway"] is None else Leeway(*header["leeway"])
            engine._told = list(header["told"])
            for runner in engine._runners:
                name = runner.query.title
                if name in header["queries"]:
                    own = {
                        key.rpartition("/")[2]: table for key, table in tables.items() if key.rpartition("/")[0] == name
                    }
                    runner.restore(header["queries"][name], own)
        except (KeyError, TypeError, ValueError, pa.ArrowInvalid) as error:
            raise StateError(f"this state does not fit the queries: {error}") from None
        return engine

    def _gather(self) -> None:
        """Has every query bring to hand what it left alone while it was not concerned."""
        nothing = Arrivals.empty(self.plan).table
        none = np.empty(0, np.int64)
        for runner in self._runners:
            runner.gather(Clocked(nothing, none, none, [(0, self._leeway)], {}, self._clock, self._clock))

    def _run(self, table: pa.Table, arrival: NDArray[np.int64], limit: int, *, is_over: bool = False) -> Results:
        kinds = table.column("_kind").to_numpy().astype(np.int64)
        controls = self._controls(table, kinds, arrival)
        clocked = Clocked(table, kinds, arrival, controls.leeways, controls.beats, self._clock, limit, is_over)
        outcomes = [runner.run(clocked) for runner in self._runners]
        if limit == NEVER:
            self._clock = max([self._clock, *(outcome.last_due for outcome in outcomes)])
        for runner in self._runners:
            runner.forget(self._clock)
        changes: Account = Counter()
        for outcome in outcomes:
            changes.update(outcome.account)
        self._account.update(changes)
        errors = pa.Table.from_pylist(controls.errors, schema=OUTPUT_SCHEMA)
        return self._results(outcomes, [refused_at_source(self.plan, table, kinds, arrival)], errors, changes)

    def _results(
        self, outcomes: list[QueryOutcome], refused: list[pa.Table], errors: pa.Table, changes: Account
    ) -> Results:
        matches = {
            runner.query.title: outcome.matches
            for runner, outcome in zip(self._runners, outcomes, strict=True)
            if outcome.matches is not None
        }
        discarded = pa.concat_tables([*refused, *(outcome.discarded for outcome in outcomes)])
        return Results(
            matches=matches,
            outputs=pa.concat_tables([self._stopped(), errors, *(outcome.outputs for outcome in outcomes)]),
            discarded=discarded.cast(discard_schema(self.plan)),
            ledger=ledger_table(changes),
            adjusted=pa.concat_tables([ADJUSTED_SCHEMA.empty_table(), *(outcome.adjusted for outcome in outcomes)]),
        )

    def _stopped(self) -> pa.Table:
        """An error row for each instance that does not run and that was not told of yet; it belongs to no moment."""
        rows = []
        for item in self.plan.stopped:
            if [item.query, item.instance] not in self._told:
                self._told.append([item.query, item.instance])
                own = {"kind": "error", "text": item.reason, "query": item.query, "instance": item.instance}
                rows.append({**own, "key": "{}", "_step": -1, "_rank": 0})
        return pa.Table.from_pylist(rows, schema=OUTPUT_SCHEMA)

    def _controls(self, table: pa.Table, kinds: NDArray[np.int64], arrival: NDArray[np.int64]) -> _Controls:
        """What the control events of a call ask for, and an error row for each wrong one."""
        controls = _Controls([(0, self._leeway)], {}, [])
        rows = np.flatnonzero(kinds == RecordKind.CONTROL)
        text = one_chunk(table.column("_text")) if len(rows) else None
        for row in rows.tolist():
            assert text is not None
            try:
                control = parse_control(text[row].as_py() or "", self.plan)
                if isinstance(control, HeartbeatControl):
                    controls.beats[row] = control.event, control.time
                else:
                    controls.leeways.append((row, Leeway(control.leeway, control.reorder)))
            except ControlError as error:
                moment = pa.scalar(int(arrival[row]), pa.int64()).cast(TIMESTAMP)
                controls.errors.append(
                    {"kind": "error", "text": str(error), "query": "", "instance": "", "key": "{}"}
                    | {"time": moment, "emitted": moment, "match_id": None, "_step": row, "_rank": 0}
                )
        self._leeway = controls.leeways[-1][1]
        return controls


@dataclass(frozen=True, slots=True)
class _Controls:
    """By record of a call: leeways and heartbeats as `Clocked` has them; rows of OUTPUT_SCHEMA."""

    leeways: list[tuple[int, Leeway | None]]
    beats: dict[int, tuple[str, int]]
    errors: list[dict[str, Any]]
