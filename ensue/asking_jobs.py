"""Questions of users to a job: what it waits for, what of a key is pending, what it has discarded.

The answers come from its checkpoint and its sink of discarded records, as of the last micro-batch,
whether the job runs or not; of a match, a moment or a record from what the job has read, which is
read again. Nothing in the job is changed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from ensue.asking_why import with_causes
from job_engine.deployment import Deployment
from job_engine.deployment_file import load_deployment
from job_engine.errors import in_plain_words
from job_engine.job.status import QueryStatus, SourceStatus, Status, status_of
from job_engine.job.upkeep.keys import JobState, KeyState, QuerySize, SeenGroup, job_state, seen_again
from job_engine.operator.clocks import place_name
from job_engine.sinks.kinds import publishing
from querylang.errors import InputError, counted, did_you_mean, listed
from querylang.plan.model import QueryPlan
from querylang.plan.text import duration_text
from runtime.admission import Outcome
from runtime.columns.arrivals import Arrivals
from runtime.columns.keys import GivenKey
from runtime.instants import LATEST
from runtime.results.for_users import plain_value
from runtime.results.ledger import DISCARDS
from runtime.timestamps import format_time, parse_time
from runtime.why import HIDDEN, Asking, Awaited, Ending, EventAt, Explanation, Hidden, Reason, Table, Why, short_time
from runtime.why import Status as Became

MOST_ROWS, MOST_READ = 5, 10_000
"""Discarded records that are shown for a query, and rows of the sink that are read for them."""

_DISCARDED = "discarded"
"""The sink."""


def why_job(path: Path | str, key: Sequence[str] = ()) -> Why:
    """What a deployment's job waits for, and what it has discarded.

    key: texts as of `ensue state --key`; none = of all keys
    Raises InputError.
    """
    deployment = load_deployment(path)
    status = status_of(path)
    if status.batch is None:
        what = "no micro-batch has been written yet" if status.is_active else "the job has not run yet"
        return Why(deployment.name, (), (f"{what}: `ensue run {path}` starts it",))
    state = job_state(path, key)
    if key and not state.keys:
        raise InputError(f"no query of {deployment.name} has the key {' '.join(key)}")
    asking = _AskingJob(deployment, status, state)
    with in_plain_words(deployment.environment):
        answers = tuple(asking.of_key() if key else asking.of_all())
    question = f"key {' '.join(key)}" if key else "what it waits for, and what was discarded"
    return Hidden(deployment.hide).why((), Why(question, answers, tuple(asking.remarks)))


def why_of_job(
    path: Path | str,
    match: str | None = None,
    *,
    key: Sequence[str] = (),
    at: str | None = None,
    row: int | None = None,
    source: str | None = None,
    query: str | None = None,
) -> Why:
    """Why a match of a job came, or what became of a record or a key at a moment.

    What the job has read is read again, beside it. Parameters as of `result.why`, but `row` is the
    offset of a record in its file, topic or table, which is `source`.

    Raises InputError.
    """
    if sum((match is not None, bool(key) or at is not None, row is not None)) != 1:
        raise InputError("ask by one of --match, --key and --row")
    seen = seen_again(path)
    asked = [(group, _chosen(group, query)) for group in seen]
    if query is not None and not any(queries for _, queries in asked):
        names = [item.name for group in seen for item in group.plan.queries]
        raise InputError(f"there is no query '{query}'{did_you_mean(query, names)}; there are {listed(names)}")
    asked = [(group, queries) for group, queries in asked if queries]
    if match is not None:
        found = [_of_match(group, queries, match) for group, queries in asked]
        whys = [why for why in found if why is not None]
        if not whys:
            raise InputError("; ".join((f"there is no match {match!r} in what the job has read", *_doubts(path))))
    elif row is not None:
        whys = [why for group, queries in asked if (why := _of_row(group, queries, row, source)) is not None]
        if not whys:
            where = "" if source is None else f" of '{source}'"
            says = f"there is no record with the offset {row}{where} in what the job has read"
            raise InputError("; ".join((says, *_doubts(path))))
    else:
        whys = [_of_key(group, queries, key, at) for group, queries in asked if _have_key(group, queries, key)]
        if not whys:
            raise InputError(f"no query has the key {' '.join(key)}")
    count = _different([group.records for group in seen])
    remarks = [f"{counted(count, 'record')} that the job has read were read again"]
    remarks += [remark for why in whys for remark in why.remarks]
    remarks += _doubts(path, {answer.title for why in whys for answer in why.answers})
    own = [query for _, queries in asked for query in queries]
    whole = Why(whys[0].question, tuple(answer for why in whys for answer in why.answers), tuple(remarks))
    return Hidden(load_deployment(path).hide).why(own, whole)


def _different(read: Sequence[Arrivals]) -> int:
    """How many records were read: several groups may have got the same ones."""
    if len(read) < 2:
        return sum(map(len, read))
    parts = [each.table.select(list(_PLACE)).cast(pa.schema(_PLACE)) for each in read]
    return int(pa.concat_tables(parts).group_by(list(_PLACE)).aggregate([]).num_rows)


_PLACE = {"_source": pa.string(), "_partition": pa.int64(), "_offset": pa.int64()}


def _doubts(path: Path | str, titles: Collection[str] = ()) -> Iterator[str]:
    """What was not seen again as the job has seen it; `titles`: of the queries, () = all."""
    moved, unseen = dict[str, int](), dict[str, int]()
    for (title, source, what), count in sorted(status_of(path).ledger.items()):
        counts = moved if what == "before_clock" else unseen if what in _UNSEEN else None
        if counts is not None and (not titles or title in titles):
            counts[source] = max(count, counts.get(source, 0))  # several queries may have counted the same
    for source, count in unseen.items():
        yield (
            f"of '{source}', {counted(count, 'record')} or more that filters refused, or whose type no query reads, "
            "were left out: ask the files about one, `ensue why QUERY FILES --row N`"
        )
    for source, count in moved.items():
        yield (
            f"{counted(count, 'record')} or more of '{source}' arrived before the job's clock, and the job processed "
            "them at the clock; read again they have their own arrival, so what is said of them and near them may not "
            "be what the job has done"
        )


_UNSEEN = (Outcome.FILTERED.word, Outcome.UNRELATED.word)
"""What readers leave out, and only count."""


def _chosen(group: SeenGroup, query: str | None) -> list[QueryPlan]:
    return [item for item in group.plan.queries if query in (None, item.name, item.public_title)]


def _asking(group: SeenGroup) -> Asking:
    """Asks the records of a group, which are chosen by their offsets: many files have a row 3."""
    table = group.records.table
    arrival = group.records.system("arrival")
    ending = Ending(
        None if group.has_ended else group.clock, group.has_ended, int(arrival[-1]) if len(arrival) else None
    )
    offsets = group.records.system("offset").astype(np.int64)
    return Asking(Table(group.plan, table, ending, lambda *_: None, offsets))


def _of_match(group: SeenGroup, queries: Sequence[QueryPlan], match: str) -> Why | None:
    for query in queries:
        for table in group.matches.get(query.title, ()):
            ids = table.column("match_id").to_pylist()
            if match in ids:
                (row,) = table.slice(ids.index(match), 1).to_pylist(maps_as_pydicts="lossy")
                return with_causes(_asking(group).match(row, query), group.outputs, partial(_of_cause, group))
    return None


def _of_cause(group: SeenGroup, match: str) -> Why:
    """Why a match came that has routed an event: queries that feed each other are in one group."""
    found = _of_match(group, group.plan.queries, match)
    assert found is not None, "what has routed an event was seen, too"
    return found


def _of_row(group: SeenGroup, queries: Sequence[QueryPlan], row: int, source: str | None) -> Why | None:
    asking = _asking(group)
    places = sorted({asking.table.place(item)[:2] for item in asking.table.numbered(row, source)})
    if len(places) > 1:
        sources = {name for name, _ in places}
        names = sorted(sources) if len(sources) == len(places) else [f"{name}/{part}" for name, part in places]
        raise InputError(f"several records have the offset {row}: say with --source of which of {listed(names)}")
    if not places:
        return None
    return asking.row(row, source, queries, [name for name, _ in places])


def _have_key(group: SeenGroup, queries: Sequence[QueryPlan], key: Sequence[str]) -> bool:
    try:
        given = GivenKey.of_texts(key, group.plan) if key else None
    except InputError:  # another group has it
        return False
    return given is None or any(given.values_for(group.plan, query) is not None for query in queries)


def _of_key(group: SeenGroup, queries: Sequence[QueryPlan], key: Sequence[str], at: str | None) -> Why:
    given = GivenKey.of_texts(key, group.plan) if key else None
    own = [query for query in queries if given is None or given.values_for(group.plan, query) is not None]
    asking = _asking(group)
    moment = None if at is None else asking.moment(at)
    parts = ("key" if key else "", *key, f"at {at}" if at else "")
    return asking.key(given, moment, own, " ".join(part for part in parts if part))


class _AskingJob:
    """Answers from what was read of a job."""

    def __init__(self, deployment: Deployment, status: Status, state: JobState) -> None:
        self._deployment, self._status, self._state = deployment, status, state
        self._queries = {item.query: item for item in status.queries}
        self.remarks = [f"as of micro-batch {status.batch}; the job {'runs' if status.is_active else 'does not run'}"]

    # All keys.

    def of_all(self) -> Iterator[Explanation]:
        """What each query waits for, then what was discarded."""
        refused = self._refused()
        waiting = sum(bool(size.waits) for size in self._state.sizes)
        for size in self._state.sizes:
            query = self._queries.get(size.query)
            if query is not None:
                yield self._of_query(size, query, is_alone=waiting == 1)
            yield from refused.pop(size.query, ())
        for others in refused.values():
            yield from others

    def _of_query(self, size: QuerySize, query: QueryStatus, *, is_alone: bool) -> Explanation:
        """is_alone: whether no other query has matches that wait"""
        parts = []
        if size.waits:
            parts.append(counted(size.waits, "match waits", "matches wait"))
        if size.pending:
            parts.append(f"{counted(size.pending, 'event is', 'events are')} held until time is definitive")
        kept = size.events - size.pending
        tail = f"{counted(kept, 'event')} in windows, {counted(size.keys, 'key')}"
        if not parts and not query.is_behind:
            return _explanation(size.query, Became.NOT, f"nothing waits; {tail}: they may be part of a later match")
        due = self._status.next_due if size.waits and is_alone else None
        says = listed(parts) if parts else "records that were read are held back"
        return _explanation(
            size.query, Became.NOT_YET, f"{says}; {tail}", awaited=self._awaited("the next of them", due, query)
        )

    # One key.

    def of_key(self) -> Iterator[Explanation]:
        """What is kept of the key, query by query."""
        for key in self._state.keys or ():
            yield from self._of_key(key)
        if self._state.others:
            self.remarks.append(f"without such a key: {listed([f'`{title}`' for title in self._state.others])}")

    def _of_key(self, key: KeyState) -> Iterator[Explanation]:
        query = self._queries[key.title]
        pending = [event for event in key.events if event["status"] == "pending"]
        kept = [event for event in key.events if event["status"] != "pending"]
        own = {"instance": key.instance, "key": key.key}
        for wait in key.waits:
            events = tuple(_event(event, name) for name, event in wait["members"].items())
            awaited = self._awaited("the end of its `wait`", _micros(wait["due"]), query, key.definitive)
            says = "this match waits, unless something ends its `wait`"
            yield _explanation(key.query, Became.NOT_YET, says, events=events, awaited=awaited, **own)
        for event in pending:
            awaited = self._awaited("its time to be definitive", _micros(event["time"]), query, key.definitive)
            says = "it is held until its time is definitive; no search has seen it yet"
            yield _explanation(key.query, Became.NOT_YET, says, event=_event(event), awaited=awaited, **own)
        for event in key.held:
            awaited = self._awaited("sources that are behind", _micros(event["arrival"]), query, key.definitive)
            says = "it was read, and is held until slower sources have been read as far"
            yield _explanation(key.query, Became.NOT_YET, says, event=_event(event), awaited=awaited, **own)
        if kept:
            first = min((event["until"] for event in kept if event["until"] is not None), default=None)
            until = "" if first is None else f"; the first leaves its window when time reaches {short_time(first)}"
            says = f"{counted(len(kept), 'event')} in windows may be part of a later match{until}"
            yield _explanation(key.query, Became.NOT, says, candidates=(), **own)
            self._says_where(key.title)
        elif not (pending or key.waits or key.held):
            says = "nothing is kept of this key: no record of it came, or its events have left their windows"
            yield _explanation(key.query, Became.NOT, says, **own)

    def _says_where(self, title: str) -> None:
        """The way to why events in windows have not matched: the job keeps no searches."""
        text = (
            f"why events in windows of {title} have not matched: `ensue why JOB --key KEY --at TIME` reads again what "
            "was read"
        )
        if text not in self.remarks:
            self.remarks.append(text)

    # What holds time back.

    def _awaited(self, what: str, due: int | None, query: QueryStatus, definitive: str | None = None) -> Awaited:
        watermark = query.definitive if query.definitive is not None and query.definitive < LATEST else None
        shown = definitive if definitive is not None else None if watermark is None else format_time(watermark)
        held_by, setting = self._held_by(query)
        latest = None if due is None or query.delay is None else format_time(min(LATEST, due + query.delay))
        return Awaited(
            what=what,
            due=None if due is None else format_time(due),
            watermark=shown,
            held_by=held_by,
            latest=latest,
            setting=setting,
        )

    def _held_by(self, query: QueryStatus) -> tuple[str, str]:
        """What holds a query's time back and since when, and the setting that would let it go."""
        if query.clock is None or query.is_behind:
            names = query.waits_for
            places = [self._since(item) for item in self._status.sources if _place(item) in names]
            known = {_place(item) for item in self._status.sources}
            places += [f"{name}, of which no record has come" for name in names if name not in known]
            if places:
                sources = sorted({item.source for item in self._status.sources if _place(item) in names})
                which = f" of {listed([f'`{name}`' for name in sources])}" if sources else ""
                return listed(places), f"`idle`{which}: how long it may be silent before time advances without it"
        slow = [line for line in query.timelines if line.holds_back]
        if slow:
            shown = [
                f"timeline {HIDDEN if self._deployment.hide else line.timeline}, whose watermark is {'not known' if line.bound is None else _shown(line.bound)}"
                for line in slow[:MOST_ROWS]
            ]
            return listed(shown), "`idle` of its source, or a record of that timeline"
        clock = "not known" if query.clock is None else _shown(query.clock)
        behind = "" if not query.delay else f"; its time is {duration_text(query.delay)} behind that, by its waits"
        return (
            f"its clock, which is {clock}: no later record has been read{behind}",
            "a later record of any key, a heartbeat, or `idle`",
        )

    def _since(self, item: SourceStatus) -> str:
        if item.arrival is None:
            return f"{_place(item)}, of which no record has come"
        silent = "" if not item.silent else f", and nothing since for {duration_text(item.silent)}"
        return f"{_place(item)}, whose last record arrived at {_shown(item.arrival)}{silent}"

    # What was discarded.

    def _refused(self) -> dict[str, list[Explanation]]:
        """By query: what was discarded, by reason; with records of the sink."""
        counts: dict[tuple[str, str], dict[str, int]] = defaultdict(dict)
        for (query, source, what), count in sorted(self._status.ledger.items()):
            if what in DISCARDS and count:
                counts[query, what][source] = count
        rows = self._rows() if counts else {}
        found: dict[str, list[Explanation]] = defaultdict(list)
        for (query, what), by_source in counts.items():
            sources = listed([f"{count} of `{source}`" for source, count in by_source.items()])
            says = f"discarded as {what}: {sources}"
            found[query].append(_explanation(query, Became.REFUSED, says, reason=Reason(what, "", says)))
            found[query] += rows.get((query, what), ())
        return found

    def _rows(self) -> Mapping[tuple[str, str], list[Explanation]]:
        """The first records of the sink, by query and reason."""
        sink = self._deployment.sinks.get(_DISCARDED)
        if sink is None:
            self.remarks.append(
                f"which records were discarded: the deployment has no sink `{_DISCARDED}` that keeps them"
            )
            return {}
        if getattr(sink, "folder", None) is None:
            self.remarks.append(f"which records were discarded: read the sink `{_DISCARDED}`, {sink.format}")
            return {}
        found: dict[tuple[str, str], list[Explanation]] = defaultdict(list)
        read = 0
        for row in islice(publishing(sink).rows(sink, sink.folder), MOST_READ):
            read += 1
            own = found[row.get("query") or "", row["reason"]]
            if len(own) < MOST_ROWS:
                own.append(_discarded(row))
        if read == MOST_READ:
            self.remarks.append(f"only the first {MOST_READ:,} rows of the sink `{_DISCARDED}` were read")
        return found


