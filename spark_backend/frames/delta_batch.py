"""Write DataFrames of a micro-batch into Delta tables: tasks write, the driver commits once."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema

from job_engine.delta.log import application
from job_engine.delta.package import refuse_missing_package
from job_engine.delta.publishing import Transaction, publish_files
from job_engine.errors import in_plain_words
from job_engine.places.place import SHOWN, Place, UnknownScheme, place_of
from job_engine.sinks.kinds import Sink
from job_engine.sinks.table.settings import DAY, TableSink
from job_engine.sinks.table.writing import Details, with_partitions
from querylang.errors import InputError, did_you_mean
from spark_backend.frames.batch_drafts import micro_batch, write_drafts
from spark_backend.plain_errors import plain_error


def write_delta(frame: DataFrame, table: str | Path, partition_by: Sequence[str], batch: int | None) -> bool:
    """Append rows; False = the table has this micro-batch. Without rows nothing is committed.

    batch: number of the micro-batch; None = the frame is bounded, and always written
    """
    refuse_missing_package()
    path = _place(table)
    schema = to_arrow_schema(frame.schema, timezone="UTC")
    _refuse_partitions(path, schema, partition_by)
    own = micro_batch(frame, batch, "write_delta")
    sink = Sink("delta", TableSink(tuple(partition_by)), path)
    with in_plain_words({}, plain_error):
        found = [Details.of_text(draft.details) for draft in write_drafts(frame, sink, own)]
    if not found:
        return True
    files, columns = [item.file for item in found], with_partitions(found[0].columns, partition_by, path)
    return publish_files(path, files, Transaction(application(own.identity), own.number), columns, partition_by)


def _place(table: str | Path) -> Place:
    try:
        return place_of(str(table)).resolve()
    except UnknownScheme as error:
        raise InputError(f"{table}: Delta tables are written to folders, or to {SHOWN}") from error


def _refuse_partitions(path: Place, schema: pa.Schema, partition_by: Sequence[str]) -> None:
    for name in partition_by:
        if name == DAY and not {"time", "arrival"} & set(schema.names):
            raise InputError(f"{path}: 'partition_by': there is no column 'time' or 'arrival' that `{DAY}` could be of")
        if name != DAY and name not in schema.names:
            raise InputError(
                f"{path}: 'partition_by': there is no column '{name}'{did_you_mean(name, list(schema.names))}"
            )
        if name != DAY and not pa.types.is_string(schema.field(name).type):
            raise InputError(f"{path}: 'partition_by': the column '{name}' is not text")
