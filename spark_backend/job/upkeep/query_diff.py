"""Compare the matches of two queries of a job, such as a query and its shadow."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa

from querylang.changes.reach import reach_of
from querylang.errors import InputError, did_you_mean
from runtime.columns.timestamps import format_time, parse_time
from runtime.json_reader import json_of_text
from runtime.reading.formats.parquet_files import open_parquet
from runtime.results.match_difference import MatchDifference, difference
from spark_backend.delta.data_files import is_below
from spark_backend.delta.package import open_table
from spark_backend.errors import in_plain_words
from spark_backend.job.journal.journal import Journal
from spark_backend.job.journal.journal_file import read_journal
from spark_backend.places.place import Place, files_below, local_copy, names_in
from spark_backend.settings.deployment import Deployment
from spark_backend.settings.deployment_file import load_deployment
from spark_backend.sinks.file_names import RESULT_FILE
from spark_backend.sinks.formats import MATCHES, Layout, Sink
from spark_backend.sinks.one_table import row_of_query
from spark_backend.sinks.path_names import folder_name


@dataclass(frozen=True, slots=True)
class QueryDifference:
    """What one of two queries of a job finds and the other does not.

    since: only matches from this event time on are compared, µs; None = all
    """

    first: str
    second: str
    since: int | None
    found: MatchDifference

    def to_plain(self) -> dict[str, Any]:
        """For machines."""
        return {
            "since": None if self.since is None else format_time(self.since),
            "both": self.found.both,
            "only": {self.first: list(self.found.only_first), self.second: list(self.found.only_second)},
        }


def compare_queries(file: Path, first: str, second: str) -> QueryDifference:
    """Compare what two queries of a job have found, from where the windows of both are full.

    Raises InputError.
    """
    deployment = load_deployment(file)
    with in_plain_words(deployment.environment):
        sink = _sink(deployment)
        journal = read_journal(deployment)
        since = max((start for name in (first, second) if (start := _full_since(journal, name))), default=None)
        found = [list(_matches(sink, name, since)) for name in (first, second)]
        return QueryDifference(first, second, since, difference(*found))


def _sink(deployment: Deployment) -> Sink:
    sink = deployment.sinks.get(MATCHES)
    if sink is None:
        raise InputError(f"the job has no sink '{MATCHES}', so there is nothing to compare")
    if sink.kafka is not None:
        raise InputError(f"the sink '{MATCHES}' is a topic; matches in files or Delta tables can be compared")
    return sink


def _full_since(journal: Journal | None, name: str) -> int | None:
    """The event time from which on a query has full windows, µs; None = always."""
    if journal is None or name not in journal.since or name not in journal.running.queries:
        return None
    reaches = [reach_of(plan) or 0 for plan in journal.running.queries[name].plans()]
    return journal.since[name] + max(reaches, default=0)


def _matches(sink: Sink, name: str, since: int | None) -> Iterator[dict[str, Any]]:
    if sink.layout is Layout.ONE:
        yield from _matches_in_one(sink, name, since)
        return
    folder = sink.path / folder_name(name)
    if not folder.is_dir():
        known = sorted(names_in(sink.path))
        raise InputError(f"there are no matches of a query '{name}' in {sink.path}{did_you_mean(name, known)}")
    for row in _rows(sink, folder):
        if since is None or _time(row["time"]) >= since:
            yield row


def _matches_in_one(sink: Sink, name: str, since: int | None) -> Iterator[dict[str, Any]]:
    known = set()
    for row in _rows(sink, sink.path):
        known.add(row["query"])
        if row["query"] == name and (since is None or _time(row["time"]) >= since):
            yield row_of_query(row)
    if name not in known:
        raise InputError(f"there are no matches of a query '{name}' in {sink.path}{did_you_mean(name, sorted(known))}")


def _time(value: datetime | str) -> int:
    return parse_time(value.isoformat() if isinstance(value, datetime) else value)


def _rows(sink: Sink, folder: Place) -> Iterator[dict[str, Any]]:
    if sink.format == "delta":
        yield from _rows_of_tables(folder)
        return
    for place in files_below(folder):
        if RESULT_FILE.fullmatch(place.name) is None:
            continue
        with local_copy(place) as file:
            yield from _rows_of(file)


def _rows_of(file: Path) -> Iterator[dict[str, Any]]:
    match file.suffix:
        case ".parquet":
            with open_parquet(file) as parquet:
                yield from parquet.read().to_pylist(maps_as_pydicts="lossy")
        case ".json":
            with file.open(encoding="utf-8") as lines:
                yield from (json_of_text(line, dict[str, Any]) for line in lines)
        case _:
            with file.open(encoding="utf-8", newline="") as lines:
                yield from csv.DictReader(lines)


def _rows_of_tables(folder: Place) -> Iterator[dict[str, Any]]:
    """The rows of a query's table, and of those of its instances below it."""
    table = open_table(folder)
    if table is not None:
        _refuse_outside_files(folder, pa.table(table.get_add_actions()).column("path").to_pylist())
        yield from table.to_pyarrow_table().to_pylist(maps_as_pydicts="lossy")
        return
    for name in sorted(names_in(folder)):
        yield from _rows_of_tables(folder / name)


def _refuse_outside_files(folder: Place, paths: Sequence[str]) -> None:
    """Results of a job are in its folders: a log that names others is not that of a job."""
    for path in map(unquote, paths):
        if not is_below(path):
            raise InputError(f"{folder}: its log names a data file outside of the table: {path!r}")
