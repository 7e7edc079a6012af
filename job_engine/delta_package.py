"""The package `deltalake`, which reads and writes the logs of Delta tables: imported on first use.

It reaches stores by itself: `table_uri` and `store_settings` say where, and how.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING
from urllib.parse import quote

from job_engine.errors import RETRY, Outage
from job_engine.local_path import temporary_folder
from job_engine.place import Place, RemotePath, retry_of, scheme_of
from querylang.errors import InputError
from querylang.printable import warn

if TYPE_CHECKING:
    from deltalake import DeltaTable


_NAMES: Mapping[str, Mapping[str, str]] = {
    "s3": {
        "access_key": "aws_access_key_id",
        "secret_key": "aws_secret_access_key",
        "session_token": "aws_session_token",
        "region": "aws_region",
        "role_arn": "aws_iam_role_arn",
        "session_name": "aws_iam_role_session_name",
        "force_virtual_addressing": "aws_virtual_hosted_style_request",
        "anonymous": "aws_skip_signature",
        "connect_timeout": "connect_timeout",
        "request_timeout": "timeout",
    },
    "gs": {"anonymous": "google_skip_signature"},
    "abfss": {
        "account_key": "azure_storage_account_key",
        "sas_token": "azure_storage_sas_token",
        "tenant_id": "azure_storage_tenant_id",
        "client_id": "azure_storage_client_id",
        "client_secret": "azure_storage_client_secret",
    },
    "hdfs": {},
}
"""By scheme, the package's names of settings by those of deployment files, which are
pyarrow's. What a file does not say comes from the same variables of the environment."""

_ENDPOINT = ("endpoint_override", "scheme")
"""Settings that become one: the URL of a server."""

_SECONDS = ("connect_timeout", "request_timeout")


def unknown_settings(place: Place) -> list[str]:
    """The settings of a place's store that the package does not have."""
    if not isinstance(place, RemotePath):
        return []
    scheme = scheme_of(f"{place.root}/") or ""
    known = {RETRY, *_NAMES.get(scheme, ()), *(_ENDPOINT if scheme == "s3" else ())}
    return [name for name, _ in place.options if name not in known]


def table_uri(place: Place) -> str:
    """The text by which the package finds a table. Names of objects are literal, URIs are not."""
    return f"{place.root}/{quote(place.path)}" if isinstance(place, RemotePath) else str(place)


def store_settings(place: Place, environment: Mapping[str, str] = os.environ) -> dict[str, str] | None:
    """How the store of a table is reached; None = the table is local."""
    if not isinstance(place, RemotePath):
        return None
    scheme, own = scheme_of(f"{place.root}/") or "", dict(place.options)
    names = _NAMES.get(scheme, {})
    found = {names[name]: f"{value}s" if name in _SECONDS else value for name, value in own.items() if name in names}
    return found | _of_s3(own, environment) if scheme == "s3" else found


def _of_s3(own: Mapping[str, str], environment: Mapping[str, str]) -> dict[str, str]:
    """The server, as pyarrow chooses it, and how often it is asked."""
    server = own.get("endpoint_override") or environment.get("AWS_ENDPOINT_URL_S3", environment.get("AWS_ENDPOINT_URL"))
    found = {}
    if server:
        url = server if "://" in server else f"{own.get('scheme', 'https')}://{server}"
        found = {"aws_endpoint_url": url, "aws_allow_http": str(url.startswith("http://")).lower()}
        if "region" not in own and not environment.get("AWS_REGION", environment.get("AWS_DEFAULT_REGION")):
            found["aws_region"] = "us-east-1"
    attempts = environment.get("AWS_MAX_ATTEMPTS", "")
    return found | ({"max_retries": attempts} if attempts.isdecimal() and int(attempts) else {})


@contextmanager
def store_errors(place: Place) -> Iterator[None]:
    """What a store or the system refuses, in the words that all reading and writing there has."""
    try:
        yield
    except OSError as error:
        if error.filename is not None:
            raise
        if isinstance(place, RemotePath):
            raise _plain(str(error), str(place)) from error
        raise (_of_system(str(error), place) or error) from error


def _of_system(text: str, place: Place) -> OSError | None:
    """The error of the system that a text of the package tells of; None = of none."""
    found = None if isinstance(place, RemotePath) else re.search(r"\(os error (\d+)\)", text)
    return None if found is None else OSError(int(found[1]), os.strerror(int(found[1])), str(place))