def _explanation(query: str, became: Became, says: str, **more: Any) -> Explanation:
    """An answer without what it does not have."""
    return Explanation(became, query, more.pop("instance", ""), more.pop("key", {}), says, **more)


def _place(item: SourceStatus) -> str:
    return place_name(item.source, item.partition)


def _shown(moment: int) -> str:
    return short_time(format_time(moment))


def _micros(text: str | None) -> int | None:
    return None if text is None else parse_time(text)


def _event(event: Mapping[str, Any], name: str = "") -> EventAt:
    """An event of the state, as `ensue state` has it."""
    fields = event["fields"]
    shown = ", ".join(f"{field} {value}" for field, value in fields.items())
    return EventAt(
        name=name,
        event=event["event"],
        source=event["source"],
        partition=event["partition"],
        offset=event["offset"],
        row=None,
        time=event["time"],
        source_time=None,
        arrival=event["arrival"],
        fields=fields,
        text=f"{event['event']}({shown})",
    )


def _discarded(row: Mapping[str, Any]) -> Explanation:
    """A record of the sink of discarded records: which bound refused it, and by how much."""
    times = {name: _moment(row.get(name)) for name in ("source_time", "arrival", "bound")}
    record = EventAt(
        name="",
        event=row.get("event") or "",
        source=row.get("source") or "",
        partition=row.get("partition") or 0,
        offset=row.get("offset") or 0,
        row=None,
        time=None,
        source_time=_text(times["source_time"]),
        arrival=_text(times["arrival"]),
        fields={},
        text=str(row.get("text") or ""),
    )
    says, by = row["reason"], None
    happened, arrived, bound = times["source_time"], times["arrival"], times["bound"]
    if happened is not None and bound is not None and arrived is not None and bound > happened:
        by = (bound - happened) / 1_000_000
        behind = duration_text(max(0, arrived - happened))
        says = (
            f"{row['reason']}: it arrived {behind} after it happened; "
            f"the bound was {_shown(bound)}, {duration_text(bound - happened)} after it"
        )
        if row["reason"] == "late":
            says += f"; what lets it in is a `wait`, or a delay of its ordering policy, of {behind}"
    return _explanation(
        row.get("query") or "", Became.REFUSED, says, event=record, reason=Reason(row["reason"], "", says, by=by)
    )


def _moment(value: Any) -> int | None:
    """A time of a sink, whatever its format keeps: µs."""
    return None if value in (None, "") else parse_time(str(plain_value(value)))


def _text(moment: int | None) -> str | None:
    return None if moment is None else format_time(moment)
