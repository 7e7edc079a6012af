"""A job on topics that is moved from engine to engine in the middle of its stream: each message once."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from job_engine.job.job import deploy
from job_engine.job.stages.prepare import prepare
from job_engine.job.stages.start import Handle, RunKind, start
from job_engine.job.upkeep.moving import move
from job_engine.setting_keys import Engine
from tests.support.kafka.broker import Broker
from tests.support.kafka.topic_job import TopicJob
from tests.support.local_jobs import begun
from tests.support.local_jobs import run as run_local
from tests.support.moved_jobs import set_file
from tests.support.waiting import wait_for

_NEW = 2
"""Micro-batches of each engine, at least, before the other one continues."""


def stop_between(handle: Handle, batches: Sequence[object]) -> None:
    def is_at_work() -> None:
        assert handle.is_active

    wait_for(lambda: len(batches) >= _NEW, meanwhile=is_at_work)
    handle.stop()


def repeat_interrupted(path: Path) -> None:
    """Let the micro-batch end in which a run was stopped, if there is one, and read nothing new."""
    job = prepare(path)
    try:
        start(job, lambda _: None, RunKind(is_bounded=True, only_repeats=True)).await_termination()
    finally:
        job.close()


def test_a_job_goes_from_engine_to_engine_between_its_messages(tmp_path: Path, broker: Broker) -> None:
    deltalake = pytest.importorskip("deltalake", reason="deltalake is not installed")
    job = TopicJob(tmp_path, broker, "delta")
    handle, batches = begun(job.path, kind=RunKind())
    stop_between(handle, batches)
    set_file(job.path, **move(job.path, Engine.SPARK, 4).to_set)
    batches = []
    handle = deploy(job.path, batches.append)
    stop_between(handle, batches)
    repeat_interrupted(job.path)
    done = move(job.path, Engine.LOCAL, 3)
    set_file(job.path, **done.to_set)
    assert done.batch is not None
    assert done.batch >= 2 * _NEW - 1
    run_local(job.path)
    tables = {name: deltalake.DeltaTable(tmp_path / "out" / "matches" / name) for name in ("Rise", "Jump")}
    found = {name: sorted(own.to_pyarrow_table().column("match_id").to_pylist()) for name, own in tables.items()}
    assert found == job.expected()
    job.assert_exactly_once()
