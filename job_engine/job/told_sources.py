"""The sources of a job as those who plan and read them have to know them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from job_engine.settings.deployment import Deployment
from job_engine.sources.crash_marks import CRASHES, NO_MARKS, CrashMarks
from job_engine.sources.listing.lister import RunSettings
from job_engine.sources.listing.manifests import ToldSource, reading_options
from job_engine.sources.reading import Reading, plain_csv
from job_engine.sources.source import Source
from job_engine.wire.program import Program
from runtime.reading.column_names import STANDARD


def run_options(
    deployment: Deployment,
    program: Program,
    run: RunSettings,
    *,
    inferred: Iterable[str] = (),
    accepts_loss: bool = False,
    marks: CrashMarks = NO_MARKS,
) -> dict[str, str]:
    """What those who plan and read the micro-batches of a run have to know; all values are text.

    inferred: as in `Reading`
    accepts_loss: whether the run continues without what was removed or has changed since
    marks: of records that end a process
    """
    told, readings = told_sources(deployment), source_readings(deployment, inferred)
    options = reading_options(told, readings, program, accepts_loss=accepts_loss)
    return {**options, "run": run.to_text(), CRASHES: marks.to_text()}


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
