"""Spark as the driver of jobs. PySpark is imported on first use: it may not be installed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from job_engine.deployment import Deployment
from job_engine.job.driver import Driver, Machine
from spark_backend.versions import refuse_jobs_of_old_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class SparkDriver(Driver):
    """Opens sessions of Spark."""

    def refuse_missing(self) -> None:
        """As `Driver.refuse_missing`; an old PySpark is refused, too."""
        refuse_jobs_of_old_spark()

    def start_early(self, deployment: Deployment, *, runs: bool = True) -> None:  # noqa: ARG002
        """Start the JVM: Spark's packages are imported meanwhile."""
        from spark_backend.launch.jvm import start_early

        start_early(f"ensue {deployment.name}", deployment.spark)

    def find_tables(self, deployment: Deployment, given: object) -> Deployment:
        """From the catalog of the session."""
        refuse_jobs_of_old_spark()
        from spark_backend.session import find_tables

        return find_tables(deployment, _session(given))

    def open(self, deployment: Deployment, given: object = None, *, runs: bool = True) -> Machine:
        """A session beside the one that is given or exists, or a new one."""
        refuse_jobs_of_old_spark()
        from spark_backend.spark_machine import open_machine

        return open_machine(deployment, _session(given), runs=runs)

    def plain_error(self, error: Exception) -> Exception:
        """As `Driver.plain_error`: errors of workers and of Java arrive as text."""
        from spark_backend.plain_errors import plain_error

        return plain_error(error)


def _session(given: object) -> SparkSession | None:
    assert given is None or hasattr(given, "sparkContext") or hasattr(given, "client"), "a session, if any"
    session: Any = given
    return session


DRIVER = SparkDriver()
