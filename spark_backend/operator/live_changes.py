"""Changes of queries that the control stream asks for: the driver does them, not the engines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from runtime.columns.arrival_order import in_arrival_order
from runtime.columns.arrivals import RecordKind
from runtime.reading.control_events import ControlError, parse_change
from spark_backend.wire.packed_rows import CONTROL, BucketInput, GroupRecords
from spark_backend.wire.program import Program
from spark_backend.wire.tagged_rows import Tag, TaggedRow

ASKED_SCHEMA = pa.schema([("origin", pa.string()), ("at", pa.int64()), ("text", pa.string())])
"""One row per change: where its record is, its arrival in µs, and the control event."""


@dataclass(frozen=True, slots=True)
class AskedChanges:
    """The changes in a step, and what is left for the engines.

    inputs: without well-formed changes; what is wrong with others the engines answer
    asked: control records (of one partition group) that ask for changes
    """

    inputs: tuple[BucketInput, ...]
    asked: tuple[pa.Table, ...]

    @staticmethod
    def of(program: Program, inputs: Sequence[BucketInput]) -> AskedChanges:
        """Take the changes out of the records of the control stream, if it may ask for them."""
        if not program.live:
            return AskedChanges(tuple(inputs), ())
        left: list[BucketInput] = []
        asked: list[pa.Table] = []
        for item in inputs:
            parts: list[GroupRecords] = []
            for part in item.records:
                is_change = _is_change(part)
                if not is_change.any():
                    parts.append(part)
                    continue
                if part.group == 0:
                    asked.append(part.arrivals.take(np.flatnonzero(is_change)).table)
                parts.append(replace(part, arrivals=part.arrivals.take(np.flatnonzero(~is_change))))
            left.append(replace(item, records=tuple(parts)))
        return AskedChanges(tuple(left), tuple(asked))

    def rows(self) -> Iterator[TaggedRow]:
        """What the driver is asked for, in order of arrival."""
        if self.asked:
            table = in_arrival_order(pa.concat_tables(self.asked))
            places = zip(
                *(table.column(name).to_pylist() for name in ("_source", "_partition", "_offset")), strict=True
            )
            origins = [f"{source}/{partition}/{offset}" for source, partition, offset in places]
            columns = [pa.array(origins), table.column("_arrival"), table.column("_text")]
            yield TaggedRow(Tag.ASKED, "", pa.table(columns, schema=ASKED_SCHEMA))


def _is_change(records: GroupRecords) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    found = np.zeros(len(records.arrivals), np.bool_)
    if records.source != CONTROL:
        return found
    texts = records.arrivals.table.column("_text").to_pylist()
    for row in np.flatnonzero(records.arrivals.system("kind") == RecordKind.CONTROL).tolist():
        with suppress(ControlError):
            found[row] = parse_change(texts[row] or "") is not None
    return found
