"""Let a job forget a key, and tell where the key remains."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from job_engine.errors import in_plain_words
from job_engine.job.commands.sending import Sent, send_command
from job_engine.job.upkeep.opened_checkpoint import open_checkpoint
from job_engine.settings.deployment import Deployment
from job_engine.settings.deployment_file import load_deployment
from job_engine.sinks.kinds import sink_kind
from job_engine.sources.kinds import kind_of
from job_engine.sources.listing.command_folder import FORGET, Outcome, key_text
from runtime.columns.keys import GivenKey
from runtime.json_reader import json_of_text
from runtime.json_shapes import Count


@dataclass(frozen=True, slots=True)
class Forgetting:
    """What becomes of a key.

    sent: the command, and its outcome if the job has carried it out
    removed: numbers of events, of waits, and of records that were held; empty = not known yet
    others: titles of queries that have no such key, and may keep its events under other keys
    remains: where records of the key may be, which no job changes
    """

    sent: Sent
    removed: Mapping[str, int]
    others: Sequence[str]
    remains: Sequence[str]


def forget(path: Path | str, key: Sequence[str], *, wait: bool = True) -> Forgetting:
    """Let a job forget a key, at once or at its next start; raises InputError."""
    deployment = load_deployment(path)
    with in_plain_words(deployment.environment):
        plan = open_checkpoint(deployment).program.plan()
        given = GivenKey.of_texts(key, plan)
        sent = send_command(deployment, key_text(given.parts), kind=FORGET, wait=wait)
        others = [query.title for query in plan.queries if given.values_for(plan, query) is None]
        return Forgetting(sent, _removed(sent.outcome), others, list(_remains(deployment)))


def _removed(outcome: Outcome | None) -> Mapping[str, int]:
    total = Counter[str]()
    for answer in () if outcome is None else outcome.answers.values():
        if answer.kind == "forgotten":
            total.update(json_of_text(answer.text, dict[str, Count]))
    return total


def _remains(deployment: Deployment) -> list[str]:
    """What is not touched: results, sources, and what the driver keeps of earlier micro-batches."""
    sinks = [
        f"results of the sink '{name}': {sink_kind(sink.format).shown(sink)}" for name, sink in deployment.sinks.items()
    ]
    sources = [
        f"records of the source '{source.name}': {kind_of(source.format).shown(source)}"
        for source in deployment.sources
    ]
    older = f"states of up to 100 earlier micro-batches, until they are removed: {deployment.checkpoint}"
    return [*sinks, *sources, older]
