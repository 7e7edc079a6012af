"""Ask a schema registry for schemas, as Confluent's answers over HTTP."""

from __future__ import annotations

import base64
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable
from http.client import HTTPException
from typing import Any, TypeVar
from urllib.parse import quote

from job_engine.errors import Outage, OutageTooLong, Unreachable
from job_engine.sources.topics.settings import RegistryAddress
from querylang.errors import InputError
from runtime.file_forms import shortened
from runtime.interpreter.written_values import JsonError, parse_json

ANSWER_WITHIN = 10.0
"""Seconds that a registry may take to answer."""

_PASSING = (408, 429)
"""Numbers of HTTP below 500 after which the same may work."""

_MOST_REFERENCES = 1_000

_LONGEST_ANSWER = 64 << 20
"""Bytes: a schema as long as may be, as JSON that escapes its characters, and what is beside it."""

Found = TypeVar("Found")


class UnknownSchema(Exception):
    """The registry has no such schema, or not one of Avro; the text says which."""


class RegistryError(Exception):
    """The registry did not answer, or refused.

    is_passing: whether it may work when it is asked again
    """

    def __init__(self, message: str, *, is_passing: bool) -> None:
        super().__init__(message)
        self.is_passing = is_passing


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A login must not be sent to another place."""

    def redirect_request(self, *_: object, **__: object) -> None:
        """None: a redirection is an answer like others."""


class SchemaRegistry:
    """A registry.

    patience: seconds that it is asked again when it does not answer
    tell: takes a line when that begins and ends
    """

    def __init__(
        self, address: RegistryAddress, patience: float = 0.0, tell: Callable[[str], None] = lambda _: None
    ) -> None:
        self._address = address
        self._patience = patience
        self._tell = tell
        self._opener: urllib.request.OpenerDirector | None = None

    def check(self) -> None:
        """Ask whether it is there; raises InputError, and Unreachable where it does not answer."""

        def ask() -> None:
            try:
                answer = self._asked("/subjects")
            except UnknownSchema as error:
                raise RegistryError(str(error), is_passing=False) from error
            if not isinstance(answer, list):
                raise RegistryError("what answers there is not a schema registry", is_passing=False)

        self._patiently(ask)

    def schema(self, number: int) -> tuple[str, tuple[str, ...]]:
        """The text of a schema, and those of the schemas that it names, in their order.

        Raises UnknownSchema, InputError, and Unreachable where it does not answer.
        """

        def ask() -> tuple[str, tuple[str, ...]]:
            answer = self._asked(f"/schemas/ids/{number}")
            if answer is None:
                raise UnknownSchema(f"the schema registry has no schema {number}")
            return _text(answer, number), tuple(self._references(answer, number))

        return self._patiently(ask)

    def _references(self, answer: Any, number: int) -> list[str]:
        """The texts of all schemas that one names, each behind those that it names itself."""
        found: dict[tuple[str, int], str] = {}
        within: list[tuple[tuple[str, int], str]] = []
        waiting = [iter(_named(answer, number))]
        while waiting:
            key = next(waiting[-1], None)
            if key is None:
                waiting.pop()
                if within:
                    done, text = within.pop()
                    found[done] = text
            elif any(key == other for other, _ in within):
                raise UnknownSchema(f"schema {number} names version {key[1]} of {key[0]!r}, which names itself")
            elif key not in found:
                if len(found) + len(within) >= _MOST_REFERENCES:
                    raise UnknownSchema(f"schema {number} names more than {_MOST_REFERENCES:,} others")
                named = self._asked(f"/subjects/{quote(key[0], safe='')}/versions/{key[1]}")
                if named is None:
                    raise UnknownSchema(f"schema {number} names version {key[1]} of {key[0]!r}, which is not there")
                within.append((key, _text(named, number)))
                waiting.append(iter(_named(named, number)))
        return list(found.values())

    def _patiently(self, ask: Callable[[], Found]) -> Found:
        outage = Outage(self._patience, self._tell)
        while True:
            try:
                found = ask()
            except RegistryError as error:
                if not error.is_passing:
                    raise InputError(f"{self._address.shown}: {error}") from error
                try:
                    outage.wait(f"{self._address.shown}: {error}")
                except OutageTooLong as problem:
                    raise Unreachable(str(problem)) from error
            else:
                outage.over(self._address.shown)
                return found

    def _asked(self, path: str) -> Any:
        """The answer of the first URL that answers; None = it has no such thing.

        Raises RegistryError.
        """
        for number, url in enumerate(self._address.urls, 1):
            try:
                return self._answer(url + path)
            except RegistryError as error:
                if not error.is_passing or number == len(self._address.urls):
                    raise
        raise AssertionError("a registry has a URL")

    def _answer(self, url: str) -> Any:
        try:
            with self._open().open(self._request(url), timeout=ANSWER_WITHIN) as answer:
                body = answer.read(_LONGEST_ANSWER + 1)
                if len(body) > _LONGEST_ANSWER:
                    raise UnknownSchema(f"the schema registry answers with more than {_LONGEST_ANSWER >> 20} MB")
                return _parsed(body)
        except urllib.error.HTTPError as error:
            return _refused(error)
        except ssl.SSLError as error:
            raise RegistryError(f"TLS fails ({error.reason or error})", is_passing=False) from error
        except urllib.error.URLError as error:
            if isinstance(error.reason, ssl.SSLError):
                raise RegistryError(f"TLS fails ({_reason(error.reason)})", is_passing=False) from error
            raise RegistryError(f"it cannot be reached ({_reason(error.reason)})", is_passing=True) from error
        except (OSError, HTTPException) as error:
            raise RegistryError(f"it does not answer ({_reason(error)})", is_passing=True) from error
        except ValueError as error:
            raise RegistryError("what answers there is not a schema registry: no JSON", is_passing=False) from error

    def _request(self, url: str) -> urllib.request.Request:
        headers = {"Accept": "application/vnd.schemaregistry.v1+json, application/json"}
        if self._address.login is not None:
            encoded = base64.b64encode(self._address.login.encode()).decode()
            headers["Authorization"] = f"Basic {encoded}"
        elif self._address.token is not None:
            headers["Authorization"] = f"Bearer {self._address.token}"
        return urllib.request.Request(url, headers=headers)  # noqa: S310 # the settings refuse other schemes

    def _open(self) -> urllib.request.OpenerDirector:
        if self._opener is None:
            address = self._address
            try:
                context = ssl.create_default_context(cafile=address.authorities)
                if address.certificate is not None:
                    context.load_cert_chain(address.certificate, address.key, address.key_password)
            except (OSError, ValueError) as error:  # an SSLError is an OSError
                raise RegistryError(f"its certificates cannot be used ({_reason(error)})", is_passing=False) from error
            self._opener = urllib.request.build_opener(urllib.request.HTTPSHandler(context=context), _NoRedirect)
        return self._opener


def _parsed(body: bytes) -> Any:
    """An answer. Raises UnknownSchema for a broken object, and JsonError for other text."""
    try:
        return parse_json(body)
    except JsonError as error:
        if body.lstrip()[:1] != b"{":
            raise
        raise UnknownSchema(f"the answer of the schema registry cannot be read: {error}") from error


def _text(answer: Any, number: int) -> str:
    kind = _field(answer, "schemaType", str, number, default="AVRO")
    if kind != "AVRO":
        raise UnknownSchema(f"schema {number} is of {shortened(kind)}, and not of Avro")
    return _field(answer, "schema", str, number)


def _named(answer: Any, number: int) -> list[tuple[str, int]]:
    """Subject and version of the schemas that one names."""
    entries = _field(answer, "references", list, number, default=[])
    return [(_field(entry, "subject", str, number), _field(entry, "version", int, number)) for entry in entries]


def _field(answer: Any, name: str, kind: type[Found], number: int, default: Found | None = None) -> Found:
    """A part of an answer; raises UnknownSchema for an answer of another shape."""
    found = answer.get(name) if isinstance(answer, dict) else None
    if found is None and isinstance(answer, dict):
        found = default
    if not isinstance(found, kind) or isinstance(found, bool):
        raise UnknownSchema(
            f"schema {number}: the schema registry answers with {type(found).__name__} where {name!r} is expected"
        )
    return found


def _refused(error: urllib.error.HTTPError) -> None:
    """None where there is no such thing; else raise RegistryError."""
    with error:
        if error.code == 404:
            return
        if error.code in (401, 403):
            what = "refuses the login" if error.code == 401 else "does not allow the job to read it"
            raise RegistryError(f"it {what} (HTTP {error.code})", is_passing=False)
        is_passing = error.code >= 500 or error.code in _PASSING
        raise RegistryError(f"it answers with HTTP {error.code}", is_passing=is_passing)


def _reason(error: object) -> str:
    strerror = getattr(error, "strerror", None)
    return " ".join(str(strerror or error).split())
