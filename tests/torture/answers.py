"""What a job has written, what a replay of the same records gives, and where the two differ."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pandas as pd
import pyarrow as pa
import pyarrow.parquet

import ensue
from runtime.reading.inference import own_columns
from tests.torture.readers import visible_files
from tests.torture.streams import SECOND, Source

Comparable = Counter[tuple[Any, ...]]

OF_JOBS = ("begin with a new checkpoint", "the Delta table has another schema", "do not fit into one Delta table")
"""In reasons why a job refuses a change that a replay takes: states are in other buckets, or a sink has one schema."""

BEHIND = "~changes"
"""A source whose records come behind all others of the same arrival. A job counts no changes as records."""


CHANNEL = "silent"
"""A channel that queries here send to, which may have a sink of its own."""

_COMMON = ("match_id", "query", "instance", "time", "definitive", "emitted", "waited", "key")
"""The columns that the table for the matches of all queries has in place."""


@dataclass(frozen=True, slots=True)
class Control:
    """A control event: its arrival in µs, its text, the file that it is in, and its source in a replay."""

    at: int
    text: str
    file: str
    source: str = ""


@dataclass(frozen=True, slots=True)
class Answers:
    """Everything that comes out, as multisets that can be compared."""

    matches: Comparable
    outputs: Comparable
    discarded: Comparable
    ledger: Comparable

    def differences(self, expected: Answers) -> list[str]:
        """One line per kind of result that differs, with an example each way."""
        found = []
        for kind in ("matches", "outputs", "discarded", "ledger"):
            here, there = getattr(self, kind), getattr(expected, kind)
            for word, only in (("too many", here - there), ("missing", there - here)):
                if only:
                    found.append(f"{kind}: {only.total()} {word} of {there.total()}: {sorted(only, key=str)[:2]}")
        return found


def written(folder: Path, sink: str = "parquet", tables: Collection[str] = ()) -> Answers:
    """What the sinks of a job hold; `sink`: their format, but of `tables`, which are Delta tables."""
    own = {name: "delta" if name in tables else sink for name in ("matches", "output", "discarded", "ledger")}
    found = Answers(Counter(), Counter(), Counter(), Counter())
    for again in ("", "2"):  # a sink may have moved
        for path in visible_files(folder / f"matches{again}", own["matches"]):
            found.matches.update(_matches(pa.parquet.ParquetFile(path).read()))
        output, discarded, ledger = (
            _table(folder / f"{name}{again}", own[name]) for name in ("output", "discarded", "ledger")
        )
        found.outputs.update(_outputs(output))
        found.discarded.update(_discarded(discarded))
        found.ledger.update(_ledger(ledger))
    found.outputs.update(_outputs(_table(folder / CHANNEL, sink)))
    return replace(found, ledger=Counter({key: count for key, count in found.ledger.items() if count}))


def replayed(
    queries: Path,
    sources: list[Source],
    controls: list[Control],
    past: Sequence[dict[str, object]] = (),
    **options: Any,
) -> Answers:
    """What a replay of all records gives: a table a file, sources by name, files as they were read.

    past: rows that come before all of them
    options: of `ensue.replay`
    """
    records = [
        [
            {**row.cells, **place(f"{source.name}/{name}" if len(sources) > 1 else name, offset)}
            for offset, row in enumerate(rows, 1)
        ]
        for source in sorted(sources, key=lambda item: item.name)
        for name, rows in source.files
    ]
    before = [[row] for row in past]
    return of_tables(queries, [*before, *records, *control_tables(controls)], **options)


def control_tables(controls: Sequence[Control]) -> list[list[dict[str, object]]]:
    """Control events as tables of a replay, one each."""
    return [
        [{"at": item.at / SECOND, "event": item.text, **place(item.source or item.file, order)}]
        for order, item in enumerate(controls, 1)
    ]


def of_tables(queries: Path, records: list[list[dict[str, object]]], **options: Any) -> Answers:
    """What a replay gives of tables of records, which have their places as columns; `options`: as of `replayed`."""
    folder = queries.with_name("replay")
    folder.mkdir()
    for number, rows in enumerate(records):
        text = "".join(json.dumps({"ts": None, **cells}) + "\n" for cells in rows)
        (folder / f"{number}.jsonl").write_text(text)
    with patch.object(own_columns, "MOST_SOURCES", 1_000_000):  # here each file of a job is a source of its own
        results = ensue.replay(queries, folder, source_time="ts", source_column="source", **options).results
    matches: Comparable = Counter()
    for table in results.matches.values():
        matches.update(_matches(table))
    assert results.discarded is not None
    return Answers(matches, _outputs(results.outputs), _discarded(results.discarded), _ledger(results.ledger))


def place(source: str, offset: int) -> dict[str, object]:
    """The columns that say where a record came from."""
    return {"source": source, "partition": 0, "offset": offset}


def deployed_at(folder: Path) -> datetime | None:
    """Where the first query was deployed that a job tells of; None = none was."""
    table = _table(folder / "output", "parquet")
    rows = table.select(["kind", "emitted"]).to_pylist() if len(table) else []
    return min((row["emitted"] for row in rows if row["kind"] == "deployed"), default=None)


def from_their_place_on(answers: Answers, names: Collection[str], place: datetime) -> Answers:
    """What is given if queries of these names give nothing out up to a place."""
    gone = [row for row in answers.matches if dict(row)["query"] in names and dict(row)["emitted"] <= place]
    matches = Counter({row: count for row, count in answers.matches.items() if row not in gone})
    ids = {dict(row)["match_id"] for row in gone}
    outputs = Counter({row: count for row, count in answers.outputs.items() if dict(row)["match_id"] not in ids})
    discarded = Counter(
        {
            row: count
            for row, count in answers.discarded.items()
            if dict(row)["query"] not in names or dict(row)["arrival"] > place
        }
    )
    return Answers(matches, outputs, discarded, answers.ledger)


def without_changes(answers: Answers) -> Answers:
    """What is given without telling of changes."""
    outputs = {row: count for row, count in answers.outputs.items() if dict(row)["kind"] not in ("deployed", "error")}
    return replace(answers, outputs=Counter(outputs))


def _table(folder: Path, sink: str) -> pa.Table:
    files = [pa.parquet.ParquetFile(path).read() for path in visible_files(folder, sink)]
    return pa.concat_tables(files, promote_options="permissive") if files else pa.table({})


def _matches(table: pa.Table) -> Comparable:
    """Everything of each match; a job writes a column per name of the pattern, a replay has two structs."""
    names = [name for name in table.column_names if not name.startswith("_")]
    is_one = "members" in names and pa.types.is_string(table.schema.field("members").type)
    rows = map(_of_one, table.to_pylist()) if is_one else map(_flat, table.select(names).to_pylist())
    return Counter(map(_frozen, rows))


def without_members(answers: Answers) -> Answers:
    """What a table for the matches of all queries has in columns: their ids say the rest."""
    matches: Comparable = Counter()
    for row, count in answers.matches.items():
        matches[tuple((name, value) for name, value in row if name in _COMMON)] += count
    return replace(answers, matches=matches)


def _of_one(row: dict[str, Any]) -> dict[str, Any]:
    found = row | {"key": json.loads(row["key"])}
    return {name: value for name, value in found.items() if name in _COMMON and value not in (None, {})}


def _outputs(table: pa.Table) -> Comparable:
    names = ["kind", "channel", "text", "query", "time", "match_id"]
    rows = table.select(names).to_pylist() if len(table) else []
    # a job tells changes before all records with its first ones, a replay at the place that they are given here
    rows = [row if row["match_id"] is not None else row | {"time": None} for row in rows]
    # at its end a job with `--flush` does not tell yet which texts have ended; its next run does
    rows = [row for row in rows if row["kind"] not in ("control", "handed_over")]
    return Counter(_frozen(row) for row in rows if not (row["kind"] == "error" and is_of_jobs(row["text"])))


def is_of_jobs(error: str) -> bool:
    """Whether only a job refuses a change for this reason."""
    return any(reason in error for reason in OF_JOBS)


def _discarded(table: pa.Table) -> Comparable:
    rows = table.to_pylist()
    names = [
        name
        for name in ("query", "reason", "source", "offset", "arrival", "source_time", "bound")
        if rows and name in rows[0]
    ]
    return Counter(_frozen({name: row[name] for name in names} | {"k": _key_of(row)}) for row in rows)


def _key_of(row: dict[str, Any]) -> Any:
    """The field `k` of a discarded event; where event types differ, names of columns tell the type of a field, too."""
    fields = row.get("fields") or {}
    return next((value for name, value in fields.items() if name.partition(":")[0] == "k" and value is not None), None)


def _ledger(table: pa.Table) -> Comparable:
    total: Comparable = Counter()
    for row in table.to_pylist():
        if row["source"] != BEHIND:
            total[row["query"], row["what"]] += row["count"]
    return Counter({key: count for key, count in total.items() if count})


def _frozen(value: Any) -> Any:
    match value:
        case dict():
            return tuple((key, _frozen(item)) for key, item in sorted(value.items()))
        case list():
            return tuple(map(_frozen, value))
        case pd.Timestamp():
            return value.isoformat()
        case float() if math.isnan(value):
            return "NaN"  # equal to itself here
        case _:
            return value


def _flat(row: dict[str, Any]) -> dict[str, Any]:
    parts = [row.pop(name, None) or {} for name in ("members", "points", "selected", "parameters")]
    if not row.get("key"):
        row.pop("key", None)  # a job has no column for a key without fields
    flat = {name: value for part in (*parts, row) for name, value in part.items()}
    return {name: value for name, value in flat.items() if value is not None}  # a replaced text had other names
