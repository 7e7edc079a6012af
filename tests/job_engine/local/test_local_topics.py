"""Local jobs from topics to topics and tables: each message once, whatever was published and not committed."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import pytest

from job_engine.deployment_file import load_deployment
from job_engine.job.checkpoint.job_folder import JobFolder
from job_engine.job.history.running import send_with_history
from job_engine.sources.listing.command_folder import CommandFolder
from querylang.errors import InputError
from tests.support.embedded import match_ids
from tests.support.kafka.broker import Broker
from tests.support.kafka.topic_job import TopicJob
from tests.support.killed_runs import start, wait_until
from tests.support.local_jobs import CrashAt, crashed, run
from tests.support.sensors import QUERY, streamed, totals


def test_a_job_on_topics_gives_what_a_replay_gives(tmp_path: Path, broker: Broker) -> None:
    job = TopicJob(tmp_path, broker)
    assert len(run(job.path)) > 5
    assert streamed(tmp_path) == job.expected()
    job.assert_exactly_once()


def test_messages_that_were_published_and_not_committed_are_not_sent_again(tmp_path: Path, broker: Broker) -> None:
    job = TopicJob(tmp_path, broker)
    assert crashed(job.path, CrashAt("published", 3)) == [0, 1, 2, 3]
    assert crashed(job.path, CrashAt("published", 1)) == [0, 1]
    run(job.path)
    assert streamed(tmp_path) == job.expected()
    job.assert_exactly_once()


def test_a_killed_job_sends_each_message_once(tmp_path: Path, broker: Broker) -> None:
    job = TopicJob(tmp_path, broker)
    for number in (1, 3):
        process = start(job.path)
        wait_until(process, (tmp_path / "state" / "offsets" / str(number)).exists)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    run(job.path)
    assert streamed(tmp_path) == job.expected()
    job.assert_exactly_once()


def test_tables_of_delta_have_each_row_once(tmp_path: Path, broker: Broker) -> None:
    deltalake = pytest.importorskip("deltalake", reason="deltalake is not installed")
    job = TopicJob(tmp_path, broker, "delta")
    crashed(job.path, CrashAt("published", 3))
    run(job.path)
    tables = {name: deltalake.DeltaTable(tmp_path / "out" / "matches" / name) for name in ("Rise", "Jump")}
    found = {name: sorted(own.to_pyarrow_table().column("match_id").to_pylist()) for name, own in tables.items()}
    assert found == job.expected()
    job.assert_exactly_once()


def test_an_older_checkpoint_is_refused(tmp_path: Path, broker: Broker) -> None:
    job = TopicJob(tmp_path, broker)
    crashed(job.path, CrashAt("published", 4))
    for entry in (tmp_path / "state" / "offsets").glob("[0-9]*"):  # the next one may have begun
        if int(entry.name) > 2:
            entry.unlink()
    with pytest.raises(
        InputError, match=r"has reached micro-batch 2, but the sink .matches. holds results of micro-batch [34]"
    ):
        run(job.path)


def test_a_query_is_deployed_with_the_history_of_a_topic(tmp_path: Path, broker: Broker) -> None:
    job, file = TopicJob(tmp_path, broker), tmp_path / "sensors.query"
    answer = job.answer()
    types, rise, jump = re.split(r"^(?=query )", QUERY, flags=re.MULTILINE)
    file.write_text(types + jump)
    crashed(job.path, CrashAt("committed", 2), interval=0.0)
    number = send_with_history(load_deployment(job.path), types + rise, wait=False).command.number
    run(job.path)
    outcome = CommandFolder(tmp_path / "state").outcome(number)
    assert outcome is not None
    assert outcome.time is not None
    assert not outcome.errors
    matches = answer.matches["Rise"].to_pylist()
    behind = [row["match_id"] for row in matches if row["emitted"].timestamp() * 1e6 > outcome.time]
    assert 0 < len(behind) < len(matches)
    found = streamed(tmp_path)
    assert (found["Jump"], found["Rise"]) == (match_ids(answer)["Jump"], sorted(behind))
    account = totals(JobFolder(tmp_path / "state").ledger.total(), "Rise")
    assert account.pop("received") == len(job.rows) == sum(account.values())
