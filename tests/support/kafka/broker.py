"""A broker of Kafka for tests, with a secure listener, logins and rights for topics."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from querylang.errors import InputError
from tests.support.kafka.keys import made_keys
from tests.support.waiting import wait_for
from tools.local_broker import LocalBroker, broker_jars, free_port

USER, PASSWORD = "reader", "geheim-1234"
MODULES = "org.apache.kafka.common.security"


@dataclass(slots=True)
class Broker(LocalBroker):
    """A broker; `stop` and `start` keep its logs and its ports."""

    secure: int = 0

    @property
    def secure_servers(self) -> str:
        """With TLS and a login: `USER` and `PASSWORD`."""
        return f"127.0.0.1:{self.secure}"

    @property
    def certificate(self) -> Path:
        return self.folder / "certificate.pem"

    def settings(self) -> Mapping[str, object]:
        plain = LocalBroker.settings(self)
        secure = f"SASL_SSL://{self.secure_servers}"
        return {
            **plain,
            "listeners": f"{plain['listeners']},{secure}",
            "advertised.listeners": f"{plain['advertised.listeners']},{secure}",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL_SSL:SASL_SSL",
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
            "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config": f"{MODULES}.scram.ScramLoginModule required;",
            "listener.name.sasl_ssl.plain.sasl.jaas.config": (
                f'{MODULES}.plain.PlainLoginModule required user_{USER}="{PASSWORD}";'
            ),
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
            "allow.everyone.if.no.acl.found": "true",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": made_keys(self.folder)[1],
        }

    def topic(self, partitions: int = 1, **settings: str) -> str:
        """A new topic; gives its name."""
        name = f"t{uuid.uuid4().hex[:8]}"
        self.make_topic(name, partitions, **settings)
        return name

    def add_partitions(self, topic: str, count: int) -> None:
        """Let a topic have so many partitions."""
        from confluent_kafka.admin import NewPartitions

        admin = self.admin()
        for answer in admin.create_partitions([NewPartitions(topic, count)]).values():
            answer.result()

    def change(self, topic: str, **settings: str) -> None:
        """Other settings of a topic."""
        from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

        entries = [
            ConfigEntry(key.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
            for key, value in settings.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
        admin = self.admin()
        for answer in admin.incremental_alter_configs([resource]).values():
            answer.result()

    def produce(self, topic: str, messages: Sequence[tuple[int, int, bytes | None]], **settings: str) -> None:
        """Messages as partition, timestamp (ms; 0 = now) and value, in this order."""
        from confluent_kafka import Producer

        producer = Producer({"bootstrap.servers": self.servers, "log_level": "0", "linger.ms": "5", **settings})
        for partition, timestamp, value in messages:
            producer.produce(topic, value, partition=partition, timestamp=timestamp)
            producer.poll(0)
        assert producer.flush(30) == 0

    def add_user(self, name: str, password: str) -> None:
        """A user who logs in with SCRAM."""
        from confluent_kafka.admin import ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        admin = self.admin()
        for answer in admin.alter_user_scram_credentials(
            [UserScramCredentialUpsertion(name, info, password.encode())]
        ).values():
            answer.result()

    def allow(self, name: str, topic: str, *operations: str, kind: str = "TOPIC") -> None:
        """Let a user do only this with a topic, or what else has this name; who has no login may do everything."""
        from confluent_kafka.admin import (
            AclBinding,
            AclOperation,
            AclPermissionType,
            ResourcePatternType,
            ResourceType,
        )

        bindings = [
            AclBinding(
                ResourceType[kind],
                topic,
                ResourcePatternType.LITERAL,
                f"User:{name}",
                "*",
                AclOperation[operation],
                AclPermissionType.ALLOW,
            )
            for operation in operations
        ]
        admin = self.admin()
        for answer in admin.create_acls(bindings).values():
            answer.result()

    def delete_topic(self, topic: str) -> None:
        admin = self.admin()
        for answer in admin.delete_topics([topic]).values():
            answer.result()
        wait_for(lambda: topic not in admin.list_topics(timeout=10).topics)  # until then it takes messages

    def delete_before(self, topic: str, offsets: Mapping[int, int]) -> None:
        from confluent_kafka import TopicPartition

        places = [TopicPartition(topic, partition, offset) for partition, offset in offsets.items()]
        admin = self.admin()
        for answer in admin.delete_records(places).values():
            answer.result()


@contextmanager
def running_broker(folder: Path) -> Iterator[Broker]:
    pytest.importorskip("confluent_kafka", reason="the client of Kafka is not installed: pip install 'ensue[kafka]'")
    try:
        broker_jars()
    except InputError as error:
        pytest.skip(str(error))
    broker = Broker(folder, free_port(), free_port(), secure=free_port())
    try:
        broker.start()
        yield broker
    finally:
        broker.stop()
