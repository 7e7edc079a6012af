"""Ask for what messages in Avro need before a job starts: the package, and the schema registry."""

from __future__ import annotations

from job_engine.errors import Unreachable
from job_engine.sources.topics.avro.avro_form import AvroForm
from job_engine.sources.topics.avro.registry import SchemaRegistry
from querylang.errors import InputError
from querylang.logger import warn


def check_schemas(name: str, form: AvroForm, retry: float | None) -> None:
    """Raise InputError for what is missing, and Unreachable where a registry does not answer.

    name: what messages begin with, such as `source 'cards'`
    retry: seconds that it is asked again; None = it is asked once
    """
    try:
        import fastavro  # noqa: F401 # whether it is there
    except ImportError as error:
        raise InputError(f"{name}: Avro needs the package fastavro: pip install 'ensue[kafka]'") from error
    if form.registry is None:
        return
    try:
        SchemaRegistry(form.registry, retry or 0.0, lambda line: warn(f"{name}: {line}")).check()
    except Unreachable as error:
        raise Unreachable(f"{name}: {error}") from error
    except InputError as error:
        raise InputError(f"{name}: {error}") from error
