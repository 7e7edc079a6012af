"""What the lister asks of topics."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from job_engine.clock import sleep, wall_ns
from job_engine.errors import SourceProblem, patience_of
from job_engine.kafka_broker import AskedBroker, Broker, BrokerError, Listing, PartitionListing, TopicListing
from job_engine.sources.kinds import KindPlanner, Planned, PlannedRun, Report, SourcePlanning
from job_engine.sources.topics.pieces import (
    Advance,
    OffsetRange,
    Offsets,
    Positions,
    TopicPosition,
    TopicsMemory,
    TopicsNews,
    TopicsPiece,
    TopicsWork,
)
from job_engine.sources.topics.settings import SECOND, KafkaSource
from querylang.dataclass import dataclass, replace
from querylang.errors import counted
from runtime.instants import NO_TIME
from runtime.json_reader import shaped
from runtime.timestamps import format_time

if TYPE_CHECKING:
    from job_engine.sources.topics.consuming import FollowedTopics, TakenMessages

# Decide which offsets the next micro-batch reads, and how far partitions without messages advance.
#
# What is decided is in the manifest, so a repeated micro-batch reads the same and advances the
# same.

GRACE = 10 * SECOND
"""µs that a topic may be missing while a job runs: a broker that starts may not know it yet."""


class LostOffsets(SourceProblem):
    """Messages that were not read no longer exist; the text says which, and the way out."""


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """What of a partition waits for a transaction that has not ended.

    offset: of the first message
    count: of offsets from there on
    since: its timestamp, µs; None = not known
    """

    topic: str
    partition: int
    offset: int
    count: int
    since: int | None

    def __str__(self) -> str:
        """As a report says it."""
        since = "" if self.since is None else f", the first since {format_time(self.since)}"
        return f"{self.topic}/{self.partition}: {counted(self.count, 'message')} from offset {self.offset} on{since}"


class OffsetPlanner:
    """Plans the offsets of one run.

    open_broker: the broker of a source
    now: the lister's clock, ns since 1970
    most_followed: as in `PlannedRun`; where there are control events, nothing is followed: time
        does not wait for them
    """

    def __init__(
        self,
        sources: Sequence[KafkaSource],
        open_broker: Callable[[KafkaSource], Broker],
        now: Callable[[], int] = wall_ns,
        *,
        accepts_loss: bool = False,
        most_followed: int | None = 0,
    ) -> None:
        self._sources = sources
        self._open = open_broker
        self._now = now
        self._most_followed = 0 if any(source.is_control for source in sources) else most_followed
        self._followed: dict[str, FollowedTopics] = {}
        self._accepts_loss = accepts_loss
        self._brokers: dict[str, Broker] = {}
        self._listings: dict[str, Listing] = {}
        self._down_since: dict[str, int] = {}
        self._advanced: dict[str, int] = {}
        self._missing_since: dict[tuple[str, str], int] = {}
        self._found_none: set[str] = set()
        self._told_open: set[str] = set()
        self._is_fixed = False

    def fix_end(self) -> None:
        """The run reads what is there now, and nothing that comes later."""
        for source in self._sources:
            self._listings[source.name] = self._first_listing(source)
        self._is_fixed = True

    def _first_listing(self, source: KafkaSource) -> Listing:
        """What there is now, asked again for as long as `retry` says."""
        until = self._now() // 1000 + int((source.retry or 0) * SECOND)
        while True:
            try:
                return self._broker(source).listing(source.topics)
            except BrokerError as error:
                if not error.is_passing or self._now() // 1000 >= until:
                    raise
                sleep(1)

    def next(self, before: Positions, report: Report) -> Offsets:
        """What follows `before`; empty if nothing does. Raises BrokerError and LostOffsets."""
        found = [self._of_source(source, before.get(source.name, {}), report) for source in self._sources]
        positions = {source.name: after for source, (_, _, after) in zip(self._sources, found, strict=True)}
        return Offsets(
            tuple(item for ranges, _, _ in found for item in ranges),
            tuple(item for _, advances, _ in found for item in advances),
            positions,
        )

    def opened(self, source: KafkaSource) -> Iterator[OpenTransaction]:
        """What of the last listing waits for open transactions. Raises BrokerError."""
        for name, topic in sorted(self._listings[source.name].topics.items()):
            for number, item in sorted(topic.partitions.items()):
                if item.open:
                    since = self._broker(source).arrival_of(name, number, item.until)
                    yield OpenTransaction(name, number, item.until, item.open, since)

    def _broker(self, source: KafkaSource) -> Broker:
        if source.name not in self._brokers:
            self._brokers[source.name] = self._open(source)
        return self._brokers[source.name]

    def _of_source(
        self, source: KafkaSource, before: Mapping[str, TopicPosition], report: Report
    ) -> tuple[list[OffsetRange], list[Advance], Mapping[str, TopicPosition]]:
        listing = self._listing(source, before, report)
        if listing is None:
            return [], [], before
        if self._is_fixed and source.name not in self._told_open:
            self._told_open.add(source.name)
            for item in self.opened(source):
                report("open_transaction", source.name, str(item))
        known = self._with_new(source, before, listing, report)
        lost, known = self._without_lost(source, known, listing)
        ranges, after = self._ranges(source, known, listing)
        is_due = bool(ranges) or listing.moment >= self._advanced.get(source.name, 0) + SECOND
        advances = list(_announced(source, before, after))
        if is_due and not self._is_fixed:
            advances += _advances(source, after, listing)
        if advances:
            self._advanced[source.name] = listing.moment
        if source.name in self._followed and not self._is_fixed:
            self._followed[source.name].follow(_places(after))
        return [*lost, *ranges], advances, after

    def _listing(self, source: KafkaSource, before: Mapping[str, TopicPosition], report: Report) -> Listing | None:
        """What there is now; None = the brokers are down, and it is not known for how long."""
        if self._is_fixed:
            return self._listings[source.name]
        try:
            found = self._listed(source, before)
        except BrokerError as error:
            moment = self._now() // 1000
            if source.name not in self._down_since:
                self._down_since[source.name] = moment
                if error.is_passing:
                    report("no_answer", source.name, str(error))
            length = moment - self._down_since[source.name]
            is_known = source.name in self._listings or source.retry is not None
            if not error.is_passing or not is_known or length > patience_of(source.retry) * SECOND:
                raise
            return None
        if self._down_since.pop(source.name, None) is not None:
            report("answers_again", source.name, "")
        self._listings[source.name] = found
        return found

    def _listed(self, source: KafkaSource, before: Mapping[str, TopicPosition]) -> Listing:
        broker = self._broker(source)
        if self._most_followed == 0:
            return broker.listing(source.topics)
        if source.name not in self._followed:
            from job_engine.sources.topics.consuming import FollowedTopics  # a lister of its own has to start fast

            ask = partial(broker.listing, source.topics)
            self._followed[source.name] = FollowedTopics(source.client, ask, self._now, self._most_followed)
        return self._followed[source.name].listing(_places(before))

    @property
    def follows_all(self) -> bool:
        """Whether it takes the messages of all sources itself at this time."""
        return all(source.name in self._followed and self._followed[source.name].follows for source in self._sources)

    def taken(self, wanted: OffsetRange) -> TakenMessages | None:
        """The messages of a range that this process has taken itself; None = it has not."""
        followed = self._followed.get(wanted.source)
        return None if followed is None else followed.taken(wanted)

    def close(self) -> None:
        """End connections that take messages."""
        for followed in self._followed.values():
            followed.close()

    def _with_new(
        self, source: KafkaSource, before: Mapping[str, TopicPosition], listing: Listing, report: Report
    ) -> dict[str, TopicPosition]:
        """The positions with those of topics and partitions that are read for the first time.

        What is new in the middle is read from its beginning. So is the first topic of a pattern, if
        there was none before.
        """
        known, is_first = dict(before), not before and source.name not in self._found_none
        if not listing.topics:
            self._found_none.add(source.name)
        for name in sorted(listing.topics):
            if name not in known:
                known[name] = TopicPosition(len(known), listing.topics[name].identity, {}, {})
        new = [
            (name, partition)
            for name, topic in sorted(listing.topics.items())
            for partition in sorted(topic.partitions)
            if partition not in known[name].next
        ]
        starts = self._starts(source, new, listing) if is_first else {}
        begun: dict[str, dict[int, int]] = {}
        for name, partition in new:
            first = listing.topics[name].partitions[partition].first
            offset = begun.setdefault(name, {})[partition] = starts.get((name, partition), first)
            if not is_first:
                report("new_partition", source.name, f"{name}/{partition} from offset {offset}")
        return known | {name: _with_partitions(known[name], offsets) for name, offsets in begun.items()}

    def _starts(
        self, source: KafkaSource, new: Sequence[tuple[str, int]], listing: Listing
    ) -> dict[tuple[str, int], int]:
        """Where a new job begins."""
        ends = {(name, number): listing.topics[name].partitions[number].until for name, number in new}
        match source.start:
            case "earliest":
                return {}
            case "latest":
                return ends
            case moment:
                found = self._broker(source).offsets_at(new, int(moment))
                return {name: ends[name] if offset is None else offset for name, offset in found.items()}

    def _without_lost(
        self, source: KafkaSource, known: Mapping[str, TopicPosition], listing: Listing
    ) -> tuple[list[OffsetRange], dict[str, TopicPosition]]:
        """What the broker has no longer, and the positions behind it; raises LostOffsets."""
        lost: list[OffsetRange] = []
        after = dict(known)
        for name, position in known.items():
            topic = listing.topics.get(name)
            if topic is None:
                if position.identity and self._is_deleted(source, name, listing):
                    self._refuse(source, f"the topic {name!r} does not exist any more")
                    lost.append(OffsetRange(source.name, name, position.number, 0, 0, 0, is_lost=True))
                    after[name] = replace(position, identity="")
                continue
            self._missing_since.pop((source.name, name), None)
            if topic.identity != position.identity:
                self._refuse(source, f"the topic {name!r} was deleted and made again")
                lost.append(OffsetRange(source.name, name, position.number, 0, 0, 0, is_lost=True))
                firsts = {number: item.first for number, item in topic.partitions.items()}
                after[name] = TopicPosition(position.number, topic.identity, firsts, firsts)
                continue
            moved = dict(position.next)
            for number, item in sorted(topic.partitions.items()):
                gone = _gone(position.next[number], item)
                if gone is not None:
                    self._refuse(source, f"{name}/{number}: {gone}")
                    start = position.next[number]
                    moved[number] = item.first if item.first > start else item.until
                    until = max(start, moved[number])
                    lost.append(OffsetRange(source.name, name, position.number, number, start, until, is_lost=True))
            after[name] = replace(position, next=moved)
        return lost, after

    def _is_deleted(self, source: KafkaSource, topic: str, listing: Listing) -> bool:
        """Whether a topic that is missing has been missing for long enough."""
        since = self._missing_since.setdefault((source.name, topic), listing.moment)
        return self._is_fixed or listing.moment - since > GRACE

    def _refuse(self, source: KafkaSource, what: str) -> None:
        if not self._accepts_loss:
            raise LostOffsets(
                f"source '{source.name}': {what}. To continue without what is lost: ensue run --accept-loss"
            )

    def _ranges(
        self, source: KafkaSource, known: Mapping[str, TopicPosition], listing: Listing
    ) -> tuple[list[OffsetRange], dict[str, TopicPosition]]:
        """What is read of each partition, and the positions behind it."""
        latest = None if source.ahead is None else listing.moment + source.ahead
        waiting = [
            OffsetRange(
                source.name,
                name,
                position.number,
                number,
                start,
                listing.topics[name].partitions[number].until,
                latest=latest,
            )
            for name, position in sorted(known.items(), key=lambda item: item[1].number)
            for number, start in sorted(position.next.items())
            if _has_more(listing.topics.get(name), number, start)
        ]
        ranges = list(_limited(waiting, source.max_offsets))
        ends: dict[str, dict[int, int]] = {}
        for item in ranges:
            ends.setdefault(item.topic, {})[item.partition] = item.until
        moved = {name: replace(known[name], next={**known[name].next, **offsets}) for name, offsets in ends.items()}
        return ranges, {**known, **moved}


def _places(positions: Mapping[str, TopicPosition]) -> dict[tuple[str, int], int]:
    return {(name, number): offset for name, own in positions.items() for number, offset in own.next.items()}


def _with_partitions(position: TopicPosition, offsets: Mapping[int, int]) -> TopicPosition:
    """The position of a topic of which partitions are read from these offsets on."""
    begun = None if position.begun is None else {**position.begun, **offsets}
    return replace(position, next={**position.next, **offsets}, begun=begun)


def _has_more(topic: TopicListing | None, number: int, start: int) -> bool:
    return topic is not None and number in topic.partitions and topic.partitions[number].until > start


def _gone(start: int, partition: PartitionListing) -> str | None:
    """What of a partition was not read and cannot be; None = nothing."""
    if partition.first > start:
        return f"the offsets {start} to {partition.first - 1} no longer exist: deleted, or past their retention"
    if partition.until < start:
        return f"it ends before offset {partition.until}, and was read up to {start}: it has lost messages"
    return None


def _limited(waiting: Sequence[OffsetRange], most: int | None) -> Iterator[OffsetRange]:
    """The beginnings of ranges, each in proportion to its length; so many messages together."""
    total = sum(map(len, waiting))
    if most is None or total <= most:
        yield from waiting
        return
    left = most
    for item in waiting:
        share = min(left, max(1, most * len(item) // total))
        if share:
            yield replace(item, until=item.start + share)
        left -= share


def _announced(
    source: KafkaSource, before: Mapping[str, TopicPosition], after: Mapping[str, TopicPosition]
) -> Iterator[Advance]:
    """New partitions: the clock waits for them too, but for those of control events."""
    if source.is_control:
        return
    for name, position in after.items():
        old = before[name].next if name in before else {}
        for number, offset in sorted(position.next.items()):
            if number not in old:
                yield Advance(source.name, position.number, number, NO_TIME, offset)


def _advances(source: KafkaSource, after: Mapping[str, TopicPosition], listing: Listing) -> Iterator[Advance]:
    """Partitions that are read to their ends, where the broker's clock gives the timestamps.

    A later message has a later timestamp than the moment at which the end was asked for, but for
    the difference of the two clocks.
    """
    for name, topic in sorted(listing.topics.items()):
        if source.is_control or not topic.is_append_time:
            continue
        for number, item in sorted(topic.partitions.items()):
            offset = after[name].next[number]
            if item.is_settled and offset == item.until:
                yield Advance(source.name, after[name].number, number, listing.moment - source.skew, offset)


def _where_begun(known: TopicPosition | None, last: TopicPosition) -> TopicPosition:
    """The position of a topic of which nothing is read but what was `known` before."""
    if known is not None and known.identity != last.identity:
        return known  # it was made again: whoever plans anew has to notice that, too
    begun = dict(last.next if last.begun is None else last.begun)
    return replace(last, next=begun if known is None else {**begun, **known.next})


# Divide the ranges of a micro-batch among tasks: equal numbers of messages.

LEAST = 50_000
"""Messages that are worth a connection of their own."""


def range_tasks(
    ranges: Sequence[OffsetRange], tasks: int, least: Mapping[str, int | None]
) -> list[tuple[OffsetRange, ...]]:
    """At most `tasks` lists, none empty, or as many as a source wants at least.

    least: by source: its `minPartitions`; None = it has none

    A partition may be divided: the operator puts its parts in order by their offsets.
    """
    wanted = max((least.get(item.source) or 0 for item in ranges), default=0)
    count = max(tasks, wanted)
    size = -(-sum(map(len, ranges)) // count) if count else 0
    pieces = [piece for item in ranges for piece in _pieces(item, max(size, 1 if least.get(item.source) else LEAST))]
    shares: list[list[OffsetRange]] = [[] for _ in range(min(count, len(pieces)))]
    loads = [0] * len(shares)
    for piece in sorted(pieces, key=lambda piece: -len(piece)):
        smallest = loads.index(min(loads))
        shares[smallest].append(piece)
        loads[smallest] += len(piece) + 1
    return [tuple(share) for share in shares]


def _pieces(item: OffsetRange, size: int) -> Iterator[OffsetRange]:
    count = -(-len(item) // size)
    if item.is_lost or count <= 1:
        yield item
        return
    bounds = [item.start + len(item) * number // count for number in range(count + 1)]
    yield from (replace(item, start=start, until=until) for start, until in pairwise(bounds))


Memories = Mapping[str, TopicsMemory]


class PlannedTopics(KindPlanner):
    """The topics of one run; see `KindPlanner`."""

    def __init__(self, sources: Sequence[KafkaSource], run: PlannedRun) -> None:
        self._planner = OffsetPlanner(
            sources,
            lambda source: AskedBroker(source.client),
            run.now,
            accepts_loss=run.accepts_loss,
            most_followed=run.most_followed,
        )

    @property
    def asks_nobody(self) -> bool:
        """As `KindPlanner.asks_nobody`."""
        return self._planner.follows_all

    def fix_end(self) -> None:
        """As `KindPlanner.fix_end`."""
        self._planner.fix_end()

    def next(self, memories: Memories, report: Report, *, has_ended: bool) -> Planned:  # noqa: ARG002
        """As `KindPlanner.next`."""
        found = self._planner.next({name: memory.position for name, memory in memories.items()}, report)
        pieces = {
            name: TopicsPiece(
                position,
                tuple(item for item in found.ranges if item.source == name),
                tuple(item for item in found.advances if item.source == name),
            )
            for name, position in found.positions.items()
        }
        return Planned(pieces, bool(found.ranges), is_due=bool(found.advances))

    def taken(self, work: TopicsWork) -> list[bytes]:
        """As `KindPlanner.taken`."""
        return [taken.to_bytes() for item in work.ranges if (taken := self._planner.taken(item)) is not None]

    def close(self) -> None:
        """As `KindPlanner.close`."""
        self._planner.close()


class TopicsPlanning(SourcePlanning):
    """Topics of Kafka; see `SourcePlanning`."""

    own_type = KafkaSource
    work_type = TopicsWork
    news_type = TopicsNews
    memory = TopicsMemory
    planner = PlannedTopics

    def memory_of(self, source: str, plain: Any) -> TopicsMemory:
        """As `SourcePlanning.memory_of`."""
        return TopicsMemory(source, shaped(plain, dict[str, TopicPosition]))

    def piece_to_plain(self, piece: TopicsPiece) -> dict[str, Any]:
        """As `SourcePlanning.piece_to_plain`."""
        return piece.to_plain()

    def piece_of(self, source: str, plain: Any) -> TopicsPiece:  # noqa: ARG002
        """As `SourcePlanning.piece_of`."""
        return shaped(plain, TopicsPiece)

    def tasks(
        self,
        pieces: Mapping[str, TopicsPiece],
        sources: Mapping[str, KafkaSource],
        count: int,
        unproven: Collection[str],  # noqa: ARG002
    ) -> list[dict[str, TopicsWork]]:
        """As `SourcePlanning.tasks`."""
        ranges = [item for piece in pieces.values() for item in piece.ranges]
        least = {name: source.min_partitions for name, source in sources.items()}
        return [
            {
                name: TopicsWork(tuple(item for item in share if item.source == name))
                for name in dict.fromkeys(item.source for item in share)
            }
            for share in range_tasks(ranges, count, least)
        ]

    def news(self, piece: TopicsPiece) -> TopicsNews | None:
        """As `SourcePlanning.news`."""
        return TopicsNews(piece.advances) if piece.advances else None

    def begun(self, before: TopicsPiece | None, dropped: Sequence[TopicsPiece]) -> TopicsPiece | None:
        """As `SourcePlanning.begun`: the offsets of partitions that no piece before has."""
        known = {} if before is None else before.position
        position = {name: _where_begun(known.get(name), last) for name, last in dropped[-1].position.items()}
        if position == known:
            return None
        new = (item for piece in dropped for item in piece.advances if item.arrival == NO_TIME)
        return TopicsPiece(position, (), tuple(new))


PLANNING = TopicsPlanning()
