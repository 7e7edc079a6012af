"""What a deployment says of Kafka: options of its client, and topics, asked before a job starts.

Needs no client and no broker until one is asked, so that `ensue check` needs none.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from job_engine.errors import Outage, OutageTooLong, Unreachable
from job_engine.kafka_broker import AskedBroker, BrokerError, TopicChoice, servers
from job_engine.setting_values import Stream
from job_engine.yaml_document import Node, Template
from querylang.dataclass import dataclass, field
from querylang.errors import InputError
from querylang.printable import warn

# Options of Kafka's client: the names that Spark's users know, as librdkafka has them.
#
# Imports only the standard library, so that `ensue check` needs no client and no broker.

PREFIX = "kafka."
"""What the names of the client's options begin with."""

JAAS = "kafka.sasl.jaas.config"
"""Java's login settings, in a language of their own."""

ISOLATION = "kafka.isolation.level"
"""Whether messages of aborted transactions are read."""

_SAME = (
    *("bootstrap.servers", "client.id", "client.rack", "client.dns.lookup"),
    *("security.protocol", "sasl.kerberos.service.name", "sasl.username", "sasl.password"),
    *("ssl.ca.location", "ssl.certificate.location", "ssl.key.location", "ssl.key.password", "ssl.keystore.password"),
    *("ssl.cipher.suites", "ssl.endpoint.identification.algorithm", "enable.ssl.certificate.verification"),
    *("metadata.max.age.ms", "connections.max.idle.ms"),
    *("reconnect.backoff.ms", "reconnect.backoff.max.ms", "retry.backoff.ms", "socket.timeout.ms"),
)

_OF_CONSUMERS = (
    *("group.id", "isolation.level", "check.crcs"),
    *("fetch.min.bytes", "fetch.max.bytes", "fetch.max.wait.ms", "max.partition.fetch.bytes"),
)

_OF_PRODUCERS = (
    *("compression.type", "compression.level", "linger.ms", "batch.size", "max.request.size", "partitioner"),
    *("transaction.timeout.ms", "delivery.timeout.ms"),
)

_RENAMED = {
    "sasl.mechanism": "sasl.mechanisms",
    "fetch.max.wait.ms": "fetch.wait.max.ms",
    "max.request.size": "message.max.bytes",
    "delivery.timeout.ms": "message.timeout.ms",
    "request.timeout.ms": "socket.timeout.ms",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "send.buffer.bytes": "socket.send.buffer.bytes",
    "ssl.truststore.certificates": "ssl.ca.pem",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
}

_TRANSLATED = (
    *("sasl.jaas.config", "ssl.truststore.location", "ssl.truststore.type", "ssl.truststore.password"),
    *("ssl.keystore.location", "ssl.keystore.type"),
)

_FILES = ("ssl.ca.location", "ssl.certificate.location", "ssl.key.location", "ssl.keystore.location")

_COMMON = {*_SAME, *_RENAMED, *_TRANSLATED}

CLIENT_OPTIONS = tuple(PREFIX + name for name in sorted((_COMMON | {*_OF_CONSUMERS}) - {*_OF_PRODUCERS}))
"""What a source of a deployment file may have."""

PRODUCER_OPTIONS = tuple(PREFIX + name for name in sorted((_COMMON | {*_OF_PRODUCERS}) - {*_OF_CONSUMERS}))
"""What a sink may have."""

_LOGINS = ("PlainLoginModule", "ScramLoginModule")
_JAAS = re.compile(
    r"""\s*([\w.$]+)\s+required\b((?:\s+[\w.]+\s*=\s*(?:"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|[^\s;"']+))*)\s*;\s*"""
)
_JAAS_VALUE = re.compile(r"""([\w.]+)\s*=\s*("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|[^\s;"']+)""")


class WrongOption(ValueError):
    """An option that cannot be translated; `key`: its name; the text has no value of it."""

    def __init__(self, key: str, message: str) -> None:
        super().__init__(key, message)
        self.key = key
        self.message = message


def client_options(options: Mapping[str, str], folder: Path) -> dict[str, str]:
    """The options of librdkafka; raises WrongOption.

    options: of a deployment file; those without the prefix are not looked at
    folder: that relative paths of files are relative to
    """
    given = {key.removeprefix(PREFIX): value for key, value in options.items() if key.startswith(PREFIX)}
    found = {_RENAMED.get(name, name): value for name, value in given.items() if name not in _TRANSLATED}
    found |= dict(_stores(given))
    if "sasl.jaas.config" in given:
        found |= _login(given["sasl.jaas.config"])
        if "sasl.mechanisms" not in found:
            raise WrongOption(JAAS, "needs 'kafka.sasl.mechanism' beside it, such as PLAIN or SCRAM-SHA-512")
    if found.get("ssl.endpoint.identification.algorithm") == "":
        found["ssl.endpoint.identification.algorithm"] = "none"
    for name in _FILES:
        if name in found:
            found[name] = _existing(name, found[name], folder, given)
    return found


def _existing(name: str, written: str, folder: Path, given: Mapping[str, str]) -> str:
    path = folder / written
    if not path.is_file():
        key = (
            name
            if name in given
            else "ssl.truststore.location"
            if name == "ssl.ca.location"
            else "ssl.keystore.location"
        )
        raise WrongOption(PREFIX + key, "no such file")
    return str(path)


