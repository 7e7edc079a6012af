"""Refuse sessions of Spark Connect in one line: they have no driver in this process."""

from __future__ import annotations

import os
from typing import Any

from querylang.errors import InputError

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
