"""How far a batch of records advances the source partitions that it comes from.

The clock knows the source partition of a record by a number: the record's own. Where a source has
several topics, their partitions have the same numbers. So the number also has the topic's, which is
in the record's place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runtime.columns.arrivals import PLACES_OF_A_SOURCE, Arrivals, RecordKind

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


def source_progress(
    arrivals: Arrivals, source: str, *, by_partition: bool, is_limited: bool, by_topic: bool = False
) -> list[SourceProgress]:
    """The progress of each source partition in a batch; parameters as in `pack_arrivals`.

    The partition of a malformed record is unknown, unless all records have the same.
    """
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
