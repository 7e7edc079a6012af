"""Between two micro-batches: take a change of the queries, repeat what was interrupted."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import NotRequired, TypedDict

from job_engine.deployment import Deployment
from job_engine.durable_files import JobFile
from job_engine.errors import plain_error
from job_engine.job.checkpoint.checkpoint_record import write_record
from job_engine.job.checkpoint.job_folder import JobFolder, Reached, remove_tries
from job_engine.job.history.read_again import histories, joined_folder, remove_done, remove_unused
from job_engine.job.history.running import HistoryProgram, HistoryReading
from job_engine.job.journal import HistoryCommand, Journal, moment_of_change
from job_engine.job.lookup_files import refuse_unknown_tables, with_kept_tables
from job_engine.job.plan_rules import finishing
from job_engine.job.preflight import Checked
from job_engine.job.written_journal import asked_of_text, how_taken, reached_journal, write_journal
from job_engine.local_path import LocalPath
from job_engine.place import Place
from job_engine.sinks.kinds import SINKS, MicroBatch, Sink, publishing, sink_kind
from job_engine.sources.kinds import Part, kind_of, planning_of
from job_engine.sources.listing.batch_log import Batches, batches_of, manifest_of, remove_begun
from job_engine.sources.listing.command_folder import CHANGE, ERROR, Answer, Command, CommandFolder
from job_engine.sources.listing.manifests import Manifest, ManifestFolder, list_place, load_list
from job_engine.sources.source import Source
from job_engine.wire.clock_sources import ClockSource
from job_engine.wire.program import Program
from querylang.dataclass import dataclass
from querylang.errors import InputError
from querylang.plan.routing import UNCHANGED, Outcome, has_chains
from querylang.printable import warn
from querylang.system_errors import refused
from runtime.instants import EARLIEST
from runtime.json_reader import DamagedJson

# Take changes of the queries between two micro-batches; they are written down first.


def first_change(folder: CommandFolder) -> Command | None:
    """The first command that waits, if it is a change of the queries."""
    command = next(folder.waiting(), None)
    return command if command is not None and command.kind == CHANGE else None


def has_change(checkpoint: Place) -> bool:
    """Whether the next command is a change of the queries."""
    return first_change(CommandFolder(checkpoint)) is not None


def changed_program(ready: Checked, reached: Reached) -> Program:
    """What a run has to do: with the changes that wait, which are written down here.

    While a micro-batch is open, no change is taken: it is repeated as it was.
    """
    deployment, checkpoint = ready.deployment, ready.deployment.checkpoint
    ready = replace(ready, program=with_kept_tables(ready.program, deployment))
    commands, journal = CommandFolder(checkpoint), reached_journal(ready.deployment, reached)
    if journal is not None:
        _answer(commands, journal)  # a run may have been killed before it did
        journal = journal.annotated_by(ready.files.files).gathered_in(ready.program)
    commands.remove_answered_changes()
    while reached.batches.open is None and (command := first_change(commands)) is not None:
        journal = journal or Journal.begin(ready.files.files, ready.program.plan(), ready.program.gathered)
        journal = _changed(journal, ready, reached, command)
        if has_chains(journal.plan.queries) and not ready.record.chains:
            write_record(checkpoint, ready.record.feeding())
        write_journal(checkpoint, journal)
        _answer(commands, journal)
        remove_done(checkpoint, command.text)
    if journal is None:
        return ready.program
    remove_unused(checkpoint, journal.histories, commands.waiting())
    return _program(journal, ready.program, deployment, reached.batches.ended)


def _changed(journal: Journal, ready: Checked, reached: Reached, command: Command) -> Journal:
    """The journal after a change that a command asks for."""
    deployment, moment = ready.deployment, moment_of_change(reached.progress, command.at)
    taking = how_taken(deployment, ready.program, journal, moment, reached, command.number)
    try:
        asked = asked_of_text(command.text, deployment.value_of)
    except DamagedJson as error:
        return journal.refused(f"the command is damaged: {error}", taking)
    if not isinstance(asked, HistoryCommand):
        return journal.changed(asked, taking)
    target = joined_folder(deployment.checkpoint, command.number)
    joined = journal.joined(asked, taking, target.name)
    if joined.taken[-1].errors:
        return joined
    try:
        own = HistoryProgram.of(joined, ready.program)
        refuse_unknown_tables(own.program, own.program.plan())
        reading = HistoryReading(deployment, own.program, own.titles, asked)
        reading.finish(reached.progress.clock, target)
    except (InputError, OSError) as error:
        return journal.refused(f"DeployQuery: {' '.join(str(plain_error(error)).split())}", taking)
    return joined


def kept_program(program: Program, deployment: Deployment) -> Program:
    """What runs on a checkpoint; `program`: what its files say."""
    journal, program = reached_journal(deployment), with_kept_tables(program, deployment)
    return program if journal is None else _program(journal, program, deployment, 0)


def _program(journal: Journal, program: Program, deployment: Deployment, batch: int) -> Program:
    """What runs, with the ends of handovers that are known."""
    finish = finishing(deployment, feeds=program.feeds and journal.is_fed)
    journal = journal.handed_over(None, batch, finish)
    return journal.program(program, histories(deployment.checkpoint))


def _answer(folder: CommandFolder, journal: Journal) -> None:
    """Tell those who wait for changes what became of them."""
    pending = set(folder.pending())
    for item in journal.taken:
        if item.command in pending:
            text = "; ".join(outcome.text for outcome in item.notice.outcomes)
            kind = ERROR if item.errors else _what_is_done(item.notice.outcomes)
            place = None if item.place == EARLIEST else item.place  # before all records
            folder.add(max(item.batch, 0), [Answer(item.command, "job", 1, kind, place, text, 1)])


def _what_is_done(outcomes: Sequence[Outcome]) -> str:
    """The kind of a change: that of the first query that it has changed."""
    kinds = [outcome.kind for outcome in outcomes] or ["replaced"]
    return next((kind for kind in kinds if kind != UNCHANGED), kinds[0])


# A micro-batch that was interrupted: with which settings it is repeated, and when planned anew.
#
# It is repeated with the settings of the run that began it. Some sinks may have its results
# already. With another `idle`, or with `--once`, which looks at no wall clock, the repeated one
# would give others: what is missing then comes in a later micro-batch, and is in those sinks twice.
#
# What it reads stays the same for the same reason. But what cannot be processed because it is too
# much would then never be: so where no sink has anything of it, and a limit is smaller than it was,
# it is taken from the driver's record, and what it reads is planned anew.

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
    something anywhere are repeated as they were. Where sources have begun to be read stays on
    record: the first of the others reads nothing then.

    identity: of the checkpoint
    confirm: raises InputError if another run has the checkpoint

    Raises InputError, and Unreachable for sinks that do not answer.
    """
    checkpoint, batches = deployment.checkpoint, batches_of(deployment.checkpoint)
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
    beginnings = _beginnings(checkpoint, dropped)
    for batch in dropped:
        for sink in deployment.sinks.values():
            publishing(sink).remove_leftovers(sink, MicroBatch(identity, batch), ())
    remove_begun(checkpoint, dropped[1:] if beginnings else dropped)
    for manifest in beginnings:
        ManifestFolder.of(checkpoint).write(manifest)
    remove_tries(checkpoint)
    warn(f"{_named(dropped[0], last)} planned anew, with a smaller {', '.join(smaller)}: nothing was published")


