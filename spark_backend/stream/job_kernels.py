"""The archive of compiled kernels that a job ships to its executors.

Spark copies the file to every executor. Workers name it to themselves as users do, with
`ENSUE_KERNELS`, unless their environment names another one. Kernels that `ensue package` put
beside Ensue's code need no name.

A session has one file of a name: with another content all of its later tasks would fail, those of
other jobs too. So an archive is sent under a name that depends on its content.
"""

from __future__ import annotations

import os
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from runtime.compiling.files import VARIABLE
from spark_backend.cluster.package import KERNELS, ROOT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PACKAGED = ROOT / KERNELS

_FILE = "ENSUE_KERNELS_OF_JOB"


def ship_kernels(session: SparkSession, archive: Path) -> None:
    """Send an archive to all executors, for all jobs of the session that begin from now on."""
    context, content = session.sparkContext, archive.read_bytes()
    sent = Path(context._temp_dir) / f"ensue-kernels-{sha256(content).hexdigest()[:32]}.zip"  # noqa: SLF001 # it is removed with the application
    if not sent.exists():
        sent.write_bytes(content)
    context.addFile(str(sent))
    context.environment[_FILE] = sent.name


def use_shipped_kernels() -> None:
    """On a worker, before it runs a kernel; again is harmless."""
    if VARIABLE in os.environ:
        return
    name = os.environ.get(_FILE)
    if name is not None:
        from pyspark import SparkFiles

        os.environ[VARIABLE] = SparkFiles.get(name)
    elif PACKAGED.is_file():
        os.environ[VARIABLE] = str(PACKAGED)
