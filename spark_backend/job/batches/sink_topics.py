"""Topics that a job writes to: connected while it runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from spark_backend.job.checks.earlier_results import newest_offset
from spark_backend.places.place import Place
from spark_backend.sinks.formats import Sink

if TYPE_CHECKING:
    from spark_backend.sinks.kafka.topics import Topics


def with_drafts(sinks: Mapping[str, Sink], folder: Place | None) -> dict[str, Sink]:
    """The sinks of a run; `folder`: where tasks put messages, None = they pass through Spark."""
    drafts = "" if folder is None else str(folder)
    return {
        name: sink if sink.kafka is None else replace(sink, kafka=replace(sink.kafka, drafts=drafts))
        for name, sink in sinks.items()
    }


def begin_topics(identity: str, sinks: Mapping[str, Sink], checkpoint: Place) -> None:
    """Connect for a run; raises InputError where the job may not write."""
    if _has_topics(sinks):
        _topics().begin(identity, sinks, newest_offset(checkpoint))


def end_topics(identity: str, sinks: Mapping[str, Sink]) -> None:
    """End the connections of a run."""
    if _has_topics(sinks):
        _topics().end(identity)


def _has_topics(sinks: Mapping[str, Sink]) -> bool:
    return any(sink.kafka is not None for sink in sinks.values())


def _topics() -> Topics:
    from spark_backend.sinks.kafka.topics import TOPICS

    return TOPICS
