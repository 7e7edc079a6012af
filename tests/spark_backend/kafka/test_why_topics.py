"""`ensue why JOB` over a topic: what was read is read again, a record has the offset of its partition."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from ensue.asking_jobs import why_of_job
from querylang.errors import InputError
from runtime.why import Status
from tests.support.kafka.broker import Broker
from tests.support.kafka.topic_job import TopicJob
from tests.support.local_jobs import run

pytest.importorskip("confluent_kafka")


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory, broker: Broker) -> TopicJob:
    made = TopicJob(tmp_path_factory.mktemp("topics"), broker)
    run(made.path)
    return made


def matches(job: TopicJob) -> pd.DataFrame:
    files = sorted((job.folder / "out" / "matches" / "Rise").rglob("*.parquet"))
    return pd.concat([pd.read_parquet(file) for file in files])


def test_each_match_is_explained_by_its_messages(job: TopicJob) -> None:
    found = matches(job)
    assert len(found) > 50
    places = {(row.partition, row.offset): row for row in job.rows.itertuples()}
    for match in found["match_id"].iloc[:: len(found) // 6]:
        (answer,) = why_of_job(job.path, match).answers
        assert answer.status is Status.MATCHED
        assert len(answer.events) >= 2
        for event in answer.events:
            row = places[event.partition, event.offset]
            assert (event.source, event.fields["sensor"]) == (job.topic, row.sensor)
            assert event.fields["value"] == pytest.approx(row.value, nan_ok=True)


def test_a_message_is_asked_for_by_its_partition_and_offset(job: TopicJob) -> None:
    with pytest.raises(InputError, match=f"several records have the offset 7: .* of which of {job.topic}/0, "):
        why_of_job(job.path, row=7, source=job.topic)
    for partition in range(3):
        (sensor,) = job.rows.loc[(job.rows["partition"] == partition) & (job.rows["offset"] == 7), "sensor"]
        answers = why_of_job(job.path, row=7, source=f"{job.topic}/{partition}").answers
        events = [answer.event for answer in answers if answer.event is not None]
        assert events
        assert {(event.partition, event.offset, event.fields["sensor"]) for event in events} == {(partition, 7, sensor)}
    with pytest.raises(InputError, match="there is no record with the offset 7 of"):
        why_of_job(job.path, row=7, source=f"{job.topic}/3")


def test_a_key_is_asked_for_at_a_time(job: TopicJob) -> None:
    found = matches(job)
    row = found.iloc[0]
    answers = why_of_job(job.path, key=[row["key"]["sensor"]], at=row["time"].isoformat()).answers
    assert any(answer.status is Status.MATCHED for answer in answers)


def test_messages_that_the_broker_has_removed_are_named(tmp_path: Path, broker: Broker) -> None:
    job = TopicJob(tmp_path, broker)
    run(job.path)
    broker.delete_before(job.topic, {1: 100})
    with pytest.raises(InputError, match=rf"{job.topic}/1"):
        why_of_job(job.path, row=7, source=f"{job.topic}/0")
