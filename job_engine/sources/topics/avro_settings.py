"""The settings of a source whose messages are in Avro; what is wrong with them is reported."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote

from job_engine.document.yaml_document import Node
from job_engine.sources.topics.avro.avro_form import AvroForm, RegistryAddress
from querylang.errors import near_file

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