def _beginnings(checkpoint: Place, dropped: range) -> list[Manifest]:
    """Manifests of the first of these micro-batches that read nothing, and say where sources begin.

    Empty = there is nothing to say: all of them can go.
    """
    manifests = ManifestFolder.of(checkpoint)
    before, first, last = (manifest_of(checkpoint, batch) for batch in (dropped[0] - 1, dropped[0], dropped[-1]))
    read = load_list(list_place(checkpoint), manifests, before)
    found = [manifests.read(number) for number in range(before + 1, last + 1)]
    still = {name: Part(item.format, item.memory.still()) for name, item in read.by_source.items()}
    begun: dict[str, Part] = {}
    for name, part in found[-1].by_source.items():
        pieces = [manifest.by_source[name].piece for manifest in found if name in manifest.by_source]
        piece = planning_of(part.format).begun(still[name].piece if name in still else None, pieces)
        if piece is not None:
            begun[name] = Part(part.format, piece)
    own = [replace(manifest, by_source=still | begun, unread={}) for manifest in found[: first - before]]
    return own if begun else []


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


# Sinks that a deployment no longer has, while a micro-batch was interrupted.
#
# It is repeated into the sinks of now. What it has left in former ones would stay beside that: so
# it is taken out of folders of this machine. Of a folder in a store, and of a topic, it is said
# that results may be there: how these are reached may be secret, so no file of a checkpoint has it.
# A checkpoint that was copied takes nothing out of sinks of the one that it was copied from.

_OUTPUT = "output"

_KEEPS_FORMER = "Or delete `ensue/sinks.json` of the checkpoint: then it stays there beside what other sinks get"


