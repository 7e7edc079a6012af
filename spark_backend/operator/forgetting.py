"""Let a bucket forget keys: in its engines, and among the records that it holds."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from querylang.plan.model import Plan
from runtime.admission.outcomes import Outcome
from runtime.columns.given_keys import GivenKey, is_of_key
from runtime.columns.keys import key_columns
from runtime.json_reader import json_of_text
from runtime.results.ledger import RECEIVED, Account, ledger_table
from spark_backend.operator.bucket_state import BucketState
from spark_backend.operator.commands import FORGET, tagged_answers
from spark_backend.operator.epoch_records import QueriesAt
from spark_backend.wire.packed_rows import BucketInput, GroupRecords
from spark_backend.wire.partition_groups import PartitionGroup
from spark_backend.wire.tagged_rows import TaggedRow


@dataclass(slots=True)
class Forgotten:
    """What a bucket has forgotten.

    held: the records that it still holds
    account: changes of the ledger
    answers: one per command
    """

    held: tuple[GroupRecords, ...]
    account: Account = field(default_factory=Counter)
    answers: list[dict[str, Any]] = field(default_factory=list)

    @property
    def ledger(self) -> pa.Table:
        """The changes as a table."""
        return ledger_table(self.account)

    def rows(self) -> list[TaggedRow]:
        """The answers."""
        return tagged_answers(self.answers)


def forget_keys(
    plan: Plan,
    groups: Sequence[PartitionGroup],
    state: BucketState,
    inputs: Sequence[BucketInput],
    bucket: int,
    buckets: int,
    queries_at: QueriesAt,
) -> Forgotten:
    """Carry out the commands of this kind, before any record; engines change in place."""
    found = Forgotten(state.held)
    for command in (command for row in inputs for command in row.commands if command["kind"] == FORGET):
        key = given_key(command)
        counts = Counter[str]()
        for group, engine in zip(groups, state.engines, strict=True):
            values = key.values_for(plan, group.query)
            if values is None:
                continue
            for query in engine.plan.queries:
                contents, account = engine.forget_key(query.title, values)
                found.account.update(account)
                counts["events"] += len(contents.events)
                counts["waits"] += contents.wait_count
            counts["held"] += _forget_held(found, group, values, queries_at)
        known = {"number": command["number"], "part": str(bucket), "of": buckets, "kind": "forgotten", "time": None}
        found.answers.append(known | {"count": counts.total(), "text": json.dumps(counts)})
    return found


def given_key(command: Mapping[str, Any]) -> GivenKey:
    """The key of a command."""
    return GivenKey(json_of_text(command["text"], dict[str, dict[str, Any]])["key"])


def _forget_held(found: Forgotten, group: PartitionGroup, values: Sequence[pa.Scalar], queries_at: QueriesAt) -> int:
    """Remove the held records of a key: received, and forgotten before they are used."""
    held, count = [], 0
    for item in found.held:
        table = item.arrivals.table
        if item.group != group.number or item.is_copy or not len(table):
            held.append(item)
            continue
        kinds = item.arrivals.system("kind").astype(np.int64)
        is_own = is_of_key(key_columns(table, kinds, group.plan, group.query), values)
        forgotten = replace(item, arrivals=item.arrivals.take(np.flatnonzero(is_own)))
        _count_forgotten(found.account, forgotten, queries_at)
        count += len(forgotten.arrivals)
        if not is_own.all():
            held.append(replace(item, arrivals=item.arrivals.take(np.flatnonzero(~is_own))))
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
