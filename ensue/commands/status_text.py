"""The status of a job, and what it keeps of a key, in words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from ensue.rendering.account import MOST_LINES, account_text, left_text
from ensue.rendering.text_table import TimeFormat, text_table
from job_engine.job.status import QueryStatus, SourceStatus, Status, TimelineStatus
from job_engine.job.upkeep.keys import JobState, KeyState
from job_engine.operator.clocks import FILE, place_name
from job_engine.sources.source import PartitionBacklog
from querylang.errors import counted, listed
from querylang.plan.routing import ROUTE_SOURCE
from querylang.printable import json_text, one_line, quoted
from runtime.results.ledger import RECEIVED, Account, ledger_table

SECOND = 1_000_000


def status_text(status: Status) -> str:
    """Several tables, with an empty line between them."""
    return "\n\n".join(_parts(status))


def _parts(status: Status) -> Iterator[str]:
    yield "\n".join(map(one_line, _head(status)))
    if status.damaged:
        yield "\n".join(map(one_line, status.damaged))
    if status.batch is None:
        yield from _backlog(status)
        return
    if status.sources:
        yield _sources(status)
    yield from _backlog(status)
    yield _queries(status)
    if status.running:
        yield _running(status)
    if status.tables:
        yield _lookup_tables(status)
    for query in status.queries:
        if query.timelines:
            yield f"{one_line(f'{query.query}, {query.order}')}:\n{_timelines(query)}"
    account = _by_query(status)
    yield "\n".join([account_text(account), *left_text(status.waiting, status.next_due, account)])
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
    yield from map(_holding, (item for item in status.sources if item.holds_back))
    yield from _waiting(status)
    yield from _fed(status)


def _fed(status: Status) -> Iterator[str]:
    """Which queries take what others route. At the end of a micro-batch all of it has arrived."""
    taken: dict[str, list[str]] = {}
    for (title, source, what), count in sorted(status.ledger.items()):
        if what == RECEIVED and source.startswith(ROUTE_SOURCE):
            taken.setdefault(title, []).append(f"{source.removeprefix(ROUTE_SOURCE)} ({counted(count, 'event')})")
    for query in status.queries:
        feeders = taken.get(query.query, [])
        if len(feeders) > MOST_LINES:
            feeders = [*feeders[: MOST_LINES - 1], f"{len(feeders) - MOST_LINES + 1} others"]
        if feeders:
            yield f"{query.query}: fed by {listed(feeders)}; none in flight"


def _holding(item: SourceStatus) -> str:
    """Why a source partition holds time back."""
    name = place_name(item.source, item.partition)
    if item.behind is None:
        return f"{name} holds time back: it has brought nothing yet"
    silent = f", and has brought nothing for {length(item.silent)}" if item.silent else ""
    return f"{name} holds time back: it is {length(item.behind)} behind the furthest{silent}"


def _waiting(status: Status) -> Iterator[str]:
    """What pending events and held records wait for, and what lets time advance without it."""
    waiting = [query for query in status.queries if query.waits_for and (query.is_behind or query.pending)]
    names = sorted({name for query in waiting for name in query.waits_for})
    partitions = [name for name in names if FILE not in name]
    if partitions:
        queries = ", ".join(query.query for query in waiting)
        yield f"{queries}: time advances with the next record of {', '.join(partitions)}; `idle` lets it advance without"
    for name in names:
        if FILE in name:
            yield f"{name} holds time back: it is listed, and is read in one of the next micro-batches"


def _time_format(status: Status) -> TimeFormat:
    bounds = [status.clock, *(item.definitive for item in status.queries)]
    return _with_days([item.arrival for item in status.sources], bounds)


def _with_days(times: Sequence[int | None], bounds: Sequence[int | None] = ()) -> TimeFormat:
    known = [[time for time in some if time is not None] for some in (times, bounds)]
    return replace(TimeFormat.of(*known), day=None)


def _sources(status: Status) -> str:
    format_ = _time_format(status)
    rows = [
        [
            place_name(item.source, item.partition),
            format_.text(item.arrival),
            _seconds(item.behind),
            length(item.lag),
            "holds time back" if item.holds_back else "" if item.arrival is not None else "nothing yet",
        ]
        for item in status.sources
    ]
    return text_table(["source", "last arrival", "behind", "ago", ""], rows, right=frozenset({"behind", "ago"}))


def _backlog(status: Status) -> Iterator[str]:
    """What is not processed yet; of topics with a line for each partition."""
    rows = []
    for item in status.backlog:
        if item.problem:
            rows.append([item.source, "unknown", "", item.problem])
        elif item.files is not None:
            rows.append([item.source, counted(item.files, "file"), bytes_text(item.bytes or 0), ""])
        else:
            rows.append([item.source, counted(item.messages or 0, "message"), "", ""])
        rows += [
            [f"  {part.topic}/{part.partition}", counted(part.messages, "message"), "", _open(part)]
            for part in item.partitions
        ]
    if rows:
        yield text_table(["not processed yet", "", "size", ""], rows, right=frozenset({"size"}))


def _open(part: PartitionBacklog) -> str:
    """What of a partition waits for a transaction, and since when."""
    if not part.held_open:
        return ""
    since = "" if part.since is None else f" since {TimeFormat(None, 3).text(part.since)}"
    return f"{part.held_open} of them behind an open transaction{since}"


def _queries(status: Status) -> str:
    format_ = _time_format(status)
    rows = [
        [
            item.query,
            format_.bound(item.definitive),
            _seconds(item.delay),
            length(item.lag),
            str(item.pending),
            f"one task: {item.order}" if item.order else f"{status.buckets} buckets",
        ]
        for item in status.queries
    ]
    header = ["query", "definitive time", "delay", "ago", "pending", "runs as"]
    return text_table(header, rows, right=frozenset({"delay", "ago", "pending"}))


def _running(status: Status) -> str:
    """Where texts and values come from, since queries were changed."""
    times = [time for item in status.running for time in (item.since, item.handover) if time is not None]
    format_ = _with_days(times)
    rows = [
        [
            item.query,
            item.instance,
            item.origin,
            "the beginning" if item.since is None else format_.text(item.since),
            "" if item.values == "{}" else f"{item.values} ({item.values_from})",
            "" if item.handover is None else f"at {format_.text(item.handover)}",
        ]
        for item in status.running
    ]
    return text_table(["query", "instance", "from", "since", "values (from)", "hands over"], rows)


def _lookup_tables(status: Status) -> str:
    """What the tables beside the stream hold, and why a newer version does not."""
    format_ = _with_days([item.since for item in status.tables if item.since is not None])
    rows = [
        [
            item.name,
            str(item.version) if item.delta is None else f"{item.version} (Delta: {item.delta})",
            str(item.rows),
            "the beginning" if item.since is None else format_.text(item.since),
            length(item.age),
            one_line(item.problem),
        ]
        for item in status.tables
    ]
    header = ["table", "version", "rows", "since", "read ago", "not taken"]
    return text_table(header, rows, right=frozenset({"version", "rows", "read ago"}))


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
        [item.cause, item.source, str(item.count), quoted(item.example) if item.example else ""]
        for item in status.reports
    ]
    return text_table(["report", "source", "count", "last example"], rows, right=frozenset({"count"}))


def _sizes(status: Status) -> Iterator[str]:
    held = (
        f", {counted(status.held, 'record')} {'waits' if status.held == 1 else 'wait'} for slower sources"
        if status.held
        else ""
    )
    keys = "" if status.keys is None else f", {counted(status.keys, 'key')}"
    waits = f", {counted(status.waiting, 'wait')} pending" if status.waiting else ""
    state = f"{bytes_text(status.state_bytes)} in {counted(status.buckets, 'bucket')}"
    yield f"state: {state}{keys}, {counted(status.kept, 'event')} kept{waits}{held}"
    if status.rates is not None:
        over = f"over {status.rates.seconds:.0f} s"
        yield f"rates: {status.rates.records:.0f} records/s, {status.rates.matches:.1f} matches/s {over}"
    if status.memory is not None:
        processes = counted(status.memory.processes, "process", "processes")
        yield f"memory: {bytes_text(status.memory.bytes)} in {processes} on this machine"


def _seconds(micros: int | None) -> str:
    return "" if micros is None else f"{micros / SECOND:.1f} s"


def length(micros: int | None) -> str:
    """A length of time in the unit that fits it: `2.5 s`, `3.4 min`, `5.0 h`, `12.3 d`."""
    if micros is None:
        return ""
    for unit, size in (("d", 86_400), ("h", 3600), ("min", 60)):
        if micros >= 2 * size * SECOND:
            return f"{micros / size / SECOND:.1f} {unit}"
    return _seconds(micros)


def bytes_text(size: int) -> str:
    """A number of bytes in the unit that fits it."""
    for unit, least in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if size >= least:
            return f"{size / least:.1f} {unit}"
    return counted(size, "byte")


# What a job keeps of a key, what waits, and until when.


def state_text(state: JobState) -> str:
    """A part for each query, with an empty line between them."""
    return "\n\n".join(_state_parts(state))


def _state_parts(state: JobState) -> Iterator[str]:
    if state.keys is None:
        has_values = any(size.values is not None for size in state.sizes)
        header = ("query", "keys", "events", "pending", "waits", *(["values"] * has_values))
        rows = [(size.query, *(f"{getattr(size, name) or 0:,}" for name in header[1:])) for size in state.sizes]
        yield text_table(header, rows, frozenset(header[1:]))
        return
    for key in state.keys:
        yield "\n".join(_of_key(key))
    if state.others:
        yield f"without such a key: {listed(list(state.others))}"


def _of_key(key: KeyState) -> Iterator[str]:
    named = ", ".join(f"{name} = {value}" for name, value in key.key.items())
    reached = f"definitive time {key.definitive}" if key.definitive else "no definitive time yet"
    yield f"{key.title}, {named}: {reached}"
    if not (key.events or key.waits or key.held or key.values):
        yield "nothing is kept of this key"
    if key.events:
        yield text_table(("event", "time", "status", "until", "fields"), [_event(event) for event in key.events])
    if key.waits:
        yield f"{counted(len(key.waits), 'match', 'matches')} waiting"
        rows = [(str(wait["due"]), _members(wait["members"])) for wait in key.waits]
        yield text_table(("due", "members"), rows)
    if key.values:
        yield f"{counted(len(key.values), 'value')} stored"
        names = ("clause", "values", "time", "until")
        yield text_table(names, [tuple(_shown(item[name]) for name in names) for item in key.values])
    if key.held:
        yield f"{counted(len(key.held), 'record')} held until slower sources catch up"
        held = [(str(event["event"]), str(event["arrival"]), json_text(event["fields"])) for event in key.held]
        yield text_table(("event", "arrival", "fields"), held)


def _shown(value: object) -> str:
    return json_text(value) if isinstance(value, Mapping) else str(value)


def _event(event: Mapping[str, Any]) -> tuple[str, ...]:
    until = (
        event["until"] or event["reorder_until"] or ("its time is definitive" if event["status"] == "pending" else "")
    )
    return event["event"], str(event["time"]), event["status"], until or "no limit of time", json_text(event["fields"])


def _members(members: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}: {event['event']} {event['time']}" for name, event in members.items())
