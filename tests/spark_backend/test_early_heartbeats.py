"""Heartbeats without a key reach all buckets as long as a query that heeds them may have run when they arrived."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd

import querylang
from job_engine.wire.partition_groups import EVERY_BUCKET
from job_engine.wire.plan_text import plan_text
from job_engine.wire.program import Epoch, Program
from runtime.reading.tables import read_arrivals

TYPES = '@TimeFrom("ts") event A { string k; float ts; } @TimeFrom("ts") event Beat { float ts; }\n'
ENDED = "query Ended { inputs { A() key k within 60.0 wait 5.0 or Beat; } find A as a -> A as b }\n"
RUNS = "query Runs { inputs { A() key k within 60.0 wait 5.0; } find A as a -> A as b }\n"


def test_a_heartbeat_of_a_query_that_has_ended_goes_to_every_bucket_until_its_end() -> None:
    both, one = (querylang.compile_text(text).plan for text in (TYPES + ENDED + RUNS, TYPES + RUNS))
    one = replace(one, events=both.events)
    epochs = (Epoch(0, plan_text(both)), Epoch(1, plan_text(one), begins=10_000_000))
    program = replace(Program.of(both, buckets=3), epochs=epochs)
    beats = pd.DataFrame({"at": [1.0, 10.0, 10.5], "event": "Beat", "ts": [1.0, 10.0, 10.5]})
    (group,) = program.groups()
    assert [query.name for query in group.plan.queries] == ["Runs"]
    found = group.route(read_arrivals(beats, both), 3).bucket.tolist()
    assert [bucket == EVERY_BUCKET for bucket in found] == [True, True, False]
