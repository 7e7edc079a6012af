"""Replay: run the engine over all records of bounded tables, with results in a guaranteed order.

With several threads, some read what comes next and gather what was found while the engine runs. If
there are more than two, keys are divided among engines as well.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import Any, Generic, TypeVar

import numpy as np
import pyarrow as pa

from querylang.plan.model import Plan
from querylang.plan.routing import has_chains
from runtime.columns.arrivals import Arrivals, in_arrival_order
from runtime.engine import Engine, metrics_table, output_events
from runtime.reading import STANDARD, ColumnNames, TableRecords, read_table
from runtime.replay.divided import DividedEngine, NotDividedError, can_divide, results_with_steps
from runtime.replay.records import (
    FileRecords,
    FileToRead,
    NotSortedError,
    Records,
    TablePlaces,
    are_worth_it,
    source_names,
)
from runtime.results.match_table import gather_tables, joined_matches
from runtime.results.matched import FindsMatches
from runtime.results.schemas import NO_OUTPUTS, Results, in_order, no_discards, rows_of
from runtime.threads import thread_count

# Arrow's memory during a replay: the C library keeps that of one piece for the next. Arrow's own
# allocator gives free pages back to the system within milliseconds. So each piece would get its
# memory, some hundred megabytes a second, from the system again, page by page.

VARIABLE = "ARROW_DEFAULT_MEMORY_POOL"
"""With it users choose Arrow's allocator themselves."""

_LOCK = Lock()
_before: list[pa.MemoryPool] = []
"""By replay that runs now, the allocator when it began."""


@contextmanager
def memory_kept() -> Iterator[None]:
    """Arrow allocates with the C library meanwhile, unless somebody has chosen an allocator.

    It is one setting of the process: it ends with the last of several replays in threads.
    """
    with _LOCK:
        is_ours = not os.environ.get(VARIABLE) and (bool(_before) or _backend() == "mimalloc")
        if is_ours:
            _before.append(pa.default_memory_pool() if not _before else _before[0])
            pa.set_memory_pool(pa.system_memory_pool())
    try:
        yield
    finally:
        with _LOCK:
            before = _before.pop() if is_ours else None
            if before is not None and not _before and _backend() == "system":
                pa.set_memory_pool(before)


def _backend() -> str:
    return str(pa.default_memory_pool().backend_name)


# Threads beside the engine's: they read what comes next, and gather what was found.

Item = TypeVar("Item")
Result = TypeVar("Result")

_MOST_WAITING = 4
"""So many tasks per thread may wait, with all that they hold in memory."""


class Workers(Generic[Result]):
    """So many threads, perhaps none: then everything happens in the caller's."""

    def __init__(self, threads: int) -> None:
        self._pool = ThreadPoolExecutor(threads) if threads else None
        self._most = _MOST_WAITING * threads
        self._waiting: deque[_Task[Result]] = deque()

    def __enter__(self) -> Workers[Result]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def ahead(self, items: Iterator[Item]) -> Iterator[Item]:
        """The same items; the next two are made while one is in use."""
        if self._pool is None:
            yield from items
            return
        first: Future[list[Item]] = self._pool.submit(_next, items, None)
        following = deque([first, self._pool.submit(_next, items, first)])
        while True:
            first = following.popleft()
            while not first.done() and self._help():
                pass
            made = first.result()
            if not made:
                return
            following.append(self._pool.submit(_next, items, following[-1]))
            yield made[0]

    def do(self, task: Callable[[], Result]) -> Callable[[], Result]:
        """Begins a task; the function that is returned waits for its result."""
        own = _Task(task)
        if self._pool is None:
            own.run()
            return own.result
        self._pool.submit(own.run)
        self._waiting.append(own)
        while len(self._waiting) > self._most:
            self._help()
        return own.result

    def _help(self) -> bool:
        """Does the oldest task that has not begun; whether there was one."""
        while self._waiting:
            if self._waiting.popleft().run():
                return True
        return False


