"""The files of all sources, and signals, as one data source of Spark: packed rows, exactly once.

Spark's offset is the number of a manifest, which says what a micro-batch reads. Listing runs in a
process of its own beside the driver; its imports are few, so that it starts fast. Workers read.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow

from spark_backend.sources.listing.file_tasks import tasks_of
from spark_backend.sources.listing.input_planner import InputPlanner, RunSettings
from spark_backend.sources.listing.job_notes import job_notes
from spark_backend.sources.listing.listed_source import ListedSource, sources_of_text, sources_to_text
from spark_backend.sources.listing.manifests import DamagedManifest
from spark_backend.sources.listing.spark_log import OFFSET_KEY

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from spark_backend.sources.reading import Reading
    from spark_backend.wire.program import Program

_FORMAT = "ensue_files"
_DDL = "bucket int, data binary"


def packed_stream(
    session: SparkSession,
    sources: Sequence[ListedSource],
    readings: Mapping[str, Reading],
    program: Program,
    run: RunSettings,
    *,
    accepts_loss: bool = False,
    folder: Path | None = None,
) -> DataFrame:
    """A streaming DataFrame of packed rows.

    readings: how the records of each source are read, by its name
    accepts_loss: whether a micro-batch that is repeated may find its files changed
    folder: where tasks put rows for each other; None = they pass through Spark
    """
    options = {
        "program": program.to_text(),
        "sources": sources_to_text(sources),
        "readings": json.dumps({name: reading.to_text() for name, reading in readings.items()}),
        "run": run.to_text(),
        "tasks": str(session.sparkContext.defaultParallelism),
        "accept_loss": str(accepts_loss).lower(),
        "folder": "" if folder is None else str(folder),
    }
    session.dataSource.register(FileStream)
    return session.readStream.format(_FORMAT).options(**options).load()


class FileStream(DataSource):
    """All text: `program`, `sources`, `readings`, `run`, `tasks`, `accept_loss`, `folder`."""

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


class FileStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Spark asks it for offsets and tasks in the lister's process, and to read on workers."""

    def __init__(self, options: dict[str, str]) -> None:
        self._options = options
        self._planner: InputPlanner | None = None
        self._proven: frozenset[str] = frozenset()

    def __getstate__(self) -> dict[str, Any]:
        """Workers get the options only."""
        return {"_options": self._options, "_planner": None, "_proven": frozenset()}

    def _lister(self) -> InputPlanner:
        if self._planner is None:
            sources = sources_of_text(self._options["sources"])
            self._planner = InputPlanner(sources, RunSettings.of_text(self._options["run"]))
        return self._planner

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """The run ends with what is there now."""
        with _plain_errors():
            self._lister().fix_end()

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        """Before the first manifest."""
        return {OFFSET_KEY: 0}

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802, ARG002
        """The next manifest; sources have limits of their own, so Spark's is not needed."""
        with _plain_errors():
            return {OFFSET_KEY: self._lister().latest(start[OFFSET_KEY])}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        """The tasks that read the manifests behind `start` up to `end`."""
        with _plain_errors():
            lister, unproven = self._lister(), self._unproven()
            return [
                InputPartition(task.to_text())
                for number in range(start[OFFSET_KEY] + 1, end[OFFSET_KEY] + 1)
                for task in tasks_of(
                    lister.read(number), int(self._options["tasks"]), unproven, is_repeated=lister.is_repeated(number)
                )
            ]

    def _unproven(self) -> list[str]:
        """The sources that have not brought a record before, as far as it matters."""
        names = [source.name for source in sources_of_text(self._options["sources"]) if source.must_prove]
        if not self._proven.issuperset(names):
            self._proven = job_notes(Path(RunSettings.of_text(self._options["run"]).checkpoint)).brought
        return [name for name in names if name not in self._proven]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The packed rows of one task, on a worker."""
        from spark_backend.sources.file_reading import labelled, read_task
        from spark_backend.wire.job_kernels import use_shipped_kernels
        from spark_backend.wire.rows_in_files import put_aside
        from spark_backend.wire.worker_memory import set_objects_aside

        set_objects_aside()
        use_shipped_kernels()
        rows = labelled(read_task(self._options, partition.value), self._options["program"])
        folder = self._options["folder"]
        return put_aside(rows, Path(folder)) if folder else rows


@contextmanager
def _plain_errors() -> Iterator[None]:
    """Errors in words for users; `querylang` takes long to import, so only when there is one."""
    try:
        yield
    except (DamagedManifest, OSError) as error:
        from querylang.errors import InputError

        if isinstance(error, OSError) and error.filename is not None:
            raise InputError(f"{error.filename}: {error.strerror}") from error
        raise InputError(str(error)) from error
