"""How a store is reached: entries of `options` of a source or sink whose path is a URI.

What is not there comes from the environment, such as AWS_ACCESS_KEY_ID and AWS_ENDPOINT_URL.
"""

from __future__ import annotations

from collections.abc import Mapping

from job_engine.delta.store_access import unknown_settings
from job_engine.document.yaml_document import Node
from job_engine.places.place import Place, scheme_of

_S3_TEXTS = (
    "access_key",
    "secret_key",
    "session_token",
    "region",
    "endpoint_override",
    "role_arn",
    "session_name",
    "external_id",
    "proxy_options",
    "tls_ca_file_path",
)
_WORDS: Mapping[str, tuple[str, ...]] = {
    "anonymous": ("true", "false"),
    "force_virtual_addressing": ("true", "false"),
    "scheme": ("https", "http"),
}
"""Settings with few values."""

_SECONDS = ("connect_timeout", "request_timeout")

STORE_OPTIONS: Mapping[str, tuple[str, ...]] = {
    "s3": (*_S3_TEXTS, *_WORDS, *_SECONDS),
    "gs": ("anonymous", "project_id", "endpoint_override", "scheme"),
    "abfss": ("account_key", "sas_token", "tenant_id", "client_id", "client_secret"),
    "hdfs": ("user", "kerb_ticket"),
}
"""By scheme, the names of settings, which are those of pyarrow's file systems."""


def option_names(found: Mapping[str, Node]) -> tuple[str, ...]:
    """The names that `options` beside a path may have."""
    return STORE_OPTIONS.get(scheme_of(found["path"].plain()) or "", ()) if "path" in found else ()


def store_options(found: Mapping[str, Node], others: tuple[str, ...] = ()) -> dict[str, str]:
    """The options of the path's store; mistakes are reported.

    others: names with another meaning
    """
    if "options" not in found:
        return {}
    known = option_names(found)
    entries = found["options"].mapping((*others, *known))
    chosen = {key: node for key, node in entries.items() if key in known}
    for key, node in chosen.items():
        if key in _WORDS:
            node.one_of({word: word for word in _WORDS[key]})
        elif key in _SECONDS:
            node.parsed(_seconds, "a number of seconds")
    return {key: node.text() for key, node in chosen.items()}


def refuse_unknown_settings(found: Mapping[str, Node], path: Place) -> None:
    """Report settings of a store that the package which writes logs of tables does not have."""
    for name in unknown_settings(path):
        found["options"].mapping()[name].wrong(f"'{name}' cannot be set for Delta tables")


def _seconds(text: str) -> float | None:
    try:
        seconds = float(text)
    except ValueError:
        return None
    return seconds if 0 < seconds < 86_400 else None
