"""Compare the results of the replay with those of a job.

Every column counts: members, times, when a match was definitive and why it had to wait.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet

from runtime.results.schemas import Results

Totals = Mapping[tuple[str, str], int]
"""Counts by query and word of the ledger."""
ReadTable = Callable[[Path], pa.Table]
"""Reads the table in a folder."""


def replay_totals(results: Results) -> Totals:
    """The accounts of a replay, over all sources."""
    totals: Counter[tuple[str, str]] = Counter()
    for row in results.ledger.to_pylist():
        totals[row["query"], row["what"]] += row["count"]
    return {place: count for place, count in totals.items() if count}


def job_totals(ledger: Mapping[tuple[str, str, str], int]) -> Totals:
    """The accounts of a job (by query, source and word), over all sources."""
    totals: Counter[tuple[str, str]] = Counter()
    for (query, _, what), count in ledger.items():
        totals[query, what] += count
    return {place: count for place, count in totals.items() if count}


def differences(results: Results, folder: Path, read: ReadTable = pyarrow.parquet.read_table) -> Iterator[str]:
    """How the matches of a replay differ from those in the job's sink, a line per query."""
    for query, table in results.matches.items():
        ours, theirs = _embedded(table), _written(folder / query, table.schema, read)
        if ours.equals(theirs):
            continue
        ids, other = set(ours["match_id"].to_pylist()), set(theirs["match_id"].to_pylist())
        missing, extra = len(ids - other), len(other - ids)
        reason = f"{missing} missing in the job, {extra} in the job only" if missing or extra else "some columns differ"
        yield f"{query}: {len(ours)} embedded, {len(theirs)} in the job; {reason}"


def _embedded(table: pa.Table) -> pa.Table:
    """A replay's table as the sinks write it: one column per member, ordered by identity."""
    members = table["members"].combine_chunks()
    plain = table.drop_columns(["members", "_step", "_rank"])
    for place, field in enumerate(members.type):
        plain = plain.append_column(field.name, members.field(place))
    return plain.sort_by("match_id").combine_chunks()


def _written(folder: Path, schema: pa.Schema, read: ReadTable) -> pa.Table:
    empty = _embedded(schema.empty_table())
    if not folder.exists():
        return empty
    return read(folder).select(empty.column_names).cast(empty.schema).sort_by("match_id").combine_chunks()
