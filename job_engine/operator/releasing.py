"""Release a bucket's records, or hold them until slower sources catch up; forget those of keys.

Held records are counted as received and pending. When one is released, both counts are reversed,
because its engine counts it from then on.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from job_engine.operator.bucket_state import BucketState
from job_engine.operator.clocks import ReleaseLimits
from job_engine.operator.epoch_records import QueriesAt
from job_engine.operator.ordering import FORGET, OrderedRecords, tagged_answers
from job_engine.operator.reading import Visit
from job_engine.wire.packed_rows import BucketInput, GroupRecords
from job_engine.wire.partition_groups import PartitionGroup
from job_engine.wire.tagged_rows import TaggedRow
from querylang.dataclass import dataclass, field, replace
from querylang.plan.model import QueryPlan
from runtime.admission import Outcome
from runtime.columns.arrivals import Arrivals
from runtime.columns.keys import GivenKey, have_key
from runtime.instants import NEVER
from runtime.json_reader import json_of_text
from runtime.results.ledger import RECEIVED, Account, ledger_table
from runtime.results.schemas import Results


@dataclass(frozen=True, slots=True)
class Released:
    """What a step may process.

    records: in order of the ranks of their sources
    state: with the clock after the micro-batch, and the records that are held
    answers: to commands that forget keys
    results: counts of what is held and forgotten
    """

    records: tuple[GroupRecords, ...]
    state: BucketState
    answers: tuple[TaggedRow, ...]
    results: tuple[Results, ...]


def release(visit: Visit, before: BucketState, inputs: Sequence[BucketInput], ordered: OrderedRecords) -> Released:
    """Forget keys that commands name, then divide what is held and new; engines change in place."""
    queries_at = QueriesAt.of(visit.program, visit.groups)
    forgotten = _forget_keys(visit, before, inputs, queries_at)
    limits = [turn.limits for turn in ordered.turns]
    released, held = _split_released([*forgotten.held, *ordered.records], limits, visit.program.topic_sources)
    after = replace(before, clock=ordered.clock, held=queries_at.counted(held), owed=())
    counts = held_ledger(queries_at, before.held, after.held, is_home=visit.is_home)
    forgotten.account.update({(query, source, word): count for query, source, word, count in before.owed})
    results = (Results(ledger=ledger_table(forgotten.account)), Results(ledger=counts))
    return Released(released, after, tuple(tagged_answers(forgotten.answers)), results)


def _split_released(
    records: Iterable[GroupRecords], limits: Sequence[ReleaseLimits], topic_sources: Collection[str] = ()
) -> tuple[tuple[GroupRecords, ...], tuple[GroupRecords, ...]]:
    """The released records in order of their sources' ranks, and the records to hold.

    limits: per partition group
    topic_sources: as in `Program`

    The held records of one source, group and kind are joined.
    """
    released: list[GroupRecords] = []
    held: dict[tuple[int, bool, str, int, bool], list[GroupRecords]] = {}
    for item in sorted(records, key=attrgetter("rank")):
        by_topic = item.source in topic_sources
        limit = limits[item.group].released_before(item.source, item.arrivals, by_topic=by_topic)
        is_unlimited = isinstance(limit, int) and limit == NEVER
        is_released = None if is_unlimited else item.arrivals.system("arrival") < limit
        if is_released is None or is_released.all():
            released.append(item)
            continue
        if is_released.any():
            released.append(item.chosen(is_released))
        kind = (item.group, item.is_copy, item.source, item.rank, item.refuses)
        held.setdefault(kind, []).append(item.chosen(~is_released))
    joined = [replace(some[0], arrivals=Arrivals.concat([item.arrivals for item in some])) for some in held.values()]
    return tuple(released), tuple(joined)


def held_ledger(
    queries: QueriesAt, before: Sequence[GroupRecords], after: Sequence[GroupRecords], *, is_home: bool
) -> pa.Table:
    """Ledger changes for held records: received and pending.

    When it is released, both counts are reversed, because its engine counts it from then on.
    """
    account: Account = Account()
    for records, sign in ((before, -1), (after, 1)):
        for item in records:
            if item.is_copy and not is_home:
                continue
            for own, titles in queries.of_counted(item):
                for source in pc.value_counts(own.table.column("_source")).to_pylist():
                    for title in titles:
                        for word in ("received", "pending"):
                            account[title, source["values"], word] += sign * source["counts"]
    return ledger_table(account)


@dataclass(slots=True)
class _Forgotten:
    """What a bucket has forgotten.

    held: the records that it still holds
    account: changes of the ledger
    answers: one per command
    """

    held: tuple[GroupRecords, ...]
    account: Account = field(default_factory=Counter)
    answers: list[dict[str, Any]] = field(default_factory=list)


def _forget_keys(visit: Visit, state: BucketState, inputs: Sequence[BucketInput], queries_at: QueriesAt) -> _Forgotten:
    """Carry out the commands of this kind, before any record; engines change in place."""
    found, buckets = _Forgotten(state.held), visit.program.buckets
    for command in (command for row in inputs for command in row.commands if command["kind"] == FORGET):
        key = given_key(command)
        counts = Counter[str]()
        for group, engine in zip(visit.groups, state.engines, strict=True):
            for values, queries in key.by_queries(visit.plan, engine.plan.queries):
                for query in queries:
                    contents, account = engine.forget_key(query.title, values)
                    found.account.update(account)
                    counts["events"] += len(contents.events)
                    counts["waits"] += contents.wait_count
                    counts += Counter({"values": contents.values})
            # a record that waits may be one of a query that begins later
            for values, queries in key.by_queries(
                visit.plan, engine.plan.queries + group.plan.queries or [group.query]
            ):
                counts["held"] += _forget_held(found, group, queries[0], values, queries_at)
        known = {
            "number": command["number"],
            "part": str(visit.bucket % buckets),
            "of": buckets,
            "kind": "forgotten",
            "time": None,
        }
        found.answers.append(known | {"count": counts.total(), "text": json.dumps(counts)})
    return found


def given_key(command: Mapping[str, Any]) -> GivenKey:
    """The key of a command."""
    return GivenKey(json_of_text(command["text"], dict[str, dict[str, Any]])["key"])


def _forget_held(
    found: _Forgotten, group: PartitionGroup, query: QueryPlan, values: Sequence[pa.Scalar], queries_at: QueriesAt
) -> int:
    """Remove the held records of a query's key: received, and forgotten before they are used.

    Queries of one group that have other keys do not get them either.
    """
    held, count = [], 0
    for item in found.held:
        table = item.arrivals.table
        if item.group != group.number or item.is_copy or not len(table):
            held.append(item)
            continue
        kinds = item.arrivals.system("kind").astype(np.int64)
        is_own = have_key(table, kinds, group.plan, query, values)
        forgotten = item.chosen(is_own)
        _count_forgotten(found.account, forgotten, queries_at)
        count += len(forgotten.arrivals)
        if not is_own.all():
            held.append(item.chosen(~is_own))
    found.held = tuple(held)
    return count


def _count_forgotten(account: Account, records: GroupRecords, queries_at: QueriesAt) -> None:
    """Count held records for the queries of their own epochs, which would have counted them."""
    records = queries_at.counted([records])[0] if records.counted == () else records
    for arrivals, titles in queries_at.of_counted(records):
        for source in pc.value_counts(arrivals.table.column("_source")).to_pylist():
            for title in titles:
                for word in (RECEIVED, Outcome.FORGOTTEN.word):
                    account[title, source["values"], word] += source["counts"]
