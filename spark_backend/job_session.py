"""The session of a job: what its deployment asks of Spark, and executors that can run it."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import unquote

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from job_engine.deployment import Deployment, named_tables, with_places
from job_engine.deployment_sections import PARTITIONS, SPARKS_NAMES
from job_engine.places.place import Place, UnknownScheme, is_within, place_of
from querylang.errors import InputError
from querylang.printable import masked, one_line, warn
from spark_backend.executors import await_executors, refuse_unfit_executors, refuse_unseen_folders
from spark_backend.package import add_own_packages, refuse_unfit_driver_python, ship_package
from spark_backend.session import existing_session, is_on_one_machine, own_session, unmet
from spark_backend.versions import refuse_connect

TASKS_PER_CORE = 2
"""On a cluster, so that executors that come later have tasks, too."""


def job_session(deployment: Deployment, session: SparkSession | None) -> SparkSession:
    """A session for a job, beside the one that exists or a new one; its executors are checked.

    Raises InputError if executors lack what Ensue needs, or there are none.
    """
    refuse_connect(session)
    other = session if session is not None else existing_session()
    own = own_session(f"ensue {deployment.name}", session, deployment.spark)
    if other is not None:
        _share_listeners(other, own)
    words = {name: key for key, name in SPARKS_NAMES.items()}
    for name, found in unmet(own, deployment.spark).items():
        has = f"has {found!r}" if found else "has none"
        text = f"{deployment.file}: '{words.get(name, name)}' is {deployment.spark[name]!r}, but the session {has}"
        warn(masked(f"{text}; it cannot be changed any more", deployment.environment))
    if not is_on_one_machine(own):
        context = own.sparkContext
        refuse_unfit_driver_python(context.pythonExec)
        executors = await_executors(context)
        refuse_unfit_executors(context, executors, ship_package(context))
        refuse_unseen_folders(context, executors, *_local_folders(deployment))
        add_own_packages(context)
    return own


def _share_listeners(other: SparkSession, own: SparkSession) -> None:
    """Let a program's listeners of streaming queries see the job, too.

    Spark tells only those of the query's own session.
    """
    for listener in other._jsparkSession.streams().listListeners():  # noqa: SLF001 # Python has no list of them
        own._jsparkSession.streams().addListener(listener)  # noqa: SLF001


def _local_folders(deployment: Deployment) -> tuple[dict[str, Path], dict[str, Path]]:
    """The local folders that tasks read from and write to, by what they are for."""
    read = {f"the source '{item.name}'": item.place for item in deployment.sources if item.place is not None}
    sinks = deployment.sinks.items()
    written = {f"the sink '{name}'": sink.place for name, sink in sinks if sink.place is not None}
    written["the checkpoint"] = deployment.checkpoint
    if deployment.control is not None and deployment.control.place is not None:
        written["the control stream"] = deployment.control.place  # the driver creates it
    return _local(read), _local(written)


def _local(places: Mapping[str, Place]) -> dict[str, Path]:
    return {what: place.resolve() for what, place in places.items() if isinstance(place, Path)}


def tasks_of(session: SparkSession, deployment: Deployment) -> int:
    """Among how many tasks a new checkpoint divides its buckets, for good."""
    given = deployment.spark.get(PARTITIONS, "")
    cores = session.sparkContext.defaultParallelism
    usual = cores if is_on_one_machine(session) else cores * TASKS_PER_CORE
    return min(deployment.buckets, int(given) if given else usual)


def keep_tasks(session: SparkSession, deployment: Deployment, tasks: int) -> None:
    """Let Spark divide the buckets as the checkpoint does; another wish is reported."""
    given = deployment.spark.get(PARTITIONS, str(tasks))
    if int(given) != tasks and min(int(given), deployment.buckets) != tasks:
        warn(f"{deployment.file}: '{PARTITIONS}' is {given}, but the checkpoint keeps the {tasks} of its first start")
    session.conf.set(PARTITIONS, str(tasks))


# Ask Spark's catalog where the tables of a deployment are, before anything else is checked.

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
