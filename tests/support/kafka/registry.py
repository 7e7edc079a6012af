"""A schema registry for tests: an HTTP server on loopback that answers like Confluent's, with the schemas of a test."""

from __future__ import annotations

import base64
import json
import ssl
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from pathlib import Path
from typing import Any


@dataclass(slots=True)
class Registry:
    """A registry; `stop` and `start` keep its port.

    schemas: answers by number
    versions: answers by subject and version, as `subject/1`
    login: user name and password, `name:password`; None = anybody may ask
    asked: the paths that were asked for
    """

    schemas: dict[int, dict[str, Any]] = field(default_factory=dict)
    versions: dict[str, dict[str, Any]] = field(default_factory=dict)
    login: str | None = None
    certificate: Path | None = None
    asked: list[str] = field(default_factory=list)
    port: int = 0
    server: ThreadingHTTPServer | None = None

    @property
    def url(self) -> str:
        return f"{'http' if self.certificate is None else 'https'}://127.0.0.1:{self.port}"

    def add(self, number: int, schema: object, **more: object) -> None:
        self.schemas[number] = {"schema": json.dumps(schema), **more}

    def start(self) -> None:
        registry = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:  # the name that the server wants
                registry.asked.append(self.path)
                status, answer = registry.answer(self.path, self.headers.get("Authorization"))
                body = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        self.port = self.server.server_port
        if self.certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(self.certificate)
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def stop(self) -> None:
        if self.server is not None:
            self.server.shutdown()
            self.server.server_close()
            self.server = None

    def answer(self, path: str, login: str | None) -> tuple[int, object]:
        if self.login is not None and login != f"Basic {base64.b64encode(self.login.encode()).decode()}":
            return 401, {"error_code": 401, "message": "Unauthorized"}
        match path.strip("/").split("/"):
            case ["subjects"]:
                return 200, []
            case ["schemas", "ids", number] if int(number) in self.schemas:
                return 200, self.schemas[int(number)]
            case ["subjects", subject, "versions", version] if f"{subject}/{version}" in self.versions:
                return 200, self.versions[f"{subject}/{version}"]
            case _:
                return 404, {"error_code": 40403, "message": "Schema not found"}


@contextmanager
def running_registry(**settings: Any) -> Iterator[Registry]:
    registry = Registry(**settings)
    registry.start()
    try:
        yield registry
    finally:
        registry.stop()


def encoded(schema: object, record: Mapping[str, object], number: int | None = None) -> bytes:
    """A record as Confluent's serializer writes it; `number` None = without the header."""
    from fastavro import parse_schema, schemaless_writer

    stream = BytesIO()
    schemaless_writer(stream, parse_schema(json.loads(json.dumps(schema))), record)
    return (b"" if number is None else b"\0" + number.to_bytes(4, "big")) + stream.getvalue()


def record(name: str, fields: Mapping[str, object] | Sequence[tuple[str, object]]) -> dict[str, Any]:
    """The schema of a record."""
    pairs = fields.items() if isinstance(fields, Mapping) else fields
    return {"type": "record", "name": name, "fields": [{"name": key, "type": kind} for key, kind in pairs]}