def _plain(text: str, place: str) -> OSError:
    for pattern, made in _KNOWN:
        if re.search(pattern, text):
            return made(place)
    reason = " ".join(re.sub(r"\x1b\[\d+m|↳|Kernel error ->", " ", text).split())
    return OSError(errno.EIO, f"the store failed: {reason[:200]}", place)


def _refused(place: str) -> OSError:
    return PermissionError(errno.EACCES, "the store refuses access: check credentials and permissions", place)


def _no_credentials(place: str) -> OSError:
    reason = "no credentials for the store: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or its `options`"
    return PermissionError(errno.EACCES, reason, place)


def _no_bucket(place: str) -> OSError:
    return FileNotFoundError(errno.ENOENT, "there is no such bucket", place)


def _unreachable(place: str) -> OSError:
    return ConnectionError(errno.EHOSTUNREACH, "the store cannot be reached", place)


def _failing(place: str) -> OSError:
    return ConnectionError(errno.EIO, "the store fails, or refuses requests for a moment", place)


_KNOWN: tuple[tuple[str, Callable[[str], OSError]], ...] = (
    ("169[.]254[.]169[.]254|loading credentials", _no_credentials),  # where machines of Amazon ask for their role
    ("NoSuchBucket|ContainerNotFound", _no_bucket),
    (r"lacked the necessary privileges|lacked valid authentication|\b40[13] (Forbidden|Unauthorized)", _refused),
    (r"\b(5\d\d|429) [A-Z]", _failing),
    ("error sending request|tcp connect error|timed out|HTTP error", _unreachable),
)
"""What the package's messages have, first to last."""


def refuse_missing_package() -> None:
    """Raise InputError if the package is not installed."""
    try:
        import deltalake  # noqa: F401
    except ImportError as error:
        raise InputError("Delta tables need the package deltalake: pip install 'ensue[delta]'") from error


@contextmanager
def delta_errors(path: Place) -> Iterator[None]:
    """What the package raises of a table, as an InputError of one line; of a store OSErrors."""
    from deltalake.exceptions import DeltaError

    try:
        with store_errors(path):
            yield
    except InputError:
        raise
    except (DeltaError, ValueError, TypeError, OverflowError) as error:
        refused = _of_system(str(error), path)
        if refused is not None:
            raise refused from error
        raise InputError(f"{path}: the Delta table cannot be used: {first_line(error)}") from error
    except BaseException as error:
        if type(error).__name__ != _PANIC:
            raise
        raise InputError(f"{path}: the Delta table cannot be used: {first_line(error)}") from error


_PANIC = "PanicException"
"""What a package in Rust raises where it did not expect something; it is not an Exception."""


def first_line(error: BaseException) -> str:
    """What an error of the package says, without the places in it that come behind."""
    return next(iter(str(error).splitlines()), type(error).__name__)


def refuse_escapes(path: Place) -> None:
    """Raise InputError for a local folder that the package takes for another one.

    Its releases decode what looks like an escape in a name: they look for `%5FQ` in `_Q`.
    """
    found = None if isinstance(path, RemotePath) else _ESCAPE.search(str(path))
    if found is not None and not _keeps_escapes():
        raise InputError(
            f"{path}: the package deltalake cannot open a table in a local folder with '{found[0]}' in its path; choose"
            " another path, or another name of the query, instance or channel"
        )


_ESCAPE = re.compile("%[0-9A-Fa-f]{2}")


@cache
def _keeps_escapes() -> bool:
    """Whether this release of the package opens a table in such a folder."""
    import pyarrow as pa
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    with temporary_folder() as folder:
        table = folder / "%5F"
        table.mkdir()
        try:
            DeltaTable.create(str(table), pa.schema([("a", pa.int64())]))
            DeltaTable(str(table))
        except DeltaError:
            return False
    return True


def open_table(path: Place, version: int | None = None) -> DeltaTable | None:
    """The table in a folder; None = there is none. Raises InputError, and OSError of a store.

    version: of the table; None = the newest
    """
    if not isinstance(path, RemotePath):
        if not path.is_dir():
            return None
        refuse_escapes(path)
        return _opened(path, version)
    outage = Outage(retry_of(path) or 0.0, warn)
    while True:
        try:
            found = _opened(path, version)
        except ConnectionError as problem:
            outage.wait_for_store(problem)
        else:
            outage.over(path.root)
            return found


def _opened(path: Place, version: int | None) -> DeltaTable | None:
    from deltalake import DeltaTable
    from deltalake.exceptions import TableNotFoundError

    with delta_errors(path):
        try:
            return DeltaTable(table_uri(path), version=version, storage_options=store_settings(path))
        except TableNotFoundError:
            return None
