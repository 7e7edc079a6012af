"""What a job keeps of a key, and how it forgets one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from job_engine.clock import sleep
from job_engine.deployment import Deployment
from job_engine.deployment_file import load_deployment
from job_engine.errors import in_plain_words
from job_engine.job.checkpoint.job_folder import JobFolder
from job_engine.job.commands import LOOK, Sent, send_command
from job_engine.job.forgotten_rows import ask_for_rows, has_requests
from job_engine.job.history.running import HistoryReading
from job_engine.job.journal import HistoryCommand
from job_engine.job.plan_rules import refuse_unknown_fields
from job_engine.job.upkeep.opened_checkpoint import Opened, open_checkpoint, saved_states
from job_engine.operator.bucket_state import BucketState, open_state
from job_engine.operator.history_run import SeenRun
from job_engine.operator.step import SeenStep
from job_engine.sinks.kinds import sink_kind
from job_engine.sources.kinds import kind_of
from job_engine.sources.listing.command_folder import FORGET, Outcome, key_text
from job_engine.wire.clock_sources import Clock
from job_engine.wire.gathering import gathered_anew
from job_engine.wire.packed_rows import COMMANDS, CONTROL, GroupRecords
from job_engine.wire.partition_groups import PartitionGroup
from job_engine.wire.program import Program
from querylang.dataclass import asdict, dataclass, replace
from querylang.errors import InputError
from querylang.plan.model import Plan, QueryPlan
from runtime.column_types import has_column
from runtime.columns.arrivals import Arrivals, column_name
from runtime.columns.keys import INPUT, GivenKey, KeyValues, bucket_of_key, have_key, key_cells
from runtime.engine import Engine, KeyContents
from runtime.instants import NEVER, NO_TIME
from runtime.json_reader import json_of_text
from runtime.json_shapes import Count
from runtime.matching.windows import window_columns
from runtime.results.for_users import column_cells, plain_value
from runtime.results.schemas import OUTPUT_SCHEMA
from runtime.timestamps import format_time
from runtime.why import HIDDEN, Hidden

# What a job has read, as its engines got it: read again, without a change in the job.


@dataclass(frozen=True, slots=True)
class SeenGroup:
    """What the engines of queries with equal keys have got of all that a job has read.

    plan: these queries
    records: in order of arrival
    clock: where their time is, µs
    has_ended: whether time was advanced to its end behind the records
    matches: by query title
    outputs: what matches of all groups have written
    """

    plan: Plan
    records: Arrivals
    clock: int | None
    has_ended: bool
    matches: Mapping[str, Sequence[pa.Table]]
    outputs: pa.Table


MOST_SEEN = 2_000_000
"""Records that are read again at most, of all queries together."""


def seen_again(path: Path | str) -> list[SeenGroup]:
    """Read again what a deployment's job has read; by partition group.

    Raises InputError if not all of it can be read, or if its queries have changed meanwhile.
    """
    deployment = load_deployment(path)
    with in_plain_words(deployment.environment):
        opened = _opened(deployment)
        _refuse_unseen(opened)
        program = _in_one_bucket(replace(opened.program.without_idle(), seeds=None))
        seeing = _Seeing(program.groups())
        titles = tuple(query.title for query in program.plan().queries)
        reading = HistoryReading(opened.deployment, program, titles, HistoryCommand("", "", None))
        has_ended = reading.show(SeenRun(program, seeing.see), opened.folder.last_progress().clock)
        return [seeing.of(group, has_ended=has_ended) for group in program.groups()]


def _opened(deployment: Deployment) -> Opened:
    """The checkpoint, to be shown; raises InputError, too, if it is not clear what to hide."""
    opened = open_checkpoint(deployment)
    refuse_unknown_fields(deployment, opened.program.plan())
    return opened


def _refuse_unseen(opened: Opened) -> None:
    program, way_out = opened.program, "ask files of its sources: `ensue why QUERY FILES`"
    if program.clock is Clock.PROCESSING:
        raise InputError(f"with `clock: processing` records arrive when they are read, and not again; {way_out}")
    if program.epochs:
        raise InputError(
            f"its queries were changed while it ran, and were others when it read its first records; {way_out}"
        )
    if any(query.tables for query in program.plan().queries):
        raise InputError(f"its queries look something up in tables beside the stream; {way_out} with `--table`")


def _in_one_bucket(program: Program) -> Program:
    """The program with queries that feed each other across keys in one bucket, as Spark has them.

    They give the same, and what they route is followed within one engine.
    """
    if program.routing() is None:
        return program
    gathered = gathered_anew(program.plan(), program.sources)
    return replace(program, gathered=gathered, crosses=False)


class _Seeing:
    """Notes what engines get."""

    def __init__(self, groups: Sequence[PartitionGroup]) -> None:
        self._records: dict[int, list[Arrivals]] = {group.number: [] for group in groups}
        self._matches: dict[str, list[pa.Table]] = {}
        self._outputs: list[pa.Table] = [OUTPUT_SCHEMA.empty_table()]
        self._clocks: dict[int, int] = {}
        self._count = 0

    def see(self, bucket: int, seen: SeenStep) -> None:
        """A step of a bucket."""
        for number, records in enumerate(seen.records):
            # what all buckets have counts once
            own = [item.arrivals for item in records if not bucket or not _is_everywhere(item)]
            self._count += sum(map(len, own))
            self._records[number] += own
            clock = seen.clocks[number]
            if clock is not None:
                self._clocks[number] = max(clock, self._clocks.get(number, NO_TIME))
        if self._count > MOST_SEEN:
            raise InputError(
                f"the job has read more than {MOST_SEEN:,} records, which are not read again for one answer; "
                "ask files of its sources: `ensue why QUERY FILES`"
            )
        self._outputs += seen.outputs
        for matches in seen.matches:
            for title, table in matches.items():
                self._matches.setdefault(title, []).append(table)

    def of(self, group: PartitionGroup, *, has_ended: bool) -> SeenGroup:
        """What the engines of a group have got."""
        records = Arrivals.concat(self._records[group.number] or [Arrivals.empty(group.plan)])
        order = np.argsort(records.system("arrival"), kind="stable")
        titles = {query.title for query in group.plan.queries}
        matches = {title: tables for title, tables in self._matches.items() if title in titles}
        outputs = pa.concat_tables(self._outputs)
        return SeenGroup(group.plan, records.take(order), self._clocks.get(group.number), has_ended, matches, outputs)


def _is_everywhere(item: GroupRecords) -> bool:
    return item.is_copy or item.source in (CONTROL, COMMANDS)


# What a job keeps of a key, and what waits there, until when; or of all keys, as numbers.

Plain = dict[str, Any]


@dataclass(frozen=True, slots=True)
class KeyState:
    """What is kept of a key for one query; times are ISO text.

    definitive: definitive time of the key; None = none yet
    events: in windows or pending, by time: `status`, and `until` which definitive time they stay;
        None = until something else evicts them
    waits: pending matches: `due`, and their members by name
    held: records that slower sources hold back, which the queries of equal keys have in common
    values: those that a clause stores: `clause`, `values` by their text, the latest `time`,
        and `until` which definitive time it matters
    """

    query: str
    instance: str
    key: Plain
    definitive: str | None
    events: Sequence[Plain]
    waits: Sequence[Plain]
    held: Sequence[Plain]
    values: Sequence[Plain] = ()

    @property
    def title(self) -> str:
        """The public title of the query."""
        return f"{self.query}/{self.instance}" if self.instance else self.query

    def to_plain(self) -> Plain:
        """As JSON can hold it; `values` only if there is something."""
        return {name: value for name, value in asdict(self).items() if name != "values" or value}


@dataclass(frozen=True, slots=True)
class QuerySize:
    """How much is kept of a query.

    keys: those with state, estimated where there are many
    events: in windows or pending
    values: that clauses store; None = none of the query does
    """

    query: str
    keys: int
    events: int
    pending: int
    waits: int
    values: int | None = None

    def to_plain(self) -> Plain:
        """As JSON can hold it; `values` only where there are some."""
        return {name: value for name, value in asdict(self).items() if value is not None}


@dataclass(frozen=True, slots=True)
class JobState:
    """The state of a job after a micro-batch.

    keys: of the key that was asked for, by query; None = none was
    others: titles of queries that have no such key
    sizes: of all keys, if none was asked for
    """

    batch: int | None
    keys: Sequence[KeyState] | None
    others: Sequence[str] = ()
    sizes: Sequence[QuerySize] = ()

    def to_plain(self) -> Plain:
        """As JSON can hold it."""
        if self.keys is None:
            return {"batch": self.batch, "queries": [size.to_plain() for size in self.sizes]}
        return {"batch": self.batch, "queries": [key.to_plain() for key in self.keys], "others": list(self.others)}


def job_state(path: Path | str, key: Sequence[str] = ()) -> JobState:
    """The state of a deployment's job, whether it runs or not.

    key: texts as in `GivenKey`; none = how much is kept of all
    Raises InputError.
    """
    deployment = load_deployment(path)
    with in_plain_words(deployment.environment):
        opened = _opened(deployment)
        found = opened.folder.progress.readable()[0]
        batch = None if found is None else found[0]
        if not key:
            return JobState(batch, None, sizes=_sizes(opened))
        plan = opened.program.plan()
        given = GivenKey.of_texts(key, plan)
        others = [query.title for query in plan.queries if given.values_for(plan, query) is None]
        hidden, queries = Hidden(deployment.hide), {(item.name, item.instance): item for item in plan.queries}
        keys = [_shown(hidden, queries[key.query, key.instance], key) for key in _keys(opened, given)]
        return JobState(batch, keys, others)


def _shown(hidden: Hidden, query: QueryPlan, key: KeyState) -> KeyState:
    """The state of a key without what the deployment hides."""
    if not hidden:
        return key

    def event(item: Plain) -> Plain:
        return item | {"fields": hidden.fields(item["event"], item["fields"])}

    waits = [
        wait | {"members": {name: event(member) for name, member in wait["members"].items()}} for wait in key.waits
    ]
    return replace(
        key,
        key=hidden.key(query, key.key),
        events=list(map(event, key.events)),
        waits=waits,
        held=list(map(event, key.held)),
        values=[item | {"values": dict.fromkeys(item["values"], HIDDEN)} for item in key.values],
    )


def _sizes(opened: Opened) -> list[QuerySize]:
    total: dict[str, Counter[str]] = {query.title: Counter() for query in opened.program.plan().queries}
    for bucket, data in saved_states(opened):
        for engine in open_state(opened.program, bucket, data).engines:
            for title, counts in engine.sizes().items():
                total[title].update(counts)
    return [
        QuerySize(
            title, counts["keys"], counts["events"], counts["pending"], counts["waits"], values=counts.get("values")
        )
        for title, counts in total.items()
    ]


def _keys(opened: Opened, given: GivenKey) -> list[KeyState]:
    program, plan = opened.program, opened.program.plan()
    by_bucket: dict[int, list[tuple[PartitionGroup, KeyValues]]] = {}
    for group in program.groups():
        for values, _ in given.by_queries(plan, group.plan.queries or [group.query]):
            only = group.only_bucket(program.buckets)
            bucket = bucket_of_key(values, program.buckets) if only is None else only
            by_bucket.setdefault(bucket, []).append((group, values))
    found: dict[tuple[int, int], list[KeyState]] = {}
    states = dict(saved_states(opened, list(by_bucket)))
    for bucket, groups in by_bucket.items():
        state = open_state(program, bucket, states.get(bucket))
        for group, _ in groups:
            found[group.number, bucket] = _of_group(plan, group, state, given)
    titles = {query.public_title: place for place, query in enumerate(plan.queries)}
    keys = [key for some in found.values() for key in some]
    return sorted(keys, key=lambda key: titles[key.title])


def _of_group(plan: Plan, group: PartitionGroup, state: BucketState, given: GivenKey) -> list[KeyState]:
    engine = state.engines[group.number]
    found = []
    for values, queries in given.by_queries(plan, engine.plan.queries):
        held = _held(group, queries[0], state, values)
        found += [_of_query(plan, query, engine, values, held) for query in queries]
    return found


def _of_query(
    plan: Plan, query: QueryPlan, engine: Engine, values: Sequence[pa.Scalar], held: Sequence[Plain]
) -> KeyState:
    contents = engine.key_contents(query.title, values)
    plain = tuple(value.as_py() for value in values)
    definitive = engine.definitive(query.title, plain)
    return KeyState(
        query.name,
        query.instance,
        {key.name: plain_value(value) for key, value in zip(query.keys, key_cells(query, plain), strict=True)},
        None if definitive is None else format_time(definitive),
        _events(plan, query, contents.events),
        _waits(plan, query, contents.waits),
        held,
        list(_values(contents)),
    )


def _values(contents: KeyContents) -> Iterator[Plain]:
    for item in contents.clauses:
        for values, time in item.times:
            named = dict(zip(item.names, map(plain_value, values), strict=True))
            yield {"clause": item.clause, "values": named, "time": _time(time), "until": _time(time + item.length)}


def _events(plan: Plan, query: QueryPlan, table: pa.Table) -> list[Plain]:
    by_type = {item.event: place for place, item in enumerate(query.inputs)}
    reach = window_columns(query).reach.tolist()
    found = []
    for event, row in zip(_plain_events(plan, table), table.to_pylist(), strict=True):
        place = row[INPUT.name] if INPUT.name in row else by_type[event["event"]]
        until = None if row["_pending"] or reach[place] >= NEVER else format_time(row["_time"] + reach[place])
        buffer = None if row["_ripe"] == NO_TIME or not row["_pending"] else _time(row["_ripe"])
        status = {"status": "pending" if row["_pending"] else "kept", "until": until, "reorder_until": buffer}
        role = {"role": query.inputs[place].role} if INPUT.name in row else {}
        found.append(event | role | status)
    return found


def _waits(plan: Plan, query: QueryPlan, table: pa.Table) -> list[Plain]:
    waits: dict[int, Plain] = {}
    for event, row in zip(_plain_events(plan, table), table.to_pylist(), strict=True):
        wait = waits.setdefault(row["_wait"], {"due": _time(row["_due"]), "members": {}})
        wait["members"][query.terms[row["_term"]].name] = event
    return sorted(waits.values(), key=lambda wait: str(wait["due"]))


def _held(group: PartitionGroup, query: QueryPlan, state: BucketState, values: KeyValues) -> list[Plain]:
    found = []
    for item in state.held:
        table = item.arrivals.table
        if item.group == group.number and len(table):
            kinds = item.arrivals.system("kind").astype(np.int64)
            is_own = have_key(table, kinds, group.plan, query, values) & (kinds >= 0)
            found += _plain_events(group.plan, table.filter(pa.array(is_own)))
    return sorted(found, key=lambda event: str(event["arrival"]))


def _plain_events(plan: Plan, table: pa.Table) -> list[Plain]:
    """The rows of a table of events, in its order."""
    times = table.column("_time" if has_column(table, "_time") else "_source_time").to_pylist()
    rows = [table.column(name).to_pylist() for name in ("_kind", "_arrival", "_source", "_partition", "_offset")]
    columns = {name: column_cells(table.column(name)) for name in table.column_names if ":" in name}
    found = []
    for number, (time, kind, arrival, source, partition, offset) in enumerate(zip(times, *rows, strict=True)):
        event = plan.events[kind]
        names = {field.name: column_name(field.name, field.type) for field in event.fields}
        fields = {name: plain_value(columns[key][number]) for name, key in names.items() if key in columns}
        place = {"source": source, "partition": partition, "offset": offset}
        found.append({"event": event.name, "time": _time(time), "arrival": _time(arrival), **place, "fields": fields})
    return found


def _time(micros: int) -> str | None:
    return None if micros == NO_TIME or micros >= NEVER else format_time(micros)


# Let a job forget a key, and tell where the key remains.


@dataclass(frozen=True, slots=True)
class Forgetting:
    """What becomes of a key.

    sent: the command, and its outcome if the job has carried it out
    removed: numbers of events, of waits, and of records that were held; empty = not known yet
    others: titles of queries that have no such key, and may keep its events under other keys
    remains: where records of the key may be, which no job changes
    tables: names of tables beside the stream whose past rows of the key are removed
    are_rows_gone: whether that has been done; else the next start does it
    """

    sent: Sent
    removed: Mapping[str, int]
    others: Sequence[str]
    remains: Sequence[str]
    tables: Sequence[str] = ()
    are_rows_gone: bool = False


def forget(path: Path | str, key: Sequence[str], *, wait: bool = True) -> Forgetting:
    """Let a job forget a key, at once or at its next start; raises InputError."""
    deployment = load_deployment(path)
    with in_plain_words(deployment.environment):
        plan = open_checkpoint(deployment).program.plan()
        given = GivenKey.of_texts(key, plan)
        tables = ask_for_rows(deployment.checkpoint, plan, given)
        sent = send_command(deployment, key_text(given.parts), kind=FORGET, wait=wait)
        others = [query.title for query in plan.queries if given.values_for(plan, query) is None]
        are_gone = bool(tables) and wait and _waited_for_rows(deployment)
        return Forgetting(sent, _removed(sent.outcome), others, list(_remains(deployment)), tables, are_gone)


def _waited_for_rows(deployment: Deployment) -> bool:
    """Wait while the job runs until it has removed rows of tables; whether it has."""
    lock = JobFolder(deployment.checkpoint).lock()
    while has_requests(deployment):
        if not lock.is_held():
            return False
        sleep(LOOK)
    return True


def _removed(outcome: Outcome | None) -> Mapping[str, int]:
    total = Counter[str]()
    for answer in () if outcome is None else outcome.answers.values():
        if answer.kind == "forgotten":
            total.update(json_of_text(answer.text, dict[str, Count]))
    return total


def _remains(deployment: Deployment) -> list[str]:
    """What is not touched: results, sources, and what the driver keeps of earlier micro-batches."""
    sinks = [
        f"results of the sink '{name}': {sink_kind(sink.format).shown(sink)}" for name, sink in deployment.sinks.items()
    ]
    sources = [
        f"records of the source '{source.name}': {kind_of(source.format).shown(source)}"
        for source in deployment.sources
    ]
    older = f"states of up to 100 earlier micro-batches, until they are removed: {deployment.checkpoint}"
    tables = [f"rows that the table '{name}' has now: {file.path}" for name, file in deployment.tables.items()]
    return [*sinks, *sources, *tables, older]