class _Task(Generic[Result]):
    """A task, done by the first thread that comes to it."""

    def __init__(self, task: Callable[[], Result]) -> None:
        self._task: Callable[[], Result] | None = task
        self._lock = Lock()
        self._future: Future[Result] = Future()

    def run(self) -> bool:
        """Does the task; False = another thread has begun it."""
        with self._lock:
            task, self._task = self._task, None  # what it holds in memory is free once it is done
        if task is None:
            return False
        try:
            self._future.set_result(task())
        except BaseException as error:
            self._future.set_exception(error)
            if not isinstance(error, Exception):
                raise  # Ctrl-C, in the caller's thread: it must not wait for someone who wants the result
        return True

    def result(self) -> Result:
        """The result, perhaps only now; raises what the task raised."""
        self.run()
        return self._future.result()


def _next(items: Iterator[Item], before: Future[list[Item]] | None) -> list[Item]:
    """The next item in a list, after the one before; empty = there is none."""
    if before is not None:
        wait([before])
    return list(islice(items, 1))


CHUNK = 3 << 16
"""The least number of records per call of the engine, which has up to twice as many: few enough for
the processor's caches, and for memory.

A call also passes over all events in key state, so that a call has at least twice as many records
as those."""

FEW = 1_000
"""Fewer records are read and gathered in less time than it takes to start threads."""

ADMISSIONS_A_CHUNK, MOST_CHUNKS = 100, 5
"""Each query whose inputs differ from others' costs something in a call: so where there are many, a
call has more records, up to so many times as many."""

Progress = Callable[[int], None]
"""Is called with a number of records."""

Replayed = tuple[Results, pa.Table]
"""The results, and the metrics at the end."""


def read_records(
    tables: Sequence[Any],
    plan: Plan,
    columns: Sequence[ColumnNames] | None = None,
    plans: Sequence[Plan] | None = None,
    progress: Progress | None = None,
) -> Records | FileRecords:
    """Event tables merged by arrival; equal arrival in the order of the tables.

    columns: by table: how it is read; None = as is usual
    plans: by table: the plan that says which columns it needs; None = `plan` for all
    progress: is called with how many records have been read

    Large Parquet files are read when their records are asked for.
    """
    if not are_worth_it(tables):
        return read_all(tables, plan, columns, plans, progress)
    each = zip(
        tables, source_names(tables), plans or [plan] * len(tables), columns or [STANDARD] * len(tables), strict=True
    )
    files = [FileToRead(Path(table), name, place, own, names) for place, (table, name, own, names) in enumerate(each)]
    return FileRecords(files, lambda: read_all(tables, plan, columns, plans, progress))


def read_all(
    tables: Sequence[Any],
    plan: Plan,
    columns: Sequence[ColumnNames] | None = None,
    plans: Sequence[Plan] | None = None,
    progress: Progress | None = None,
) -> Records:
    """As `read_records`, with all records in memory."""
    names = source_names(tables)
    each = zip(tables, names, plans or [plan] * len(tables), columns or [STANDARD] * len(tables), strict=True)
    parts: list[TableRecords] = []
    count = 0
    for table, name, own, reading in each:
        report = None if progress is None else lambda rows, before=count: progress(before + rows)
        parts.append(read_table(table, own, reading, name, progress=report))
        count += len(parts[-1].arrivals)
    given = [TablePlaces(place).of(part) for place, part in enumerate(parts)]
    merged = Arrivals.concat([Arrivals.empty(plan), *given]).table.unify_dictionaries()
    rows = np.concatenate([np.empty(0, np.int64), *(part.numbers for part in parts)])
    ordered = in_arrival_order(merged.append_column("_row", pa.array(rows))).combine_chunks()
    warnings = tuple(dict.fromkeys(line for part in parts for line in part.warnings))
    return Records(Arrivals(ordered.drop_columns("_row")), ordered.column("_row").to_numpy(), names, warnings)


