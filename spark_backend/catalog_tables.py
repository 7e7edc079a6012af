"""Ask Spark's catalog where the tables of a deployment are, before anything else is checked."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import unquote

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from job_engine.places.place import UnknownScheme, is_within, place_of
from job_engine.settings.deployment import Deployment, named_tables, with_places
from querylang.errors import InputError
from querylang.printable import one_line
from spark_backend.connect import refuse_connect
from spark_backend.session import existing_session, own_session

_NO_CLASSES = "DATA_SOURCE_NOT_FOUND"
"""Spark's condition where a session has a table of Delta, and no classes of Delta."""

_CALLING = "An error occurred while calling"

_DETAILS = "# Detailed Table Information"
"""The row behind which Spark describes the table, and not its columns."""


def find_tables(deployment: Deployment, given: SparkSession | None) -> Deployment:
    """The deployment with the places of its tables; starts Spark only where it names some.

    given: the session whose catalog, and current schema, names are of; None = the one that exists

    Raises InputError.
    """
    names = named_tables(deployment)
    if not names:
        return deployment
    refuse_connect(given)
    other = given if given is not None else existing_session()
    own = own_session(f"ensue {deployment.name}", other, deployment.spark)
    if other is not None:
        own.catalog.setCurrentCatalog(other.catalog.currentCatalog())
        own.catalog.setCurrentDatabase(other.catalog.currentDatabase())
    places = {name: place_in_catalog(own, name, f"{deployment.file}: {what}") for what, name in names.items()}
    found = with_places(deployment, places)
    _refuse_own_results(found)
    return found


def place_in_catalog(session: SparkSession, name: str, what: str) -> str:
    """Where a table is, as a path or a URI; raises InputError."""
    found = _description(session, name, what)
    if found.get("Type") == "VIEW":
        raise InputError(f"{what}: '{name}' is a view; name a table")
    provider = found.get("Provider", "unknown")
    if provider.lower() != "delta":
        raise InputError(f"{what}: the table '{name}' is not a Delta table; its format is {provider}")
    text = found.get("Location", "")
    if text.startswith("file:"):
        path = "/" + text.removeprefix("file:").lstrip("/")
        return path if Path(path).exists() else unquote(path)
    try:
        place_of(text)
    except UnknownScheme as error:
        raise InputError(f"{what}: the table '{name}' is at '{text}', which cannot be opened") from error
    return text


def _description(session: SparkSession, name: str, what: str) -> dict[str, str]:
    try:
        with _unlogged():
            rows = session.sql(f"DESCRIBE TABLE EXTENDED {name}").collect()
    except (PySparkException, Py4JError) as error:
        if isinstance(error, PySparkException) and "NOT_FOUND" in (error.getCondition() or ""):
            raise InputError(
                f"{what}: the catalog of this Spark session has no table '{name}'. Settings under `spark: conf:`"
                " choose the catalog; or set `path`, the table's folder"
            ) from None
        if _NO_CLASSES in str(error):
            return _kept_by_hive(session, name)
        lines = [line for line in str(error).splitlines() if line.strip() and not line.startswith(_CALLING)]
        reason = one_line(lines[0].removeprefix(": ")) if lines else type(error).__name__
        raise InputError(f"{what}: Spark's catalog does not tell where the table '{name}' is: {reason}") from error
    names = [row["col_name"] for row in rows]
    begin = names.index(_DETAILS) if _DETAILS in names else 0
    return {row["col_name"]: row["data_type"] for row in rows[begin:]}


@contextmanager
def _unlogged() -> Iterator[None]:
    """PySpark logs errors of SQL with their stack trace; ours are one line."""
    logger = logging.getLogger("SQLQueryContextLogger")
    before, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = before


def _kept_by_hive(session: SparkSession, name: str) -> dict[str, str]:
    """The same from Spark's own catalog, which does not need the classes of the table's format."""
    state = session._jsparkSession.sessionState()  # noqa: SLF001 # nothing public tells without the classes
    found = state.catalog().getTableMetadata(state.sqlParser().parseTableIdentifier(name))
    return {
        "Type": str(found.tableType().name()),
        "Provider": str(found.provider().getOrElse(None) or "unknown"),
        "Location": str(found.location().toString()),
    }


def _refuse_own_results(deployment: Deployment) -> None:
    """Refuse a table that the job would write into what it reads."""
    for source in deployment.sources:
        for name, sink in deployment.sinks.items():
            named = source.table or sink.table
            if (
                named
                and sink.place is not None
                and source.place is not None
                and (is_within(sink.place, source.place) or is_within(source.place, sink.place))
            ):
                raise InputError(
                    f"{deployment.file}: the source '{source.name}' and the sink '{name}' have the same folder,"
                    f" {source.place}; a job must not read its own results"
                )
