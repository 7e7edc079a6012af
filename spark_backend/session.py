"""Spark sessions: the one that exists, or a new one with the settings that we measure with.

The settings of a user's session are never changed. Jobs of our own run in a session beside it
(`own_session`), which shares its context.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from job_engine.stopping import listen_again
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
from spark_backend.package import ship_package
from spark_backend.plain_errors import refuse_unusable_java, start_in_plain_words

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