def replay_records(
    plan: Plan, records: Records | FileRecords, *, until: int | None = None, flush: bool = True, matcher: str = "auto"
) -> Results:
    """Run the engine over records; as `measured_replay`, without the metrics."""
    return measured_replay(plan, records, until=until, flush=flush, matcher=matcher)[0]


def measured_replay(
    plan: Plan,
    records: Records | FileRecords,
    *,
    until: int | None = None,
    flush: bool = True,
    matcher: str = "auto",
    progress: Progress | None = None,
) -> Replayed:
    """Run the engine over records; gives results, and the metrics at the end.

    until: time, µs, at which the replay ends, with its timers; None = as `flush` says
    flush: time advances after the last record until no timer is left; False = it ends there
    matcher: `auto`, `kernel` or `reference`
    progress: is called with how many records have been processed
    """
    run = _Run(plan, matcher, thread_count(), until, flush, progress or (lambda _rows: None))
    pieces = records.pieces() if isinstance(records, FileRecords) and until is None else None
    if pieces is not None:
        try:
            return run.over(pieces, can_divide(plan, run.threads))
        except (NotSortedError, NotDividedError):
            pass
    whole = records.whole() if isinstance(records, FileRecords) else records
    table = whole.until(until).arrivals.table
    return run.over(iter([table]), can_divide(plan, run.threads, table), has_few=len(table) < FEW)


class _Run:
    """One replay, with its settings as in `measured_replay`."""

    def __init__(
        self, plan: Plan, matcher: str, threads: int, until: int | None, flush: bool, progress: Progress
    ) -> None:
        self.threads = threads
        self._plan, self._matcher, self._until, self._flush, self._progress = plan, matcher, until, flush, progress

    def over(self, pieces: Iterator[pa.Table], is_divided: bool, *, has_few: bool = False) -> Replayed:
        """The answer over all records. Raises NotDividedError, and what `pieces` raises.

        has_few: whether there are fewer records than threads beside the engine's are worth
        """
        engines = self.threads - 1 if is_divided else 1
        engine = DividedEngine(self._plan, self._matcher, engines) if engines > 1 else None
        only = Engine(self._plan, self._matcher, gathers_later=True)
        beside = 0 if has_few else self.threads - 1
        with memory_kept(), Workers[dict[str, pa.Table]](beside) as workers:
            ahead = workers.ahead(pieces)
            calls = self._divided_calls(engine, ahead) if engine is not None else self._calls(only, ahead)
            found = [(_without_later(call), workers.do(_gathering(call))) for call in calls]
            parts = [one for call, gathered in found for one in (Results(matches=gathered()), *call)]
        ledger = only.ledger() if engine is None else engine.ledger()
        results = in_order(self._plan, concatenated_results(self._plan, parts, ledger), _in_order_already(self._plan))
        last = only if engine is None else engine.latest()
        return results, metrics_table(last, output_events(results), ledger=ledger)

    def _calls(self, engine: Engine, pieces: Iterator[pa.Table]) -> Iterator[list[Results]]:
        """The results of each call."""
        calls = replay_calls(engine, pieces, until=self._until, flush=self._flush, progress=self._progress)
        return ([results] for results in calls)

    def _divided_calls(self, engines: DividedEngine, pieces: Iterator[pa.Table]) -> Iterator[list[Results]]:
        """The results of each call, by engine."""
        done = 0
        for part in _regrouped(pieces, lambda: max(CHUNK * engines.count, 2 * engines.stored_events())):
            yield engines.process(Arrivals(part))
            done += len(part)
            self._progress(done)
        if self._until is not None:
            yield engines.advance_to(self._until)
        elif self._flush:
            yield engines.flush()


def _in_order_already(plan: Plan) -> set[str]:
    """The queries whose matches are gathered in order, call by call."""
    if has_chains(plan.queries):  # what one record causes one after the other is of one step
        return set()
    return {query.title for query in plan.queries if not query.block}


def _without_later(call: Sequence[Results]) -> list[Results]:
    """The results without the rows that matches are gathered from, so that memory becomes free."""
    return [replace(one, found={}) for one in call]


