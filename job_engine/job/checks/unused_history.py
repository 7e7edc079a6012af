"""Queries that a job begins with, while a history table would have what came before."""

from __future__ import annotations

from collections.abc import Iterator

from job_engine.settings.deployment import Deployment


def unused_history(deployment: Deployment, *, is_new: bool) -> Iterator[str]:
    """A warning that they begin without it; `is_new`: as of `Checked`."""
    if is_new and deployment.history is not None:
        yield (
            "the queries begin with empty windows: 'history' is for those that"
            f" `ensue deploy {deployment.file} QUERY --history` deploys later"
        )
