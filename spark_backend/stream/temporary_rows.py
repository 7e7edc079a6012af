"""Where tasks of Spark put packed rows for each other."""

from __future__ import annotations

import tempfile
from pathlib import Path

from pyspark.sql import SparkSession

from spark_backend.session import is_on_one_machine


def new_folder(session: SparkSession) -> Path | None:
    """A folder for the rows of a run; None = its tasks may run on several machines.

    Spark removes it when its own folder for what is temporary goes.
    """
    if not is_on_one_machine(session):
        return None
    parent = getattr(session.sparkContext, "_temp_dir", None)
    return Path(tempfile.mkdtemp(prefix="ensue-rows-", dir=parent))
