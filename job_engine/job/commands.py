"""What users ask of a job while it runs, or for its next start: control events and changes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence

from job_engine.clock import monotonic, sleep
from job_engine.deployment import Deployment
from job_engine.errors import in_plain_words
from job_engine.job.checkpoint.checkpoint_record import read_record
from job_engine.job.checkpoint.job_folder import JobFolder
from job_engine.job.compilation import compiled_as_kept
from job_engine.job.journal import InstancesCommand
from job_engine.job.written_journal import instances_text, read_journal
from job_engine.sources.listing.batch_log import batches_of
from job_engine.sources.listing.command_folder import CHANGE, EVENT, Command, CommandKind, Outcome
from querylang.dataclass import dataclass, replace
from querylang.errors import InputError, did_you_mean
from querylang.plan.model import Plan, QueryPlan
from querylang.plan.routing import CHANGES
from querylang.printable import warn
from querylang.running import Running, RunningQuery, shadow_of
from querylang.system_errors import refused
from runtime.input_policies import NO_WAIT, is_clocked, policy_columns
from runtime.instants import EXPECTED, parse_moment
from runtime.reading import ControlError, HeartbeatControl, control_name, parse_change, parse_engine_control

# Send a command to a job, and wait for what becomes of it.

LOOK = 0.25
"""Seconds between two looks for an outcome."""


@dataclass(frozen=True, slots=True)
class Sent:
    """A command that was written.

    is_running: whether a job runs that takes it; else its next start does
    outcome: what became of it; None = nobody waited for it, or no job runs
    """

    command: Command
    is_running: bool
    outcome: Outcome | None = None


def send_command(
    deployment: Deployment,
    text: str,
    *,
    kind: CommandKind = EVENT,
    at: int | None = None,
    wait: bool = True,
    seconds: float | None = None,
) -> Sent:
    """Write a command into the checkpoint of a deployment, and wait until it is taken.

    at: the arrival time at which it takes place, µs; None = as soon as it is read
    seconds: how long to wait at most; None = for as long as the job runs

    Raises InputError if it cannot be written, or if the job ends before it takes it.
    """
    folder = JobFolder(deployment.checkpoint)
    if read_record(deployment.checkpoint) is None:
        raise InputError(
            f"{deployment.checkpoint}: no job has run on this checkpoint yet; start it with `ensue run {deployment.file}`"
        )
    lock = folder.lock()
    runs = lock.is_held()
    try:
        command = folder.commands.send(text, at=at, kind=kind)
    except OSError as error:
        raise refused(error, f"{folder.commands.path}: the command cannot be written") from error
    if not (runs and wait):
        return Sent(command, runs)
    return Sent(command, runs, _outcome(folder, command, lock.is_held, seconds))


def _outcome(folder: JobFolder, command: Command, runs: Callable[[], bool], seconds: float | None) -> Outcome | None:
    """What became of a command; None = nothing in that time."""
    limit = None if seconds is None else monotonic() + seconds
    next_question = monotonic() + 2
    said = ""
    while (found := folder.commands.outcome(command.number)) is None:
        now = monotonic()
        if limit is not None and now > limit:
            return None
        if now > next_question:
            next_question = now + 2
            if not runs() and folder.commands.outcome(command.number) is None:
                raise InputError(
                    f"{folder.checkpoint}: the job ended before it took the command, which is kept for its next start"
                )
            reason = what_it_waits_for(folder, command)
            if reason != said:
                said = reason
                warn(f"command {command.number} waits for {reason}")
        sleep(LOOK)
    return found


def what_it_waits_for(folder: JobFolder, command: Command) -> str:
    """What has to happen before a job takes a command."""
    earlier = [number for number in folder.commands.pending() if number < command.number]
    if earlier:
        return f"command {earlier[0]}, which was sent before it"
    batches = batches_of(folder.checkpoint)
    if batches.open is not None:
        return f"the end of micro-batch {batches.open}, which is being processed"
    if batches.ended < 0:
        return "the first micro-batch: the job has begun and has not read anything yet"
    return "the next micro-batch; the job's `trigger` and its sources decide when it begins"


# Control events that users send to a job by command.


def send_control(
    deployment: Deployment, text: str, *, at: str | None = None, wait: bool = True, seconds: float | None = None
) -> Sent:
    """Send a control event to a job, as `send_command` does.

    at: the arrival time at which it takes place, as text; None = as soon as it is read

    Raises InputError for one that is wrong or that no query heeds.
    """
    if control_name(text).rpartition(".")[2] in CHANGES:
        return send_change(deployment, text, at=at, wait=wait, seconds=seconds)
    with in_plain_words(deployment.environment):
        refuse_unheeded(text, _running(deployment))
        return send_command(deployment, text, at=moment_of(at), wait=wait, seconds=seconds)


def send_change(
    deployment: Deployment, text: str, *, at: str | None = None, wait: bool = True, seconds: float | None = None
) -> Sent:
    """Send a change of the queries to a job; as `send_control`.

    Raises InputError for one that is not well formed. What else is wrong its outcome tells.
    """
    with in_plain_words(deployment.environment):
        try:
            parse_change(text)
        except ControlError as error:
            raise InputError(str(error)) from error
        return send_command(deployment, text, kind=CHANGE, at=moment_of(at), wait=wait, seconds=seconds)


def _running(deployment: Deployment) -> Plan:
    """What runs on the checkpoint: the texts of the files, or what changes have made of them."""
    journal = read_journal(deployment)
    if journal is not None:
        return journal.plan
    record = read_record(deployment.checkpoint)
    return compiled_as_kept(deployment, record).plan


def refuse_unheeded(text: str, plan: Plan) -> None:
    """Raise InputError for a control event that is wrong or that no query heeds."""
    try:
        control = parse_engine_control(text, plan)
    except ControlError as error:
        raise InputError(str(error)) from error
    if isinstance(control, HeartbeatControl):
        if not any(_heeds_heartbeat(query, control.event) for query in plan.queries):
            raise InputError(f"no query heeds a heartbeat of {control.event!r}: none waits for its definitive time")
    elif not any(_heeds_leeway(query) for query in plan.queries):
        raise InputError(
            "no query heeds SetDelayedEventsLeeway: none has an input with `wait` whose timeline its own records advance"
        )


def _heeds_heartbeat(query: QueryPlan, event: str) -> bool:
    return any(item.event == event and (is_clocked(item) or item.wait is not None) for item in query.inputs)


def _heeds_leeway(query: QueryPlan) -> bool:
    """Whether some timeline has a delay of its own, and records advance it."""
    columns = policy_columns(query)
    return any(
        not is_clocked(item) and delay != NO_WAIT and moves
        for item, delay, moves in zip(query.inputs, columns.delay.tolist(), columns.moves.tolist(), strict=True)
    )


def moment_of(text: str | None) -> int | None:
    """An arrival time that `--at` gives; raises InputError."""
    if text is None:
        return None
    moment = parse_moment(text)
    if moment is None:
        raise InputError(f"--at {text!r} is not {EXPECTED}")
    return moment


# Deploy a changed query beside the one that runs, with the same instances.


@dataclass(frozen=True, slots=True)
class SentShadow:
    """Queries that were sent to run beside others.

    names: of the shadows, by the name of the query that each runs beside
    sent: what became of them: the first change that was refused, or else the last one
    """

    names: dict[str, str]
    sent: Sent


def send_shadow(
    deployment: Deployment, text: str, path: str, *, at: str | None = None, wait: bool = True
) -> SentShadow:
    """Deploy the queries of a text as shadows of those with the same names.

    Raises QueryErrors and InputError. What else is wrong the outcomes tell.
    """
    shadow = shadow_of(text, path)
    running = _running_queries(deployment)
    for name, own in shadow.names.items():
        if name not in running.queries:
            raise InputError(f"{path}: there is no query '{name}' that could have a shadow{_hint(name, running)}")
        if own in running.queries:
            raise InputError(f"'{own}' runs already; end it with `ensue undeploy {deployment.file} {own}`")
    changes = [json.dumps({"DeployQuery": [shadow.text]})]
    for name, own in shadow.names.items():
        changes += _instances(running.queries[name], own)
    place = moment_of(at)
    # The earlier ones need no wait, because they are taken in order.
    sent = [send_command(deployment, change, kind=CHANGE, at=place, wait=False) for change in changes[:-1]]
    sent.append(send_command(deployment, changes[-1], kind=CHANGE, at=place, wait=wait))
    return SentShadow(shadow.names, _first_refused(deployment, sent))


def _first_refused(deployment: Deployment, sent: Sequence[Sent]) -> Sent:
    commands = JobFolder(deployment.checkpoint).commands
    for item in sent[:-1]:
        outcome = commands.outcome(item.command.number)
        if outcome is not None and outcome.errors:
            return replace(item, outcome=outcome)
    return sent[-1]


def _instances(query: RunningQuery, shadow: str) -> Iterator[str]:
    """The changes that give a shadow the instances of a query."""
    if any(query.hidden.values()):
        yield instances_text(InstancesCommand(query.name, shadow))
        return
    for name, values in query.instances.items():
        if name or values:
            yield json.dumps({"SetParameters": [shadow, name, dict(values)]})
    if query.instances and "" not in query.instances:
        yield json.dumps({"RemoveInstance": [shadow, ""]})


def _running_queries(deployment: Deployment) -> Running:
    with in_plain_words(deployment.environment):
        journal = read_journal(deployment)
        if journal is not None:
            return journal.running
        record = read_record(deployment.checkpoint)
        return compiled_as_kept(deployment, record).running


def _hint(name: str, running: Running) -> str:
    return did_you_mean(name, running.queries)
