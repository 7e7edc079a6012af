"""Reports: what was lost, moved or is suspicious, as counts with an example.

A reader puts them into packed rows, the operator into tagged rows. The driver logs them as
warnings, and adds them up for `ensue status`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

REPORT_SCHEMA = pa.schema(
    [("cause", pa.string()), ("source", pa.string()), ("count", pa.int64()), ("example", pa.string())]
)

CAUSES: Mapping[str, str] = {
    "ahead": "records that arrived further in the future than `ahead` allows are discarded",
    "far_ahead": "records arrive more than a day in the future, and advance the clock to there",
    "before_clock": "records that arrived before the clock are processed as if they arrived now",
    "late_by_idle": "records are late only because of the setting `idle`",
    "lost": "records or files that a micro-batch had read no longer exist",
    "forgotten_keys": "keys without records for the length of `forget_keys` are dropped",
    "malformed_file": "files that are not tables are discarded",
    "grown": "files have grown since they were read; what was added is never read",
    "replaced": "files were written again since they were read; they are not read again",
    "smaller_name": "files were read after others with larger names, against `order: name`",
    "not_a_file": "names in the folder of a source cannot be read as files",
    "new_partition": "partitions are new in topics; they are read from their beginning",
    "no_answer": "brokers do not answer; they are asked again",
    "answers_again": "brokers answer again",
    "skipped_changes": "commits of Delta tables that change or delete rows were passed over",
    "not_settled": "files cannot be archived or deleted; they stay and are not read again",
}
"""What is reported, by cause, as a sentence for the log."""

FROM_LEDGER = ("ahead", "before_clock", "late_by_idle", "lost", "forgotten_keys", "malformed_file")
"""The causes that are counted in the ledger, under the same word."""


@dataclass(frozen=True, slots=True)
class Report:
    """A number of things with one cause.

    cause: one of CAUSES
    source: name of the source that they concern; "" = none or several
    count: how many
    example: one of them, as text; "" = none is known
    """

    cause: str
    source: str
    count: int
    example: str = ""


def report_table(reports: Iterable[Report]) -> pa.Table:
    """The reports as the table of a tagged row."""
    rows = [[item.cause, item.source, item.count, item.example] for item in reports]
    columns = [pa.array([row[index] for row in rows], type_) for index, type_ in enumerate(REPORT_SCHEMA.types)]
    return pa.table(columns, schema=REPORT_SCHEMA)


def added_up(reports: Iterable[Report]) -> tuple[Report, ...]:
    """One report per cause and source, in this order, with the sum and the last example."""
    found: dict[tuple[str, str], Report] = {}
    for item in reports:
        name = (item.cause, item.source)
        before = found.get(name, Report(*name, 0))
        found[name] = Report(*name, before.count + item.count, item.example or before.example)
    return tuple(found[name] for name in sorted(found))


def reports_from_ledger(changes: Mapping[tuple[str, str, str], int]) -> list[Report]:
    """The reports of a ledger's changes, by query, source and word.

    Every query counts a record. So a source's count is that of the query with the most.
    """
    most: dict[tuple[str, str], int] = {}
    for (_, source, word), count in changes.items():
        if word in FROM_LEDGER and count > 0:
            most[word, source] = max(most.get((word, source), 0), count)
    return [Report(word, source, count) for (word, source), count in sorted(most.items())]


def reports_to_plain(reports: Sequence[Report]) -> list[list[str | int]]:
    """The reports as JSON can hold them."""
    return [[item.cause, item.source, item.count, item.example] for item in reports]
