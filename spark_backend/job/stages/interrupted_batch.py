"""An interrupted micro-batch is repeated with the settings of the run that began it.

Some sinks may have its results already. With another `idle`, or with `--once`, which looks at no
wall clock, the repeated one would give others: what is missing then comes in a later micro-batch,
and is in those sinks twice.
"""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from typing import TypedDict

from spark_backend.job.checkpoint.job_folder import JobFolder
from spark_backend.job_file import JobFile
from spark_backend.places.place import Place
from spark_backend.settings.deployment import Deployment
from spark_backend.sources.listing.spark_log import open_batch
from spark_backend.sources.source import Source
from spark_backend.wire.clock_sources import ClockSource
from spark_backend.wire.program import Program

_WAY_OUT = (
    "It has the settings of the last run: delete the file, and its micro-batch is repeated with those of this run"
)


class Settings(TypedDict):
    """What a run may set that decides which results a micro-batch has, as plain data."""

    idle: int | None
    live: bool
    sources: list[ClockSource]
    max_record: dict[str, int | None]


def settings_of(program: Program, deployment: Deployment) -> Settings:
    """The settings of a run."""
    return {
        "idle": program.idle,
        "live": program.live,
        "sources": list(program.sources),
        "max_record": {source.name: source.max_record for source in deployment.sources},
    }


def settings_of_interrupted(checkpoint: Place) -> Settings | None:
    """Those of the run that a micro-batch was interrupted in; None = none was, or not known.

    An earlier release did not write them down.
    """
    return None if open_batch(checkpoint) is None else _file(checkpoint).read()


def write_settings(checkpoint: Place, settings: Settings) -> None:
    """Write them down, before the first micro-batch of a run."""
    file = _file(checkpoint)
    if file.readable() != settings:
        file.write(settings)


def settings_with(
    settings: Settings, program: Program, sources: tuple[Source, ...]
) -> tuple[Program, tuple[Source, ...]]:
    """A program, and sources of a deployment, with the settings of another run."""
    own = replace(program, idle=settings["idle"], live=settings["live"], sources=tuple(settings["sources"]))
    limits = settings["max_record"]
    return own, tuple(replace(source, max_record=limits.get(source.name)) for source in sources)


def _file(checkpoint: Place) -> JobFile[Settings]:
    return JobFile(JobFolder(checkpoint).path / "run.json", Settings, _WAY_OUT, text=_text)


def _text(settings: Settings) -> str:
    return json.dumps(settings, default=asdict) + "\n"
