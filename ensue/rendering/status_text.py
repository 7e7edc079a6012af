"""The status of a job in words: clock, sources that hold it back, accounts, sizes, rates."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pyarrow as pa

from ensue.rendering.account import account_text
from ensue.rendering.text_table import text_table
from ensue.rendering.time_format import TimeFormat
from querylang.printable import one_line
from runtime.results.ledger import Account, ledger_table
from spark_backend.job.status import QueryStatus, Status, TimelineStatus
from spark_backend.operator.job_clock import place_name

SECOND = 1_000_000


def status_text(status: Status) -> str:
    """Several tables, with an empty line between them."""
    return "\n\n".join(_parts(status))


def _parts(status: Status) -> Iterator[str]:
    yield "\n".join(map(one_line, _head(status)))
    if status.damaged:
        yield "\n".join(map(one_line, status.damaged))
    if status.batch is None:
        return
    if status.sources:
        yield _sources(status)
    yield _queries(status)
    for query in status.queries:
        if query.timelines:
            yield f"{one_line(f'{query.query}, {query.order}')}:\n{_timelines(query)}"
    yield account_text(_by_query(status))
    if status.reports:
        yield _reports(status)
    yield "\n".join(_sizes(status))


def _head(status: Status) -> Iterator[str]:
    activity = "running" if status.is_active else "not running"
    if status.batch is None:
        yield f"{status.name}: {activity}, no micro-batch has been written out yet"
        return
    yield f"{status.name}: {activity}; micro-batch {status.batch} of {TimeFormat(None, 3).text(status.moment)}"
    slow = [place_name(item.source, item.partition) for item in status.sources if item.holds_back]
    holding = f", held back by {', '.join(slow)}" if slow else ""
    yield f"clock: {_time_format(status).text(status.clock) or 'has not begun'}{holding}"
    yield from _waiting(status)


def _waiting(status: Status) -> Iterator[str]:
    """What pending events and held records wait for, and what lets time advance without it."""
    waiting = [query for query in status.queries if query.waits_for and (query.is_behind or query.pending)]
    names = sorted({name for query in waiting for name in query.waits_for})
    if names:
        queries = ", ".join(query.query for query in waiting)
        yield f"{queries}: time advances with the next record of {', '.join(names)}; `idle` lets it advance without"


def _time_format(status: Status) -> TimeFormat:
    times = [status.clock, *(item.arrival for item in status.sources), *(item.definitive for item in status.queries)]
    return _with_days([time for time in times if time is not None])


def _with_days(times: list[int]) -> TimeFormat:
    return TimeFormat(None, TimeFormat.of(times).digits)


def _sources(status: Status) -> str:
    format_ = _time_format(status)
    rows = [
        [
            place_name(item.source, item.partition),
            format_.text(item.arrival),
            _seconds(item.behind),
            "holds time back" if item.holds_back else "" if item.arrival is not None else "nothing yet",
        ]
        for item in status.sources
    ]
    return text_table(["source", "last arrival", "behind", ""], rows, right=frozenset({"behind"}))


def _queries(status: Status) -> str:
    format_ = _time_format(status)
    rows = [
        [
            item.query,
            format_.text(item.definitive),
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
    format_ = _with_days(times)

    def row(line: TimelineStatus) -> list[str]:
        cells = map(format_.text, (line.bound, line.newest, line.arrival))
        return [line.timeline, *cells, "holds time back" if line.holds_back else ""]

    return text_table(["timeline", "bound", "newest time", "last arrival", ""], list(map(row, query.timelines)))


def _by_query(status: Status) -> pa.Table:
    """The accounts per query, over all sources; `Status.to_plain` has those per source."""
    account: Account = Counter()
    for (query, _, what), count in status.ledger.items():
        account[query, "", what] += count
    return ledger_table(account)


def _reports(status: Status) -> str:
    rows = [
        [item.cause, item.source, str(item.count), repr(item.example) if item.example else ""]
        for item in status.reports
    ]
    return text_table(["report", "source", "count", "last example"], rows, right=frozenset({"count"}))


def _sizes(status: Status) -> Iterator[str]:
    held = f", {status.held} records wait for slower sources" if status.held else ""
    yield f"state: {status.state_bytes / 1e6:.1f} MB in {status.buckets} buckets, {status.kept} events kept{held}"
    if status.rates is not None:
        over = f"over {status.rates.batches} micro-batches"
        yield f"rates: {status.rates.records:.0f} events/s, {status.rates.matches:.1f} matches/s {over}"


def _seconds(micros: int | None) -> str:
    return "" if micros is None else f"{micros / SECOND:.1f} s"
