"""A micro-batch that was interrupted: with which settings it is repeated, and when planned anew.

It is repeated with the settings of the run that began it. Some sinks may have its results already.
With another `idle`, or with `--once`, which looks at no wall clock, the repeated one would give
others: what is missing then comes in a later micro-batch, and is in those sinks twice.

What it reads stays the same for the same reason. But what cannot be processed because it is too
much would then never be: so where no sink has anything of it, and a limit is smaller than it was,
it is taken from the driver's record, and what it reads is planned anew.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from typing import NotRequired, TypedDict

from job_engine.deployment import Deployment
from job_engine.durable_files import JobFile
from job_engine.job.checkpoint.job_folder import JobFolder, remove_tries
from job_engine.job.stages.change import has_change
from job_engine.place import Place
from job_engine.sinks.kinds import MicroBatch, publishing
from job_engine.sources.kinds import kind_of
from job_engine.sources.listing.batch_log import Batches, manifest_of, remove_begun
from job_engine.sources.listing.manifests import ManifestFolder
from job_engine.sources.source import Source
from job_engine.wire.clock_sources import ClockSource
from job_engine.wire.program import Program
from querylang.printable import warn

# What a run sets that decides which results a micro-batch has: `<checkpoint>/ensue/run.json`.

_WAY_OUT = (
    "It has the settings of the last run: delete the file, and its micro-batch is repeated with those of this run"
)

Limits = Mapping[str, Mapping[str, int | None]]
"""How much a micro-batch reads at most, by source and option; None = as much as there is."""


class Settings(TypedDict):
    """What a run may set that decides which results a micro-batch has, as plain data."""

    idle: int | None
    live: bool
    sources: list[ClockSource]
    max_record: dict[str, int | None]


class _Kept(Settings):
    """What the file has; releases before wrote no limits."""

    limits: NotRequired[dict[str, dict[str, int | None]]]


def settings_of(program: Program, deployment: Deployment) -> Settings:
    """The settings of a run."""
    return {
        "idle": program.idle,
        "live": program.live,
        "sources": list(program.sources),
        "max_record": {source.name: source.max_record for source in deployment.sources},
    }


def settings_of_interrupted(checkpoint: Place, batches: Batches) -> Settings | None:
    """Those of the run that a micro-batch was interrupted in; None = none was, or not known.

    An earlier release did not write them down.
    """
    found = None if batches.open is None else _settings_file(checkpoint).read()
    if found is None:
        return None
    found.pop("limits", None)
    return found


def write_settings(checkpoint: Place, settings: Settings, limits: Limits) -> None:
    """Write them down, before the first micro-batch of a run."""
    file, plain = _settings_file(checkpoint), {**settings, "limits": limits}
    if file.readable() != plain:
        file.write(plain)


def settings_with(
    settings: Settings, program: Program, sources: tuple[Source, ...]
) -> tuple[Program, tuple[Source, ...]]:
    """A program, and sources of a deployment, with the settings of another run."""
    own = replace(program, idle=settings["idle"], live=settings["live"], sources=tuple(settings["sources"]))
    limits = settings["max_record"]
    return own, tuple(replace(source, max_record=limits.get(source.name)) for source in sources)


def _settings_file(checkpoint: Place) -> JobFile[_Kept]:
    return JobFile(JobFolder(checkpoint).path / "run.json", _Kept, _WAY_OUT, text=_text)


def _text(settings: Settings) -> str:
    return json.dumps(settings, default=asdict) + "\n"


# What a micro-batch reads at most, and what becomes of one where that is less than it was.


def limits_of(deployment: Deployment) -> dict[str, dict[str, int | None]]:
    """The limits that a deployment sets, of all sources that may have some."""
    found = {source.name: dict(kind_of(source.format).limits(source.own)) for source in deployment.all_sources}
    return {name: limits for name, limits in found.items() if limits}


def told_limits(deployment: Deployment) -> str:
    """Their names, as a sentence has them; "" = no source may have one."""
    names = dict.fromkeys(f"`{next(iter(limits))}`" for limits in limits_of(deployment).values())
    return " or ".join(names)


def plan_anew(folder: JobFolder, identity: str, deployment: Deployment, confirm: Callable[[], None]) -> None:
    """Take from the record what was begun under larger limits, as far as nothing is published.

    Several micro-batches may be begun and not committed: those up to the last one that has left
    something anywhere are repeated as they were.

    identity: of the checkpoint
    confirm: raises InputError if another run has the checkpoint

    Raises InputError, and Unreachable for sinks that do not answer.
    """
    checkpoint, batches = deployment.checkpoint, folder.reached().batches
    first, last = batches.first_open, batches.open
    if first is None or last is None:
        return
    before = _settings_file(checkpoint).read()
    smaller = [] if before is None else _smaller(before.get("limits", {}), limits_of(deployment))
    if not smaller:
        return
    confirm()
    stays = max(_last_that_left(folder, identity, deployment, first, last), first - 1)
    if stays >= first:
        warn(f"{_named(first, stays)} repeated with the same records, whatever limits say: something is published")
    dropped = range(stays + 1, last + 1)
    if not dropped:
        return
    for batch in dropped:
        for sink in deployment.sinks.values():
            publishing(sink).remove_leftovers(sink, MicroBatch(identity, batch), ())
    remove_begun(checkpoint, dropped)
    remove_tries(checkpoint)
    warn(f"{_named(dropped[0], last)} planned anew, with a smaller {', '.join(smaller)}: nothing was published")


def _named(first: int, last: int) -> str:
    return (
        f"micro-batch {first}, which was interrupted, is" if first == last else f"micro-batches {first} to {last} are"
    )


def _smaller(before: Limits, now: Limits) -> list[str]:
    """The limits that are smaller than they were, of sources that had been there."""
    return [
        f"`{option}: {limit}` of '{name}'"
        for name, own in now.items()
        for option, limit in own.items()
        if limit is not None and name in before and ((old := before[name].get(option)) is None or limit < old)
    ]


def _last_that_left(folder: JobFolder, identity: str, deployment: Deployment, first: int, last: int) -> int:
    """The last micro-batch that has left something that others may have seen; -1 = none has.

    Results in sinks, counts of it, answers to the commands that it has, and changes that the
    control stream asks for.
    """
    if deployment.control is not None and has_change(folder.checkpoint):
        return last
    manifests = ManifestFolder.of(folder.checkpoint)
    with_commands = [
        batch
        for batch in range(first, last + 1)
        for number in range(manifest_of(folder.checkpoint, batch - 1) + 1, manifest_of(folder.checkpoint, batch) + 1)
        if manifests.read(number).commands
    ]
    counted = [*folder.progress.numbers(), *folder.ledger.files.numbers()]
    published = [publishing(sink).last_published(sink, identity) for sink in deployment.sinks.values()]
    return max([*with_commands, *counted, *published], default=-1)
