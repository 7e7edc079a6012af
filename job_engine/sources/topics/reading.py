"""What workers do with topics."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from job_engine.errors import LostInput, Unreachable, patience_of
from job_engine.kafka_broker import BrokerError
from job_engine.sources.crash_marks import NO_MARKS, CrashMarks, Deadly, LivingPart, living_parts, without_skipped
from job_engine.sources.kinds import SourceReading, TaskRun
from job_engine.sources.reading import Read, Reading, pack_parts, pack_refused_records
from job_engine.sources.topics.consuming import Chunk, GoneMessages, TakenMessages, consumed
from job_engine.sources.topics.pieces import Advance, OffsetRange, TopicsNews, TopicsWork
from job_engine.sources.topics.settings import KafkaSource
from job_engine.wire.packed_rows import pack_lost, pack_progress, pack_reports
from job_engine.wire.program import Program
from job_engine.wire.reports import Report, SourceProgress, clock_partition
from querylang.dataclass import dataclass, replace
from querylang.errors import InputError
from runtime.columns.arrivals import Arrivals, RecordKind, place_of
from runtime.instants import NO_TIME
from runtime.reading import ARRIVAL_COLUMN, EVENT_COLUMN, NONE, SOURCE_TIME, Decode, Messages

# Read ranges of offsets on a worker, as packed rows.
#
# Arrival is the running maximum of the timestamps in offset order. Within a range it is computed
# here. The operator raises it to where the partition was before: its clock has that in its state.


def progress_of(advance: Advance, reading: Reading) -> SourceProgress:
    """What a partition without messages tells the clock; it counts behind all messages so far."""
    return SourceProgress(
        advance.source,
        clock_partition(advance.number, advance.partition),
        advance.arrival,
        (place_of(reading.rank, advance.number), advance.offset),
    )


@dataclass(frozen=True, slots=True)
class RangeReader:
    """Reads ranges of one source."""

    program: Program
    source: KafkaSource
    reading: Reading
    accepts_loss: bool
    marks: CrashMarks = NO_MARKS
    taken: tuple[TakenMessages, ...] = ()

    def packed(self, wanted: OffsetRange) -> Iterator[pa.RecordBatch]:
        """The packed rows of a range; raises InputError for messages that no longer exist."""
        if wanted.is_lost:
            yield from self._lost(wanted)
            return
        what = f"{wanted.topic}/{wanted.partition}, offsets {wanted.start} to {wanted.until - 1}"
        with self.marks.reading(f"source '{self.source.name}': {what}") as is_suspect:
            yield from self._packed_range(wanted, is_suspect=is_suspect)

    def _packed_range(self, wanted: OffsetRange, *, is_suspect: bool) -> Iterator[pa.RecordBatch]:
        highest = NO_TIME
        while len(wanted):
            reached = wanted.start
            try:
                for chunk in self._chunks(wanted):
                    arrivals = _running_maximum(chunk, highest, wanted.latest)
                    highest, reached = int(arrivals[-1]), int(chunk.offsets[-1]) + 1
                    yield from self._packed(wanted, chunk, arrivals, is_suspect=is_suspect)
                wanted = replace(wanted, start=wanted.until)
            except GoneMessages as gone:
                if not self.accepts_loss:
                    where = f"source '{self.source.name}': {wanted.topic}/{wanted.partition}"
                    raise LostInput(f"{where}: {gone.args[0]}") from gone
                until = min(max(gone.first, reached), wanted.until)
                until = until if until > wanted.start else wanted.until
                yield from self._lost(replace(wanted, start=reached, until=until, is_lost=True))
                wanted = replace(wanted, start=until)
            except BrokerError as error:
                raise (Unreachable if error.is_passing else InputError)(str(error)) from error

    def _chunks(self, wanted: OffsetRange) -> Iterator[Chunk]:
        taken = next((own for own in self.taken if own.has(wanted)), None)
        return (
            consumed(self.source.client, wanted, patience_of(self.source.retry))
            if taken is None
            else taken.chunks(wanted)
        )

    def _packed(
        self, wanted: OffsetRange, chunk: Chunk, arrivals: NDArray[np.int64], *, is_suspect: bool
    ) -> Iterator[pa.RecordBatch]:
        reading = replace(
            self.reading,
            source=self._name(wanted),
            place=place_of(self.reading.rank, wanted.number),
            arrival=ARRIVAL_COLUMN,
            type_field=self.reading.type_field if self._has_type_field() else EVENT_COLUMN,
        )
        if reading.is_control:
            table = control_table(wanted.partition, self._name(wanted), chunk, arrivals)
            parts = replace(reading, type_field=EVENT_COLUMN).records(table, self.program.plan())
            yield from pack_parts(parts, self.program, reading)
            return
        messages = Messages(
            wanted.partition,
            chunk.offsets,
            chunk.values,
            arrivals,
            self._columns(),
            self.reading.event,
            decode=self._decode(),
        )
        divided = self._divided(messages, reading, is_suspect=is_suspect)
        parts = (part for piece in divided for part in self._read(piece, reading))
        if wanted.latest is None:
            yield from pack_parts(parts, self.program, reading)
            return
        for part in parts:
            near, far = _divided(part.arrivals, chunk, wanted.latest)
            yield from pack_parts([Read(near, part.remarks)], self.program, reading)
            yield from pack_refused_records(far, self.program, reading, wanted.latest)

    def _divided(self, messages: Messages, reading: Reading, *, is_suspect: bool) -> list[Messages]:
        """The messages in parts that end no process; what does is a part with a problem."""
        source = reading.source or ""
        skipped = {
            **self.marks.skipped(self.source.name, messages.partition),
            **self.marks.skipped(source, messages.partition),
        }

        def attempt(first: int, last: int) -> None:
            for piece in without_skipped([LivingPart(first, last)], problems):
                for _ in self._read(messages.part(piece.first, piece.last, piece.problem), reading):
                    pass

        rows = np.searchsorted(messages.offsets, list(skipped)).tolist()
        found = zip(rows, skipped.items(), strict=True)
        problems = {row: why for row, (offset, why) in found if offset in messages.offsets[row : row + 1]}
        parts = living_parts(len(messages), attempt) if is_suspect and len(messages) else [LivingPart(0, len(messages))]
        for part in parts:
            if part.problem is not None:
                offset = int(messages.offsets[part.first])
                self.marks.skip(Deadly(source, messages.partition, offset, part.problem))
        if len(parts) == 1 and not problems and parts[0].problem is None:
            return [messages]
        return [messages.part(part.first, part.last, part.problem) for part in without_skipped(parts, problems)]

    def _read(self, messages: Messages, reading: Reading) -> Iterator[Read]:
        """The records of messages; what cannot be read makes only itself malformed."""
        try:
            parts = list(reading.records(messages, self.program.plan()))
        except Unreachable:
            raise
        except InputError as error:
            if len(messages) == 1:
                reason = str(error).removeprefix(f"{reading.source}: ")
                yield from reading.records(replace(messages, problem=reason), self.program.plan())
                return
            middle = len(messages) // 2
            yield from self._read(messages.part(0, middle), reading)
            yield from self._read(messages.part(middle, len(messages)), reading)
            return
        for part in parts:
            yield replace(part, arrivals=_with_types(_arriving(part.arrivals, messages), messages, reading))

    def _decode(self) -> Decode | None:
        """What reads messages that are not JSON."""
        if self.source.avro is None:
            return None
        from job_engine.sources.topics.avro.decoding import AvroDecoder  # others do not need it

        return AvroDecoder(self.source.avro, patience_of(self.source.retry))

    def _has_type_field(self) -> bool:
        """Whether a field of the messages says their event type."""
        return self.reading.event is None and (self.source.avro is None or self.reading.type_field is not None)

    def _columns(self) -> tuple[str, ...]:
        """The columns that are null where no message of a chunk has them."""
        own = [self.reading.source_time or SOURCE_TIME]
        if self.reading.event is None and self.reading.type_field not in (None, NONE):
            own.append(self.reading.type_field)
        fields = (field.name for event in self.program.plan().events for field in event.fields)
        return tuple(dict.fromkeys([*own, *fields]))

    def _lost(self, lost: OffsetRange) -> Iterator[pa.RecordBatch]:
        queries = [query.title for query in self.program.plan().queries]
        what = f"{lost.topic}/{lost.partition}, offsets {lost.start} to {lost.until - 1}" if len(lost) else lost.topic
        yield pack_lost(self._name(lost), queries, max(1, len(lost)))
        yield pack_reports([Report("lost", self.source.name, 0, what)])

    def _name(self, wanted: OffsetRange) -> str:
        """The topic's name in the coordinates of its records."""
        return self.reading.prefix + wanted.topic


