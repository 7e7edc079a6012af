"""The backlog of a job: each source is asked in a thread of its own, and not for long.

It is found beside the job, from the list of what was read and from the sources as they are now. So
it is the same whether the job runs or not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from job_engine.clock import monotonic
from job_engine.errors import SourceProblem
from job_engine.settings.deployment import Deployment
from job_engine.sources.kinds import running_of
from job_engine.sources.listing.batch_log import DamagedManifest
from job_engine.sources.listing.manifests import what_was_read
from job_engine.sources.source import SourceBacklog
from job_engine.threads import in_background

PATIENCE = 1.0
"""Seconds that brokers and folders may take to answer."""


def backlog_of(deployment: Deployment, patience: float = PATIENCE) -> tuple[SourceBacklog, ...]:
    """The backlog of each source, the control stream last; takes at most `patience` seconds."""
    sources = deployment.all_sources
    try:
        read = what_was_read(deployment.checkpoint)
    except (DamagedManifest, OSError) as error:
        return tuple(SourceBacklog(source.name, problem=str(error)) for source in sources)
    asked = [
        partial(running_of(source).backlog, source.own, read.of(source.name, source.format), deployment.checkpoint)
        for source in sources
    ]
    return _answers([source.name for source in sources], asked, patience)


def _answers(
    names: Sequence[str], asked: Sequence[Callable[[], SourceBacklog]], patience: float
) -> tuple[SourceBacklog, ...]:
    """All answers; what takes too long is left behind in its thread."""
    found: dict[str, SourceBacklog] = {}

    def ask(name: str, question: Callable[[], SourceBacklog]) -> None:
        try:
            found[name] = question()
        except (SourceProblem, DamagedManifest, OSError) as error:
            found[name] = SourceBacklog(name, problem=str(error))

    questions = [partial(ask, *pair) for pair in zip(names, asked, strict=True)]
    threads = [in_background(question, "ensue-backlog") for question in questions]
    deadline = monotonic() + patience
    for thread in threads:
        thread.join(max(0.0, deadline - monotonic()))
    late = f"did not answer within {patience:g} s"
    return tuple(found.get(name) or SourceBacklog(name, problem=late) for name in names)
