"""An engine that gets its records call by call, and works when somebody looks at a result.

The engine's answer does not depend on how records are grouped. So calls wait, and are processed
together when a result is asked for. Each result then belongs to the call that would have brought
it: by its record, or by the moment of its timer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from querylang.dataclass import dataclass, field, replace
from runtime.column_types import Integers
from runtime.columns.arrivals import AT_THE_END, Arrivals
from runtime.engine import Engine
from runtime.instants import NO_TIME
from runtime.results.ledger import Account, ledger_table
from runtime.results.schemas import Results, in_order


@dataclass(slots=True)
class EngineCall:
    """What was given to the engine at once, and later its results.

    records: in order of arrival
    clock: the engine's clock after it, µs; NO_TIME = none
    is_last: the input ends here: time advances until no timer is left
    """

    records: Arrivals
    clock: int
    is_last: bool = False
    _group: _Group | None = None
    _number: int = 0
    _results: Results | None = None

    def belongs_to(self, group: _Group, number: int) -> None:
        """It has been processed, as one of a group."""
        self._group, self._number = group, number

    @property
    def is_done(self) -> bool:
        """Whether it has been processed."""
        return self._group is not None

    def results(self) -> Results:
        """Its results, in order; the ledger is the account of all records so far."""
        if self._results is None:
            assert self._group is not None, "it has been processed"
            self._results = self._group.results_of(self._number)
        return self._results


@dataclass(frozen=True, slots=True)
class _Group:
    """The results of calls that were processed together, in order.

    ends: by call, how many records it and those before it have
    clocks: by call, the clock after it, µs
    """

    results: Results
    ends: Integers
    clocks: Integers

    def results_of(self, number: int) -> Results:
        """Those of one call."""
        if len(self.ends) == 1:
            return self.results
        found = self.results
        matches = {name: self._rows_of(table, number) for name, table in found.matches.items()}
        return replace(
            found,
            matches={name: table for name, table in matches.items() if len(table)},
            outputs=self._rows_of(found.outputs, number),
            discarded=None if found.discarded is None else self._rows_of(found.discarded, number),
        )

    def _rows_of(self, table: pa.Table, number: int) -> pa.Table:
        if not len(table):
            return table
        step = table.column("_step").to_numpy()
        call = np.searchsorted(self.ends, step, side="right")
        is_timer = (step < 0) | (step >= AT_THE_END)
        if is_timer.any():
            emitted = table.column("emitted").cast(pa.int64()).fill_null(NO_TIME).to_numpy()
            call = np.where(is_timer, np.searchsorted(self.clocks, emitted), call)
        return table.filter(pa.array(call == number))


@dataclass(slots=True)
class Incremental:
    """An engine, and the calls that wait for it.

    engine: does not have the calls that wait
    clock: the clock after all calls, µs; NO_TIME = none
    account: of all calls that were processed, also before the engine was restored
    waiting: how many records wait
    is_broken: whether a call was interrupted half-way, so that the state is unknown
    """

    engine: Engine
    account: Account = field(default_factory=Counter)
    clock: int = NO_TIME
    waiting: int = 0
    is_broken: bool = False
    _groups: list[list[EngineCall]] = field(default_factory=list)

    def add(self, records: Arrivals, now: int | None = None, *, is_last: bool = False) -> EngineCall:
        """A call that is processed later.

        now: advances the clock after the records, µs
        """
        arrival = records.system("arrival")
        is_behind = len(arrival) > 0 and int(arrival[0]) < self.clock
        times = [self.clock, *arrival[-1:].tolist(), *([] if now is None else [now])]
        self.clock = max(times)
        call = EngineCall(records, self.clock, is_last)
        # Records that arrive before the clock do so only in a call that begins a group.
        if is_behind or is_last or not self._groups:
            self._groups.append([])
        self._groups[-1].append(call)
        self.waiting += len(records)
        return call

    def work(self) -> None:
        """Process all calls that wait."""
        assert not self.is_broken, "an engine that failed is not asked again"
        while self._groups:
            calls, self.is_broken = self._groups[0], True
            results = self._process(calls)
            self.is_broken = False
            del self._groups[0]
            self.waiting -= sum(len(call.records) for call in calls)
            ends = np.cumsum([len(call.records) for call in calls])
            group = _Group(results, ends, np.array([call.clock for call in calls]))
            for number, call in enumerate(calls):
                call.belongs_to(group, number)

    def _process(self, calls: Sequence[EngineCall]) -> Results:
        before = Counter(self.engine.account)
        if calls[0].is_last:
            results = self.engine.flush()
            self.clock = calls[0].clock = NO_TIME if self.engine.clock is None else self.engine.clock
        else:
            records = [call.records for call in calls if len(call.records)]
            together = (
                records[0] if len(records) == 1 else Arrivals.concat([Arrivals.empty(self.engine.plan), *records])
            )
            results = self.engine.process(together, None if calls[-1].clock == NO_TIME else calls[-1].clock)
        for key, count in self.engine.account.items():
            self.account[key] += count - before[key]
        return replace(in_order(self.engine.plan, results), ledger=ledger_table(self.account))
