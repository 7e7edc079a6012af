"""A server of S3 in this process: it can go away and come back, refuse requests, and be looked into."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any

import boto3
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import BaseWSGIServer, make_server

from tests.support.killed_runs import start
from tests.support.waiting import LONGEST

BUCKET = "bucket"
KEYS = {"AWS_ACCESS_KEY_ID": "mine", "AWS_SECRET_ACCESS_KEY": "very-secret-key", "AWS_EC2_METADATA_DISABLED": "true"}

_ERROR = """<?xml version="1.0" encoding="UTF-8"?><Error><Code>{code}</Code><Message>{code}</Message></Error>"""


class StoreServer:
    """A server on loopback. Objects stay while it is away.

    refuse: gives the status and code with which a request is refused, by method and path; None = it is not
    """

    def __init__(self) -> None:
        logging.getLogger("werkzeug").setLevel(logging.ERROR)
        self.refuse: Callable[[str, str], tuple[int, str] | None] = lambda _method, _path: None
        self._app = DomainDispatcherApplication(create_backend_app)
        self._server: BaseWSGIServer | None = None
        self._port = 0
        self.start()
        self.client = boto3.client(
            "s3",
            endpoint_url=self.url,
            region_name="us-east-1",
            aws_access_key_id=KEYS["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=KEYS["AWS_SECRET_ACCESS_KEY"],
        )
        self.client.create_bucket(Bucket=BUCKET)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    @property
    def environment(self) -> dict[str, str]:
        """What a process needs to reach it; it repeats requests only once."""
        return KEYS | {"AWS_ENDPOINT_URL": self.url, "AWS_REGION": "us-east-1", "AWS_MAX_ATTEMPTS": "2"}

    def start(self) -> None:
        self._server = make_server("127.0.0.1", self._port, self._answer, threaded=True)
        self._port = self._server.server_port
        Thread(target=self._server.serve_forever, daemon=True).start()

    def stop(self) -> None:
        assert self._server is not None
        self._server.shutdown()
        self._server.server_close()

    def put(self, key: str, content: bytes | str) -> None:
        self.client.put_object(Bucket=BUCKET, Key=key, Body=content)

    def put_folder(self, folder: Path, prefix: str) -> None:
        """The files of a folder, in the order of their names."""
        for path in sorted(folder.iterdir()):
            self.put(f"{prefix}/{path.name}", path.read_bytes())

    def keys(self, prefix: str = "") -> list[str]:
        """The names of the objects with content."""
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=prefix)
        return [item["Key"] for page in pages for item in page.get("Contents", []) if not item["Key"].endswith("/")]

    def fetch_folder(self, prefix: str, folder: Path) -> None:
        """Copy what readers see of the objects: hidden ones are left out."""
        for key in self.keys(f"{prefix}/"):
            if not any(name[0] in "._" for name in key.split("/")):
                path = folder / key.removeprefix(f"{prefix}/")
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(self.client.get_object(Bucket=BUCKET, Key=key)["Body"].read())

    def clear(self) -> None:
        """Answer again, and remove all objects."""
        self.refuse = lambda _method, _path: None
        for page in self.client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET):
            for item in page.get("Contents", []):
                self.client.delete_object(Bucket=BUCKET, Key=item["Key"])

    def _answer(self, environ: dict[str, Any], start_response: Any) -> Any:
        refused = self.refuse(environ["REQUEST_METHOD"], environ["PATH_INFO"])
        if refused is None:
            return self._app(environ, start_response)
        environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        start_response(f"{refused[0]} Refused", [("Content-Type", "application/xml")])
        return [_ERROR.format(code=refused[1]).encode()]


@contextmanager
def store_server() -> Iterator[StoreServer]:
    """A server without objects."""
    server = StoreServer()
    try:
        yield server
    finally:
        server.client.close()
        server.stop()


def run_while_the_store_goes_away(deployment: Path, store: StoreServer, *, behind: str) -> None:
    """Run a job with `retry: 10 minutes` to its end, without the store for a while.

    behind: how the line begins that the run prints before
    """
    run = start(deployment, "-m", "ensue.cli", "run", "--once", "--flush")
    assert run.stderr is not None
    next(line for line in run.stderr if line.startswith(behind))
    store.stop()
    next(line for line in run.stderr if "the store cannot be reached; it is asked again for 10 minutes" in line)
    store.start()
    assert "s3://bucket answers again, after" in run.stderr.read()
    assert run.wait(timeout=LONGEST) == 0
