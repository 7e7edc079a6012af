"""Run the demo's queries on topics of Kafka: `python -m tools.kafka_demo`, in a clone.

A broker on loopback gets the flights and the weather while a job reads them into Delta tables, with
control events on the way. The results are compared with those of a replay. The exit code is 1 if
they differ. Broker and job have ended when the command ends.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import time
import zlib
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet
from deltalake import DeltaTable

import ensue
from ensue.demo.__main__ import differences, job_totals, replay_totals
from ensue.demo.flights import write_event_tables
from job_engine.job.job import Handle, deploy, run
from job_engine.job.reports import BatchReport
from querylang.errors import EnsueError, InputError
from tools.local_broker import LocalBroker, broker_jars, local_broker

QUERIES = Path("queries/flights")
FOLDER = Path("build/demo")
JOB = FOLDER / "kafka"
PARTITIONS = {"flights": 3, "weather": 1}
PARTS = 4
"""In so many parts the year is produced."""
LONGEST = 600
"""How long a part may take, seconds."""

Message = tuple[str, int, int, dict[str, Any]]
"""Topic, partition, timestamp in ms and fields."""


def main() -> int:
    """Run the demo; gives the exit code."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        return _run()
    except EnsueError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    except KeyboardInterrupt:
        return 130


def _run() -> int:
    if not QUERIES.is_dir():
        raise InputError(f"{QUERIES}: no such folder; the demo runs in a clone of the repository")
    shutil.rmtree(JOB, ignore_errors=True)
    _heading("1  The records")
    tables = write_event_tables(FOLDER / "events")
    print(f"{tables.flights:,} flights from New York in 2013 and {tables.weather:,} hours of weather.")
    messages = [message for file in tables.files for message in _messages(file)]
    controls = _controls()
    print(
        f"{len(controls)} control events: at six on the first of each month, all of the month before has been reported."
    )

    _heading("2  A broker of Kafka on this machine")
    print("its jars are fetched from Maven Central the first time", flush=True)
    broker_jars()
    with local_broker(JOB / "broker") as broker:
        for topic, count in PARTITIONS.items():
            broker.make_topic(topic, count)
        broker.make_topic("controls")
        broker.make_topic("delays")
        print(
            f"it listens on {broker.servers}: topics {', '.join(PARTITIONS)} and controls, and delays for what is sent"
        )
        os.environ["FLIGHTS_BROKER"] = broker.servers
        report = _stream(broker, messages, controls)
        sent = {dict(message.headers())["ensue-id"].decode() for message in broker.messages("delays")}

    _heading("4  The same records in a replay")
    replay = ensue.replay(QUERIES, event_table(messages, controls))
    found = [*differences(replay.results, JOB / "matches", _delta)]
    ours, theirs = replay_totals(replay.results), job_totals(report.ledger)
    if ours != theirs:
        found.append(f"ledger: {sorted(set(ours.items()) ^ set(theirs.items()))}")
    outputs = replay.outputs
    if len(sent) != (told := int((outputs["channel"] == "delays").sum())):
        found.append(f"the topic delays has {len(sent)} messages, the replay {told}")
    for query, table in replay.results.matches.items():
        print(f"  {query:14} {len(table):6,} matches")
    for line in found:
        print(line)
    if found:
        print("The two ways of running do not agree.")
        return 1
    print(
        f"The tables in {JOB / 'matches'} have the same {len(replay.matches):,} matches, in every column, the ledger is the"
        f" same,\nand the topic delays has a message for each of the {len(sent):,} events that the query sends. The broker has"
        " ended."
    )
    return 0


