"""Reports: what was lost, moved or is suspicious, as counts with an example.

A reader puts them into packed rows, the operator into tagged rows. The driver logs them as
warnings, and adds them up for `ensue status`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace

import pyarrow as pa

from runtime.natural_names import natural_key
from runtime.reading.remarks import Remark, RemarkKind

REPORT_SCHEMA = pa.schema(
    [
        ("cause", pa.string()),
        ("source", pa.string()),
        ("count", pa.int64()),
        ("example", pa.string()),
        ("field", pa.string()),
    ]
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
    "missing_column": "tables lack columns that others have; these are null there",
    "unread_values": "values of fields that no query reads are wrong; they are null",
    "cut_times": "times have nanoseconds, which are cut to microseconds",
    "odd_times": "times are hardly meant as they are read",
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
    field: that they concern; "" = none. Of a field the example is the first by name, else the last
    """

    cause: str
    source: str
    count: int
    example: str = ""
    field: str = ""


def report_table(reports: Iterable[Report]) -> pa.Table:
    """The reports as the table of a tagged row."""
    return pa.Table.from_pylist([asdict(item) for item in reports], schema=REPORT_SCHEMA)


def added_up(reports: Iterable[Report]) -> tuple[Report, ...]:
    """One report per cause, source and field, in this order, with the sum and an example."""
    found: dict[tuple[str, str, str], Report] = {}
    for item in reports:
        name = (item.cause, item.source, item.field)
        before = found.get(name, replace(item, count=0, example=""))
        example = item.example or before.example
        if item.field and before.example:  # whatever task brings its report first
            example = min(before.example, example, key=natural_key)
        found[name] = replace(item, count=before.count + item.count, example=example)
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


def reports_of_remarks(remarks: Iterable[Remark], source: str) -> tuple[Report, ...]:
    """What a reader remarks of tables of a source, once per kind and column."""
    reports = (
        Report(item.kind, source, item.count, item.text, item.column)
        for item in remarks
        if item.kind is not RemarkKind.IDLE_COLUMN  # which a job tells when it starts
    )
    return added_up(reports)


def reports_to_plain(reports: Sequence[Report]) -> list[list[str | int]]:
    """The reports as JSON can hold them."""
    return [[item.cause, item.source, item.count, item.example, *filter(None, [item.field])] for item in reports]
