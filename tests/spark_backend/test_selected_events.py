"""Events that a `find every` selects, on Spark but without it: the same for every cut of the stream, and typed."""

from __future__ import annotations

import numpy as np
import pytest

import querylang
from job_engine.wire.program import Program
from job_engine.wire.tagged_rows import Tag, schema_of
from runtime.results.schemas import match_schema
from tests.spark_backend.samples import SECOND, arrivals_of
from tests.support.buckets import Stream, rows_of
from tests.support.embedded import embedded

PLAN = querylang.compile_text("""
event A { string k; float v; float ts; }
event B { string k; float v; float ts; }
event C { string k; float v; float ts; }
query Ends {
    inputs { A() key k within 20.0 retain 4; B() key k within 20.0; }
    find every A as a -> B as b
        where b.v > a.v
        select first(a) as oldest
        select count() as pairs
        select nth(b, 1) as second
        having first(a).v < 0.5
}
""").plan


@pytest.mark.parametrize("cuts", [1, 7])
def test_state_keeps_what_the_selected_events_have(cuts: int) -> None:
    arrivals = arrivals_of(600, keys=5, plan=PLAN)
    stream = Stream(Program.of(PLAN, buckets=2))
    for rows in np.array_split(np.arange(len(arrivals)), cuts):
        part = arrivals.take(rows)
        stream.take({"s": part}, int(part.system("arrival")[-1]) // SECOND)
    found = sorted(rows_of(stream.tagged, Tag.MATCH), key=lambda row: str(row["match_id"]))
    (expected,) = embedded(PLAN, arrivals).matches.values()
    wanted = sorted(expected.to_pylist(), key=lambda row: str(row["match_id"]))
    names = ["match_id", "key", "time", "selected"]
    assert len(wanted) > 50
    assert [[row[name] for name in names] for row in found] == [[row[name] for name in names] for row in wanted]


def test_selected_events_are_structs_like_members() -> None:
    plan = querylang.compile_text("event A { integer n; } query Q { inputs { A() retain 2; } find A as oldest }").plan
    member = match_schema(plan, plan.query("Q")).field("members").type.field("oldest").type
    every = "query Q { inputs { A() retain 2; } find every A as a select first(a) as oldest select count() as n }"
    plan = querylang.compile_text(f"event A {{ integer n; }} {every}").plan
    assert schema_of(plan, Tag.MATCH, "Q").field("oldest").type == member
    flat = ["n", "event", "time", "source_time", "arrival", "source", "partition", "offset"]
    names = schema_of(plan, Tag.MATCH, "Q", is_flat=True).names
    assert names[-9:] == [*(f"oldest_{name}" for name in flat), "n"]
