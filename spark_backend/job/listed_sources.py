"""The sources of a deployment by their kinds, as the lister takes them."""

from __future__ import annotations

from collections.abc import Sequence

from spark_backend.sources.delta.delta_source import DeltaSource
from spark_backend.sources.kafka.kafka_source import KafkaSource
from spark_backend.sources.listing.listed_source import ListedSource
from spark_backend.sources.source import Source


def listed_sources(sources: Sequence[Source]) -> list[ListedSource]:
    """Those of files."""
    return [source.own for source in sources if isinstance(source.own, ListedSource)]


def kafka_sources(sources: Sequence[Source]) -> list[KafkaSource]:
    """Those of messages."""
    return [source.own for source in sources if isinstance(source.own, KafkaSource)]


def delta_sources(sources: Sequence[Source]) -> list[DeltaSource]:
    """Those of tables."""
    return [source.own for source in sources if isinstance(source.own, DeltaSource)]
