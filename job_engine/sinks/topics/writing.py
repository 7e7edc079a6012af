"""Messages of one task, encoded on its worker, until the driver sends them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pyarrow as pa

from job_engine.chance import new_name
from job_engine.errors import writing_to
from job_engine.places.arrow_files import mapped_bytes, new_bytes
from job_engine.places.local_path import LocalPath
from job_engine.sinks import kinds
from job_engine.sinks.kinds import Draft, MicroBatch, Sink
from job_engine.sinks.topics.messages import SCHEMA, messages_of
from job_engine.sinks.topics.settings import TopicSink

FEW = 256 << 10
"""Bytes of messages that go to the driver without a file."""

_OPTIONS = pa.ipc.IpcWriteOptions(compression="lz4")


class MessageWriter:
    """The messages of one task; see `TaskWriter`.

    place: names micro-batch and task
    """

    def __init__(self, sink: TopicSink, place: str) -> None:
        self._sink = sink
        self._place = place
        self._few: list[pa.Table] = []
        self._path: Path | None = None
        self._target: pa.NativeFile | None = None
        self._writer: pa.ipc.RecordBatchStreamWriter | None = None
        self._rows = 0

    def write(self, part: str, table: pa.Table) -> str:  # noqa: ARG002
        """Add a table; all parts go to the one topic."""
        messages = messages_of(table, f"{self._place}-", self._rows, is_channel=self._sink.is_channel)
        self._rows += len(messages)
        self._few.append(messages)
        if self._sink.drafts and sum(own.nbytes for own in self._few) > FEW:
            self._write_file()
        return self._place

    def _write_file(self) -> None:
        """Move to the file what is in memory."""
        with writing_to(self._sink.drafts):
            if self._writer is None:
                folder = LocalPath(self._sink.drafts or "")
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)  # it may have been cleaned up
                self._path = folder / f"{self._sink.name}-{new_name()}.messages"
                self._target = new_bytes(self._path)
                self._writer = pa.ipc.new_stream(self._target, SCHEMA, options=_OPTIONS)
            for messages in self._few:
                self._writer.write_table(messages)
        self._few = []

    def finish(self) -> tuple[Draft, ...]:
        """Close them. After a power cut the repeated micro-batch makes them again."""
        if self._writer is not None and self._target is not None:
            self._write_file()
            with writing_to(self._sink.drafts):
                self._writer.close()
                self._target.close()
            return (Draft(str(self._path), self._place),)
        if not self._few:
            return ()
        data = pa.BufferOutputStream()
        with pa.ipc.new_stream(data, SCHEMA, options=None if self._sink.drafts else _OPTIONS) as writer:
            for messages in self._few:
                writer.write_table(messages)
        return (Draft("", self._place, data=data.getvalue().to_pybytes()),)

    def abort(self) -> None:
        """Remove them."""
        for opened in (self._writer, self._target):
            if opened is not None:
                with suppress(OSError, pa.ArrowException):  # a full disk refuses the end of a file, too
                    opened.close()
        if self._path is not None:
            self._path.unlink(missing_ok=True)


def drafted_messages(draft: Draft) -> Iterator[pa.Table]:
    """The messages of a draft, in their order."""
    source = mapped_bytes(LocalPath(draft.path)) if draft.data is None else pa.BufferReader(draft.data)
    with source, pa.ipc.open_stream(source) as reader:
        for batch in reader:
            yield pa.Table.from_batches([batch])


class Writing(kinds.Writing):
    """Tasks encode messages; see `kinds.Writing`."""

    own = TopicSink

    def open(self, sink: Sink, batch: MicroBatch, task: int, attempt: int) -> MessageWriter:  # noqa: ARG002
        """A writer for one task."""
        own: TopicSink = sink.own
        return MessageWriter(own, f"{batch.name}{task:05d}")


WRITING = Writing()
