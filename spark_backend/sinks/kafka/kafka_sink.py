"""What only a sink of Kafka has, as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class KafkaSink:
    """A topic that results are written to.

    name: of the sink in its job
    topic: its name
    is_channel: whether messages are the events that a query has sent, not rows of results
    client: options of librdkafka; they may be secret
    drafts: the folder where tasks put messages for the driver; "" = they pass through Spark
    retry: seconds that a broker which does not answer is asked again; None = as is usual
    """

    name: str
    topic: str
    is_channel: bool = False
    client: Mapping[str, str] = field(default_factory=dict, repr=False)
    drafts: str = ""
    retry: float | None = None

    def to_plain(self) -> dict[str, Any]:
        """What workers need of it; they have no connection."""
        return {"name": self.name, "topic": self.topic, "is_channel": self.is_channel, "drafts": self.drafts}

    @staticmethod
    def from_plain(data: Mapping[str, Any]) -> KafkaSink:
        """The inverse of `to_plain`."""
        return KafkaSink(**data)
