"""Which offsets a micro-batch reads, decided without a broker: starts, limits, ends, what is new, what is lost."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from job_engine.kafka_broker import BrokerError, Listing, PartitionListing, TopicChoice, TopicListing
from job_engine.sources.kinds import Part
from job_engine.sources.listing.lister import InputPlanner, RunSettings
from job_engine.sources.listing.manifests import Manifest, Task, ToldSource, sources_of_text, sources_to_text, tasks_of
from job_engine.sources.topics import planning
from job_engine.sources.topics.pieces import OffsetRange, Offsets, TopicsPiece
from job_engine.sources.topics.planning import GRACE, LEAST, PLANNING, LostOffsets, OffsetPlanner, range_tasks
from job_engine.sources.topics.settings import KafkaSource
from runtime.instants import NO_TIME

SECOND = 1_000_000
START = 1_000 * SECOND


@dataclass(slots=True)
class Fake:
    """A broker of one topic `t`, unless a test says otherwise."""

    moment: int = START
    topics: dict[str, TopicListing] = field(default_factory=dict)
    is_down: bool = False

    def listing(self, choice: TopicChoice) -> Listing:
        if self.is_down:
            raise BrokerError("no broker can be reached", is_passing=True)
        names = choice.named or choice.of(self.topics)
        return Listing(self.moment, {name: self.topics[name] for name in names if name in self.topics})

    def offsets_at(self, partitions: Sequence[tuple[str, int]], moment: int) -> dict[tuple[str, int], int | None]:
        return {name: moment // SECOND if name[1] == 0 else None for name in partitions}

    def arrival_of(self, topic: str, partition: int, offset: int) -> int | None:
        return None if topic == "silent" else (partition * 100 + offset) * SECOND

    def has(self, *ends: int | PartitionListing, topic: str = "t", identity: str = "a", append: bool = False) -> None:
        parts = [end if isinstance(end, PartitionListing) else PartitionListing(0, end) for end in ends]
        self.topics[topic] = TopicListing(identity, append, dict(enumerate(parts)))


def written_and_read(offsets: Offsets) -> Offsets:
    """As a manifest has them."""
    pieces = {
        name: TopicsPiece(
            position,
            tuple(item for item in offsets.ranges if item.source == name),
            tuple(item for item in offsets.advances if item.source == name),
        )
        for name, position in offsets.positions.items()
    }
    again = {name: PLANNING.piece_of(name, json.loads(json.dumps(piece.to_plain()))) for name, piece in pieces.items()}
    return Offsets(
        tuple(item for piece in again.values() for item in piece.ranges),
        tuple(item for piece in again.values() for item in piece.advances),
        {name: piece.position for name, piece in again.items()},
    )


@dataclass(slots=True)
class Run:
    """A run of a job: what it plans, micro-batch by micro-batch."""

    broker: Fake
    source: KafkaSource = field(default_factory=lambda: KafkaSource("s", TopicChoice(("t",)), {}))
    accepts_loss: bool = False
    is_once: bool = False
    planned: Offsets = field(default_factory=Offsets)
    reports: list[tuple[str, str, str]] = field(default_factory=list)
    planner: OffsetPlanner | None = None

    def next(self) -> list[tuple[int, int, int]]:
        """Partition, start and end of each range that is read."""
        if self.planner is None:
            self.planner = OffsetPlanner(
                [self.source], lambda _: self.broker, lambda: self.broker.moment * 1000, accepts_loss=self.accepts_loss
            )
            if self.is_once:
                self.planner.fix_end()
        offsets = self.planner.next(self.planned.positions, lambda *report: self.reports.append(report))
        self.planned = written_and_read(offsets)
        return [(item.partition, item.start, item.until) for item in self.planned.ranges if not item.is_lost]

    def restart(self, **changes: object) -> Run:
        return replace(self, planner=None, reports=[], **changes)  # type: ignore[arg-type]

    @property
    def advances(self) -> dict[int, int]:
        """By partition: how far it advances without a message."""
        return {item.partition: item.arrival for item in self.planned.advances}


def source(**settings: object) -> KafkaSource:
    return KafkaSource("s", TopicChoice(("t",)), {}, **settings)  # type: ignore[arg-type]


def test_all_that_is_there_is_read_once() -> None:
    broker = Fake()
    broker.has(10, 0, 5)
    run = Run(broker)
    assert run.next() == [(0, 0, 10), (2, 0, 5)]
    assert run.next() == []
    broker.has(12, 1, 5)
    assert run.next() == [(0, 10, 12), (1, 0, 1)]


@pytest.mark.parametrize(
    ("start", "read"),
    [("earliest", [(0, 3, 10), (1, 0, 10)]), ("latest", []), (7 * SECOND, [(0, 7, 10)])],
)
def test_a_new_job_begins_where_it_is_told_to(start: str | int, read: list[tuple[int, int, int]]) -> None:
    broker = Fake()
    broker.has(PartitionListing(3, 10), 10)
    run = Run(broker, source(start=start))
    assert run.next() == read
    assert set(run.advances.values()) == {NO_TIME}
    broker.has(PartitionListing(3, 12), 12)
    assert run.restart().next() == [(0, 10, 12), (1, 10, 12)]


def test_a_limit_is_shared_by_the_partitions_in_proportion() -> None:
    broker = Fake()
    broker.has(800, 200, 1)
    run = Run(broker, source(max_offsets=100))
    assert run.next() == [(0, 0, 79), (1, 0, 19), (2, 0, 1)]
    found = [run.next() for _ in range(12)]
    assert sum(until - start for ranges in found for _, start, until in ranges) == 1001 - 99
    assert max(sum(until - start for _, start, until in ranges) for ranges in found) <= 100


def test_a_run_to_the_end_ends_with_what_is_there_when_it_starts() -> None:
    broker = Fake()
    broker.has(10, append=True)
    run = Run(broker, source(max_offsets=6), is_once=True)
    assert run.next() == [(0, 0, 6)]
    broker.has(1000, append=True)
    assert run.next() == [(0, 6, 10)]
    assert run.next() == []
    assert run.advances == {}


def test_a_partition_that_is_added_is_reported_and_read_from_its_beginning() -> None:
    broker = Fake()
    broker.has(4)
    run = Run(broker, source(start="latest"))
    assert run.next() == []
    broker.has(4, 2)
    assert run.next() == [(1, 0, 2)]
    assert run.reports == [("new_partition", "s", "t/1 from offset 0")]
    assert run.advances == {1: NO_TIME}


def test_the_first_topic_of_a_pattern_is_read_from_its_beginning_wherever_a_job_begins() -> None:
    broker = Fake()
    run = Run(broker, replace(source(start="latest"), topics=TopicChoice(pattern="t.*")))
    assert run.next() == []
    broker.has(3, topic="t1")
    assert run.next() == [(0, 0, 3)]
    assert run.reports == [("new_partition", "s", "t1/0 from offset 0")]


def test_a_topic_that_fits_the_pattern_is_taken_up_with_a_number_of_its_own() -> None:
    broker = Fake()
    broker.has(1, topic="cards.b")
    run = Run(broker, KafkaSource("s", TopicChoice(pattern=r"cards\..*"), {}))
    run.next()
    broker.has(1, topic="cards.a")
    broker.has(1, topic="__cards.x")
    run.next()
    assert {name: item.number for name, item in run.planned.positions["s"].items()} == {"cards.b": 0, "cards.a": 1}
    assert run.planned.ranges == (OffsetRange("s", "cards.a", 1, 0, 0, 1),)


@pytest.mark.parametrize(
    ("now", "words", "lost", "then"),
    [
        (PartitionListing(7, 9), "t/0: the offsets 5 to 6 no longer exist", (5, 7), [(0, 7, 9)]),
        (PartitionListing(0, 3), "t/0: it ends before offset 3, and was read up to 5", (5, 5), []),
    ],
)
def test_messages_that_are_gone_stop_the_job_unless_it_accepts_the_loss(
    now: PartitionListing, words: str, lost: tuple[int, int], then: list[tuple[int, int, int]]
) -> None:
    broker = Fake()
    broker.has(5)
    run = Run(broker)
    run.next()
    broker.has(now)
    with pytest.raises(LostOffsets, match=f"source 's': {words}.*ensue run --accept-loss"):
        run.next()
    run = run.restart(accepts_loss=True)
    assert run.next() == then
    assert [(item.start, item.until) for item in run.planned.ranges if item.is_lost] == [lost]
    assert run.next() == []
    assert not run.planned.ranges


def test_a_topic_that_is_deleted_or_made_again_stops_the_job() -> None:
    broker = Fake()
    broker.has(5)
    run = Run(broker)
    run.next()
    del broker.topics["t"]
    assert run.next() == []
    broker.moment += GRACE + 1
    with pytest.raises(LostOffsets, match="the topic 't' does not exist any more"):
        run.next()
    gone = run.restart(accepts_loss=True, is_once=True)
    assert gone.next() == []
    assert [item.is_lost for item in gone.planned.ranges] == [True]
    assert gone.next() == []
    assert not gone.planned.ranges
    broker.has(9, identity="b")
    with pytest.raises(LostOffsets, match="the topic 't' was deleted and made again"):
        run.next()
    assert run.restart(accepts_loss=True).next() == [(0, 0, 9)]


def test_time_of_the_broker_advances_partitions_that_are_read_to_their_ends() -> None:
    broker = Fake()
    broker.has(0, PartitionListing(0, 8), PartitionListing(0, 3, is_settled=False), append=True)
    run = Run(broker, source(max_offsets=10))
    run.next()
    assert run.advances == {0: START - SECOND, 1: NO_TIME, 2: NO_TIME}
    broker.moment += SECOND // 2
    run.next()
    broker.moment += SECOND // 4
    assert run.next() == []
    assert run.advances == {}
    broker.moment += SECOND
    run.next()
    assert run.advances == {0: broker.moment - SECOND, 1: broker.moment - SECOND}


def test_time_of_producers_never_advances_a_partition_without_messages() -> None:
    broker = Fake()
    broker.has(0, 5)
    run = Run(broker)
    run.next()
    broker.moment += 3600 * SECOND
    assert run.next() == []
    assert run.advances == {}


def test_a_broker_that_is_down_is_waited_for_and_not_for_ever() -> None:
    broker = Fake()
    broker.has(5)
    run = Run(broker)
    run.next()
    broker.is_down = True
    before = run.planned.positions
    assert run.next() == []
    broker.moment += 60_000_000 // 2
    assert run.next() == []
    assert run.planned.positions == before
    broker.is_down = False
    broker.has(6)
    assert run.next() == [(0, 5, 6)]
    broker.is_down = True
    run.next()
    broker.moment += 60_000_000 + 1
    with pytest.raises(BrokerError):
        run.next()


def test_a_job_with_retry_waits_longer_and_reports_when_the_broker_goes_and_comes() -> None:
    broker, reports = Fake(), list[str]()
    broker.has(5)
    source = KafkaSource("s", TopicChoice(("t",)), {}, retry=600.0)
    planner = OffsetPlanner([source], lambda _: broker, lambda: broker.moment * 1000)

    def next_ranges() -> int:
        return len(planner.next({}, lambda cause, *_: reports.append(cause)).ranges)

    broker.is_down = True
    assert next_ranges() == 0
    broker.moment += 599 * SECOND
    assert next_ranges() == 0
    assert reports == ["no_answer"]
    broker.is_down = False
    assert next_ranges() == 1
    assert reports == ["no_answer", "answers_again"]
    broker.is_down = True
    next_ranges()
    broker.moment += 601 * SECOND
    with pytest.raises(BrokerError):
        next_ranges()


def test_a_broker_that_is_down_when_a_run_begins_ends_it() -> None:
    with pytest.raises(BrokerError):
        Run(Fake(is_down=True)).next()


def test_a_restart_reads_the_same_ranges_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Fake()
    broker.has(10, 10)

    monkeypatch.setattr(planning, "AskedBroker", lambda _: broker)

    def planner() -> InputPlanner:
        return InputPlanner({"s": ToldSource("kafka", source(max_offsets=8))}, RunSettings(str(tmp_path)))

    first = planner()
    assert [first.latest(0), first.latest(1)] == [1, 2]
    planned = [first.read(1), first.read(2)]
    broker.has(50, 50)
    again = planner()
    assert again.latest(2) == 3
    assert again.is_repeated(2)
    assert [again.read(1), again.read(2)] == planned
    assert [(item.start, item.until) for item in again.read(3).by_source["s"].piece.ranges] == [(8, 12), (8, 12)]


def test_the_list_of_what_was_read_has_the_positions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Fake()

    monkeypatch.setattr(planning, "AskedBroker", lambda _: broker)

    def planner() -> InputPlanner:
        return InputPlanner({"s": ToldSource("kafka", source())}, RunSettings(str(tmp_path)))

    running, number = planner(), 0
    for end in range(1, 300):
        broker.has(end)
        number = running.latest(number)
    assert "s" in json.loads((tmp_path / "ensue" / "inputs" / "read.json").read_text())["sources"]
    broker.has(305)
    again = planner()
    assert [(item.start, item.until) for item in again.read(again.latest(number)).by_source["s"].piece.ranges] == [
        (299, 305)
    ]


def test_large_ranges_are_divided_among_tasks_and_small_ones_are_not() -> None:
    ranges = [OffsetRange("s", "t", 0, number, 0, until) for number, until in enumerate([4 * LEAST, 10, 10])]
    tasks = range_tasks(ranges, 2, {})
    assert [sum(map(len, task)) for task in tasks] == [2 * LEAST + 10, 2 * LEAST + 10]
    assert sorted((item.partition, item.start) for task in tasks for item in task) == [
        (0, 0), (0, 2 * LEAST), (1, 0), (2, 0),
    ]  # fmt: skip
    assert len(range_tasks(ranges[1:], 2, {"s": 4})) == 4


def test_a_task_survives_its_way_to_a_worker() -> None:
    broker = Fake()
    broker.has(9, 0, append=True)
    run = Run(broker)
    run.next()
    planned, sources = run.planned, {"s": ToldSource("kafka", source())}
    piece = TopicsPiece(planned.positions["s"], planned.ranges, planned.advances)
    tasks = tasks_of(Manifest(1, {"s": Part("kafka", piece)}), 2, sources)
    assert [Task.of_text(task.to_text(), sources) for task in tasks] == tasks
    assert [len(task.work["s"].ranges) for task in tasks[:1]] == [1]
    assert tasks[1].news["s"].advances == planned.advances


def test_sources_survive_their_way_to_workers() -> None:
    own = (
        KafkaSource("a", TopicChoice(assigned={"t": (0, 2)}), {"x": "y"}, start=5),
        KafkaSource("b", TopicChoice(pattern="t.*"), {}),
    )
    sources = {source.name: ToldSource("kafka", source) for source in own}
    assert sources_of_text(sources_to_text(sources)) == sources


def test_the_latest_timestamp_is_on_record_before_the_messages_are_read() -> None:
    run = Run(Fake(), KafkaSource("s", TopicChoice(("t",)), {}, ahead=5 * SECOND))
    run.broker.has(3)
    run.next()
    (found,) = written_and_read(run.planned).ranges
    assert found.latest == START + 5 * SECOND


def test_a_run_to_the_end_says_what_waits_for_a_transaction_and_does_not_wait() -> None:
    broker = Fake()
    broker.has(PartitionListing(0, 3, is_settled=False, end=5), 4)
    run = Run(broker, is_once=True)
    assert run.next() == [(0, 0, 3), (1, 0, 4)]
    told = "t/0: 2 messages from offset 3 on, the first since 1970-01-01T00:00:03.000000Z"
    assert run.reports == [("open_transaction", "s", told)]
    broker.has(8, 4)
    assert run.next() == []
    assert run.reports == [("open_transaction", "s", told)]


def test_a_run_that_goes_on_waits_for_transactions_without_a_word() -> None:
    broker = Fake()
    broker.has(PartitionListing(0, 3, is_settled=False, end=5))
    run = Run(broker)
    assert run.next() == [(0, 0, 3)]
    broker.has(5)
    assert run.next() == [(0, 3, 5)]
    assert run.reports == []
