"""Send Ensue to the executors of an application, so that it need not be installed there.

Spark unpacks the archive in the working folder of each executor, also of those that start later.
Workers find it by PYTHONPATH, before any Ensue that is installed: driver and executors always run
the same release.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from spark_backend.cluster.package import digest, package

if TYPE_CHECKING:
    from pyspark import SparkContext

_FOLDERS: dict[str, str] = {}
"""By application: the name of the folder on its executors."""


def ship_package(context: SparkContext) -> str:
    """Send Ensue to all executors, once per application; gives the name of its folder there."""
    application = context.applicationId
    if application not in _FOLDERS:
        content = package()
        name = f"ensue-{digest(content)}"
        sent = Path(context._temp_dir) / f"{name}.zip"  # noqa: SLF001 # it is removed with the application
        sent.write_bytes(content)
        context.addArchive(f"{sent}#{name}")
        paths = [name, *filter(None, context.environment.get("PYTHONPATH", "").split(os.pathsep))]
        context.environment["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(paths))
        _FOLDERS[application] = name
    return _FOLDERS[application]
