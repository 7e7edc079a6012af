"""Take changes of the queries between two micro-batches; they are written down first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from job_engine.deployment import Deployment
from job_engine.job.checkpoint.checkpoint_record import write_record
from job_engine.job.checkpoint.job_folder import Reached
from job_engine.job.history.read_again import (
    histories,
    joined_folder,
    remove_done,
    remove_unused,
)
from job_engine.job.history.running import HistoryProgram, HistoryReading
from job_engine.job.journal import HistoryCommand, Journal, Taking, moment_of_change
from job_engine.job.lookup_files import refuse_unknown_tables, with_kept_tables
from job_engine.job.plan_rules import finishing
from job_engine.job.preflight import Checked
from job_engine.job.written_journal import asked_of_text, read_journal, write_journal
from job_engine.place import Place
from job_engine.sources.listing.command_folder import CHANGE, ERROR, Answer, Command, CommandFolder
from job_engine.wire.program import Program
from querylang.errors import InputError
from querylang.plan.routing import UNCHANGED, Outcome, has_chains
from runtime.instants import EARLIEST
from runtime.json_reader import DamagedJson


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
    commands, journal = CommandFolder(checkpoint), read_journal(ready.deployment)
    if journal is not None:
        _answer(commands, journal)  # a run may have been killed before it did
        journal = journal.annotated_by(ready.files.files).settled(reached.progress, reached.batches.ended)
        journal = journal.gathered_in(ready.program)
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
    finish = finishing(deployment, feeds=ready.program.feeds and journal.is_fed)
    program = ready.program
    taking = Taking(command.number, moment, reached.batches.ended, finish, program.sources, program.crosses)
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
        return journal.refused(f"DeployQuery: {' '.join(str(error).split())}", taking)
    return joined


def kept_program(program: Program, deployment: Deployment) -> Program:
    """What runs on a checkpoint; `program`: what its files say."""
    journal, program = read_journal(deployment), with_kept_tables(program, deployment)
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
