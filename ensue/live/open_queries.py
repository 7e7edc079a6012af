"""Open queries: embedded and incremental, for services, tests and notebooks without Spark.

What is sent is processed when somebody looks at an answer, or when much is waiting. So a thousand
single events cost little more than a table of a thousand rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from functools import cached_property
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Any
from weakref import ref

from ensue.answer import Answer
from ensue.data_options import DataOptions, in_python_words, path_of
from ensue.live.foresight import Foresight
from ensue.live.rows import RowReader, SentOffsets, UnreadRows, split
from ensue.live.state import LivePlan, SavedLive, StateFiles, identity_of, plan_of_state
from ensue.plans import as_tables
from ensue.queries import Queries, load_and_warn
from querylang.errors import InputError
from querylang.plan.model import Plan
from querylang.printable import warn
from runtime.columns.arrivals import Arrivals
from runtime.engine import Engine, StateError
from runtime.instants import NO_TIME
from runtime.matching.choose import warn_of_rate
from runtime.reading import OFFSET, TYPE
from runtime.replay import EngineCall, Incremental
from runtime.results.schemas import Results
from runtime.single_events import EarlyResults
from runtime.timestamps import format_time, parse_time

if TYPE_CHECKING:
    import pandas as pd

    from ensue.rendering.data_frames import MatchFrames

MOST_WAITING = 10_000
"""So many records wait at most until they are processed."""


class LiveAnswer(Answer):
    """What one call has brought: found when somebody looks at it.

    early: its results, if they are known without the engine
    """

    def __init__(self, live: Live, plan: Plan, number: int = 0) -> None:
        """number: its place among the calls that wait for being read"""
        self.plan, self.number = plan, number
        self._live = live
        self.call: EngineCall | None = None
        self.early: EarlyResults | None = None

    @cached_property
    def results(self) -> Results:  # type: ignore[override]
        """As in `Answer`; the ledger is the account of all records sent so far."""
        return self._live.results_of(self)

    @property
    def _found(self) -> Results:
        early = self._early
        tables = None if early is None else early.tables
        return self.results if tables is None else tables

    @property
    def _early(self) -> EarlyResults | None:
        """None = the engine is asked, or has been."""
        return None if "results" in vars(self) else self._live.early_results(self)

    def __len__(self) -> int:
        """As in `Answer`."""
        early = self._early
        return super().__len__() if early is None else len(early)

    # Most answers are empty, and a DataFrame costs more than to find that out.

    @cached_property
    def matches(self) -> pd.DataFrame:
        """As in `Answer`."""
        early = self._early
        if early is None:
            return super().matches
        if early is self._live.early_nothing:
            return self._live.nothing.matches.copy()
        rows = early.rows()
        frame = None if rows is None else self._live.match_frames.of(rows)
        return super().matches if frame is None else frame

    @cached_property
    def outputs(self) -> pd.DataFrame:
        """As in `Answer`."""
        return self._live.nothing.outputs.copy() if self._is_nothing else super().outputs

    @cached_property
    def discarded(self) -> pd.DataFrame:
        """As in `Answer`."""
        return self._live.nothing.discarded.copy() if self._is_nothing else super().discarded

    @property
    def _is_nothing(self) -> bool:
        return self._early is self._live.early_nothing


class Live:
    """Open queries; see `ensue.open`. Threads may share it."""

    def __init__(self, queries: Queries | str | Path, options: DataOptions, state: str | Path | None = None) -> None:
        self._lock = RLock()
        self._files = StateFiles()
        self._plan = LivePlan(load_and_warn(queries), options)
        self._work: Incremental | None = None
        self._reader: RowReader | None = None
        self._unread = UnreadRows()
        # Weak: most answers are dropped once they were looked at, with their DataFrames.
        self._unread_answers: list[ref[LiveAnswer]] = []
        self._is_ended = self._is_warned = False
        if state is not None:
            self._restore(path_of("state", state))
        elif not self._plan.is_open:
            self._begin(self._plan.compiled([]))

    @in_python_words()
    def send(self, rows: Any) -> Answer:
        """Process rows; gives what they and the timers before them bring.

        rows: a mapping, a list of mappings, or anything that `ensue.replay` takes as `events`

        Rows of one call are taken in order of arrival. A row that arrives before the clock, which
        calls before have advanced, is taken at the clock, counted as `before_clock` and warned of.
        Raises InputError and QueryErrors; then nothing of the call has been processed.
        """
        with self._lock:
            self._refuse_ended()
            rows = [rows] if isinstance(rows, Mapping) else rows
            if self._unread.is_full:
                self._read_unread()
            if self._reader is not None and self._unread.takes(rows):
                answer = LiveAnswer(self, self._reader.plan, len(self._unread_answers))
                self._unread_answers.append(ref(answer))
                return answer
            self._read_unread()
            tables = as_tables(rows)
            if self._reader is None:
                self._begin(self._plan.compiled(tables))
            elif self._plan.fields is None:
                self._plan.decide(tables)
                self._read_as_decided()
            else:
                self._plan.refuse_types(tables)
                self._plan.refuse_other_types(tables)
            reader, work = self._running()
            answer = self._added(work.add(reader.read(tables, work.clock)))
            self._foresight.lose_track()
            self._unread.note(rows)
            if work.waiting > MOST_WAITING:
                self._process()
            return answer

    def advance(self, time: str | float | datetime) -> Answer:
        """Advance the clock: gives what timers bring that are due by then.

        time: as in the column `at`; InputError for a time before the clock
        """
        with self._lock:
            self._refuse_ended()
            self._read_unread()
            moment = parse_time(time.isoformat() if isinstance(time, datetime) else str(time))
            if self._work is None:
                raise InputError("time advances once there are rows: the event types are not known before")
            if moment < self._work.clock:
                raise InputError(
                    f"time does not go back: the clock is at {format_time(self._work.clock)}, not before"
                    f" {format_time(moment)}"
                )
            self._foresight.advance(moment)
            return self._added(self._work.add(Arrivals.empty(self._work.engine.plan), moment))

    def flush(self) -> Answer:
        """End the input: time advances until no timer is left. Nothing can be sent afterwards."""
        with self._lock:
            self._refuse_ended()
            self._read_unread()
            if self._work is None:
                raise InputError("there is nothing to flush: no rows were sent")
            self._is_ended = True
            return self._added(self._work.add(Arrivals.empty(self._work.engine.plan), is_last=True))

    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Save the state to a file, for `ensue.open(queries, state=path)`.

        The file is replaced as a whole. One that this object has neither opened nor saved is
        refused, because somebody else's state would be lost.

        overwrite: replace it nevertheless; never a file that is not such a state

        Raises InputError.
        """
        with self._lock:
            self._refuse_ended()
            self._files.write(path_of("path", path), self._saved().to_bytes(), overwrite=overwrite)

    @property
    def clock(self) -> datetime | None:
        """The time that rows and `advance` have reached, UTC; None before the first."""
        with self._lock:
            self._read_unread()
            return None if self._work is None else _moment(self._work.clock)

    @property
    def next_due(self) -> datetime | None:
        """When the next timer is due, UTC: `advance` to it brings what waits; None = no timer."""
        with self._lock:
            self._process()
            due = None if self._work is None else self._work.engine.next_release()
            return None if due is None else _moment(due)

    def __repr__(self) -> str:
        names = ", ".join(self._plan.queries.names)
        with self._lock:
            return f"<Live: {names}; clock {'not begun' if self.clock is None else self.clock.isoformat()}>"

    def _begin(self, plan: Plan) -> None:
        self._reader = RowReader(plan, self._plan.columns)
        self._work = Incremental(Engine(plan))
        self._foresight = Foresight(plan, self._plan.columns)
        self._know_types()
        warn_of_rate(plan)

    def _read_as_decided(self) -> None:
        """Read rows with the columns that the plan has now."""
        reader, columns = self._running()[0], self._plan.columns
        if reader.columns != columns:
            reader.columns = columns
            self._foresight = Foresight(reader.plan, columns)
            self._know_types()

    def _know_types(self) -> None:
        self._unread.type_column, self._unread.offset_column = map(self._plan.columns.of, (TYPE, OFFSET))
        if TYPE in (self._plan.fields or ()):
            self._unread.types = frozenset(self._plan.queries.known_types)

    def _running(self) -> tuple[RowReader, Incremental]:
        assert self._reader is not None, "begun"
        assert self._work is not None, "begun"
        return self._reader, self._work

    def _added(self, call: EngineCall) -> LiveAnswer:
        answer = LiveAnswer(self, self._running()[0].plan)
        answer.call = call
        return answer

    def _read_unread(self) -> None:
        """Read the rows that wait for it."""
        calls, answers = self._unread.clear(), self._unread_answers
        if not calls:
            return
        self._unread_answers = []
        for told, early in zip(answers, self._foresight.were_read(len(calls)), strict=False):
            if (answer := told()) is not None:
                answer.early = early
        reader, work = self._running()
        first = reader.places
        together = reader.read([[row for rows in calls for row in rows]], work.clock)
        for told, records in zip(answers, split(together, [len(rows) for rows in calls], first), strict=True):
            call = work.add(records)
            if (answer := told()) is not None:
                answer.call = call
        if work.waiting > MOST_WAITING:
            self._process()

    def _process(self) -> None:
        """Process all calls that wait."""
        self._read_unread()
        if self._work is None:
            return
        self._refuse_broken(self._work)
        self._work.work()
        moved = sum(count for key, count in self._work.account.items() if key[2] == "before_clock")
        if moved and not self._is_warned:
            self._is_warned = True
            warn("rows arrive before the clock, which earlier rows have advanced: they are taken at the clock")

    def early_results(self, answer: LiveAnswer) -> EarlyResults | None:
        """What a call has brought, if it is known without the engine."""
        with self._lock:
            if answer.call is not None:
                return answer.early
            reader, work = self._running()
            known = self._foresight.results_of(self._unread.calls, work, reader)
            return known[answer.number] if answer.number < len(known) else None

    @property
    def early_nothing(self) -> EarlyResults:
        """The results of every call that is known to bring nothing."""
        return self._foresight.nothing

    @cached_property
    def nothing(self) -> Answer:
        """The answer of a call that brings nothing; the ledger is missing."""
        tables = self.early_nothing.tables
        assert tables is not None, "no block has run"
        answer = Answer()
        answer.plan, answer.results = self._running()[0].plan, tables
        return answer

    @cached_property
    def match_frames(self) -> MatchFrames:
        """Makes the DataFrames of few matches."""
        from ensue.rendering.data_frames import MatchFrames

        return MatchFrames(self._running()[0].plan)

    def results_of(self, answer: LiveAnswer) -> Results:
        """The results of a call, for its answer."""
        with self._lock:
            if answer.call is None or not answer.call.is_done:
                self._process()
            assert answer.call is not None, "all rows have been read"
            return answer.call.results()

    def _refuse_ended(self) -> None:
        if self._is_ended:
            raise InputError("the input has ended with `flush`; open the queries again")
        if self._work is not None:
            self._refuse_broken(self._work)

    @staticmethod
    def _refuse_broken(work: Incremental) -> None:
        if work.is_broken:
            raise InputError("an earlier call was interrupted; open the queries again from a saved state")

    def _saved(self) -> SavedLive:
        self._process()
        if self._work is None or self._reader is None:
            return SavedLive("", self._plan.queries.names, b"")
        plan, titles = identity_of(self._reader.plan)
        return SavedLive(
            plan,
            titles,
            self._work.engine.snapshot(),
            self._work.clock,
            self._reader.rows,
            self._reader.places,
            tuple(self._reader.names),
            self._plan.schemas,
            self._work.account,
            self._plan.fields,
            self._reader.offsets.ranges,
        )

    def _restore(self, path: Path) -> None:
        saved = self._files.read(path)
        if not saved.plan:
            if saved.queries != self._plan.queries.names:
                raise InputError(f"{path}: this state is of other queries; open them, or begin without `state`")
            if not self._plan.is_open:
                self._begin(self._plan.compiled([]))
            return
        plan = plan_of_state(path, saved, self._plan.compiled_for(saved.schemas))
        if saved.fields is not None:
            self._plan.read_as(saved.fields)
        try:
            engine = Engine.restore(plan, saved.snapshot)
        except StateError as error:
            raise InputError(f"{path}: cannot be continued: {error}") from None
        self._work = Incremental(engine, saved.account, saved.clock)
        names = dict.fromkeys(saved.names)
        offsets = SentOffsets({place: tuple(ranges) for place, ranges in saved.offsets.items()})
        self._reader = RowReader(plan, self._plan.columns, dict(saved.rows), saved.places, names, offsets)
        self._foresight = Foresight(plan, self._plan.columns)
        self._know_types()
        warn_of_rate(plan)


def _moment(micros: int) -> datetime | None:
    return None if micros == NO_TIME else datetime.fromisoformat(format_time(micros))
