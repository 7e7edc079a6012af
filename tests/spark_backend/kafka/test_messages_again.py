"""Which messages a history reads again: all that the job has read, or those since a time; what is missing."""

from __future__ import annotations

import json
from dataclasses import replace

from job_engine.kafka_broker import AskedBroker, TopicChoice
from job_engine.sources.source import Again
from job_engine.sources.topics.pieces import TopicPosition, Topics, topics_to_plain
from job_engine.sources.topics.planning import OffsetPlanner
from job_engine.sources.topics.running import message_pieces
from job_engine.sources.topics.settings import KafkaSource
from tests.support.kafka.broker import Broker

SECOND = 1_000_000


def again(
    source: KafkaSource, before: Topics | None, read: Topics, since: int | None, *, is_whole: bool = False
) -> tuple[list[object], list[str]]:
    done = None if before is None else topics_to_plain(before)
    found = message_pieces(source, read, Again(json.loads(json.dumps(done)), since, has_table=is_whole))
    return list(found.pieces), list(found.gaps)


def test_what_was_read_is_read_again_in_all_partitions(broker: Broker) -> None:
    topic = broker.topic(2)
    broker.produce(topic, [(number % 2, 1000 * number, json.dumps(number).encode()) for number in range(1, 41)])
    source = KafkaSource("s", TopicChoice((topic,)), {"bootstrap.servers": broker.servers})
    asked = replace(source)
    identity = identity_of(source, topic)
    read = {topic: TopicPosition(0, identity, {0: 18, 1: 20})}
    pieces, gaps = again(asked, None, read, None)
    assert not gaps
    assert ranges(pieces) == {(0, 0, 18), (1, 0, 20)}
    assert ranges(again(asked, None, read, 21 * SECOND)[0]) == {(0, 10, 18), (1, 10, 20)}
    later = {topic: TopicPosition(0, identity, {0: 20, 1: 20})}
    assert ranges(again(asked, read, later, None)[0]) == {(0, 18, 20)}
    broker.delete_before(topic, {0: 5})
    _, gaps = again(asked, None, read, None)
    begins = "the messages before offset 5 no longer exist, from the beginning to 1970-01-01T00:00:12.000000Z"
    assert gaps == [f"source 's': {topic}/0: {begins}"]
    assert not again(asked, None, read, 21 * SECOND)[1]
    assert not again(asked, None, {topic: replace(read[topic], begun={0: 5, 1: 0})}, None)[1]
    since = begins.replace("the beginning", "1970-01-01T00:00:03.000000Z")
    assert again(asked, None, read, 3 * SECOND)[1] == [f"source 's': {topic}/0: {since}"]
    late = {topic: replace(read[topic], begun={0: 8, 1: 0})}
    assert not again(asked, None, late, 3 * SECOND)[1]
    pieces, gaps = again(asked, None, late, 14 * SECOND, is_whole=True)
    assert (ranges(pieces), gaps) == ({(0, 6, 18), (1, 7, 20)}, [])
    assert again(asked, None, late, 3 * SECOND, is_whole=True)[1] == [f"source 's': {topic}/0: {since}"]
    _, gaps = again(asked, None, {topic: replace(read[topic], identity="other")}, None)
    assert gaps == [f"source 's': the topic '{topic}' was removed or made again"]


def test_a_history_begins_where_the_job_has_begun(broker: Broker) -> None:
    topic = broker.topic(2)
    broker.produce(topic, [(number % 2, 1000 * number, json.dumps(number).encode()) for number in range(1, 41)])
    for start, begun in (("latest", [20, 20]), (21 * SECOND, [10, 10]), ("earliest", [0, 0])):
        source = KafkaSource("s", TopicChoice((topic,)), {"bootstrap.servers": broker.servers}, start)
        found = OffsetPlanner([source], lambda source: AskedBroker(source.client)).next({}, lambda *_: None)
        first = found.positions["s"]
        read = {topic: replace(first[topic], next={0: 20, 1: 20})}
        pieces, gaps = again(source, None, read, None)
        assert not gaps
        assert ranges(pieces) == {(number, at, 20) for number, at in enumerate(begun) if at < 20}
        since = {(number, max(at, 5), 20) for number, at in enumerate(begun) if at < 20}
        assert ranges(again(source, None, read, 11 * SECOND)[0]) == since
    older = {topic: replace(read[topic], begun=None)}
    _, gaps = again(replace(source, start="latest"), None, older, None)
    assert gaps == [f"source 's': an older release has not written down where it began to read '{topic}'"]


def identity_of(source: KafkaSource, topic: str) -> str:
    return AskedBroker(source.client).listing(source.topics).topics[topic].identity


def ranges(pieces: list[object]) -> set[tuple[int, int, int]]:
    own = [item for piece in pieces for item in piece.work.ranges]  # type: ignore[attr-defined]
    return {(item.partition, item.start, item.until) for item in own}
