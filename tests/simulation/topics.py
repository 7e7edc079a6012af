"""Jobs that read topics of a simulated broker, and may write to one."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import inf
from pathlib import Path
from typing import Any

from job_engine.deployment_file import load_deployment
from job_engine.sources.listing.manifests import what_was_read
from job_engine.sources.topics.consuming import LISTED
from querylang.errors import InputError
from tests.simulation.broker import Broker, Fate, Partition, Transaction
from tests.torture.answers import Answers, Control, control_tables, of_tables, place
from tests.torture.chained import chained_records
from tests.torture.project import DEPLOYMENT, QUERIES, SINKS
from tests.torture.streams import SECOND, START, Row, Source, random_sources

_BROKER = "kafka.bootstrap.servers: 'nowhere:9092'"
_SOURCE = "  {name}: {{format: kafka, {event}source_time: ts, start: earliest, options: {{{broker}, subscribe: {name}, maxOffsetsPerTrigger: {most}}}}}\n"


@dataclass(slots=True)
class Topic(Source):
    """A source of one topic; `places`: where the rows are, by partition and offset."""

    places: dict[tuple[int, int], Row] = field(default_factory=dict)

    def write(self, broker: Broker, partition: int, row: Row, transaction: Transaction | None) -> None:
        """Produce a message."""
        own = broker.topics[self.name][partition]
        if transaction is not None and own not in transaction.partitions:
            transaction.partitions.append(own)
        left_out = ("at",) if self.event is None else ("at", "event")
        cells = {name: cell for name, cell in row.cells.items() if name not in left_out}
        stored = own.add(row.at // 1000, json.dumps(cells).encode(), transaction=transaction)
        self.places[partition, stored.offset] = row

    def settle(self, broker: Broker, fate: Fate = Fate.COMMITTED) -> None:
        """End the transaction of whoever produces."""
        broker.end(self.name, fate)


def topic_job(chooser: random.Random, broker: Broker, folder: Path) -> tuple[Path, list[Source]]:
    """Write a job over topics; each partition has a message before it begins."""
    found = random_sources(chooser, chooser.choice((8, 25, 60)), ahead=0)
    sources = [Topic(item.name, "kafka", event, []) for item, event in zip(found, "ABC", strict=True)]
    for source, item in zip(sources, found, strict=True):
        # a message has milliseconds: nothing happens later than it arrives here
        rows = [(row, -(-row.at // 1000) * 1000) for row in item.rows]
        source.rows += [Row(row.number, at, {**row.cells, "event": source.event}) for row, at in rows]
    return _job(chooser, broker, folder, sources, QUERIES)


def chained_topic_job(chooser: random.Random, broker: Broker, folder: Path) -> tuple[Path, list[Source]]:
    """As `topic_job`, of queries that feed each other; messages say their event type."""
    queries, records = chained_records(chooser)
    sources = [Topic(name, "kafka", None, []) for name in chooser.sample(["a", "B", "d-1"], chooser.choice((1, 2)))]
    for number, cells in enumerate(records):
        chooser.choice(sources).rows.append(Row(number, START + cells["at"] * SECOND, cells))
    return _job(chooser, broker, folder, sources, queries)


def _job(
    chooser: random.Random, broker: Broker, folder: Path, sources: list[Topic], queries: str
) -> tuple[Path, list[Source]]:
    for source in sources:
        partitions = min(chooser.choice((1, 1, 2, 3)), len(source.rows)) or 1
        broker.topics[source.name] = [Partition() for _ in range(partitions)]
        first = source.rows[:partitions]
        for number, row in enumerate(first):
            source.write(broker, number, row, None)
        source.files.append(("", first))
    text = "".join(
        _SOURCE.format(
            name=source.name,
            event="type: event, " if source.event is None else f"event: {source.event}, ",
            broker=_BROKER,
            most=chooser.choice((1, 3, 10, 1000)),
        )
        for source in sources
    )
    sinks = SINKS
    if chooser.random() < 0.7:
        broker.topics["out"] = [Partition() for _ in range(chooser.choice((1, 2)))]
        sinks = sinks.replace(
            "{format: parquet, path: out/output}", f"{{format: kafka, topic: out, options: {{{_BROKER}}}}}"
        )
    (folder / "control").mkdir()
    (folder / "topics.query").write_text(queries, encoding="utf-8")
    path = folder / "topics.yaml"
    text = DEPLOYMENT.replace("torture", "topics").format(sinks=sinks, sources=text, buckets=chooser.choice((1, 2, 3)))
    path.write_text(f"{text}engine: local\nidle: none\n", encoding="utf-8")
    return path, list(sources)


def write_messages(chooser: random.Random, broker: Broker, source: Topic) -> None:
    """Produce the next messages of a topic: alone, in a transaction that stays open, or again behind one that failed.

    A producer learns of a new partition no sooner than a job, which asks every second: its messages are in order then.
    """
    source.settle(broker)
    if chooser.random() < 0.1 and len(broker.topics[source.name]) < 5:
        broker.topics[source.name].append(Partition(made=broker.now))
    done = sum(len(rows) for _, rows in source.files)
    rows = source.rows[done : done + chooser.choice((1, 2, 5, 20))]
    known = [number for number, own in enumerate(broker.topics[source.name]) if own.made <= broker.now - LISTED]
    partitions = [chooser.choice(known) for _ in rows]
    way = chooser.choice(("alone", "alone", "open", "failed"))
    if way == "failed":
        _produce(broker, source, partitions, rows)
        source.settle(broker, Fate.ABORTED)
    if way == "open":
        _produce(broker, source, partitions, rows)
    else:
        for partition, row in zip(partitions, rows, strict=True):
            source.write(broker, partition, row, None)
    source.files.append(("", rows))


def note_known(broker: Broker, topics: list[Topic], deployment: Path) -> None:
    """Between two lives: where a job has begun to read a partition stays on record for good.

    That it has read messages says nothing: a micro-batch is read while it is put on record.
    """
    try:
        read = what_was_read(load_deployment(deployment).checkpoint)
    except InputError:
        return
    for source in topics:
        for name, position in (read.of(source.name, "kafka").position or {}).items():
            for number in position.begun or ():
                broker.topics[name][number].is_known = True


def note_ended(broker: Broker, topics: list[Topic]) -> None:
    """A job has ended by itself: what it has read it does not read again."""
    for partition in (partition for source in topics for partition in broker.topics[source.name]):
        partition.is_open, partition.done_to = False, partition.read_to


def expire_planned(chooser: random.Random, broker: Broker, topics: list[Topic]) -> None:
    """Between two lives: delete messages that a job may have planned to read, and has not read."""
    for source in topics:
        if not any(partition.is_open for partition in broker.topics[source.name]):
            expire(chooser, broker, source)


def expire(chooser: random.Random, broker: Broker, source: Topic) -> None:
    """Let the broker delete the oldest messages of a partition that is known.

    What was read and may be read again stays: the results of it may be there already, and would be
    taken back.
    """
    partition = chooser.choice(broker.topics[source.name])
    until = partition.done_to if partition.is_open else partition.settled
    if partition.is_known and until > partition.first:
        partition.forget(chooser.randint(partition.first + 1, until))


def _produce(broker: Broker, source: Topic, partitions: list[int], rows: list[Row]) -> None:
    transaction = Transaction(broker.now)
    broker.open[source.name] = transaction, inf
    for partition, row in zip(partitions, rows, strict=True):
        source.write(broker, partition, row, transaction)


def replayed_topics(
    queries: Path, topics: list[Topic], broker: Broker, controls: Sequence[Control], **options: Any
) -> Answers:
    """What a replay gives of all messages that are committed, and were not reported as lost, and of changes."""
    tables: list[list[dict[str, object]]] = []
    for source in sorted(topics, key=lambda item: item.name):
        for number, partition in enumerate(broker.topics[source.name]):
            latest, rows = 0, []
            for stored in partition.ever():
                if (source.name, number, stored.offset) in broker.lost:
                    continue
                latest = max(latest, stored.stamp)
                cells = source.places[number, stored.offset].cells
                origin = f"{source.name}/{source.name}" if len(topics) > 1 else source.name
                own = place(origin, stored.offset) | {"partition": number}
                rows.append({**cells, "at": latest * 1000 / SECOND, **own})
            tables.append(rows)
    found = of_tables(queries, [*tables, *control_tables(controls)], **options)
    titles = {title for title, _ in found.ledger if title}
    lost = Counter({(title, "lost"): len(broker.lost) for title in titles if broker.lost})
    return replace(found, ledger=found.ledger + lost)


def messages_of(broker: Broker, expected: Answers) -> list[str]:
    """What is wrong with the messages of the topic that a job writes to: each is there once."""
    found: Counter[str] = Counter()
    for partition in broker.topics["out"]:
        for stored in partition.seen(0, is_committed=True):
            if json.loads(stored.value or b"")["match_id"] is not None:
                found[dict(stored.headers)["ensue-id"].decode().rpartition("/")[0]] += 1
    wanted: Counter[str] = Counter()
    for row, count in expected.outputs.items():
        cells = dict(row)
        if cells["match_id"] is None:
            continue
        wanted["/".join(filter(None, (cells["match_id"], cells["kind"], cells["channel"])))] += count
    many, few = found - wanted, wanted - found
    return [f"messages: {many.total()} too many, {few.total()} missing: {[*many, *few][:2]}"] if many or few else []
