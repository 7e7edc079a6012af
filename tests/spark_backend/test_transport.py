"""What is packed comes out again, of every type."""

from __future__ import annotations

from job_engine.wire.packed_rows import pack_arrivals, unpack_row
from job_engine.wire.partition_groups import partition_groups
from querylang import compile_text
from runtime.columns.arrivals import row_events
from runtime.interpreter.context import PlanWorld
from runtime.interpreter.values import event_text
from runtime.reading.tables import read_arrivals

PLAN = compile_text(
    """
    event B { integer n; }
    event A {
        string k; decimal d; location l; sequence<float> xs; dictionary<string, integer> m; optional<integer> o; B b;
    }
    query Q { inputs { A() key k, d retain 2; } find A as a1 -> A as a2 }
    """,
    "q.query",
).plan
EVENTS = [
    'A("a",1.5d,(0.0,1.0,2.0,3.0),[1.0,2.5],{"k":1},optional(7),B(3))',
    'A("b",-0.000000000000000001d,(0.0,0.0,0.0,0.0),[],{},optional(),B(0))',
    'A("c",99999999999999999999.5d,(0.0,0.0,0.0,0.0),[NaN],{"é":-1},optional(0),B(1))',
]


def test_every_type_travels_to_its_bucket() -> None:
    arrivals = read_arrivals([{"at": float(number), "event": text} for number, text in enumerate(EVENTS)], PLAN)
    rows = pack_arrivals(arrivals, partition_groups(PLAN), 4).to_pylist()
    packed = [unpack_row(row["data"], PLAN) for row in rows]
    tables = [part.arrivals.table for item in packed for part in item.records]
    found = [
        event for table in tables for event in row_events(PLAN.event("A"), table, PlanWorld(PLAN), [None] * len(table))
    ]
    assert sorted(event_text(event.type, event.values) for event in found) == sorted(EVENTS)