def control_table(partition: int, source: str, chunk: Chunk, arrivals: NDArray[np.int64]) -> pa.Table:
    """Messages with control events, as rows of a table: a text, or JSON."""
    count = len(chunk.values)
    texts = [(value or b"").decode("utf-8", "backslashreplace") for value in chunk.values]
    texts = [text if "(" in text or text.startswith("{") else f"{text}()" for text in texts]  # no event type
    columns = {
        "partition": pa.array(np.full(count, partition)),
        "offset": pa.array(chunk.offsets),
        "source": pa.repeat(source, count),
        ARRIVAL_COLUMN: pa.array(arrivals, pa.timestamp("us", "UTC")),
        EVENT_COLUMN: pa.array(texts, pa.string()),
    }
    return pa.table(columns)


def _running_maximum(chunk: Chunk, highest: int, latest: int | None = None) -> NDArray[np.int64]:
    """The arrivals of a chunk; a message without a timestamp arrives with the one before it.

    latest: as in `OffsetRange`; later messages move no maximum
    """
    is_known = chunk.timestamps >= 0
    if latest is not None:
        is_known &= chunk.timestamps <= latest
    return np.maximum.accumulate(np.maximum(np.where(is_known, chunk.timestamps, 0), highest))


def _divided(arrivals: Arrivals, chunk: Chunk, latest: int) -> tuple[Arrivals, Arrivals]:
    """The records, and those of the far future with their own timestamps.

    What cannot be read is malformed, whenever it says that it was written.
    """
    timestamps = chunk.timestamps[np.searchsorted(chunk.offsets, arrivals.system("offset"))]
    is_far = (timestamps > latest) & (arrivals.system("kind") >= RecordKind.CONTROL)
    table = arrivals.table
    position = table.schema.get_field_index("_arrival")
    far = table.set_column(position, table.schema.field(position), pa.array(timestamps)).filter(pa.array(is_far))
    return (arrivals if not is_far.any() else arrivals.take(np.flatnonzero(~is_far))), Arrivals(far)


