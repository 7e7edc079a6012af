"""Tasks count; what they have counted passes through Spark to the driver."""

from __future__ import annotations

import json
from collections import Counter

import pyarrow as pa

from job_engine.sinks import kinds
from job_engine.sinks.kinds import Draft, MicroBatch, Sink
from tests.support.counting_sink.settings import CountFile


class TaskCounts:
    def __init__(self, place: str) -> None:
        self._place = place
        self._rows = Counter[str]()

    def write(self, part: str, table: pa.Table) -> str:
        self._rows[part] += len(table)
        return self._place

    def finish(self) -> list[Draft]:
        return [Draft("", self._place, data=json.dumps(self._rows).encode())] if self._rows else []

    def abort(self) -> None:
        self._rows.clear()


class Writing(kinds.Writing):
    own = CountFile

    def open(self, sink: Sink, batch: MicroBatch, task: int, attempt: int) -> TaskCounts:
        return TaskCounts(f"{batch.name}{task}")


WRITING = Writing()
