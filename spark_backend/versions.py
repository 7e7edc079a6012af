"""Which PySpark runs, and what an older one cannot do."""

from __future__ import annotations

import os
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from querylang.errors import InputError

OLDEST_FOR_JOBS = "4.0"
"""The first PySpark that has data sources in Python."""

_MISSING = "PySpark is not installed: `pip install 'ensue[spark]'`"


def refuse_missing_spark() -> None:
    """Raise InputError where PySpark is not installed; imports nothing of it."""
    if _place() is None:
        raise InputError(f"{_MISSING}; replays, open queries and `ensue run --engine local` need none")


def refuse_jobs_of_old_spark() -> None:
    """Raise InputError where PySpark is missing, or has no data sources; imports nothing of it."""
    place = _place()
    if place is None:
        raise InputError(f"{_MISSING}, or run the job on this machine alone: `--engine local`")
    folder = Path(place).parent
    if folder.is_dir() and not (folder / "sql" / "datasource.py").exists():
        raise InputError(
            f"a job needs PySpark {OLDEST_FOR_JOBS} or later, and this is {_version(folder)}."
            " `ensue.match`, `ensue.batch`, `ensue.stream` and `ensue.streams` run on it"
        )


def _place() -> str | None:
    """The file of PySpark; None = it is not installed."""
    found = find_spec("pyspark")
    return None if found is None else found.origin


def _version(folder: Path) -> str:
    try:
        return version("pyspark")
    except PackageNotFoundError:
        return f"an older one, in {folder}"


# Refuse sessions of Spark Connect in one line: they have no driver in this process.

_CONNECT = "pyspark.sql.connect."


def refuse_connect(given: Any = None) -> None:
    """Raise InputError for a session or DataFrame of Spark Connect, or where Connect is active.

    given: a session or a DataFrame; None = what the process has
    """
    is_remote = "SPARK_CONNECT_MODE_ENABLED" in os.environ and "SPARK_LOCAL_REMOTE" in os.environ
    if type(given).__module__.startswith(_CONNECT) or (given is None and (is_remote or "SPARK_REMOTE" in os.environ)):
        raise InputError(
            "Spark Connect is not supported: Ensue needs a session with Spark's driver in this process."
            " Make it with `SparkSession.builder.master(...)` in place of `remote(...)`; `ensue.replay` needs no Spark"
        )
