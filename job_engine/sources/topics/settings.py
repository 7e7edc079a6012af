"""The settings of a Kafka source; what is wrong with them is reported, with its line."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast
from urllib.parse import unquote

from job_engine.kafka_broker import TopicChoice
from job_engine.kafka_settings import CLIENT_OPTIONS, ISOLATION, TopicsAt, read_client
from job_engine.setting_keys import Change
from job_engine.setting_values import limit_ahead
from job_engine.sources.kinds import KindSettings, SourceEntry, SourceKind
from job_engine.yaml_document import Node
from querylang.dataclass import dataclass, field, replace
from querylang.errors import near_file
from runtime.instants import parse_moment
from runtime.json_reader import DamagedJson, json_of_text
from runtime.policies.settings_text import parse_duration

if TYPE_CHECKING:
    from job_engine.sources.source import Source


# What workers have to know of a source's Avro, as plain data.


@dataclass(frozen=True, slots=True)
class RegistryAddress:
    """A schema registry and how it is reached.

    urls: tried in this order, without login
    login: user name and password with a colon between; None = none
    token: of a bearer; None = none
    authorities: file with the certificates that are trusted; None = those of the system
    certificate, key, key_password: the client's own; None = none
    """

    urls: tuple[str, ...]
    login: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    authorities: str | None = None
    certificate: str | None = None
    key: str | None = None
    key_password: str | None = field(default=None, repr=False)

    @property
    def shown(self) -> str:
        """Its name in messages."""
        return f"the schema registry at {', '.join(self.urls)}"


@dataclass(frozen=True, slots=True)
class AvroForm:
    """How messages are written.

    schema: that of a file, as JSON; with a registry it is the one that readers expect
    registry: messages begin with the number of their schema there; None = they have no such number
    """

    schema: str | None = None
    registry: RegistryAddress | None = None


# The settings of a source whose messages are in Avro; what is wrong with them is reported.

_SCHEMA = "avro.schema"
_URL = "schema.registry.url"
_PREFIX = "schema.registry."
_LOGIN, _LOGIN_FROM, _TOKEN = "basic.auth.user.info", "basic.auth.credentials.source", "bearer.auth.token"
_FILES = ("ssl.ca.location", "ssl.certificate.location", "ssl.key.location")
_HOST = r"(?:\[[0-9a-fA-F:.]+\]|[^\s@/?#\[\]:]+)(?::\d+)?"
_URL_PARTS = re.compile(rf"(?P<scheme>https?)://(?:(?P<login>.*)@)?(?P<place>{_HOST}(?:/[^\s@?#]*)?)", re.DOTALL)
"""A login may have any letter, and ends at the last `@`."""

_KEY_PASSWORD = "ssl.key.password"  # noqa: S105 # the name of an option

OPTIONS = (
    _SCHEMA,
    _URL,
    *(_PREFIX + name for name in (_LOGIN, _LOGIN_FROM, _TOKEN, *_FILES, _KEY_PASSWORD)),
    *(_LOGIN, _LOGIN_FROM),
)
"""Those of `options`. Java's clients have the last two without the prefix."""


def read_avro(name: str, node: Node, options: Mapping[str, Node], client: Mapping[str, str], folder: Path) -> AvroForm:
    """How the messages of a source are written; mistakes are reported.

    node: that all options are in
    client: the options of Kafka's client, whose login the registry may have, too
    folder: that relative paths are relative to
    """
    if _SCHEMA not in options and _URL not in options:
        node.wrong(f"'{name}' needs '{_SCHEMA}', a file with the schema, or '{_URL}', such as `http://localhost:8081`")
    registry = _registry(options, client, folder) if _URL in options else None
    schema = _schema(options[_SCHEMA], folder, is_alone=registry is None) if _SCHEMA in options else None
    if registry is None:
        for key in OPTIONS:
            if key in options and key not in (_SCHEMA, _URL):
                options[key].wrong(f"'{key}' has no meaning without '{_URL}'")
    return AvroForm(schema, registry)


def refuse_avro(options: Mapping[str, Node]) -> None:
    """Report options that only Avro has."""
    for key in OPTIONS:
        if key in options:
            options[key].wrong(f"'{key}' belongs to `decode: avro`, which is missing beside 'options'")


def _schema(node: Node, folder: Path, *, is_alone: bool) -> str | None:
    """The schema of a file as JSON, with the types that it names, of files beside it."""
    path = folder / node.text()
    if not path.is_file():
        node.wrong(f"no such file: '{node.written()}'{near_file(path)}")
        return None
    try:
        from fastavro.schema import load_schema
    except ImportError:
        node.wrong("Avro needs the package fastavro: pip install 'ensue[kafka]'")
        return None
    try:
        found = load_schema(str(path), _write_hint=False)
    except Exception as error:  # noqa: BLE001 # fastavro raises whatever a schema that is not one causes
        node.wrong(f"'{node.written()}' is not a schema of Avro: {' '.join(str(error).split())[:200]}")
        return None
    if not _is_record(found) and not (is_alone and isinstance(found, list) and all(map(_is_record, found))):
        node.wrong(f"'{node.written()}' must be the schema of a record")
        return None
    return json.dumps(found)


