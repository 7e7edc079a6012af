"""What workers do with tables of Delta."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from job_engine.sources.kinds import SourceReading, TaskRun
from job_engine.sources.table.delta_source import DeltaSource
from job_engine.sources.table.table_units import TableWork
from job_engine.sources.table.unit_reading import UnitReader


class TableReading(SourceReading):
    """Tables of Delta; see `SourceReading`."""

    def packed(self, own: DeltaSource, work: TableWork, run: TaskRun) -> Iterator[pa.RecordBatch]:
        """As `SourceReading.packed`."""
        reader = UnitReader(run.program, own, run.reading, run.accepts_loss, run.marks)
        for unit in work.units:
            yield from reader.packed(unit)


READING = TableReading()
