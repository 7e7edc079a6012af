"""Delta tables of matches, as a job's tasks and driver write them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable

from job_engine.sinks.kinds import Draft, MicroBatch, Sink
from job_engine.sinks.table.publishing import PUBLISHING as DELTA
from job_engine.sinks.table.settings import TableSink
from job_engine.sinks.table.writing import WRITING

OURS, OTHERS = "0123456789ab", "ba9876543210"
NOON = datetime(2024, 1, 1, 12, tzinfo=UTC)
SCHEMA = pa.schema(
    [
        ("match_id", pa.string()),
        ("instance", pa.string()),
        ("time", pa.timestamp("us", "UTC")),
        (
            "low",
            pa.struct([("v", pa.float64()), ("tags", pa.list_(pa.string())), ("by", pa.map_(pa.string(), pa.int64()))]),
        ),
    ]
)


def rows(*names: str, hours: int = 0, instance: str | None = "eu", schema: pa.Schema = SCHEMA) -> pa.Table:
    return pa.Table.from_pylist(
        [
            {
                "match_id": name,
                "instance": instance,
                "time": NOON + timedelta(hours=hours),
                "low": {"v": 1.5, "tags": ["a"], "by": [("k", 1)]},
            }
            for name in names
        ],
        schema=schema,
    )


def sink(folder: Path, *partition_by: str) -> Sink:
    return Sink("delta", TableSink(partition_by), folder / "matches")


def drafts(sink: Sink, batch: int, *tables: pa.Table, identity: str = OURS, part: str = "Q") -> list[Draft]:
    """Each table by a task of its own."""
    found: list[Draft] = []
    for task, table in enumerate(tables):
        writer = WRITING.open(sink, MicroBatch(identity, batch), task, 0)
        writer.write(part, table)
        found += writer.finish()
    return found


def write(sink: Sink, batch: int, *tables: pa.Table, identity: str = OURS) -> None:
    DELTA.publish(MicroBatch(identity, batch), [(sink, drafts(sink, batch, *tables, identity=identity))])


def table(sink: Sink) -> DeltaTable:
    return DeltaTable(str(sink.folder / "Q"))


def names(sink: Sink) -> list[str]:
    return sorted(table(sink).to_pyarrow_table().column("match_id").to_pylist())
