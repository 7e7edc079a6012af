"""Deploy queries with history: run them over what the job has read, beside it, then send them."""

from __future__ import annotations

from dataclasses import replace

from job_engine.clock import monotonic
from job_engine.errors import in_plain_words
from job_engine.job.checkpoint.checkpoint_record import read_record
from job_engine.job.checkpoint.job_folder import JobFolder
from job_engine.job.checkpoint.progress import JobProgress
from job_engine.job.commands.control import moment_of
from job_engine.job.commands.sending import Sent, send_command
from job_engine.job.compilation import compile_deployment
from job_engine.job.history.history_folders import new_folder
from job_engine.job.history.running import Reading, history_program, write_history
from job_engine.job.history.table_run import limits_of, run_over_table
from job_engine.job.journal.journal import HistoryCommand, Journal, Taking, moment_of_change
from job_engine.job.journal.written import history_text, read_journal
from job_engine.job.plan_rules import finishing
from job_engine.operator.history_run import HistoryRun
from job_engine.settings.deployment import Deployment
from job_engine.sources.listing.command_folder import CHANGE
from job_engine.wire.clock_sources import Clock
from job_engine.wire.program import Program
from querylang.errors import InputError
from runtime.instants import EXPECTED, NO_TIME, parse_moment
from runtime.timestamps import format_time

START = "start"
"""In place of a time: all that the job has read."""

SOON = 2.0
"""Seconds of reading that the job may wait for."""

MOST_ROUNDS = 10


def send_with_history(
    deployment: Deployment,
    text: str,
    since: str = START,
    *,
    at: str | None = None,
    uses_table: bool = False,
    accepts_gap: bool = False,
    wait: bool = True,
) -> Sent:
    """Deploy the queries of a text that have run over what the job has read; as `send_change`.

    since: records that arrived before this time are left out; START = none are
    uses_table: whether they first run over the history table of the deployment

    Raises InputError if the text is wrong, or if the records are not there any more.
    """
    with in_plain_words(deployment.environment):
        _refuse_no_table(deployment, uses_table=uses_table)
        moment, place = _since(since), moment_of(at)
        _refuse_other_clocks(deployment)
        progress = JobFolder(deployment.checkpoint).last_progress()
        _refuse_later(moment, progress)
        folder = new_folder(deployment.checkpoint)
        command = HistoryCommand(text, folder.name, None, accepts_gap)
        program = _program(deployment, command)
        if uses_table:
            run, limits = HistoryRun(program), limits_of(moment, program, progress.clock)
            last = run_over_table(run, program, deployment, limits)
            reading = Reading(deployment, program, replace(command, since=last + 1))
            run, mark = reading.begin(progress.clock, run, last)
        else:
            reading = Reading(deployment, program, replace(command, since=_with_held(moment, program, progress)))
            run, mark = reading.begin(progress.clock)
        for _ in range(MOST_ROUNDS):
            started = monotonic()
            mark, steps = reading.go_on(run, mark)
            if not steps or monotonic() - started < SOON:
                break
        write_history(folder, run, mark)
        return send_command(deployment, history_text(reading.command), kind=CHANGE, at=place, wait=wait)


def _refuse_no_table(deployment: Deployment, *, uses_table: bool) -> None:
    if uses_table and deployment.history is None:
        raise InputError(f"{deployment.file}: has no 'history', which says where the table is")


def _since(text: str) -> int | None:
    if text == START:
        return None
    moment = parse_moment(text)
    if moment is None:
        raise InputError(f"--from {text!r} is not {EXPECTED}, nor `{START}`")
    return moment


def _with_held(moment: int | None, program: Program, progress: JobProgress) -> int | None:
    """When the history begins so that it has all that the job still has to process: buckets hold
    that, and it cannot be left out there."""
    if moment is None:
        return None
    met = [group.sources for group in program.groups()]
    reached = [
        item.arrival for item in progress.clock.sources if any(names is None or item.source in names for names in met)
    ]
    least = min([moment, *reached])
    return None if least == NO_TIME else least


def _refuse_other_clocks(deployment: Deployment) -> None:
    if deployment.clock is not Clock.ARRIVAL:
        raise InputError(
            f"{deployment.file}: with `clock: processing` records arrive when they are read, so there is no history"
        )


def _refuse_later(moment: int | None, progress: JobProgress) -> None:
    furthest = progress.furthest
    if moment is not None and furthest is not None and moment > furthest:
        raise InputError(
            f"--from {format_time(moment)} lies behind all that the job has read, until {format_time(furthest)};"
            " without it the queries begin now"
        )


def _program(deployment: Deployment, command: HistoryCommand) -> Program:
    """What runs over the history; raises InputError for a text that cannot be deployed."""
    record = read_record(deployment.checkpoint)
    if record is None:
        raise InputError(
            f"{deployment.checkpoint}: no job has run on this checkpoint yet; start it with `ensue run {deployment.file}`"
        )
    compiled = compile_deployment(deployment, record.types())
    program, files = compiled.program(deployment), compiled.running
    journal = (read_journal(deployment) or Journal.begin(files, program.plan())).annotated_by(files)
    moment = moment_of_change(JobFolder(deployment.checkpoint).last_progress(), None)
    foretold = journal.joined(command, Taking(0, moment, 0, finishing(deployment)), "")
    if foretold.taken[-1].errors:
        raise InputError("; ".join(foretold.taken[-1].errors))
    return history_program(foretold, program)
