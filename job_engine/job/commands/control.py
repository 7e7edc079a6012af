"""Control events that users send to a job by command."""

from __future__ import annotations

from job_engine.errors import in_plain_words
from job_engine.job.checkpoint.checkpoint_record import read_record
from job_engine.job.commands.sending import Sent, send_command
from job_engine.job.compilation import compile_deployment
from job_engine.job.journal.written import read_journal
from job_engine.settings.deployment import Deployment
from job_engine.sources.listing.command_folder import CHANGE
from querylang.errors import InputError
from querylang.plan.changes import CHANGES
from querylang.plan.model import Plan, QueryPlan
from runtime.instants import EXPECTED, parse_moment
from runtime.policies.per_input import NO_WAIT, is_clocked, policy_columns
from runtime.reading.control_events import (
    ControlError,
    HeartbeatControl,
    control_name,
    parse_change,
    parse_engine_control,
)


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
    return compile_deployment(deployment, None if record is None else record.types()).plan


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
