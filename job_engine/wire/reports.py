"""What is reported beside records: how far sources are, and what was lost or looks wrong."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from job_engine.errors import as_settings
from querylang.dataclass import asdict, dataclass, replace
from runtime.columns.arrivals import PLACES_OF_A_SOURCE, Arrivals, RecordKind
from runtime.file_forms import natural_key
from runtime.reading import Remark, RemarkKind

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
    "open_transaction": "messages wait behind open transactions; this run ends before them, and a later one reads them",
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
        found[name] = replace(item, count=before.count + item.count, example=as_settings(example))
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


# How far a batch of records advances the source partitions that it comes from.
#
# The clock knows the source partition of a record by a number: the record's own. Where a source has
# several topics, their partitions have the same numbers. So the number also has the topic's, which
# is in the record's place.

TOPIC = 1 << 32
"""Partitions that each topic has room for."""

MOST_STEPS = 32
"""Number of smaller arrival times that are reported beside the largest, where some are refused."""


@dataclass(frozen=True, slots=True)
class SourceProgress:
    """How far a batch of records advances one source partition.

    source: name of the source
    partition: number of the partition; None = the whole source is one
    arrival: largest arrival time in the batch, µs
    first: `_place` and least offset of its records: batches are in this order
    lower: some smaller arrival times in the batch, descending, for those who refuse the largest
    """

    source: str
    partition: int | None
    arrival: int
    first: tuple[int, int] = (0, 0)
    lower: tuple[int, ...] = ()

    def up_to(self, limit: int) -> SourceProgress | None:
        """The progress by records that arrived at `limit` or before, or by some of them.

        Less progress than there was only delays the release of records. None = there is none.
        """
        if self.arrival <= limit:
            return self
        arrival = next((moment for moment in self.lower if moment <= limit), None)
        return None if arrival is None else replace(self, arrival=arrival, lower=())

    def to_plain(self) -> list[Any]:
        """The progress as JSON can hold it."""
        return [self.source, self.partition, self.arrival, self.first, self.lower]

    @staticmethod
    def of_plain(row: Sequence[Any]) -> SourceProgress:
        """The inverse of `to_plain`."""
        source, partition, arrival, (place, offset), lower = row
        return SourceProgress(source, partition, arrival, (place, offset), tuple(lower))


@dataclass(frozen=True, slots=True)
class UnreadFiles:
    """The files of a source that are listed and wait to be read: time waits for what they bring.

    source: its name
    arrival: the least arrival time of their records, µs; NO_TIME = not known
    place: the least `_place` of their records
    path: of the file with that arrival
    """

    source: str
    arrival: int
    place: int
    path: str

    def to_plain(self) -> list[Any]:
        """As JSON can hold it."""
        return [self.source, self.arrival, self.place, self.path]

    @staticmethod
    def of_plain(row: Sequence[Any]) -> UnreadFiles:
        """The inverse of `to_plain`."""
        return UnreadFiles(*row)


Unread = Mapping[str, UnreadFiles | None]
"""By source, what a micro-batch leaves of listed files; None = nothing any more."""


class ProgressBy(NamedTuple):
    """How the progress of a source is counted.

    by_partition: whether the clock tells its partitions apart
    is_limited: whether records of the far future are refused, which the operator decides
    by_topic: as in `ClockSource`
    """

    by_partition: bool = True
    is_limited: bool = False
    by_topic: bool = False


EACH_PARTITION = ProgressBy()


def source_progress(arrivals: Arrivals, source: str, by: ProgressBy = EACH_PARTITION) -> list[SourceProgress]:
    """The progress of each source partition in a batch.

    The partition of a malformed record is unknown, unless all records have the same.
    """
    by_partition, is_limited, by_topic = by
    arrival, offset = (arrivals.system(name) for name in ("arrival", "offset"))
    partition = clock_partitions(arrivals, by_topic=by_topic)
    place = int(arrivals.system("place").min())
    if not by_partition or (partition == partition[0]).all():
        number = int(partition[0]) if by_partition else None
        lower = _lower(arrival) if is_limited else ()
        return [SourceProgress(source, number, int(arrival.max()), (place, int(offset.min())), lower)]
    readable = arrivals.system("kind") != RecordKind.MALFORMED
    present, numbers = np.unique(partition[readable], return_inverse=True)
    latest, first = np.full(len(present), arrival.min()), np.full(len(present), offset.max())
    np.maximum.at(latest, numbers, arrival[readable])
    np.minimum.at(first, numbers, offset[readable])
    return [
        SourceProgress(
            source,
            number,
            moment,
            (place, least),
            _lower(arrival[readable & (partition == number)]) if is_limited else (),
        )
        for number, moment, least in zip(present.tolist(), latest.tolist(), first.tolist(), strict=True)
    ]


def _lower(arrival: NDArray[np.int64]) -> tuple[int, ...]:
    different = np.unique(arrival)
    chosen = np.unique(np.concatenate([different[:1], different[-1 - MOST_STEPS : -1]]))
    return tuple(chosen[chosen < different[-1]][::-1].tolist())


def clock_partition(topic: int, partition: int) -> int:
    """The number of one partition; `topic`: its number in the source, from 0."""
    return topic * TOPIC + partition


def clock_partitions(arrivals: Arrivals, *, by_topic: bool) -> NDArray[np.int64]:
    """The numbers of the records; `by_topic`: as in `ClockSource`."""
    partition = arrivals.system("partition")
    return partition + arrivals.system("place") % PLACES_OF_A_SOURCE * TOPIC if by_topic else partition


def partition_text(partition: int) -> str:
    """The number for people: `3`, or `2.3` for partition 3 of the second topic."""
    topic, number = divmod(partition, TOPIC)
    return f"{topic + 1}.{number}" if topic else str(number)
