"""Where Spark's files of a checkpoint are, as Hadoop names it, and what it needs to write them."""

from __future__ import annotations

import os
from pathlib import Path

from pyspark.sql import SparkSession

from job_engine.places.place import Place, RemotePath
from job_engine.sources.listing.batch_log import driver_files
from querylang.errors import InputError

_CLASS = "org.apache.hadoop.fs.s3a.S3AFileSystem"

_UMASK = "fs.permissions.umask-mode"
"""Which permissions files of Hadoop's file systems do not have, where only the JVM writes them."""


def place_for_spark(checkpoint: Place) -> str:
    """Its files in the checkpoint as Spark names them: Hadoop's word for S3 is `s3a`."""
    text = str(driver_files(checkpoint).folder.resolve())
    return f"s3a{text.removeprefix('s3')}" if text.startswith("s3://") else text


def reach_store(session: SparkSession, checkpoint: Place) -> None:
    """Let Spark write a checkpoint as Ensue does; raises InputError if it cannot."""
    if isinstance(checkpoint, Path):
        session.conf.set(_UMASK, f"{0o777 & ~checkpoint.stat().st_mode:03o}")
    if not isinstance(checkpoint, RemotePath) or not checkpoint.root.startswith("s3://"):
        return
    _refuse_missing_class(session, checkpoint)
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    if endpoint:
        _set(session, "endpoint", endpoint)
        _set(session, "path.style.access", "true")
    if region:
        _set(session, "endpoint.region", region)


def _set(session: SparkSession, key: str, value: str) -> None:
    """A setting of this session only; what `spark: conf` says is kept."""
    name = f"fs.s3a.{key}"
    if session.sparkContext.getConf().get(f"spark.hadoop.{name}") is None:
        session.conf.set(name, value)


def _refuse_missing_class(session: SparkSession, checkpoint: RemotePath) -> None:
    jvm = session.sparkContext._jvm  # noqa: SLF001  the only way to its classes
    assert jvm is not None
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    try:
        jvm.java.lang.Class.forName(_CLASS, False, loader)
    except Exception as error:
        version = jvm.org.apache.hadoop.util.VersionInfo.getVersion()
        raise InputError(
            f"{checkpoint}: Spark needs Hadoop's classes of S3 for a checkpoint there:"
            f' `spark: {{packages: ["org.apache.hadoop:hadoop-aws:{version}"]}}`'
        ) from error