def _with_types(arrivals: Arrivals, messages: Messages, reading: Reading) -> Arrivals:
    """A message without a type is malformed; in a file it would be a row that tells the time."""
    without = arrivals.system("kind") == RecordKind.TICK
    if not without.any():
        return arrivals
    table = arrivals.table
    kinds = np.where(without, np.int16(RecordKind.MALFORMED), arrivals.system("kind"))
    texts = table.column("_text").to_pylist()
    for row in np.flatnonzero(without).tolist():
        offset = int(arrivals.system("offset")[row])
        shown = messages.shown(int(np.searchsorted(messages.offsets, offset)))
        texts[row] = f"offset {offset}: has no event type in {reading.type_field!r}: {shown}"
    for name, column in (("_kind", pa.array(kinds)), ("_text", pa.array(texts, pa.string()))):
        position = table.schema.get_field_index(name)
        table = table.set_column(position, table.schema.field(position), column)
    return Arrivals(table)


def _arriving(arrivals: Arrivals, messages: Messages) -> Arrivals:
    """The records with the arrivals of their messages, those that cannot be read too."""
    table = arrivals.table
    rows = np.searchsorted(messages.offsets, arrivals.system("offset"))
    position = table.schema.get_field_index("_arrival")
    column = pa.array(messages.arrivals[rows])
    return Arrivals(table.set_column(position, table.schema.field(position), column))


class TopicsReading(SourceReading):
    """Topics of Kafka; see `SourceReading`."""

    def packed(self, own: KafkaSource, work: TopicsWork, run: TaskRun) -> Iterator[pa.RecordBatch]:
        """As `SourceReading.packed`."""
        taken = tuple(map(TakenMessages.of_bytes, run.taken))
        reader = RangeReader(run.program, own, run.reading, run.accepts_loss, run.marks, taken)
        for wanted in work.ranges:
            yield from reader.packed(wanted)

    def news(self, own: KafkaSource, news: TopicsNews, run: TaskRun) -> Iterator[pa.RecordBatch]:  # noqa: ARG002
        """As `SourceReading.news`: how far partitions are read without a message."""
        yield pack_progress(run.program.buckets, [progress_of(item, run.reading) for item in news.advances])


READING = TopicsReading()
