"""A job's status in words: what runs, how far time has come and who holds it back, the accounts, sizes, rates.

Takes a `spark_backend.job.status.Status`; gives text for people. Machines take its plain form.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from ensue.rendering.account import account_text
from ensue.rendering.replay_table import Clock, text_table
from runtime.results.ledger import ledger_table
from spark_backend.job.status import QueryStatus, Status, TimelineStatus, status_of

SECOND = 1_000_000


def status(path: Path) -> Status:
    """Of a deployment file's job."""
    return status_of(path)


def text(status: Status) -> str:
    """Several tables, with an empty line between them."""
    return "\n\n".join(_parts(status))


def _parts(status: Status) -> Iterator[str]:
    yield "\n".join(_head(status))
    if status.batch is None:
        return
    if status.sources:
        yield _sources(status)
    yield _queries(status)
    for query in status.queries:
        if query.timelines:
            yield f"{query.query}, {query.order}:\n{_timelines(query)}"
    yield account_text(_by_query(status))
    yield "\n".join(_sizes(status))


def _head(status: Status) -> Iterator[str]:
    activity = "running" if status.is_active else "not running"
    if status.batch is None:
        yield f"{status.name}: {activity}, no micro-batch has been written out yet"
        return
    yield f"{status.name}: {activity}; micro-batch {status.batch} of {Clock(None, 3).text(status.moment)}"
    slow = [_place(item.source, item.partition) for item in status.sources if item.holds_back]
    holding = f", held back by {', '.join(slow)}" if slow else ""
    yield f"clock: {_clock(status).text(status.clock) or 'nothing has arrived'}{holding}"


def _clock(status: Status) -> Clock:
    times = [status.clock, *(item.arrival for item in status.sources), *(item.definitive for item in status.queries)]
    return Clock(None, Clock.of([time for time in times if time is not None]).digits)


def _sources(status: Status) -> str:
    clock = _clock(status)
    rows = [
        [
            _place(item.source, item.partition),
            clock.text(item.arrival),
            _seconds(item.behind),
            "holds time back" if item.holds_back else "" if item.arrival is not None else "nothing yet",
        ]
        for item in status.sources
    ]
    return text_table(["source", "last arrival", "behind", ""], rows, right=frozenset({"behind"}))


def _queries(status: Status) -> str:
    clock = _clock(status)
    rows = [
        [
            item.query,
            clock.text(item.definitive),
            _seconds(item.delay),
            str(item.pending),
            f"one task: {item.order}" if item.order else f"{status.buckets} buckets",
        ]
        for item in status.queries
    ]
    header = ["query", "definitive time", "delay", "pending", "runs as"]
    return text_table(header, rows, right=frozenset({"delay", "pending"}))


def _timelines(query: QueryStatus) -> str:
    times = [time for line in query.timelines for time in (line.bound, line.newest, line.arrival) if time is not None]
    clock = Clock(None, Clock.of(times).digits)

    def row(line: TimelineStatus) -> list[str]:
        moments = map(clock.text, (line.bound, line.newest, line.arrival))
        return [line.timeline, *moments, "holds time back" if line.holds_back else ""]

    return text_table(["timeline", "bound", "newest time", "last arrival", ""], list(map(row, query.timelines)))


def _by_query(status: Status) -> pa.Table:
    """The accounts of all sources together; each by itself stands in the plain form."""
    from runtime.results.ledger import Account

    account: Account = Account()
    for (query, _, what), count in status.ledger.items():
        account[query, "", what] += count
    return ledger_table(account)


def _sizes(status: Status) -> Iterator[str]:
    waiting = f", {status.held} records wait for slower sources" if status.held else ""
    yield f"state: {status.state_bytes / 1e6:.1f} MB in {status.buckets} buckets, {status.kept} events kept{waiting}"
    if status.rates is not None:
        over = f"over {status.rates.batches} micro-batches"
        yield f"rates: {status.rates.records:.0f} events/s, {status.rates.matches:.1f} matches/s {over}"


def _place(source: str, partition: int | None) -> str:
    return f"{source}/{partition}" if partition else source


def _seconds(micros: int | None) -> str:
    return "" if micros is None else f"{micros / SECOND:.1f} s"