def _stores(given: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Java's stores of keys: PEM and PKCS12 files can be read, JKS files cannot."""
    if "ssl.truststore.location" in given:
        if given.get("ssl.truststore.type", "JKS").upper() != "PEM":
            raise WrongOption(
                PREFIX + "ssl.truststore.location",
                "only PEM files can be read: export the certificates and set 'kafka.ssl.truststore.type: PEM'",
            )
        yield "ssl.ca.location", given["ssl.truststore.location"]
    if "ssl.keystore.location" not in given:
        return
    place, kind = given["ssl.keystore.location"], given.get("ssl.keystore.type", "JKS").upper()
    if kind == "PEM":
        yield from (("ssl.certificate.location", place), ("ssl.key.location", place))
    elif kind == "PKCS12":
        yield "ssl.keystore.location", place
    else:
        raise WrongOption(
            PREFIX + "ssl.keystore.location",
            "JKS files cannot be read: convert it, and set 'kafka.ssl.keystore.type' to PKCS12 or PEM",
        )


def _login(text: str) -> dict[str, str]:
    """User name and password of Java's login settings."""
    found = _JAAS.fullmatch(text)
    if found is None:
        raise WrongOption(JAAS, """must be like `...PlainLoginModule required username="..." password="...";`""")
    if found[1].rpartition(".")[2] not in _LOGINS:
        raise WrongOption(JAAS, f"only the login modules {' and '.join(_LOGINS)} are supported")
    values = {name: _plain(value) for name, value in _JAAS_VALUE.findall(found[2])}
    if not {"username", "password"} <= values.keys():
        raise WrongOption(JAAS, "has no username or no password")
    return {"sasl.username": values["username"], "sasl.password": values["password"]}


def _plain(value: str) -> str:
    return re.sub(r"\\(.)", r"\1", value[1:-1]) if value[0] in "\"'" else value


# The options of Kafka's client in a deployment file; what is wrong with them is reported.


def read_client(node: Node, options: Mapping[str, Node], folder: Path) -> dict[str, str]:
    """The options of Kafka's client, as librdkafka has them; mistakes are reported."""
    if PREFIX + "bootstrap.servers" not in options:
        node.wrong("'kafka.bootstrap.servers' is missing, such as `localhost:9092`")
    given = {key: option.text() for key, option in options.items() if key.startswith(PREFIX) and key != JAAS}
    login = options[JAAS].template() if JAAS in options else Template("")
    try:
        found = client_options(given | ({JAAS: login.text} if login.text else {}), folder)
    except WrongOption as error:
        options[error.key].wrong(f"'{error.key}': {error.message}")
        return {}
    filled = {key: login.fill(value) for key, value in found.items()}
    if JAAS in options and "sasl.password" in filled:
        options[JAAS].mistakes.keep(PREFIX + "sasl.password", filled["sasl.password"])
    return filled


# Ask brokers before a job starts: once, or as long as `retry` says.

Found = TypeVar("Found")


def first_answer(
    name: str, client: Mapping[str, str], retry: float | None, ask: Callable[[AskedBroker], Found]
) -> Found:
    """What a broker answers; raises InputError, and Unreachable where it does not answer.

    name: what messages begin with, such as `source 'cards'`
    """
    outage = Outage(retry or 0.0, lambda line: warn(f"{name}: {line}"))
    while True:
        try:
            found = ask(AskedBroker(client))
        except BrokerError as error:
            if not error.is_passing:
                raise InputError(f"{name}: {error}") from error
            try:
                outage.wait(str(error))
            except OutageTooLong as problem:
                raise Unreachable(f"{name}: {problem}") from error
        else:
            outage.over(f"Kafka at {servers(client)}")
            return found


_DEFAULT_PORT = "9092"


@dataclass(frozen=True, slots=True)
class TopicsAt:
    """Topics of a broker as a `Stream`; `client`: options of librdkafka, which may be secret."""

    client: Mapping[str, str] = field(repr=False)
    choice: TopicChoice
    retry: float | None = None

    def shared(self, written: Stream, *, asks: bool) -> Sequence[str]:
        """As `Stream.shared`; a broker is asked for its cluster."""
        if not isinstance(written, TopicsAt):
            return []
        topics = [topic for topic in written.choice.named if self._has(topic)]
        is_same = topics and (
            _addresses(self.client) & _addresses(written.client) or (asks and self._is_cluster_of(written))
        )
        return [f"the topic '{topic}'" for topic in topics] if is_same else []

    def _has(self, topic: str) -> bool:
        return topic in self.choice.named or (self.choice.pattern is not None and bool(self.choice.of([topic])))

    def _is_cluster_of(self, other: TopicsAt) -> bool:
        """Whether both are of one cluster, whatever addresses lead there."""
        first, second = (
            first_answer("the topics", item.client, item.retry, lambda broker: broker.cluster())
            for item in (self, other)
        )
        return bool(first) and first == second


def _addresses(client: Mapping[str, str]) -> frozenset[str]:
    """Host and port of each broker that is named, in lower case."""
    found = []
    for text in client.get("bootstrap.servers", "").split(","):
        address = text.strip().rpartition("://")[2].lower()
        is_whole = address.rpartition(":")[2].isdecimal() and not address.endswith("]")
        found.append(address if is_whole else f"{address}:{_DEFAULT_PORT}")
    return frozenset(found)
