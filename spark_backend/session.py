"""Sessions of Spark: of users, and of a job."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import unquote

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from job_engine.deployment import Deployment, named_tables, with_places
from job_engine.deployment_sections import PARTITIONS, SPARKS_NAMES
from job_engine.place import Place, UnknownScheme, is_within, place_of
from job_engine.stopping import listen_again
from querylang.errors import InputError
from querylang.printable import masked, one_line, warn
from spark_backend.executors import (
    add_own_packages,
    await_executors,
    refuse_unfit_driver_python,
    refuse_unfit_executors,
    refuse_unseen_folders,
    ship_package,
)
from spark_backend.launch import jvm
from spark_backend.launch.session_settings import (
    AT_RUN_TIME,
    MASTER,
    OF_WORKERS,
    OPTIONS,
    is_local,
    refuse_silent,
    settings_of_start,
)
from spark_backend.launch.worker_python import ROOT, is_worker_python, refuse_other_python, set_environment
from spark_backend.plain_errors import refuse_unusable_java, start_in_plain_words
from spark_backend.versions import refuse_connect

# Spark sessions: the one that exists, or a new one with the settings that we measure with.
#
# The settings of a user's session are never changed. Jobs of our own run in a session beside it
# (`own_session`), which shares its context.

NOTHING: Mapping[str, str] = {}

_OF_THE_JVM = (OPTIONS, "spark.driver.memory", "spark.jars.packages")
"""What a JVM that runs already cannot be given any more."""

_ANY_MASTER = "local[*]"
"""What `spark-submit` says where it was given no master."""


def get_session(
    name: str = "ensue", cores: int | None = None, settings: Mapping[str, str] | None = None
) -> SparkSession:
    """The session that exists, unchanged, or else a new one: local, on `cores` (None = all).

    name, settings: of a new session only
    """
    existing = existing_session()
    if existing is not None:
        return with_package_path(existing)
    wanted = dict(settings or {})
    if jvm.is_given():
        chosen = _beside_given(settings_of_start(name, cores, _with_given_master(wanted)))
    else:
        chosen = settings_of_start(name, cores, wanted)
    master = chosen.get(MASTER) or SparkConf().get(MASTER, _ANY_MASTER) or _ANY_MASTER
    refuse_silent(master)
    set_environment(chosen if not is_local(master) else None)
    builder = SparkSession.builder
    for key, value in chosen.items():
        builder = builder.config(key, value)
    if not jvm.is_given():
        refuse_unusable_java(chosen["spark.driver.memory"])
        jvm.join(chosen)
    with start_in_plain_words():
        if not jvm.is_given():
            jvm.launch(chosen)
        session = builder.getOrCreate()
        listen_again()
        return with_package_path(session)


def existing_session() -> SparkSession | None:
    """The session of this thread, or that of the process; None = there is none."""
    active = SparkSession.getActiveSession()
    if active is not None or SparkContext._active_spark_context is None:  # noqa: SLF001 # nothing public tells
        return active
    return SparkSession(SparkContext._active_spark_context)  # noqa: SLF001 # its default session


def _with_given_master(wanted: Mapping[str, str]) -> dict[str, str]:
    """The settings with the master that `spark-submit` was given, if it was given one."""
    SparkContext._ensure_initialized()  # noqa: SLF001 # settings are read from the JVM
    given = SparkConf().get(MASTER)
    return {**wanted, MASTER: given} if given not in (None, _ANY_MASTER) else dict(wanted)


def _beside_given(chosen: Mapping[str, str]) -> dict[str, str]:
    """The settings that a JVM of `spark-submit` does not have; what it was given holds."""
    given = dict(SparkConf().getAll())
    if given.get(MASTER) == _ANY_MASTER:
        del given[MASTER]
    kept = {*given, *_OF_THE_JVM} - {"spark.app.name"}
    return {key: value for key, value in chosen.items() if key not in kept}


def own_session(
    name: str = "ensue", session: SparkSession | None = None, wanted: Mapping[str, str] = NOTHING
) -> SparkSession:
    """A session for a job of our own, beside another one and with our settings.

    session: the other one; None = the one that exists, or a new one
    wanted: settings of the deployment; those that cannot be changed any more are left as they are
    """
    own = (with_package_path(session) if session is not None else get_session(name, settings=wanted)).newSession()
    for key, value in AT_RUN_TIME.items():
        own.conf.set(key, value)
    for key, value in wanted.items():
        if own.conf.isModifiable(key):
            own.conf.set(key, value)
    for key, value in OF_WORKERS.items():
        own.sparkContext.environment.setdefault(key, os.environ.get(key, value))
    return own


def unmet(session: SparkSession, wanted: Mapping[str, str]) -> dict[str, str]:
    """The settings that a session cannot have any more, with what it has instead; "" = nothing."""
    has = dict(session.sparkContext.getConf().getAll())
    has.update({MASTER: session.sparkContext.master or ""})
    fixed = {key: value for key, value in wanted.items() if not session.conf.isModifiable(key)}
    return {key: has.get(key, "") for key, value in fixed.items() if not _has(has.get(key, ""), value, key)}


def _has(found: str, wanted: str, key: str) -> bool:
    if key in ("spark.jars", "spark.jars.packages"):
        names = {item.removeprefix("file://").removeprefix("file:") for item in found.split(",")}
        return names.issuperset(wanted.split(","))
    if key.endswith("JavaOptions"):
        return wanted in found
    return found.removeprefix("file:") == wanted.removeprefix("file:")  # Spark writes folders as URIs


def is_on_one_machine(session: SparkSession) -> bool:
    """Whether all tasks of a session run on this machine."""
    return is_local(session.sparkContext.master or "")


def with_package_path(session: SparkSession) -> SparkSession:
    """The same session; its workers find this package.

    Raises InputError if local ones run a Python that has not what they need.
    """
    context = session.sparkContext
    if is_on_one_machine(session):
        if not is_worker_python(context.pythonExec):
            refuse_other_python(context.pythonExec)
        paths = [str(ROOT), *filter(None, context.environment.get("PYTHONPATH", "").split(os.pathsep))]
        context.environment["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(paths))
    else:
        ship_package(context)
    return session


# The session of a job: what its deployment asks of Spark, and executors that can run it.

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
