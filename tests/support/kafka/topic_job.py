"""A job from a topic to topics, files and tables, and what has to come out."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import querylang
from job_engine.job.checkpoint.job_folder import JobFolder
from runtime.reading.tables import read_arrivals
from runtime.results.schemas import Results
from tests.support.embedded import embedded, match_ids
from tests.support.kafka.broker import Broker
from tests.support.sensors import QUERY, table, totals

DEPLOYMENT = """\
name: sensors
engine: local
queries: [sensors.query]
sources:
  readings:
    format: kafka
    options: {{kafka.bootstrap.servers: "{servers}", subscribe: {topic}, maxOffsetsPerTrigger: 500}}
    event: Reading
sinks:
  matches: {{format: {matches}, path: out/matches}}
  output:  {{format: kafka, topic: {output}, options: {{kafka.bootstrap.servers: "{servers}"}}}}
channels:
  rises:   {{format: kafka, topic: {rises}, options: {{kafka.bootstrap.servers: "{servers}"}}}}
trigger: 0s
buckets: 2
checkpoint: state
"""


class TopicJob:
    """A job with all its messages in a topic."""

    def __init__(self, folder: Path, broker: Broker, matches: str = "parquet") -> None:
        self.broker, self.folder = broker, folder
        self.topic, self.output, self.rises = broker.topic(3), broker.topic(), broker.topic(2)
        names = {"topic": self.topic, "output": self.output, "rises": self.rises}
        (folder / "sensors.query").write_text(QUERY)
        self.path = folder / "sensors.yaml"
        self.path.write_text(DEPLOYMENT.format(servers=broker.servers, matches=matches, **names))
        self.rows = self._produced()

    def _produced(self) -> pd.DataFrame:
        random = np.random.default_rng(3)
        rows = table()
        stamps = rows.pop("at").astype("datetime64[ns, UTC]").astype("int64") // 1_000_000
        rows["timestamp"] = stamps - random.integers(0, 3000, len(rows))
        rows["partition"] = random.integers(0, 3, len(rows))
        rows["offset"] = rows.groupby("partition").cumcount()
        fields = rows[["sensor", "value", "ts"]].to_dict("records")
        places = zip(rows["partition"].tolist(), rows["timestamp"].tolist(), fields, strict=True)
        self.broker.produce(
            self.topic, [(partition, stamp, json.dumps(row).encode()) for partition, stamp, row in places]
        )
        return rows

    def expected(self) -> dict[str, list[str]]:
        return match_ids(self.answer())

    def answer(self) -> Results:
        """What one engine in this process gives over all messages."""
        rows = self.rows.assign(event="Reading", source=self.topic)
        rows["at"] = pd.to_datetime(rows.groupby("partition")["timestamp"].cummax(), unit="ms", utc=True)
        plan = querylang.compile_paths([self.folder / "sensors.query"]).plan
        return embedded(plan, read_arrivals(rows.drop(columns="timestamp"), plan))

    def assert_exactly_once(self) -> None:
        matches = self.expected()
        account = totals(JobFolder(self.folder / "state").ledger.total(), "Rise")
        assert account.pop("received") == len(self.rows) == sum(account.values())
        assert identities(self.broker.messages(self.rises)) == sorted(f"{id_}/send/rises/1" for id_ in matches["Rise"])
        assert identities(self.broker.messages(self.output)) == sorted(f"{id_}/print/1" for id_ in matches["Jump"])


def identities(messages: Sequence[Any]) -> list[str]:
    return sorted(dict(message.headers())["ensue-id"].decode() for message in messages)
