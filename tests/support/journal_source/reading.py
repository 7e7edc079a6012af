"""Workers read lines as Arrow does, and number them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from io import BytesIO
from pathlib import Path

import pyarrow as pa
from pyarrow import json

from job_engine.sources.kinds import SourceReading, TaskRun
from job_engine.sources.reading import pack_parts
from runtime.columns.arrivals import place_of
from tests.support.journal_source.planning import Lines
from tests.support.journal_source.settings import Journal


class JournalReading(SourceReading):
    def packed(self, own: Journal, work: Lines, run: TaskRun) -> Iterator[pa.RecordBatch]:
        name = run.reading.prefix + Path(own.file).name
        reading = replace(run.reading, source=name, place=place_of(run.reading.rank))
        table = json.read_json(BytesIO(b"\n".join(own.lines()[work.first : work.until])))
        table = table.append_column("offset", pa.array(range(work.first + 1, work.until + 1)))
        yield from pack_parts(reading.records(table, run.program.plan()), run.program, reading)


READING = JournalReading()
