"""A run of a local job: micro-batch after micro-batch, until it is stopped or its input ends.

The order of what is written durably, and why a crash between two of them loses and doubles nothing:

    manifest  what a micro-batch reads; one that the log does not name is removed and made anew
    entry     from now on the micro-batch is repeated after a crash: the same input and moment
    results   a repeated micro-batch gives the same ones, and sinks know what they have already;
              nobody sees them before the entry is there
    states    in a folder of their own, which nothing names yet
    totals    ledger and progress, added to those before the first micro-batch that is repeated
    commit    names the states: nothing up to this micro-batch is repeated from now on

The last three follow at intervals, not in each micro-batch: states are written as a whole.

A micro-batch is read and stepped while it is put on record, in memory: after a crash nothing is
left of it. While its results are published, the next one is recorded, read and stepped. The results
of that one are published behind them, and states are saved only once all are: what is in them is
what has been published.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from math import inf

from job_engine.clock import monotonic, wait_for, wall_seconds
from job_engine.job.driver import Order
from job_engine.local.buckets import Buckets, Workers
from job_engine.local.run_log import Begun, Committed, RunLog
from job_engine.sources.crash_marks import CRASHES, CrashMarks
from job_engine.sources.listing.batch_log import JobNotes, job_notes
from job_engine.sources.listing.lister import Lister
from job_engine.threads import begun, new_event
from job_engine.wire.packed_rows import remove_rows
from querylang.dataclass import dataclass

SHARE = 20
"""A commit waits so many times as long as the one before took: 5 % of the time."""

MOST_OPEN = 50
"""Micro-batches between two commits. Manifests of the last hundred are kept one by one."""

SHORTEST, LONGEST = 0.005, 0.2
"""Seconds between two looks for input: soon after there was some, and after a long silence."""

AT_ONCE = 0.001
"""In place of the shortest, where a look asks nobody."""


def _nothing(_: str) -> None:
    """Nobody looks."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast a run is.

    interval: seconds between two commits, at least: so much is repeated after a crash; 0 = each
        micro-batch is committed
    now: the wall clock, in seconds since 1970
    at: is called at each point between two durable writes, with its name
    """

    interval: float = 1.0
    now: Callable[[], float] = wall_seconds
    at: Callable[[str], None] = _nothing


PACE = Pace()


class LocalRun:
    """One run; `run` returns at its end, `stop` is called by other threads."""

    def __init__(self, order: Order, pool: Workers, pace: Pace = PACE) -> None:
        self._order = order
        self._buckets = Buckets(pool, order.program)
        self._pace = pace
        self._log = RunLog(order.checkpoint)
        self._lister = Lister(
            {**order.options, "tasks": str(pool.count)},
            self._notes,
            records=False,
            most_followed=None if order.program.waits_for_all else 1,
        )
        assert order.rows is not None, "workers see the same folder"
        self._rows = order.rows / "rows"  # of one micro-batch; beside them are drafts of two
        self._recording: Future[None] | None = None
        self._publishing: Future[None] | None = None
        self._stopping = new_event()
        self._wakes: dict[int, int] = {}
        self._open = 0
        self._last = Begun(-1, 0, self._log.first_manifest)
        self._started = self._next_commit = monotonic()
        self.is_waiting = False

    def stop(self) -> None:
        """Let it end behind the micro-batch that is at work, which is committed."""
        self._stopping.set()

    def run(self) -> None:
        """Process micro-batches; raises what ends the run, WorkerDied among it."""
        try:
            self._run()
        finally:
            for beside in (self._recording, self._publishing):
                if beside is not None:
                    beside.exception()
            self._lister.close()

    def _run(self) -> None:
        self._begin()
        if self._order.is_bounded:
            self._lister.fix_end()
        for entry in self._log.begun():
            self._process(entry, may_be_repeated=True)
        self._commit()
        if CRASHES in self._order.options:  # a killed run may have read what was not on record yet
            CrashMarks.of_text(self._order.options[CRASHES]).forget_readers()
        while not self._stopping.is_set():
            if self._order.program.live:  # its micro-batch may have asked for a change
                self._end_publishing()
            manifest = self._lister.latest(self._last.manifest)
            if manifest > self._last.manifest or self._is_due():
                self._started = monotonic()
                self._process(self._next_entry(manifest), may_be_repeated=False)
            elif self._order.is_bounded:
                break
            else:
                self._wait(self._seconds_of_silence())
            if self._open >= MOST_OPEN or (self._open and monotonic() >= self._next_commit):
                self._commit()
            if not self._order.is_bounded:
                self._wait(self._started + self._order.trigger / 1e6 - monotonic())
        self._commit()

    def _begin(self) -> None:
        """Let workers begin with the states of the last commit."""
        order, saved = self._order, self._log.committed()
        if saved is not None:
            self._wakes, self._last = dict(saved.wakes), self._log.entry(saved.number)
        self._log.remove_old()
        self._buckets.begin(
            self._rows,
            None if saved is None else self._log.states_of(saved.number),
            () if saved is None else saved.buckets,
            options=order.options,
            sinks=order.sinks,
            identity=order.writer.identity,
            continues=order.continues,
        )
        self._next_commit = monotonic() + self._pace.interval

    def _notes(self) -> JobNotes:
        self._end_publishing()
        return self._order.writer.notes() or job_notes(self._order.checkpoint)

    def _next_entry(self, manifest: int) -> Begun:
        """The next micro-batch, put on record now, later than the one before."""
        moment = max(int(self._pace.now() * 1000), self._last.timestamp + 1)
        entry = Begun(self._last.number + 1, moment, manifest)

        def record() -> None:
            self._lister.record()
            self._pace.at("manifest")
            self._log.begin(entry)
            self._pace.at("begun")

        self._recording = begun(record, "ensue record")
        return entry

    def _end_recording(self) -> None:
        """Wait until the micro-batch is on record; raises what prevents it."""
        recording, self._recording = self._recording, None
        if recording is not None:
            recording.result()

    def _process(self, entry: Begun, *, may_be_repeated: bool) -> None:
        """Read and step one micro-batch, and begin to publish it behind the one before."""
        started, writer = monotonic(), self._order.writer
        results = self._results(entry)
        self._end_recording()
        self._end_publishing()

        def publish() -> None:
            writer.publish(lambda: results, entry.number, may_be_repeated=may_be_repeated, started=started)
            self._pace.at("published")

        self._publishing = begun(publish, "ensue results")
        self._last, self._open = entry, self._open + 1
        if may_be_repeated:  # it removes all drafts, of which there are none of the next one yet
            self._end_publishing()

    def _end_publishing(self) -> None:
        """Wait until all results so far are visible; raises what prevents it."""
        publishing, self._publishing = self._publishing, None
        if publishing is not None:
            publishing.result()

    def _results(self, entry: Begun) -> list[bytes]:
        """What the buckets give in a micro-batch: those with rows, and those whose time is up."""
        planned = self._lister.tasks(self._last.manifest, entry.manifest)
        tasks = [(task.to_text(), self._lister.taken(task)) for task in planned]
        stepped = self._buckets.step(
            entry.number,
            entry.timestamp,
            self._buckets.read(tasks),
            [bucket for bucket, wake in self._wakes.items() if wake <= entry.timestamp],
            is_measured=self._order.is_bounded or self._lister.has_unproven,
        )
        kept = {bucket: wake for bucket, wake in self._wakes.items() if bucket not in stepped.results}
        self._wakes = kept | stepped.wakes
        remove_rows(self._rows)
        self._pace.at("stepped")
        return list(stepped.results.values())

    def _commit(self) -> None:
        """Save the states, and repeat nothing of what is published from now on."""
        if not self._open:
            return
        self._end_publishing()
        began, writer = monotonic(), self._order.writer
        saved = self._buckets.save(self._log.states_of(self._last.number))
        self._pace.at("states")
        writer.measure(saved.measures)
        writer.save()
        self._pace.at("totals")
        self._log.commit(Committed(self._last.number, saved.buckets, self._wakes))
        self._open = 0
        ended = monotonic()
        self._next_commit = ended + (max(self._pace.interval, SHARE * (ended - began)) if self._pace.interval else 0.0)
        self._pace.at("committed")

    def _is_due(self) -> bool:
        return self._order.has_timeouts and min(self._wakes.values(), default=inf) <= self._pace.now() * 1000

    def _seconds_of_silence(self) -> float:
        """How long to wait where there is nothing to read: longer if there was nothing for long."""
        shortest = AT_ONCE if self._lister.asks_nobody else SHORTEST
        seconds = min(max(shortest, (monotonic() - self._started) / 40), LONGEST)
        if self._order.has_timeouts and self._wakes:
            seconds = min(seconds, min(self._wakes.values()) / 1000 - self._pace.now())
        return min(seconds, self._next_commit - monotonic()) if self._open else seconds

    def _wait(self, seconds: float) -> None:
        if self._publishing is not None and self._publishing.done():
            self._end_publishing()
        if seconds > 0:
            self.is_waiting = self._publishing is None
            wait_for(self._stopping, seconds)
            self.is_waiting = False
