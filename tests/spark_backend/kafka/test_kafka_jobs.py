"""Jobs over topics of a real broker: the matches of an embedded replay, after kills, truncation and while it is down."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import querylang
from ensue.commands.status_text import status_text
from job_engine.errors import Unreachable
from job_engine.job.job import deploy, run
from job_engine.job.status import Status, status_of
from job_engine.setting_keys import Engine
from job_engine.sources.source import PartitionBacklog, SourceBacklog
from querylang.errors import InputError
from runtime.reading.tables import read_arrivals
from tests.support.embedded import embedded, match_ids
from tests.support.engines import ON_BOTH
from tests.support.kafka.broker import PASSWORD, USER, Broker
from tests.support.kafka.registry import encoded, record, running_registry
from tests.support.killed_runs import kill_when, restarted, start
from tests.support.sensors import QUERY, streamed, table, totals
from tests.support.waiting import wait_for

DEPLOYMENT = """\
name: sensors
queries: [sensors.query]
sources:
  readings:
    format: kafka
    options: {{kafka.bootstrap.servers: "{servers}", {topics}, maxOffsetsPerTrigger: {most}}}
    event: Reading
sinks:
  matches:   {{format: parquet, path: out/matches}}
  discarded: {{format: parquet, path: out/discarded}}
