"""What Spark's streaming sources in Python are, by its version.

PySpark 4.2 tells a source where the next micro-batch begins, and when a run is to end with what is
there. Before, a source finds the beginning in Spark's log, and the job itself ends the run.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader

HAS_AVAILABLE_NOW = find_spec("pyspark.sql.streaming.datasource") is not None
"""Whether a run with the trigger `availableNow` may have several micro-batches of a source."""

if TYPE_CHECKING or HAS_AVAILABLE_NOW:
    from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
else:

    class SupportsTriggerAvailableNow:
        """There is no such trigger for sources in Python."""


class Reader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A reader for all versions, whose methods Spark calls as far as it knows them."""

    def latestOffset(self, start: Any = None, limit: Any = None) -> dict[str, int]:  # noqa: N802, ARG002 # Spark's names
        """The end of the next micro-batch; `start`: None where Spark does not say it."""
        return self.end_of_next(start)

    def end_of_next(self, start: dict[str, int] | None) -> dict[str, int]:
        """The same, by a class of ours."""
        raise NotImplementedError
