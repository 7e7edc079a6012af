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

_OPTIONS = pa.ipc.IpcWriteOptions(compression="lz4")


class MessageWriter:
    """The messages of one task; see `TaskWriter`.

    place: names micro-batch and task
    """

    def __init__(self, sink: TopicSink, place: str) -> None:
        self._sink = sink
        self._place = place
        self._path: Path | None = None
        self._target: pa.NativeFile | None = None
        self._writer: pa.ipc.RecordBatchStreamWriter | None = None
        self._rows = 0

    def write(self, part: str, table: pa.Table) -> str:  # noqa: ARG002
        """Add a table; all parts go to the one topic."""
        messages = messages_of(table, f"{self._place}-", self._rows, is_channel=self._sink.is_channel)
        self._rows += len(messages)
        with writing_to(self._sink.drafts):
            self._opened().write_table(messages)
        return self._place

    def _opened(self) -> pa.ipc.RecordBatchStreamWriter:
        if self._writer is None:
            if self._sink.drafts:
                folder = LocalPath(self._sink.drafts)
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)  # it may have been cleaned up
                self._path = folder / f"{self._sink.name}-{new_name()}.messages"
                self._target = new_bytes(self._path)
            else:
                self._target = pa.BufferOutputStream()
            self._writer = pa.ipc.new_stream(self._target, SCHEMA, options=_OPTIONS)
        return self._writer

    def finish(self) -> tuple[Draft, ...]:
        """Close them. After a power cut the repeated micro-batch makes them again."""
        if self._writer is None or self._target is None:
            return ()
        with writing_to(self._sink.drafts):
            self._writer.close()
            if self._path is None:
                return (Draft("", self._place, data=self._target.getvalue().to_pybytes()),)
            self._target.close()
        return (Draft(str(self._path), self._place),)

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
