"""All sources of a job as one streaming DataFrame of packed rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from runtime.reading.column_names import STANDARD
from spark_backend.settings.deployment import Deployment
from spark_backend.sources.crash_marks import NO_MARKS, CrashMarks
from spark_backend.sources.listing.input_planner import RunSettings
from spark_backend.sources.listing.tasks import ToldSource
from spark_backend.sources.reading import Reading, plain_csv
from spark_backend.sources.source import Source
from spark_backend.sources.source_stream import packed_stream
from spark_backend.wire.program import Program


def packed_sources(
    session: SparkSession,
    deployment: Deployment,
    program: Program,
    run: RunSettings,
    *,
    inferred: Iterable[str] = (),
    accepts_loss: bool = False,
    folder: Path | None = None,
    marks: CrashMarks = NO_MARKS,
) -> DataFrame:
    """Events, control events and signals as one source of Spark.

    inferred: as in `Reading`
    accepts_loss, folder, marks: as in `packed_stream`
    """
    readings = source_readings(deployment, inferred)
    told = told_sources(deployment)
    return packed_stream(session, told, readings, program, run, accepts_loss=accepts_loss, folder=folder, marks=marks)


def told_sources(deployment: Deployment) -> dict[str, ToldSource]:
    """The sources as the lister and workers have to know them, the control stream last."""
    return {source.name: ToldSource(source.format, source.own) for source in deployment.all_sources}


def source_readings(deployment: Deployment, inferred: Iterable[str] = ()) -> dict[str, Reading]:
    """How each source is read, by its name; ranks are by name, the control stream last.

    inferred: as in `Reading`
    """
    types = tuple(sorted(inferred))
    prefixes = file_prefixes(deployment.sources)
    return {
        source.name: Reading(
            source.event,
            source.type_field,
            source.source_time,
            source.arrival,
            prefix=prefixes.get(source.name, ""),
            name=source.name,
            rank=rank,
            is_control=source is deployment.control,
            max_record=source.max_record or STANDARD.max_record,
            csv=plain_csv(source.csv),
            time_unit=source.times.unit,
            time_format=source.times.pattern,
            source_column=source.source_column,
            partition=source.partition,
            offset=source.offset,
            is_typeless=source.is_typeless,
            inferred=types,
        )
        for rank, source in enumerate(deployment.all_sources)
    }


def file_prefixes(sources: Sequence[Source]) -> dict[str, str]:
    """What is prepended to the names of each source's files: nothing, or the source's name.

    A record's coordinates start with its file's name. Two sources may have files of one name. If
    records are ordered by source, the prefix tells whose clock a file follows. The queries have no
    influence, so that identities of matches do not change with them.
    """
    is_plain = len(sources) == 1 and sources[0].ordering is None
    return {source.name: "" if is_plain else f"{source.name}/" for source in sources}