trigger: 200ms
buckets: 2
checkpoint: state
"""


def project(folder: Path, broker: Broker, topics: str, most: int = 100_000) -> Path:
    (folder / "sensors.query").write_text(QUERY)
    text = DEPLOYMENT.format(servers=broker.servers, topics=topics, most=most)
    (folder / "sensors.yaml").write_text(text)
    return folder / "sensors.yaml"


def identities(messages: Sequence[Any]) -> list[str]:
    return [dict(message.headers())["ensue-id"].decode() for message in messages]


def readings(rows: int = 3000) -> pd.DataFrame:
    """Readings in the order in which they are produced: their timestamps go back by up to 3 s."""
    random = np.random.default_rng(3)
    found = table(rows)
    stamps = found.pop("at").astype("datetime64[ns, UTC]").astype("int64") // 1_000_000
    found["timestamp"] = stamps - random.integers(0, 3000, rows)
    found["partition"] = random.integers(0, 3, rows)
    found["offset"] = found.groupby("partition").cumcount()
    return found


def produce(broker: Broker, topic: str, rows: pd.DataFrame) -> None:
    fields = rows[["sensor", "value", "ts"]].to_dict("records")
    places = zip(rows["partition"].tolist(), rows["timestamp"].tolist(), fields, strict=True)
    broker.produce(topic, [(partition, stamp, json.dumps(row).encode()) for partition, stamp, row in places])


def expected(folder: Path, topic: str, rows: pd.DataFrame) -> dict[str, list[str]]:
    """The matches of a replay of the same records, with the same arrival."""
    rows = rows.assign(event="Reading", source=topic)
    rows["at"] = pd.to_datetime(rows.groupby("partition")["timestamp"].cummax(), unit="ms", utc=True)
    plan = querylang.compile_paths([folder / "sensors.query"]).plan
    return match_ids(embedded(plan, read_arrivals(rows.drop(columns="timestamp"), plan)))


@ON_BOTH
def test_a_killed_run_goes_on_and_gives_the_matches_of_a_replay(tmp_path: Path, broker: Broker, engine: Engine) -> None:
    topic, rows = broker.topic(3), readings()
    path = project(tmp_path, broker, f"subscribe: {topic}", most=1000)
    output, rises = broker.topic(), broker.topic(2)
    begin, options = "{format: kafka, topic: ", f'options: {{kafka.bootstrap.servers: "{broker.servers}"}}}}'
    sink, channel = f"  output: {begin}{output}, {options}\n", f"channels:\n  rises: {begin}{rises}, {options}\n"
    path.write_text(path.read_text().replace("trigger:", f"{sink}{channel}trigger:"))
    produce(broker, topic, rows)
    process = start(path)
    drafts = tmp_path / "out"
    kill_when(process, lambda: any(drafts.rglob("*-00000001-*")))
    manifests = tmp_path / "state" / "ensue" / "inputs" / "manifests"
    planned = {file.name: file.read_text() for file in manifests.iterdir()}
    assert not (tmp_path / "state" / "commits" / "2").exists()
    report = run(path, once=True, flush=True)
    assert streamed(tmp_path) == expected(tmp_path, topic, rows)
    account = totals(dict(report.ledger), "Rise")
    assert account.pop("received") == len(rows) == sum(account.values())
    assert account.get("lost", 0) == 0
    offsets = json.loads((tmp_path / "state" / "offsets" / "1").read_text().splitlines()[-1])["manifest"]
    first = f"{offsets:010d}.json"
    assert (manifests / first).read_text() == planned[first]
    matches = expected(tmp_path, topic, rows)
    sent, written = broker.messages(rises), broker.messages(output)
    assert sorted(identities(sent)) == sorted(f"{match}/send/rises/1" for match in matches["Rise"])
    assert sorted(identities(written)) == sorted(f"{match}/print/1" for match in matches["Jump"])
    assert all(json.loads(message.value())["sensor"] == message.key().decode() for message in sent)
    assert len({(message.key(), message.partition()) for message in sent}) == len({m.key() for m in sent})


def test_what_cannot_be_decoded_is_discarded_with_its_coordinates(
    tmp_path: Path, broker: Broker, engine: Engine
) -> None:
    one, two = broker.topic(), broker.topic()
    good = json.dumps({"sensor": "s", "value": 1.0, "ts": 1.0}).encode()
    broker.produce(one, [(0, 1000, good), (0, 2000, b'{"sensor": "s"'), (0, 3000, None)])
    broker.produce(two, [(0, 1000, good), (0, 500, b"\xff"), (0, 600, good)])
    path = project(tmp_path, broker, f'subscribe: "{one},{two}"')
    run(path, once=True, flush=True)
    found = pd.read_parquet(tmp_path / "out" / "discarded")
    places = found[found["reason"] == "malformed"].sort_values("arrival")
    assert sorted(zip(places["source"], places["partition"], places["offset"], strict=True)) == sorted(
        [(one, 0, 1), (one, 0, 2), (two, 0, 1)]
    )
    assert any('{"sensor": "s"' in text for text in places["text"])
    times = zip(places["source"], places["offset"], places["arrival"], strict=True)
    arrivals = {(source, offset): at.timestamp() for source, offset, at in times}
    assert arrivals == {(one, 1): 2.0, (one, 2): 3.0, (two, 1): 1.0}


def test_control_events_come_from_a_topic_in_their_order_and_wrong_ones_are_told(
    tmp_path: Path, broker: Broker, engine: Engine
) -> None:
    topic, control = broker.topic(), broker.topic()
    value = json.dumps({"sensor": "s", "value": 90.0, "ts": 5.0}).encode()
    broker.produce(topic, [(0, 5000, value), (0, 9000, value)])
    texts = [b"SetDelayedEventsLeeway(300.0, 10.0)", b'{"Heartbeat": ["Reading", 4.0]}', b"Nonsense(1)", b"\xff"]
    broker.produce(control, [(0, 1000 * (6 + number), text) for number, text in enumerate(texts)])
    path = project(tmp_path, broker, f"subscribe: {topic}")
    options = f'options: {{kafka.bootstrap.servers: "{broker.servers}", subscribe: {control}}}'
    output = "  output: {format: parquet, path: out/output}\n"
    path.write_text(path.read_text().replace("trigger:", f"{output}control: {{format: kafka, {options}}}\ntrigger:"))
    run(path, once=True, flush=True)
    found = pd.read_parquet(tmp_path / "out" / "output").sort_values("time")
    rise = found[(found["kind"] == "control") & (found["query"] == "Rise")]
    assert rise["text"].tolist()[:2] == [text.decode() for text in texts[:2]]
    assert [at.timestamp() for at in rise["time"]][:2] == [6.0, 7.0]
    errors = " ".join(found[found["kind"] == "error"]["text"])
    assert "unknown control event 'Nonsense'" in errors
    lost = pd.read_parquet(tmp_path / "out" / "discarded")
    assert lost["reason"].tolist() == ["malformed"]
    assert (lost["offset"].tolist(), "xff" in lost["text"][0]) == ([3], True)
    run(path, once=True, flush=True)
    again = pd.read_parquet(tmp_path / "out" / "output")
    assert len(again) == len(found)


SECURE = """\
      kafka.security.protocol: SASL_SSL
      kafka.sasl.mechanism: PLAIN
      kafka.sasl.username: "${{file:user}}"
      kafka.sasl.password: "${{file:password}}"
      kafka.ssl.ca.location: {certificate}
      kafka.bootstrap.servers: "{servers}"
