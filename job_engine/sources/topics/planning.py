"""What the lister asks of topics."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from job_engine.kafka.asking import AskedBroker
from job_engine.sources.kinds import KindPlanner, Planned, PlannedRun, Report, SourcePlanning
from job_engine.sources.topics.kafka_source import KafkaSource
from job_engine.sources.topics.offset_planner import OffsetPlanner
from job_engine.sources.topics.offsets import TopicPosition, TopicsMemory, TopicsNews, TopicsPiece, TopicsWork
from job_engine.sources.topics.range_tasks import range_tasks
from runtime.json_reader import shaped

Memories = Mapping[str, TopicsMemory]


class PlannedTopics(KindPlanner):
    """The topics of one run; see `KindPlanner`."""

    def __init__(self, sources: Sequence[KafkaSource], run: PlannedRun) -> None:
        self._planner = OffsetPlanner(
            sources, lambda source: AskedBroker(source.client), run.now, accepts_loss=run.accepts_loss
        )

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


PLANNING = TopicsPlanning()
