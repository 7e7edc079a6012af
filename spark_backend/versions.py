"""Which PySpark runs, and what an older one cannot do."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

from querylang.errors import InputError

OLDEST_FOR_JOBS = "4.0"
"""The first PySpark that has data sources in Python."""


def refuse_jobs_of_old_spark() -> None:
    """Raise InputError where PySpark has no data sources in Python; imports nothing of it."""
    found = find_spec("pyspark")
    if found is None or found.origin is None:
        raise InputError("PySpark is not installed; a job needs it. `ensue replay` does not")
    folder = Path(found.origin).parent
    if folder.is_dir() and not (folder / "sql" / "datasource.py").exists():
        raise InputError(
            f"a job needs PySpark {OLDEST_FOR_JOBS} or later, and this is {_version(folder)}."
            " `ensue.match`, `ensue.batch`, `ensue.stream` and `ensue.streams` run on it"
        )


def _version(folder: Path) -> str:
    try:
        return version("pyspark")
    except PackageNotFoundError:
        return f"an older one, in {folder}"
