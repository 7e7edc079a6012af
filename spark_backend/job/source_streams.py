"""All sources of a job as one streaming DataFrame of packed rows."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from pyspark.sql import DataFrame, SparkSession

from runtime.columns.arrivals import place_of
from spark_backend.job.checkpoint_record import all_sources
from spark_backend.job.job_folder import JobFolder
from spark_backend.job.settings import Deployment, Source
from spark_backend.sources.formats import source_format
from spark_backend.sources.reading import Reading
from spark_backend.sources.signals import packed_signals
from spark_backend.wire.program import Program


def packed_sources(session: SparkSession, deployment: Deployment, program: Program) -> DataFrame:
    """The union of all sources: by name, then the control stream, then the signals.

    A checkpoint fixes this order for good, because Spark tells sources apart by position only.
    """
    prefixes = file_prefixes(deployment.sources)
    frames = []
    for rank, source in enumerate(all_sources(deployment)):
        path = source.path.resolve()
        reading = Reading(
            source.event,
            source.type_field,
            source.source_time,
            source.arrival,
            root=str(path),
            prefix=prefixes.get(source.name, ""),
            name=source.name,
            rank=rank,
            place=place_of(rank),
            is_control=source is deployment.control,
        )
        frames.append(source_format(source.format).packed(session, path, source.options, program, reading))
    frames.append(packed_signals(session, JobFolder(deployment.checkpoint).signals.resolve(), program))
    return reduce(DataFrame.union, frames)


def file_prefixes(sources: Sequence[Source]) -> dict[str, str]:
    """What is prepended to the names of each source's files: nothing, or the source's name.

    A record's coordinates start with its file's name. Two sources may have files of one name. If
    records are ordered by source, the prefix tells whose clock a file follows. The queries have no
    influence, so that identities of matches do not change with them.
    """
    is_plain = len(sources) == 1 and sources[0].ordering is None
    return {source.name: "" if is_plain else f"{source.name}/" for source in sources}
