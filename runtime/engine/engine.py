"""The engine: runs the queries of a plan over batches of records, and merges their results.

`Engine.process` takes records in any order, and the moment that the clock has reached. The answer
does not depend on how records are grouped into calls. Each query works on its own
(`runtime.engine.query_runner`); the clock is common to all.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from querylang.plan.model import Plan
from runtime.admission.query_clocks import CLOCK_SCHEMA
from runtime.columns.arrival_order import in_arrival_order
from runtime.columns.arrivals import Arrivals, is_moved
from runtime.engine.call_rows import CallRecords
from runtime.engine.error_rows import control_errors, stopped_instances
from runtime.engine.moves import NO_MOVES, Moves
from runtime.engine.query_runner import QueryOutcome, QueryRunner
from runtime.engine.snapshot import StateError, decode, encode
from runtime.engine.state_checks import integer
from runtime.instants import EARLIEST, LATEST, NEVER, NO_TIME
from runtime.reading.control_events import ControlEvents, SetDelayedEventsLeeway
from runtime.results.discards import refused_at_source
from runtime.results.ledger import Account, ledger_table
from runtime.results.schemas import ADJUSTED_SCHEMA, Results, discard_schema


class Engine:
    """Runs the queries of one plan. Times are microseconds UTC.

    matcher: "auto" (the kernel if it can express the query), "kernel" (raises `NotForKernel` if
        not) or "reference"
    gathers_later: where a query allows it, matches are given as the numbers of records, for callers
        that keep all records; these have numbers in the column `_row`
    """

    def __init__(self, plan: Plan, matcher: str = "auto", *, gathers_later: bool = False) -> None:
        self.plan = plan
        self._runners = [QueryRunner(plan, query, matcher, gathers_later=gathers_later) for query in plan.queries]
        self._clock = NO_TIME
        self._clock_without_idle = NO_TIME
        self._leeway: SetDelayedEventsLeeway | None = None
        self._account: Account = Counter()
        self._reported: list[list[str]] = []  # (query, instance) of error rows that were given

    @property
    def clock(self) -> int | None:
        """The largest arrival time or tick so far."""
        return None if self._clock == NO_TIME else self._clock

    def process(self, arrivals: Arrivals, now: int | None = None, *, without_idle: int | None = None) -> Results:
        """Processes records, and runs all timers up to the clock.

        A record with an arrival before the clock arrives at the clock, and is counted.

        now: advances the clock after the records, µs; it never goes back
        without_idle: where the clock would be if time had waited for every silent source, µs;
            None = at the clock
        """
        table = in_arrival_order(arrivals.table)
        written = table.column("_arrival").to_numpy()
        arrival = np.maximum(written, self._clock)
        moves = Moves(is_moved(table) | (written < self._clock), np.maximum(written, self._clock_without_idle))
        if len(arrival):
            self._clock = int(arrival[-1])
        if now is not None:
            self._clock = max(self._clock, now)
        reached = self._clock if without_idle is None else min(without_idle, self._clock)
        self._clock_without_idle = max(self._clock_without_idle, reached)
        return self._run(table, arrival, self._clock, moves)

    def flush(self) -> Results:
        """Ends the input and runs all timers that are left; the clock stops at the last one."""
        return self._run(Arrivals.empty(self.plan).table, np.empty(0, np.int64), NEVER, is_last=True)

    def end(self) -> Results:
        """Ends the input without advancing the clock: for sources that are complete at their
        end."""
        return self._run(Arrivals.empty(self.plan).table, np.empty(0, np.int64), self._clock, is_last=True)

    def next_wake(self) -> int | None:
        """The earliest timer, µs: when arrival time alone does something; None if there is none."""
        timer = min((runner.state.next_timer for runner in self._runners), default=NEVER)
        return None if timer >= NEVER else timer

    def next_release(self) -> int | None:
        """The earliest timer that releases an event or ends a wait, µs; None if there is none.

        Other timers only forget keys. Loads the cold keys.
        """
        self._load_cold()
        timer = min((runner.state.hot_release for runner in self._runners), default=NEVER)
        return None if timer >= NEVER else timer

    def definitive(self, query: str, key: tuple[object, ...]) -> int | None:
        """The definitive time of a query, by title, for a key, at the engine's clock; None before
        there is one.

        For a complete input it is the last moment of the year 9999.
        """
        if self._clock == NO_TIME:
            return None
        runner = next(runner for runner in self._runners if runner.query.title == query)
        reached = runner.state.definitive(key, self._clock)
        return None if reached == NO_TIME else max(EARLIEST, min(reached, LATEST))

    def retained(self) -> int:
        """How many events the state holds: in windows, pending, in pending matches.

        Loads the cold keys, so that expired events are not counted.
        """
        self._load_cold()
        return self.stored_events()

    def stored_events(self) -> int:
        """Upper bound of `retained`, without loading cold keys: may count expired events."""
        return sum(runner.state.stored_events for runner in self._runners)

    @property
    def account(self) -> Account:
        """The accounts of all calls of this object."""
        return self._account

    def ledger(self) -> pa.Table:
        """The accounts of all calls of this object (LEDGER_SCHEMA)."""
        return ledger_table(self._account)

    def clocks(self) -> pa.Table:
        """The timelines that keys share, of all queries (CLOCK_SCHEMA)."""
        return pa.concat_tables(
            [CLOCK_SCHEMA.empty_table(), *(runner.state.clocks.timelines() for runner in self._runners)]
        )

    def snapshot(self) -> bytes:
        """The whole state, for `restore`."""
        self._load_cold()
        states = {runner.query.title: runner.state.snapshot() for runner in self._runners}
        header = {
            "clock": self._clock,
            "clock_without_idle": self._clock_without_idle,
            "leeway": None if self._leeway is None else [self._leeway.leeway, self._leeway.reorder],
            "queries": {title: own for title, (own, _) in states.items()},
            "told": self._reported,
        }
        tables = {f"{title}/{name}": table for title, (_, own) in states.items() for name, table in own.items()}
        return encode(header, tables)

    @staticmethod
    def restore(plan: Plan, data: bytes, matcher: str = "auto") -> Engine:
        """An engine with the state of a snapshot; queries that are not in it start empty. Raises
        StateError."""
        header, tables = decode(data)
        engine = Engine(plan, matcher)
        try:
            engine._clock = integer(header["clock"])
            # older states have none
            engine._clock_without_idle = integer(header.get("clock_without_idle", header["clock"]))
            engine._leeway = None if header["leeway"] is None else SetDelayedEventsLeeway(*header["leeway"])
            engine._reported = list(header["told"])
            queries = dict(header["queries"].items())
            for runner in engine._runners:
                name = runner.query.title
                if name in queries:
                    own = {
                        key.rpartition("/")[2]: table for key, table in tables.items() if key.rpartition("/")[0] == name
                    }
                    runner.state.restore(queries[name], own)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, pa.ArrowException) as error:
            raise StateError(f"this state does not fit the queries: {error}") from None
        return engine

    def _load_cold(self) -> None:
        """Loads the cold keys of every query."""
        table, none = Arrivals.empty(self.plan).table, np.empty(0, np.int64)
        controls = ControlEvents.of(table, self.plan, self._leeway)
        for runner in self._runners:
            runner.load_cold(CallRecords(table, none, none, NO_MOVES, controls, self._clock, self._clock))

    def _run(
        self,
        table: pa.Table,
        arrival: NDArray[np.int64],
        limit: int,
        moves: Moves = NO_MOVES,
        *,
        is_last: bool = False,
    ) -> Results:
        """Runs every query over records in order of arrival, and timers up to `limit`; then evicts
        at the clock."""
        kinds = table.column("_kind").to_numpy().astype(np.int64)
        controls = ControlEvents.of(table, self.plan, self._leeway)
        self._leeway = controls.leeway
        records = CallRecords(table, kinds, arrival, moves, controls, self._clock, limit, is_last)
        outcomes, carries = [], []
        for runner in self._runners:
            outcome, carry = runner.run(records)
            outcomes.append(outcome)
            carries.append(carry)
        if limit == NEVER:
            self._clock = max([self._clock, *(outcome.last_release for outcome in outcomes)])
        forgotten = [runner.evict(carry, self._clock) for runner, carry in zip(self._runners, carries, strict=True)]
        refused = refused_at_source(self.plan, table, kinds, arrival)
        changes = self._forgotten(forgotten)
        return self._results(outcomes, refused, control_errors(controls.errors, arrival), changes)

    def _forgotten(self, counts: list[int]) -> Account:
        """The account of forgotten keys, by query; a key belongs to no source."""
        pairs = zip(self._runners, counts, strict=True)
        return Counter({(runner.query.title, "", "forgotten_keys"): count for runner, count in pairs if count})

    def _results(self, outcomes: list[QueryOutcome], refused: pa.Table, errors: pa.Table, changes: Account) -> Results:
        """The results of all queries as one; adds to the ledger.

        changes: of the ledger, beside those of the outcomes
        """
        for outcome in outcomes:
            changes.update(outcome.account)
        self._account.update(changes)
        matches = {
            runner.query.title: outcome.matches
            for runner, outcome in zip(self._runners, outcomes, strict=True)
            if outcome.matches is not None
        }
        discarded = pa.concat_tables([refused, *(outcome.discarded for outcome in outcomes)])
        return Results(
            matches=matches,
            outputs=pa.concat_tables([self._new_stopped(), errors, *(outcome.outputs for outcome in outcomes)]),
            discarded=discarded.cast(discard_schema(self.plan)),
            ledger=ledger_table(changes),
            found={
                runner.query.title: outcome.found
                for runner, outcome in zip(self._runners, outcomes, strict=True)
                if outcome.found is not None
            },
            adjusted=pa.concat_tables([ADJUSTED_SCHEMA.empty_table(), *(outcome.adjusted for outcome in outcomes)]),
        )

    def _new_stopped(self) -> pa.Table:
        """Error rows for instances that do not run, each reported once."""
        new = [item for item in self.plan.stopped if [item.query, item.instance] not in self._reported]
        self._reported += [[item.query, item.instance] for item in new]
        return stopped_instances(new)
