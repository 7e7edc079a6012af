"""`python -m tests.torture.topics [KILLS] [ENGINE]`: topics to topics and Delta tables, while broker, driver and workers are killed.

Messages are produced while a job runs; some cannot be decoded. At the end matches, messages and the account are those of one engine.
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from deltalake import DeltaTable

import querylang
from job_engine.setting_keys import Engine
from runtime.reading.tables import read_arrivals
from tests.support.embedded import embedded, match_ids
from tests.support.kafka.broker import Broker, running_broker
from tests.support.sensors import QUERY, table
from tests.torture.victims import WAYS, Victim, finished

PARTITIONS = 3

DEPLOYMENT = """\
name: sensors
queries: [sensors.query]
sources:
  readings:
    format: kafka
    options: {{{broker}, subscribe: {topic}, maxOffsetsPerTrigger: {most}}}
    event: Reading
sinks:
  matches:   {{format: delta, path: out/matches}}
  output:    {{format: kafka, topic: {output}, options: {{{broker}}}}}
  discarded: {{format: parquet, path: out/discarded}}
  ledger:    {{format: parquet, path: out/ledger}}
channels:
  rises: {{format: kafka, topic: {rises}, options: {{{broker}}}}}
trigger: 200ms
retry: 2 minutes
buckets: 2
checkpoint: state
"""


class Stream:
    """Messages of a topic, in the order in which they are produced; one in fifty is not JSON."""

    def __init__(self, rows: int, seed: int) -> None:
        chance = np.random.default_rng(seed)
        self.rows = table(rows, seed)
        stamps = self.rows.pop("at").astype("datetime64[ns, UTC]").astype("int64") // 1_000_000
        self.rows["timestamp"] = stamps - chance.integers(0, 3000, rows)
        self.rows["partition"] = chance.integers(0, PARTITIONS, rows)
        self.rows["offset"] = self.rows.groupby("partition").cumcount()
        self.rows["at"] = pd.to_datetime(self.rows.groupby("partition")["timestamp"].cummax(), unit="ms", utc=True)
        self.is_broken = chance.random(rows) < 0.02
        self.written = 0

    def write(self, broker: Broker, topic: str, count: int) -> None:
        """Produce the next messages."""
        part = slice(self.written, self.written + count)
        rows, broken = self.rows.iloc[part], self.is_broken[part].tolist()
        fields = rows[["sensor", "value", "ts"]].to_dict("records")
        messages = [
            (partition, stamp, b'{"sensor": ' if is_broken else json.dumps(row).encode())
            for partition, stamp, row, is_broken in zip(
                rows["partition"].tolist(), rows["timestamp"].tolist(), fields, broken, strict=True
            )
        ]
        broker.produce(topic, messages)
        self.written += len(rows)

    def expected(self, queries: Path, topic: str) -> dict[str, list[str]]:
        """Match identities by query, of one engine over the messages that are JSON."""
        good = self.rows[~self.is_broken].drop(columns="timestamp").assign(event="Reading", source=topic)
        plan = querylang.compile_paths([queries]).plan
        return match_ids(embedded(plan, read_arrivals(good, plan)))


def torture(
    folder: Path, broker: Broker, *, kills: int, seed: int, rows: int, engine: Engine = Engine.SPARK
) -> list[str]:
    """Kill a job and its broker; gives one line per difference from one engine. `engine`: what runs the job."""
    chance, stream = random.Random(seed), Stream(rows, seed)
    topic, output, rises = broker.topic(PARTITIONS), broker.topic(), broker.topic(2)
    (folder / "sensors.query").write_text(QUERY)
    path = folder / "sensors.yaml"
    servers, most = f'kafka.bootstrap.servers: "{broker.servers}"', max(10, rows // (4 * kills))
    path.write_text(DEPLOYMENT.format(broker=servers, topic=topic, output=output, rises=rises, most=most))
    victim, problems = Victim.start(path, engine=engine), list[str]()
    for number in range(kills):
        stream.write(broker, topic, rows // (kills + 1))
        _wait_for_batch(chance, folder / "state", victim)
        way = chance.choice(("broker", *WAYS[engine]))
        print(f"kill {number}: {way}", flush=True)
        if way == "broker":
            broker.stop()
            time.sleep(chance.uniform(0, 20))
            broker.start()
        elif victim.is_running:
            # Behind the kill of a worker the job continues, or stops in order.
            problems += victim.kill(way)
        if not victim.is_running:
            victim = Victim.start(path, engine=engine)
    stream.write(broker, topic, rows)
    victim.end()
    code = finished(path, engine, 900)
    if code:
        return [f"the last run ended with exit code {code}: {(folder / 'run.log').read_text()[-2000:]}"]
    return problems + differences(folder, broker, stream, (topic, output, rises))


def _wait_for_batch(chance: random.Random, state: Path, victim: Victim) -> None:
    """Until the driver has planned one or two micro-batches more, and a moment; or a minute."""
    wanted, limit = _planned(state) + chance.choice((1, 2)), time.monotonic() + 60
    while _planned(state) < wanted and victim.is_running and time.monotonic() < limit:
        time.sleep(0.02)
    time.sleep(chance.uniform(0, 2))


def _planned(state: Path) -> int:
    return max((int(path.name) + 1 for path in (state / "offsets").glob("[0-9]*")), default=0)


def differences(folder: Path, broker: Broker, stream: Stream, topics: tuple[str, str, str]) -> list[str]:
    """What differs from one engine's answer, or does not add up."""
    topic, output, rises = topics
    wanted = stream.expected(folder / "sensors.query", topic)
    found = {name: _delta(folder / "out" / "matches" / name) for name in wanted}
    problems = [_difference(f"matches of {name}", found[name], wanted[name]) for name in wanted]
    problems.append(_difference("sent", _ids(broker, rises), [f"{match}/send/rises/1" for match in wanted["Rise"]]))
    problems.append(_difference("printed", _ids(broker, output), [f"{match}/print/1" for match in wanted["Jump"]]))
    discarded = pd.read_parquet(folder / "out" / "discarded")
    broken = discarded[discarded["reason"] == "malformed"]
    places = zip(broken["partition"].tolist(), broken["offset"].tolist(), strict=True)
    lost = stream.rows[stream.is_broken]
    problems.append(_difference("malformed", list(places), list(zip(lost["partition"], lost["offset"], strict=True))))
    ledger = pd.read_parquet(folder / "out" / "ledger").groupby(["query", "what"])["count"].sum()
    for name in wanted:
        account = ledger[name].to_dict()
        received = account.pop("received")
        if not received == len(stream.rows) == sum(account.values()):
            problems.append(f"account of {name}: {received} received, {account}, {len(stream.rows)} produced")
    return [problem for problem in problems if problem]


def _delta(folder: Path) -> list[str]:
    return list(DeltaTable(str(folder)).to_pandas()["match_id"])


def _ids(broker: Broker, topic: str) -> list[str]:
    return [dict(message.headers())["ensue-id"].decode() for message in broker.messages(topic)]


def _difference(what: str, found: list[Any], wanted: list[Any]) -> str:
    here, there = Counter(found), Counter(wanted)
    many, few = (here - there).total(), (there - here).total()
    return f"{what}: {many} too many, {few} missing of {there.total()}" if many or few else ""


def main() -> int:
    """Runs what the arguments say; prints one line of figures."""
    kills = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    engine = Engine(sys.argv[2]) if len(sys.argv) > 2 else Engine.SPARK
    started = time.monotonic()
    with (
        tempfile.TemporaryDirectory() as logs,
        tempfile.TemporaryDirectory() as folder,
        running_broker(Path(logs)) as broker,
    ):
        problems = torture(Path(folder), broker, kills=kills, seed=kills, rows=600 * kills, engine=engine)
    for problem in problems:
        print(f"  {problem}")
    print(
        f"topics: {engine}: {kills} kills, {600 * kills} messages, {len(problems)} problems, {time.monotonic() - started:.0f} s"
    )
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
