"""The session of a job: what its deployment asks of Spark, and executors that can run it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import SparkSession

from job_engine.places.place import Place
from job_engine.settings.deployment import Deployment
from job_engine.settings.sections import PARTITIONS, SPARKS_NAMES
from querylang.printable import masked, warn
from spark_backend.cluster.driver_python import add_own_packages, refuse_unfit_driver_python
from spark_backend.cluster.executor_check import refuse_unfit_executors
from spark_backend.cluster.executors import await_executors
from spark_backend.cluster.shared_folders import refuse_unseen_folders
from spark_backend.cluster.shipping import ship_package
from spark_backend.connect import refuse_connect
from spark_backend.session import existing_session, is_on_one_machine, own_session, unmet

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