def _is_record(schema: object) -> bool:
    return isinstance(schema, dict) and schema.get("type") in ("record", "error")


def _registry(options: Mapping[str, Node], client: Mapping[str, str], folder: Path) -> RegistryAddress | None:
    urls, logins = [], []
    template = options[_URL].template()
    for written in template.text.split(","):
        parts = _URL_PARTS.fullmatch(written.strip())
        if parts is None:
            options[_URL].wrong(f"'{_URL}' must be a URL such as `http://localhost:8081`")
            return None
        urls.append(template.fill(f"{parts['scheme']}://{parts['place']}").rstrip("/"))
        if parts["login"] is not None:
            user, _, password = parts["login"].partition(":")
            logins.append(f"{template.fill(unquote(user))}:{template.fill(unquote(password))}")
            options[_URL].mistakes.keep(f"password of {_URL}", template.fill(unquote(password)))
    given = {key.removeprefix(_PREFIX): option for key, option in options.items() if key in OPTIONS}
    files = {key: _file(given[key], folder) for key in _FILES if key in given}
    if "ssl.key.location" in files and "ssl.certificate.location" not in files:
        given["ssl.key.location"].wrong(f"'{_PREFIX}ssl.key.location' needs the certificate beside it")
    return RegistryAddress(
        tuple(urls),
        _login(given, client) or next(iter(logins), None),
        given[_TOKEN].text() if _TOKEN in given else None,
        files.get("ssl.ca.location"),
        files.get("ssl.certificate.location"),
        files.get("ssl.key.location"),
        given[_KEY_PASSWORD].text() if _KEY_PASSWORD in given else None,
    )


def _login(given: Mapping[str, Node], client: Mapping[str, str]) -> str | None:
    source = "USER_INFO"
    if _LOGIN_FROM in given:
        words = ("USER_INFO", "URL", "SASL_INHERIT")
        source = given[_LOGIN_FROM].one_of({word: word for word in words}) or source
    if source == "SASL_INHERIT":
        if "sasl.username" not in client:
            given[_LOGIN_FROM].wrong(f"'{_LOGIN_FROM}' takes the login of the broker, which has none here")
        return f"{client.get('sasl.username', '')}:{client.get('sasl.password', '')}"
    if _LOGIN not in given:
        return None
    text = given[_LOGIN].text()
    if ":" not in text:
        given[_LOGIN].wrong(f"'{_LOGIN}' must be a user name and a password with a colon between them")
    return text


def _file(node: Node, folder: Path) -> str:
    path = folder / node.text()
    if not path.is_file():
        node.wrong(f"no such file: '{node.written()}'")
    return str(path)


# What the lister and workers have to know of a Kafka source, as plain data.

SECOND = 1_000_000
"""µs."""

USUAL_AHEAD = 86_400 * SECOND
"""µs that timestamps may be later than a listing where a source does not say it: any producer may
write any timestamp, and a clock does not go back."""


@dataclass(frozen=True, slots=True)
class KafkaSource:
    """A source of messages.

    name: of the source
    topics: which ones are read
    client: options of librdkafka; they may be secret
    start: where a new job begins: `earliest`, `latest`, or a time, µs
    skew: µs that the clock of a broker may be behind the lister's
    max_offsets: most of a micro-batch; None = all
    min_partitions: least number of tasks, if there are so many messages; None = no such number
    is_control: whether its messages are control events
    retry: seconds that a broker which does not answer is asked again; None = as is usual
    ahead: µs that timestamps may be later than a micro-batch's listing; None = no limit
    avro: how messages in Avro are written; None = they are JSON
    """

    name: str
    topics: TopicChoice
    client: Mapping[str, str] = field(repr=False)
    start: str | int = "earliest"
    skew: int = SECOND
    max_offsets: int | None = None
    min_partitions: int | None = None
    is_control: bool = False
    retry: float | None = None
    ahead: int | None = None
    avro: AvroForm | None = None


_REFUSED = {
    "startingOffsets": "say where a new job begins with 'start' beside 'options': earliest, latest or a time",
    "startingOffsetsByTimestamp": "say where a new job begins with 'start' beside 'options', such as a time",
    "startingTimestamp": "say where a new job begins with 'start' beside 'options', such as a time",
    "endingOffsets": "`ensue run --once` ends with the messages that are there when it starts",
    "failOnDataLoss": "lost messages always stop a job; `ensue run --accept-loss` continues without them",
}

_TYPE_KEYS = ("event", "type", "type_field")

_MOST = "maxOffsetsPerTrigger"

_CHOICES = ("subscribe", "subscribePattern", "assign")