def _gathering(call: Sequence[Results]) -> Callable[[], dict[str, pa.Table]]:
    """Gathers the matches of a call that are not in tables yet, in order, by query."""
    found: dict[str, list[FindsMatches]] = {}
    for one in call:
        for title, finding in one.found.items():
            found.setdefault(title, []).append(finding)

    def gathered() -> dict[str, pa.Table]:
        later = {name: joined_matches([finding() for finding in parts]) for name, parts in found.items()}
        later = {name: own for name, own in later.items() if len(own.matched)}
        return dict(zip(later, gather_tables(list(later.values())), strict=True))

    return gathered


def replay_calls(
    engine: Engine,
    pieces: Iterator[pa.Table],
    *,
    until: int | None = None,
    flush: bool = True,
    progress: Callable[[int], None] | None = None,
) -> Iterator[Results]:
    """Run an engine over records, as `measured_replay` does; gives the results of each call.

    pieces: all records that have arrived by `until`, in order of arrival, however they are cut
    progress: is called after each call with the number of records so far

    The results of a call are not in order, but those of an earlier one come first.
    """
    at = 0
    least = CHUNK * min(MOST_CHUNKS, 1 + engine.admissions // ADMISSIONS_A_CHUNK)
    for table in _regrouped(pieces, lambda: max(least, 2 * engine.stored_events())):
        results = engine.process(Arrivals(table))
        yield results_with_steps(results, np.arange(at, at + len(table)), 0) if at else results
        at += len(table)
        if progress is not None:
            progress(at)
    if until is not None:
        yield engine.process(Arrivals.empty(engine.plan), now=until)
    elif flush:
        yield results_with_steps(engine.flush(), np.empty(0, np.int64), at)


def _regrouped(pieces: Iterator[pa.Table], wanted: Callable[[], int]) -> Iterator[pa.Table]:
    """The same rows in tables of at least the length that is wanted when each one begins.

    None has more than twice as many.
    """
    waiting: list[pa.Table] = []
    missing = wanted()
    for piece in pieces:
        while len(piece):
            most = 2 * missing
            part, piece = piece.slice(0, most), piece.slice(most)  # noqa: PLW2901  what is left of it
            waiting.append(part)
            missing -= len(part)
            if missing <= 0:
                yield _joined(waiting)
                waiting, missing = [], wanted()
    if waiting:
        yield _joined(waiting)


def _joined(tables: Sequence[pa.Table]) -> pa.Table:
    return tables[0] if len(tables) == 1 else Arrivals.concat([Arrivals(table) for table in tables]).table


def concatenated_results(plan: Plan, found: Sequence[Results], ledger: pa.Table) -> Results:
    """The results of all calls as one; `ledger`: of all of them."""
    parts: dict[str, list[pa.Table]] = {query.title: [] for query in plan.queries}
    for results in found:
        for name, table in results.matches.items():
            parts[name].append(table)
    discards = [results.discarded for results in found if results.discarded is not None]
    routed = [results.routed for results in found if results.routed is not None]
    return Results(
        matches={name: pa.concat_tables(tables) for name, tables in parts.items() if tables},
        outputs=rows_of(NO_OUTPUTS, [results.outputs for results in found]),
        discarded=rows_of(no_discards(plan), discards),
        ledger=ledger,
        routed=pa.concat_tables(routed, promote_options="default") if routed else None,
    )


def waiting_matches(plan: Plan, records: Records | FileRecords, until: int | None) -> tuple[int, int | None]:
    """How many matches wait after the last record, or at `until`, and when the next is due, µs.

    Runs the records once more, unless no query's pattern ends with a wait.
    """
    if all(query.trailing is None for query in plan.queries):
        return 0, None
    engine = Engine(plan)
    table = records.until(until).arrivals.table
    for _ in replay_calls(engine, iter([table]), until=until, flush=False):
        pass
    return engine.waiting()
