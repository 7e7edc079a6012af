"""Sources that are put in order by a policy of their own: what keys share is in one bucket, and gives what one engine gives."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from job_engine.wire.gathering import own_name
from job_engine.wire.packed_rows import Signal, pack_arrivals, unpack_row
from job_engine.wire.partition_groups import describe_pushdown, partition_groups, shared_order
from job_engine.wire.program import Program
from job_engine.wire.tagged_rows import Tag
from querylang.plan.model import Plan
from runtime.columns.arrivals import Arrivals
from runtime.engine.engine import Engine
from tests.spark_backend.samples import POLICIES, SECOND, SEVERAL, arrivals_of, ordered, places
from tests.support.buckets import Stream, rows_of, unevenly
from tests.support.embedded import embedded, summary


@pytest.mark.parametrize("name", POLICIES)
def test_every_policy_gives_what_one_engine_gives(name: str) -> None:
    plan, arrivals = ordered(POLICIES[name]), places(1200)
    stream = Stream(Program.of(plan, buckets=3))
    batches = unevenly(arrivals, 5)
    for number, parts in enumerate(batches):
        stream.take(parts, number, Signal.FLUSH if number == len(batches) - 1 else None)
    wanted = summary(embedded(plan, arrivals))
    assert stream.summary() == wanted
    assert len(wanted[0]) > 20


def test_files_of_a_declared_source_have_one_clock() -> None:
    plan, arrivals = ordered(POLICIES["by source partition"]), places(600)
    source = arrivals.table.column("_source").to_pylist()
    files = [f"{name}/{row // 100:03}.csv" for row, name in enumerate(source)]
    place = arrivals.table.schema.get_field_index("_source")
    field = arrivals.table.schema.field(place)
    named = Arrivals(arrivals.table.set_column(place, field, pa.array(files).dictionary_encode()))
    engine = Engine(plan)
    results = engine.process(named)
    assert set(engine.clocks().column("timeline").to_pylist()) == {"a/0", "a/1", "b/0", "b/1"}
    alone = Engine(plan).process(arrivals)
    assert {name: len(table) for name, table in results.matches.items()} == {
        name: len(table) for name, table in alone.matches.items()
    }


def test_queries_whose_keys_share_a_clock_are_groups_of_their_own() -> None:
    keyed, shared = SEVERAL, ordered(POLICIES["by source partition"])
    both = Plan(keyed.events, (*keyed.queries, *(replace(query, name=f"{query.name}2") for query in shared.queries)))
    groups = partition_groups(both)
    assert [[query.name for query in group.plan.queries] for group in groups] == [
        ["Rise", "High"],
        ["All"],
        ["Rise2", "High2"],
        ["All2"],
    ]
    assert [group.is_shared for group in groups] == [False, False, True, True]
    assert [group.only_bucket(64) for group in groups[:2]] == [None, None]
    assert groups[2].only_bucket(64) != groups[3].only_bucket(64)


def test_all_of_a_shared_group_is_in_one_bucket() -> None:
    plan, arrivals = ordered(POLICIES["by event type"]), arrivals_of(300)
    groups = partition_groups(plan)
    rows = [unpack_row(data.as_py(), plan) for data in pack_arrivals(arrivals, groups, 8).column(1)]
    found = {(part.group, bucket) for bucket, row in enumerate(rows) for part in row.records}
    assert found == {(group.number, group.only_bucket(8)) for group in groups}


@pytest.mark.parametrize(
    ("policy", "told"),
    [
        ("by source partition", "ordered by source partition"),
        ("by event type", "ordered by event type"),
        ("by substreams that are no keys", "ordered by substreams that its keys do not tell apart"),
        ("by substreams inside the key", None),
    ],
)
def test_what_parallelism_is_left_is_said(policy: str, told: str | None) -> None:
    plan = ordered(POLICIES[policy])
    query = plan.query("Rise")
    assert shared_order(query, own_name(query, ())) == told
    assert describe_pushdown(plan, query)[-1] == f"bucket: {f'one, for all records: {told}' if told else 'by k'}"


def test_timelines_are_told_once_by_the_bucket_that_has_them() -> None:
    plan, arrivals = ordered(POLICIES["by source partition"], Plan(SEVERAL.events, SEVERAL.queries[:1])), places(800)
    stream = Stream(Program.of(plan, buckets=4))
    for number, parts in enumerate(unevenly(arrivals, 5)):
        stream.tagged.clear()
        stream.take(parts, number)
    told = rows_of(stream.tagged, Tag.TIMELINE)
    engine = Engine(plan)
    engine.process(arrivals)
    assert sorted(row["timeline"] for row in told if row["timeline"]) == ["a/0", "a/1", "b/0", "b/1"]  # type: ignore[type-var]
    assert len([row for row in told if row["timeline"] is None]) == 1


def test_ends_and_shapes_travel_with_their_records() -> None:
    plan, arrivals = ordered(POLICIES["by event type"]), arrivals_of(50)
    table = arrivals.table.append_column("_end", [arrivals.system("arrival") + SECOND])
    table = table.append_column("_shape", [np.arange(50).astype(np.int8) % 4])
    varying, constant = (
        Arrivals(table),
        Arrivals(table.set_column(table.num_columns - 1, "_shape", [np.ones(50, np.int8)])),
    )
    for records in (varying, constant):
        groups = partition_groups(Plan(plan.events, plan.queries[2:]))
        rows = [unpack_row(data.as_py(), plan) for data in pack_arrivals(records, groups, 2).column(1)]
        (part,) = [part for row in rows for part in row.records]
        wanted = records.table.filter(records.table["_kind"].to_numpy() < 2).select(["_offset", "_end", "_shape"])
        assert part.arrivals.table.select(["_offset", "_end", "_shape"]).to_pylist() == wanted.to_pylist()