"""


def test_topics_behind_tls_and_a_login_are_read_and_written_and_secrets_stay_out_of_sight(
    tmp_path: Path, broker: Broker, engine: Engine, capfd: pytest.CaptureFixture[str]
) -> None:
    topic, rows, discarded = broker.topic(3), readings(300), broker.topic()
    produce(broker, topic, rows)
    broker.produce(topic, [(0, 0, b"{")])
    (tmp_path / "user").write_text(f"{USER}\n")
    (tmp_path / "password").write_text(f"{PASSWORD}\n")
    (tmp_path / "sensors.query").write_text(QUERY)
    secure = SECURE.format(certificate=broker.certificate, servers=broker.secure_servers)
    path = tmp_path / "sensors.yaml"
    path.write_text(
        "name: sensors\nqueries: [sensors.query]\nsources:\n  readings:\n    format: kafka\n    event: Reading\n"
        f"    options:\n      subscribe: {topic}\n{secure}sinks:\n  matches: {{format: parquet, path: out/matches}}\n"
        f"  discarded:\n    format: kafka\n    topic: {discarded}\n    options:\n{secure}"
        "buckets: 2\ncheckpoint: state\n"
    )
    run(path, once=True, flush=True)
    assert streamed(tmp_path) == expected(tmp_path, topic, rows)
    assert f"{topic}/0/{int((rows['partition'] == 0).sum())}" in identities(broker.messages(discarded))
    kept = [file.read_bytes() for file in (tmp_path / "state").rglob("*") if file.is_file()]
    assert not any(PASSWORD.encode() in content for content in kept)
    (tmp_path / "password").write_text("wrong-5678")
    with pytest.raises(
        InputError, match=r"^sink 'discarded': Kafka at [\d.:]+: the broker refuses the login"
    ) as caught:
        run(path, once=True)
    assert "wrong-5678" not in str(caught.value)
    said = capfd.readouterr()
    assert PASSWORD not in said.out + said.err


def test_a_truncated_topic_is_refused_and_accepted_as_a_loss(tmp_path: Path, broker: Broker, engine: Engine) -> None:
    topic, rows = broker.topic(3), readings(300)
    path = project(tmp_path, broker, f"subscribe: {topic}")
    produce(broker, topic, rows)
    run(path, once=True)
    produce(broker, topic, rows)
    ends = rows["partition"].value_counts().to_dict()
    (backlog,) = status_of(path).backlog
    assert {(part.topic, part.partition): part.messages for part in backlog.partitions} == {
        (topic, number): count for number, count in ends.items()
    }
    assert (backlog.messages, backlog.files, backlog.problem) == (len(rows), None, "")
    broker.delete_before(topic, {0: ends[0] + 7})
    message = f"source 'readings': {topic}/0: the offsets {ends[0]} to {ends[0] + 6} no longer exist.*--accept-loss"
    with pytest.raises(InputError, match=message):
        run(path, once=True)
    account = totals(dict(run(path, once=True, flush=True, accept_loss=True).ledger), "Rise")
    assert account["lost"] == 7
    assert account["received"] == 2 * len(rows) - 7


@ON_BOTH
def test_a_running_job_outlives_its_broker_and_empty_partitions_hold_nothing_back(
    tmp_path: Path, broker: Broker, engine: Engine
) -> None:
    """The broker's clock gives the timestamps, so partitions without messages advance too.

    What was there before a job that begins at the end is not read; a partition that is added is.
    """
    topic = broker.topic(3, message_timestamp_type="LogAppendTime")
    path = project(tmp_path, broker, f"subscribe: {topic}")
    text = path.read_text().replace("    event:", "    start: latest\n    skew: 3s\n    event:")
    path.write_text(f"{text}retry: 10 minutes\n")  # brokers start slowly on busy machines
    value = json.dumps({"sensor": "s", "value": 90.0, "ts": 1.0}).encode()
    broker.produce(topic, [(0, 0, value)] * 5)
    handle = deploy(path)
    try:
        wait_for(lambda: any((tmp_path / "state" / "ensue" / "inputs" / "manifests").glob("*.json")))
        broker.produce(topic, [(1, 0, value)])
        wait_for(lambda: totals(dict(handle.status().ledger), "Rise").get("received") == 1)
        wait_for(lambda: handle.status().held == 0 and handle.status().clock is not None)
        broker.stop()
        broker.start()
        broker.produce(topic, [(2, 0, value)])
        wait_for(lambda: totals(dict(handle.status().ledger), "Rise").get("received") == 2)
        broker.add_partitions(topic, 4)
        broker.produce(topic, [(3, 0, value)])
        wait_for(lambda: totals(dict(handle.status().ledger), "Rise").get("received") == 3)
        assert ("new_partition", 1) in [(report.cause, report.count) for report in handle.status().reports]
        reached = handle.status().clock
        wait_for(lambda: (handle.status().clock or 0) > (reached or 0))
        assert time.time() * 1e6 - (handle.status().clock or 0) > 3e6
    finally:
        handle.stop()


def test_a_broker_that_is_down_at_the_start_is_one_clear_line(tmp_path: Path, broker: Broker) -> None:
    path = project(tmp_path, broker, "subscribe: t")
    path.write_text(path.read_text().replace(broker.servers, "127.0.0.1:1"))
    with pytest.raises(InputError, match=r"^source 'readings': Kafka at 127\.0\.0\.1:1: [^\n]+$"):
        run(path, once=True)
    assert not (tmp_path / "state").exists()


def test_a_topic_that_does_not_exist_is_named(tmp_path: Path, broker: Broker) -> None:
    topic = broker.topic()
    path = project(tmp_path, broker, f"subscribe: {topic}x")
    with pytest.raises(InputError, match=f"no such topic: '{topic}x'; did you mean '{topic}'?"):
        run(path, once=True)


def test_messages_in_avro_give_the_matches_of_a_replay(tmp_path: Path, broker: Broker, engine: Engine) -> None:
    """Two versions of a schema side by side; the registry is down when the first run begins."""
    topic, rows = broker.topic(3), readings(600)
    types = {"sensor": "string", "value": ["null", "double"], "ts": "double"}
    schemas = {1: record("Reading", types), 2: record("Reading", types | {"more": "string"})}
    fields = rows[["sensor", "value", "ts"]].to_dict("records")
    places = zip(rows["partition"].tolist(), rows["timestamp"].tolist(), fields, strict=True)
    messages = [
        (partition, stamp, encoded(schemas[1 + row % 2], {**fields, "more": "m"}, 1 + row % 2))
        for row, (partition, stamp, fields) in enumerate(places)
    ]
    broker.produce(topic, [*messages, (0, 1, b"\0\0\0\0\7poison")])
    path = project(tmp_path, broker, f"subscribe: {topic}")
    with running_registry() as registry:
        for number, schema in schemas.items():
            registry.add(number, schema)
        options = f"schema.registry.url: {registry.url}, kafka.bootstrap"
        text = (
            path.read_text().replace("    event: Reading\n", "    decode: avro\n").replace("kafka.bootstrap", options)
        )
        path.write_text(text)
        registry.stop()
        with pytest.raises(
            Unreachable, match=r"source 'readings': the schema registry at http.*: it cannot be reached"
        ):
            run(path, once=True, flush=True)
        registry.start()
        report = run(path, once=True, flush=True)
    assert streamed(tmp_path) == expected(tmp_path, topic, rows)
    assert totals(dict(report.ledger), "Rise")["malformed"] == 1
    lost = pd.read_parquet(tmp_path / "out" / "discarded")
    (poison,) = lost[lost["reason"] == "malformed"].drop_duplicates("offset").to_dict("records")
    assert (poison["source"], poison["partition"]) == (topic, 0)
    assert poison["text"].endswith("the schema registry has no schema 7: b'\\x00\\x00\\x00\\x00\\x07poison'")


def test_what_waits_for_a_hung_transaction_is_counted_with_its_time_and_not_waited_for(
    tmp_path: Path, broker: Broker
) -> None:
    from confluent_kafka import Producer

    topic = broker.topic()
    good = json.dumps({"sensor": "s", "value": 1.0, "ts": 1.0}).encode()
    broker.produce(topic, [(0, 1000, good), (0, 2000, good)])
    hung = Producer({"bootstrap.servers": broker.servers, "transactional.id": topic, "log_level": "0"})
    hung.init_transactions(30)
    hung.begin_transaction()
    hung.produce(topic, good, partition=0, timestamp=3000)
    assert hung.flush(30) == 0
    broker.produce(topic, [(0, 4000, good)])
    path = project(tmp_path, broker, f"subscribe: {topic}")
    path.write_text(path.read_text() + "engine: local\n")
    run(path, once=True)
    found = wait_for(lambda: next((item for item in [status_of(path)] if since(item)), None))
    waiting = PartitionBacklog(topic, 0, messages=2, held_open=2, since=3_000_000)
    assert found.backlog == (SourceBacklog("readings", messages=2, partitions=(waiting,)),)
    assert "2 of them behind an open transaction since 1970-01-01" in status_text(found)
    (told,) = [report for report in found.reports if report.cause == "open_transaction"]
    assert told.example.startswith(f"{topic}/0: 2 messages from offset 2 on")
    hung.commit_transaction(30)
    run(path, once=True)
    found = wait_for(lambda: next((item for item in [status_of(path)] if not item.backlog[0].problem), None))
    assert found.backlog[0].partitions == (PartitionBacklog(topic, 0, messages=0),)


def since(status: Status) -> int | None:
    """When the first message came that waits; a slow broker may not say it at once."""
    partitions = status.backlog[0].partitions
    return partitions[0].since if partitions else None


def test_messages_that_were_too_many_and_never_published_are_planned_anew(tmp_path: Path, broker: Broker) -> None:
    topic = broker.topic(3)
    rows = readings()
    produce(broker, topic, rows)
    path = project(tmp_path, broker, f"subscribe: {topic}")
    kill_when(start(path), (tmp_path / "state" / "offsets" / "0").exists)
    path.write_text(path.read_text().replace("maxOffsetsPerTrigger: 100000", "maxOffsetsPerTrigger: 900"))
    batches, _ = restarted(path)
    assert len(batches) >= 4
    assert streamed(tmp_path) == expected(tmp_path, topic, rows)