class TopicsKind(SourceKind):
    """Topics of Kafka; see `SourceKind`."""

    title = "Kafka sources"
    keys: Mapping[str, Change] = {"start": Change.FIXED, "skew": Change.FREE}
    options: Mapping[str, Change] = {
        "subscribe": Change.FIXED,
        "subscribePattern": Change.FIXED,
        "assign": Change.FIXED,
        _MOST: Change.FREE,
        "minPartitions": Change.FREE,
        ISOLATION: Change.FIXED,  # others of the client choose no records
    }
    needed: Mapping[str, Any] = {
        "required": ["options"],
        "anyOf": [
            *({"required": [key]} for key in _TYPE_KEYS),
            {"required": ["decode"], "properties": {"decode": {"not": {"const": "json"}}}},  # they name their type
        ],
    }
    usual: Mapping[str, str] = {"start": "earliest", "decode": "json"}
    control_keys = ()
    tells_arrival = True
    is_log = True

    def read(self, entry: SourceEntry) -> KindSettings:
        """As `SourceKind.read`."""
        name, node, found, folder = entry.name, entry.node, entry.found, entry.folders.base
        decode = _decode(found)
        if "arrival" in found and found["arrival"].text() != "timestamp":
            found["arrival"].wrong("a message arrives at its timestamp: 'arrival' can only be `timestamp`")
        if not entry.is_control and decode == "json" and found.keys().isdisjoint(_TYPE_KEYS):
            node.wrong(f"'{name}' needs 'event', the type of all its messages, or 'type', the field that has it")
        if "options" not in found:
            node.wrong(f"'{name}' has no 'options'; a Kafka source needs 'kafka.bootstrap.servers' and 'subscribe'")
            return KindSettings(None)
        start: str | int | None = "earliest"
        if "start" in found:
            start = cast("str | int | None", found["start"].parsed(_start, "`earliest`, `latest` or a time"))
        skew = (
            found["skew"].parsed(parse_duration, "a length of time such as `1 second`") if "skew" in found else SECOND
        )
        options = found["options"].mapping((*self.options, *CLIENT_OPTIONS, *OPTIONS, *_REFUSED))
        for key, reason in _REFUSED.items():
            if key in options:
                options[key].wrong(f"'{key}' is not an option here: {reason}")
        topics, client = _topics(name, found["options"], options), read_client(found["options"], options, folder)
        if decode == "json":
            refuse_avro(options)
        own = KafkaSource(
            name,
            topics,
            client,
            start="earliest" if start is None else start,
            skew=SECOND if skew is None else skew,
            max_offsets=_count(options, _MOST),
            min_partitions=_count(options, "minPartitions"),
            is_control=entry.is_control,
            ahead=limit_ahead(found, USUAL_AHEAD),
            avro=read_avro(name, found["options"], options, client, folder) if decode == "avro" else None,
        )
        return KindSettings(own)

    def asked_again(self, own: KafkaSource, retry: float | None) -> KafkaSource:
        """As `SourceKind.asked_again`."""
        return replace(own, retry=retry)

    def limits(self, own: KafkaSource) -> Mapping[str, int | None]:
        """As `SourceKind.limits`."""
        return {_MOST: own.max_offsets}

    def stream(self, own: KafkaSource) -> TopicsAt:
        """As `SourceKind.stream`."""
        return TopicsAt(own.client, own.topics, own.retry)

    def shown(self, source: Source) -> str:  # noqa: ARG002
        """As `SourceKind.shown`."""
        return "its topics"


KIND = TopicsKind()


def _decode(found: Mapping[str, Node]) -> str:
    words = {word: word for word in ("json", "avro")}
    return (found["decode"].one_of(words, unsupported=("columns",)) or "") if "decode" in found else "json"


def _start(text: str) -> str | int | None:
    return text if text in ("earliest", "latest") else parse_moment(text)


def _count(options: Mapping[str, Node], key: str) -> int | None:
    return options[key].number(least=1, most=2**62) if key in options else None


def _topics(name: str, node: Node, options: Mapping[str, Node]) -> TopicChoice:
    given = [key for key in _CHOICES if key in options]
    if len(given) != 1:
        found = f"has {' and '.join(given)}" if given else "says no topics"
        node.wrong(f"'{name}' {found}; expected one of subscribe, subscribePattern and assign")
        return TopicChoice()
    chosen = options[given[0]]
    match given[0]:
        case "subscribe":
            names = {topic.strip() for topic in chosen.text().split(",")} - {""}
            if not names:
                chosen.expected("names of topics with commas between them")
            return TopicChoice(names=tuple(sorted(names)))
        case "subscribePattern":
            return TopicChoice(pattern=chosen.parsed(_pattern, "a regular expression"))
        case _:
            what = 'partitions by topic as JSON, such as `{"trades": [0, 1]}`'
            return TopicChoice(assigned=chosen.parsed(_assigned, what) or {})


def _pattern(text: str) -> str | None:
    try:
        re.compile(text)
    except re.error:
        return None
    return text


def _assigned(text: str) -> dict[str, tuple[int, ...]] | None:
    try:
        found = json_of_text(text, dict[str, list[Annotated[int, range(2**31)]]])
    except DamagedJson:
        return None
    chosen = {topic: tuple(sorted(numbers)) for topic, numbers in found.items()}
    return chosen if chosen and all(chosen.values()) else None