def _stream(broker: LocalBroker, messages: Sequence[Message], controls: Sequence[Message]) -> Any:
    """Produce the year part by part while the job runs; then run it to the end."""
    _heading("3  From topics to Delta tables, while the messages are produced")
    handle = deploy(QUERIES / "kafka.yaml", progress=_show)
    try:
        size = -(-len(messages) // PARTS)
        for part in range(PARTS):
            some = messages[part * size : (part + 1) * size]
            last = some[-1][2]
            # A control event that comes too late takes place where the clock is then: the answer would depend on the moment.
            first = messages[part * size - 1][2] if part else 0
            _produce(broker, [control for control in controls if first < control[2] <= last])
            _await_all_read(handle)
            _produce(broker, some)
            print(f"  produced until {datetime.fromtimestamp(last / 1000, UTC):%d %B}", flush=True)
            _await_all_read(handle)
    finally:
        handle.stop()
    _produce(broker, [control for control in controls if control[2] > messages[-1][2]])
    return run(QUERIES / "kafka.yaml", once=True, flush=True, progress=_show)


def _show(batch: BatchReport) -> None:
    matches = sum(batch.matches.values())
    if batch.records or matches:
        print(
            f"  micro-batch {batch.batch}: {batch.records:7,} records, {matches:5,} matches, {batch.seconds:.1f} s",
            flush=True,
        )


def _produce(broker: LocalBroker, messages: Sequence[Message]) -> None:
    from confluent_kafka import Producer

    producer = Producer(
        {"bootstrap.servers": broker.servers, "linger.ms": 20, "queue.buffering.max.messages": 1_000_000}
    )
    for topic, partition, timestamp, fields in messages:
        value = fields["control"] if topic == "controls" else json.dumps(fields)
        producer.produce(topic, value, partition=partition, timestamp=timestamp)
        producer.poll(0)
    if producer.flush(60):
        raise InputError("the broker does not take the messages")


def _await_all_read(handle: Handle) -> None:
    limit = time.monotonic() + LONGEST
    while any(source.messages != 0 for source in handle.status().backlog):
        if not handle.is_active:
            handle.await_termination()
            raise InputError("the job has ended before all messages were read")
        if time.monotonic() > limit:
            raise InputError(f"the job has not read all messages in {LONGEST} s")
        time.sleep(0.3)


def _messages(file: Path) -> Iterator[Message]:
    """The records of a month; a message has the fields of its event type. An aircraft is always in the same partition."""
    for row in pyarrow.parquet.read_table(file).to_pylist():
        timestamp, kind = round(row.pop("at").timestamp() * 1000), row["event"]
        topic = "flights" if kind == "Flight" else "weather"
        partition = zlib.crc32((row["tail"] or "").encode()) % PARTITIONS[topic]
        yield topic, partition, timestamp, {name: value for name, value in row.items() if value is not None}


def _controls() -> list[Message]:
    found = []
    for month in range(2, 13):
        at = datetime(2013, month, 1, tzinfo=UTC)
        for kind in ("Flight", "Weather"):
            control = f'Heartbeat("{kind}", "{at:%Y-%m-%dT%H:%M:%SZ}")'
            found.append(("controls", 0, round(at.timestamp() * 1000) + 6 * 3_600_000, {"control": control}))
    return found


def event_table(messages: Sequence[Message], controls: Sequence[Message]) -> pa.Table:
    """The messages as an event table with their coordinates; an event's text is a control event."""
    offsets: dict[tuple[str, int], int] = {}
    rows = []
    for topic, partition, timestamp, fields in [*messages, *controls]:
        offset = offsets[topic, partition] = offsets.get((topic, partition), -1) + 1
        place = {"at": timestamp, "source": topic, "partition": partition, "offset": offset}
        rows.append(place | ({"event": fields["control"]} if topic == "controls" else fields))
    names = dict.fromkeys(name for row in rows for name in row)
    table = pa.Table.from_pydict({name: [row.get(name) for row in rows] for name in names})
    return table.set_column(0, "at", pc.cast(table["at"], pa.timestamp("ms", "UTC")))


def _delta(folder: Path) -> pa.Table:
    return DeltaTable(folder).to_pyarrow_table()


def _heading(text: str) -> None:
    print(f"\n{text}\n", flush=True)


if __name__ == "__main__":
    sys.exit(main())
