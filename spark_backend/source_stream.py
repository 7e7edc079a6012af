"""All sources of a job, and signals, as one data source of Spark: packed rows, exactly once.

Spark's offset is the number of a manifest, which says what a micro-batch reads. Listing runs in a
process of its own beside the driver; its imports are few, so that it starts fast. Workers read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.errors import AnalysisException
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from job_engine.place import place_of
from job_engine.sources.listing.batch_log import OFFSET_KEY, driver_files
from job_engine.sources.listing.lister import Lister, RunSettings

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


# What Spark's streaming sources in Python are, by its version.
#
# PySpark 4.2 tells a source where the next micro-batch begins, and when a run is to end with what
# is there. Before, a source finds the beginning in Spark's log, and the job itself ends the run.

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


_KNOWN_ALREADY = "DATA_SOURCE_ALREADY_EXISTS"
_FORMAT = "ensue_files"

_DDL = "bucket int, data binary"


def packed_stream(session: SparkSession, options: Mapping[str, str]) -> DataFrame:
    """A streaming DataFrame of packed rows.

    options: `spark_options`
    """
    register(session)
    return session.readStream.format(_FORMAT).options(**options).load()


def spark_options(
    session: SparkSession, options: Mapping[str, str], tasks: int | None = None, folder: Path | None = None
) -> dict[str, str]:
    """The options of `packed_stream`.

    options: `reading_options`, and `RunSettings` as `run`
    tasks: at least so many
    folder: where tasks put rows for each other; None = they pass through Spark
    """
    count = max(session.sparkContext.defaultParallelism, tasks or 1)
    return {**options, "tasks": str(count), "folder": "" if folder is None else str(folder)}


def register(session: SparkSession) -> None:
    """Tell a session of the data source, which it may know already."""
    try:
        with _active(session):
            session.dataSource.register(FileStream)
    except AnalysisException as error:
        if error.getCondition() != _KNOWN_ALREADY:
            raise


@contextmanager
def _active(session: SparkSession) -> Iterator[None]:
    """Make a session the active one: there Spark looks for names that are known already."""
    sessions = type(session)._get_j_spark_session_class(session._jvm)  # noqa: SLF001 # nothing public does this
    before = sessions.getActiveSession()
    sessions.setActiveSession(session._jsparkSession)  # noqa: SLF001
    try:
        yield
    finally:
        if before.isDefined():
            sessions.setActiveSession(before.get())
        else:
            sessions.clearActiveSession()


class FileStream(DataSource):
    """All options are text: those of `packed_stream`."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return _FORMAT

    def schema(self) -> str:
        """That of packed rows."""
        return _DDL

    def streamReader(self, schema: StructType) -> FileStreamReader:  # noqa: N802, ARG002 # Spark's names
        """The reader of a run."""
        return FileStreamReader(dict(self.options))


class FileStreamReader(Reader):
    """Spark asks it for offsets and tasks in the lister's process, and to read on workers."""

    def __init__(self, options: dict[str, str]) -> None:
        self._options = options
        self._lister: Lister | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Workers get the options only."""
        return {"_options": self._options, "_lister": None}

    @property
    def lister(self) -> Lister:
        """That of the run, which begins when it is first asked."""
        if self._lister is None:
            self._lister = Lister(self._options)
            if self._lister.has_end and not HAS_AVAILABLE_NOW:
                self._lister.fix_end()
        return self._lister

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """The run ends with what is there now."""
        self.lister.fix_end()

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        """Before the first manifest."""
        return {OFFSET_KEY: driver_files(place_of(RunSettings.of_text(self._options["run"]).checkpoint)).manifest}

    def end_of_next(self, start: dict[str, int] | None) -> dict[str, int]:
        """The next manifest; sources have limits of their own, so Spark's is not needed."""
        lister = self.lister
        return {OFFSET_KEY: lister.latest(lister.planned() if start is None else start[OFFSET_KEY])}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        """The tasks that read the manifests behind `start` up to `end`."""
        return [InputPartition(task.to_text()) for task in self.lister.tasks(start[OFFSET_KEY], end[OFFSET_KEY])]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The packed rows of one task, on a worker."""
        from job_engine.sources.task_reading import labelled, read_task
        from job_engine.wire.packed_rows import put_aside
        from runtime.threads import set_objects_aside
        from spark_backend.executors import use_shipped_kernels

        set_objects_aside()
        use_shipped_kernels()
        rows = labelled(read_task(self._options, partition.value), self._options["program"])
        folder = self._options["folder"]
        return put_aside(rows, Path(folder)) if folder else rows
