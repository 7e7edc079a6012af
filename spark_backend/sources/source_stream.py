"""All sources of a job, and signals, as one data source of Spark: packed rows, exactly once.

Spark's offset is the number of a manifest, which says what a micro-batch reads. Listing runs in a
process of its own beside the driver; its imports are few, so that it starts fast. Workers read.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from pyspark.errors import AnalysisException
from pyspark.sql.datasource import DataSource, InputPartition

from runtime.json_reader import json_of_text
from spark_backend.places.place import place_of
from spark_backend.problems import SourceProblem
from spark_backend.sources.crash_marks import CRASHES, NO_MARKS, CrashMarks
from spark_backend.sources.kinds import planning_of
from spark_backend.sources.listing.input_planner import InputPlanner, RunSettings
from spark_backend.sources.listing.job_notes import job_notes
from spark_backend.sources.listing.places import DamagedManifest
from spark_backend.sources.listing.spark_log import OFFSET_KEY, planned_manifest, spark_files
from spark_backend.sources.listing.tasks import SOURCES, ToldSource, sources_of_text, sources_to_text, tasks_of
from spark_backend.sources.spark_reader import HAS_AVAILABLE_NOW, Reader
from spark_backend.wire.clock import Clock

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from spark_backend.sources.reading import Reading
    from spark_backend.wire.program import Program

_KNOWN_ALREADY = "DATA_SOURCE_ALREADY_EXISTS"
_FORMAT = "ensue_files"

_DDL = "bucket int, data binary"


def packed_stream(
    session: SparkSession,
    sources: Mapping[str, ToldSource],
    readings: Mapping[str, Reading],
    program: Program,
    run: RunSettings,
    *,
    accepts_loss: bool = False,
    folder: Path | None = None,
    marks: CrashMarks = NO_MARKS,
) -> DataFrame:
    """A streaming DataFrame of packed rows.

    sources: by name
    readings: how the records of each source are read, by its name
    accepts_loss: whether the run continues without what was removed or has changed since
    folder: where tasks put rows for each other; None = they pass through Spark
    marks: of records that end a process
    """
    options = {
        **reading_options(sources, readings, program, accepts_loss=accepts_loss),
        "run": run.to_text(),
        "tasks": str(max(session.sparkContext.defaultParallelism, program.tasks or 1)),
        "folder": "" if folder is None else str(folder),
        CRASHES: marks.to_text(),
    }
    register(session)
    return session.readStream.format(_FORMAT).options(**options).load()


def reading_options(
    sources: Mapping[str, ToldSource],
    readings: Mapping[str, Reading],
    program: Program,
    *,
    accepts_loss: bool = False,
) -> dict[str, str]:
    """What whoever reads a task has to know; parameters as of `packed_stream`."""
    return {
        "program": program.to_text(),
        SOURCES: sources_to_text(sources),
        "readings": json.dumps({name: reading.to_text() for name, reading in readings.items()}),
        "accept_loss": str(accepts_loss).lower(),
    }


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
        self._planner: InputPlanner | None = None
        self._proven: frozenset[str] = frozenset()
        self._told: dict[str, ToldSource] | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Workers get the options only."""
        return {"_options": self._options, "_planner": None, "_proven": frozenset(), "_told": None}

    def _lister(self) -> InputPlanner:
        if self._planner is None:
            run, options = self._run(), self._options
            self._planner = InputPlanner(
                self._sources(),
                run,
                accepts_loss=options["accept_loss"] == "true",
                firsts=options if self._has_clock() else None,
            )
            if run.at_end is not None and not HAS_AVAILABLE_NOW:
                self._planner.fix_end()
        return self._planner

    def _sources(self) -> dict[str, ToldSource]:
        if self._told is None:
            self._told = sources_of_text(self._options[SOURCES])
        return self._told

    def _has_clock(self) -> bool:
        """Whether arrival times matter, and not the wall clock alone."""
        return json_of_text(self._options["program"], _ProgramClock)["clock"] == Clock.ARRIVAL

    def _run(self) -> RunSettings:
        return RunSettings.of_text(self._options["run"])

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """The run ends with what is there now."""
        with _plain_errors():
            self._lister().fix_end()

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        """Before the first manifest."""
        return {OFFSET_KEY: spark_files(place_of(self._run().checkpoint)).manifest}

    def end_of_next(self, start: dict[str, int] | None) -> dict[str, int]:
        """The next manifest; sources have limits of their own, so Spark's is not needed."""
        with _plain_errors():
            if start is None:
                start = {OFFSET_KEY: planned_manifest(place_of(self._run().checkpoint))}
            return {OFFSET_KEY: self._lister().latest(start[OFFSET_KEY])}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        """The tasks that read the manifests behind `start` up to `end`."""
        with _plain_errors():
            lister, sources, unproven, count = (
                self._lister(),
                self._sources(),
                self._unproven(),
                int(self._options["tasks"]),
            )
            return [
                InputPartition(task.to_text())
                for number in range(start[OFFSET_KEY] + 1, end[OFFSET_KEY] + 1)
                for task in tasks_of(
                    lister.read(number), count, sources, unproven=unproven, is_repeated=lister.is_repeated(number)
                )
            ]

    def _unproven(self) -> list[str]:
        """The sources that have not brought a record before, as far as it matters."""
        names = [name for name, source in self._sources().items() if planning_of(source.format).must_prove(source.own)]
        if not self._proven.issuperset(names):
            self._proven = job_notes(place_of(self._run().checkpoint)).brought
        return [name for name in names if name not in self._proven]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The packed rows of one task, on a worker."""
        from spark_backend.sources.task_reading import labelled, read_task
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
    except (DamagedManifest, SourceProblem, OSError) as error:
        from querylang.errors import InputError

        if isinstance(error, OSError) and error.filename is not None:
            from spark_backend.errors import failed

            raise failed(error, f"{error.filename}: {error.strerror}") from error
        if isinstance(error, SourceProblem) and error.is_passing:
            from spark_backend.errors import Unreachable

            raise Unreachable(f"{error}. Run the job again: it continues where it stopped") from error
        raise InputError(str(error)) from error


class _ProgramClock(TypedDict):
    clock: str
