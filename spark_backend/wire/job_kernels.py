"""The archive of compiled kernels that a job ships to its executors.

Spark copies the file to every executor. Workers name it to themselves as users do, with
`ENSUE_KERNELS`, unless their environment names another one.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from runtime.shipped_kernels import VARIABLE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_FILE = "ENSUE_KERNELS_OF_JOB"


def ship_kernels(session: SparkSession, archive: Path) -> None:
    """Send an archive to all executors, for all jobs of the session that begin from now on."""
    context = session.sparkContext
    context.addFile(str(archive))
    context.environment[_FILE] = archive.name


def use_shipped_kernels() -> None:
    """On a worker, before it runs a kernel; again is harmless."""
    name = os.environ.get(_FILE)
    if name is not None and VARIABLE not in os.environ:
        from pyspark import SparkFiles

        os.environ[VARIABLE] = SparkFiles.get(name)
