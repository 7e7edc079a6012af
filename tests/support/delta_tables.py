"""Tables of Delta that jobs have written, read with another program than Ensue's own."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from deltalake import DeltaTable

import querylang
from runtime.columns.arrivals import Arrivals
from runtime.reading.tables import read_arrivals
from tests.support.embedded import embedded, match_ids

FROM_TABLE = """\
name: sensors
queries: [sensors.query]
sources:
  readings: {format: delta, path: readings, arrival: at, options: {maxFilesPerTrigger: 5}}
sinks:
  matches: {format: delta, path: out/matches}
buckets: 2
checkpoint: state
"""


def match_ids_in(folder: Path) -> dict[str, list[str]]:
    """Match ids by query, sorted, of a sink with a table per query."""
    return {
        path.name: sorted(DeltaTable(str(path)).to_pyarrow_table().column("match_id").to_pylist())
        for path in sorted(folder.iterdir())
    }


def micro_batches(table: Path) -> list[int]:
    """How many rows each commit with data has added, in order of versions: a repeated one would be there twice."""
    found = DeltaTable(str(table)).history()
    return [int(commit["version"]) for commit in reversed(found)]


def replayed(folder: Path) -> dict[str, list[str]]:
    """The matches of one engine over the same data files."""
    plan = querylang.compile_paths([folder / "sensors.query"]).plan
    parts = [
        read_arrivals(
            pd.read_parquet(file).assign(event="Reading"), plan, source=str(file.relative_to(folder / "readings"))
        )
        for file in sorted((folder / "readings").rglob("*.parquet"))
        if "_delta_log" not in file.parts
    ]
    return match_ids(embedded(plan, Arrivals.concat(parts)))