class _Was(TypedDict):
    """A sink as a run had it.

    place: its folder, if it is one of this machine
    shown: where it is, as messages say it
    """

    format: str
    place: str | None
    shown: str


class _Sinks(TypedDict):
    """The sinks of a run, by name; `checkpoint`: where its checkpoint was."""

    checkpoint: str
    sinks: dict[str, _Was]


def leave_former(deployment: Deployment, identity: str, confirm: Callable[[], None]) -> None:
    """Take what an interrupted micro-batch has left out of former sinks; write down those of now.

    identity: of the checkpoint
    confirm: raises InputError if another run has the checkpoint

    Raises InputError where a folder cannot be read or written.
    """
    file, here = _sinks_file(deployment.checkpoint), str(deployment.checkpoint.resolve())
    now = {name: _was(sink) for name, sink in deployment.sinks.items()}
    known, wanted = file.read(), _Sinks(checkpoint=here, sinks=now)
    if known == wanted:
        return
    confirm()
    before = known["sinks"] if known is not None else {}
    former = _Former(identity, batches_of(deployment.checkpoint), known is not None and known["checkpoint"] == here)
    for name, was in before.items():
        if name in now and now[name]["shown"] != was["shown"]:
            former.take_out(name, was)
    channels, own = before.keys() - {*SINKS}, now.keys() - {*SINKS}
    # what is sent to a channel is in `output` if it has no sink of its own
    if channels != own and _OUTPUT in now and former.take_out(_OUTPUT, before.get(_OUTPUT)):
        for name in channels - own:
            former.take_out(name, before[name])
    file.write(wanted)


@dataclass(frozen=True, slots=True)
class _Former:
    """What is taken out of former sinks; what no sink gets any more stays where it is."""

    identity: str
    batches: Batches
    is_own: bool
    """Whether the checkpoint is where it was; else it may be a copy of another job's."""

    def take_out(self, name: str, was: _Was | None) -> bool:
        """Take out what is behind the last micro-batch that has ended; False = some may stay."""
        if was is None:
            return True
        if self.batches.open is None:
            return True
        if was["place"] is None or not self.is_own:
            why = "nobody looks there" if self.is_own else "the checkpoint was somewhere else, and may be a copy"
            _warn_of_doubled(was["shown"], self.batches.ended + 1, why)
            return False
        sink = Sink(was["format"], None, LocalPath(was["place"]))
        try:
            return self._take_out_of(name, sink)
        except OSError as error:
            text = f"{sink.folder}: was a sink; what an interrupted micro-batch has left there has to be removed first"
            raise refused(error, text, _KEEPS_FORMER) from error

    def _take_out_of(self, name: str, sink: Sink) -> bool:
        kind, last = publishing(sink), self.batches.ended
        found = [item for item in kind.results(sink) if item.identity == self.identity and item.batch > last]
        found.sort(key=lambda item: item.batch)
        if found and found[-1].batch > self.batches.begun:
            why = f"there is a later one, {found[-1].batch}, which the checkpoint does not know"
            _warn_of_doubled(str(sink.folder), last + 1, why)
            return False
        try:
            places = kind.removable(name, sink, found, last) if found else []
        except InputError as error:
            _warn_of_doubled(str(sink.folder), found[0].batch, str(error))
            return False
        kind.remove(sink, places, self.identity, last)
        kind.remove_leftovers(sink, MicroBatch(self.identity, last + 1), ())
        if found:
            warn(
                f"{sink.folder}: results of micro-batch {found[0].batch}, which was interrupted, were removed: the sinks"
                " have changed, and those of now get them"
            )
        return True


def _warn_of_doubled(where: str, batch: int, why: str) -> None:
    warn(
        f"{where}: may have results of micro-batch {batch}, which was interrupted, and is repeated into the sinks of now:"
        f" rows may be in both, and cannot be removed: {why}"
    )


def _was(sink: Sink) -> _Was:
    is_here = isinstance(sink.place, LocalPath)
    place = str(sink.place.resolve()) if is_here and sink.place is not None else None
    return {"format": sink.format, "place": place, "shown": place or sink_kind(sink.format).shown(sink)}


def _sinks_file(checkpoint: Place) -> JobFile[_Sinks]:
    return JobFile(JobFolder(checkpoint).path / "sinks.json", _Sinks, _KEEPS_FORMER, text=_sinks_text)


def _sinks_text(plain: _Sinks) -> str:
    return json.dumps(plain, indent=1, sort_keys=True)
