"""A broker of Kafka on this machine for a demo, a measurement or tests: one node on loopback, in a folder of its own."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from querylang.errors import InputError
from tools.jars import fetched_jars

JARS = Path(__file__).resolve().parents[1] / "build" / "kafka" / "jars"
CLUSTER = "MkU3OEVBNTcwNTJENDM2Qg"
SECONDS = 60
"""How long a broker may take until it answers."""

_JAVA = ("java", "-Xmx512m", "-Xms128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", f"{JARS}/*")
_END_WITH_PARENT = ("setpriv", "--pdeathsig", "KILL")
"""Starts a program that does not outlive the thread that starts it, however that ends. Linux has it."""


def broker_jars() -> Path:
    """The folder with the broker's jars; fetched from Maven Central where they are missing."""
    return fetched_jars(JARS, "org.apache.kafka", "kafka_2.13", "4.1.1")


@dataclass(slots=True)
class LocalBroker:
    """A broker; `stop` and `start` keep its logs and its ports.

    ends_with_us: it ends with the thread that starts it
    """

    folder: Path
    port: int
    controller: int
    ends_with_us: bool = False
    process: subprocess.Popen[bytes] | None = None

    @property
    def servers(self) -> str:
        """Where clients find it."""
        return f"127.0.0.1:{self.port}"

    def settings(self) -> Mapping[str, object]:
        """What `server.properties` says."""
        return {
            "process.roles": "broker,controller",
            "node.id": 1,
            "controller.quorum.voters": f"1@127.0.0.1:{self.controller}",
            "listeners": f"PLAINTEXT://{self.servers},CONTROLLER://127.0.0.1:{self.controller}",
            "advertised.listeners": f"PLAINTEXT://{self.servers}",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": self.folder / "logs",
            "auto.create.topics.enable": "false",
            # Timestamps may be of any year: no message is removed because it is old.
            "log.retention.ms": -1,
            "offsets.topic.replication.factor": 1,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
            "transaction.state.log.num.partitions": 1,
        }

    def start(self) -> None:
        """Start it and wait until it answers."""
        settings = self.folder / "server.properties"
        if not settings.exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            settings.write_text("".join(f"{key}={value}\n" for key, value in self.settings().items()))
            formatting = (*_JAVA, "kafka.tools.StorageTool", "format", "-t", CLUSTER, "-c", str(settings))
            subprocess.run(formatting, check=True, capture_output=True)
        with (self.folder / "broker.log").open("ab") as log:
            ending = _END_WITH_PARENT if self.ends_with_us and shutil.which(_END_WITH_PARENT[0]) else ()
            command = [*ending, *_JAVA, "kafka.Kafka", str(settings)]
            self.process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        self._await()

    def stop(self) -> None:
        """End it by its process id."""
        if self.process is not None:
            os.kill(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self.process = None

    def admin(self) -> Any:
        """Kafka's client for topics and settings."""
        from confluent_kafka.admin import AdminClient

        return AdminClient({"bootstrap.servers": self.servers, "log_level": "0"})

    def make_topic(self, name: str, partitions: int = 1, **settings: str) -> None:
        """Make a topic; settings have `_` where Kafka has `.`."""
        from confluent_kafka.admin import NewTopic

        config = {key.replace("_", "."): value for key, value in settings.items()}
        topic = NewTopic(name, num_partitions=partitions, replication_factor=1, config=config)
        admin = self.admin()
        for answer in admin.create_topics([topic]).values():
            answer.result()

    def messages(self, topic: str, **settings: str) -> list[Any]:
        """The messages of a topic that are committed, by partition and offset."""
        from confluent_kafka import Consumer, TopicPartition

        fixed = {"group.id": "all", "auto.offset.reset": "earliest", "isolation.level": "read_committed"}
        more = {"bootstrap.servers": self.servers, "enable.partition.eof": "true", "log_level": "0"}
        consumer = Consumer(fixed | more | settings)
        partitions = self.admin().list_topics(topic, timeout=10).topics[topic].partitions
        consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
        found, ended = [], set[int]()
        while len(ended) < len(partitions):
            for message in consumer.consume(1000, timeout=1):
                if message.error() is None:
                    found.append(message)
                else:
                    assert message.error().name() == "_PARTITION_EOF", message.error()
                    ended.add(message.partition())
        consumer.close()
        return sorted(found, key=lambda message: (message.partition(), message.offset()))

    def _await(self) -> None:
        from confluent_kafka import KafkaException

        assert self.process is not None, "it was started"
        limit = time.monotonic() + SECONDS
        while True:
            try:
                self.admin().list_topics(timeout=1)
            except KafkaException as error:
                if self.process.poll() is not None or time.monotonic() > limit:
                    log = (self.folder / "broker.log").read_text(errors="replace").splitlines()
                    raise InputError(
                        f"Kafka's broker does not start: {log[-1] if log else 'it says nothing'}"
                    ) from error
            else:
                return


def free_port() -> int:
    """A port of loopback that nobody uses."""
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        return int(made.getsockname()[1])


@contextmanager
def local_broker(folder: Path) -> Iterator[LocalBroker]:
    """A broker that runs until the block ends."""
    broker_jars()
    broker = LocalBroker(folder, free_port(), free_port(), ends_with_us=True)
    try:
        broker.start()
        yield broker
    finally:
        broker.stop()
