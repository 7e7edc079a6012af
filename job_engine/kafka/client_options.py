"""Options of Kafka's client: the names that Spark's users know, as librdkafka has them.

Imports only the standard library, so that `ensue check` needs no client and no broker.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

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
