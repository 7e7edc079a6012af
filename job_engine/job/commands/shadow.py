"""Deploy a changed query beside the one that runs, with the same instances."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from job_engine.errors import in_plain_words
from job_engine.job.checkpoint.checkpoint_record import read_record
from job_engine.job.checkpoint.job_folder import JobFolder
from job_engine.job.commands.control import moment_of
from job_engine.job.commands.sending import Sent, send_command
from job_engine.job.compilation import compile_deployment
from job_engine.job.journal.journal import InstancesCommand
from job_engine.job.journal.written import instances_text, read_journal
from job_engine.settings.deployment import Deployment
from job_engine.sources.listing.command_folder import CHANGE
from querylang.errors import InputError, did_you_mean
from querylang.running import Running, RunningQuery, shadow_of


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
    running = _running(deployment)
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


def _running(deployment: Deployment) -> Running:
    with in_plain_words(deployment.environment):
        journal = read_journal(deployment)
        if journal is not None:
            return journal.running
        record = read_record(deployment.checkpoint)
        compiled = compile_deployment(deployment, None if record is None else record.types())
        return compiled.running


def _hint(name: str, running: Running) -> str:
    return did_you_mean(name, running.queries)
