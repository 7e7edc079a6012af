"""Run queries over a history table, before what the job itself has read.

The table's records arrive at the end of the history or before, those of the job's own sources that
are read afterwards behind it. So the table is processed by itself, in order of arrival, and no
source has to wait for another one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from job_engine.arrow_files import write_parquet
from job_engine.clock import wall_ns
from job_engine.delta_log import data_file
from job_engine.deployment import Deployment, HistoryTable
from job_engine.job.compilation import file_prefixes
from job_engine.local_path import LocalPath, temporary_folder
from job_engine.operator.clocks import JobClock, place_name
from job_engine.operator.history_run import HistoryRun
from job_engine.place import Place, local_copy, names_in, place_to_plain
from job_engine.sources.folder.listing import is_hidden
from job_engine.sources.kinds import kind_of
from job_engine.sources.reading import plan_for_event
from job_engine.sources.table.commits import UnreadableTable, position_at, snapshot_units
from job_engine.sources.table.reading import table_of_file
from job_engine.sources.table.settings import DeltaSource
from job_engine.wire.packed_rows import Signal, pack_arrivals
from job_engine.wire.program import Program
from querylang.dataclass import dataclass, replace
from querylang.errors import InputError, counted, listed
from querylang.plan.model import Plan, TimelineKind
from querylang.printable import warn
from runtime.columns.arrivals import Arrivals, RecordKind
from runtime.file_forms import is_key, keys_of, natural_key
from runtime.instants import NO_TIME
from runtime.reading import ARRIVAL, ColumnNames, LackedColumns, needed_names, open_parquet
from runtime.replay import FileToRead, Reading, concatenated_tables
from runtime.timestamps import format_time

# The records of a history table in order of arrival, in bounded memory.

Bounds = tuple[Any, Any]


@dataclass(frozen=True, slots=True)
class LocalFile:
    """A data file of the table, on this machine.

    name: below the table's folder
    columns: their names, and those of keys in the file's folders
    bounds: the least and the largest value of its column of arrivals; None = the file does not say
    """

    path: Path
    name: str
    columns: tuple[str, ...]
    bounds: Bounds | None


def column_names(table: HistoryTable) -> ColumnNames:
    """The names of its columns."""
    return ColumnNames(table.arrival, table.type_field, table.source_time, times=table.times)


@contextmanager
def local_files(table: HistoryTable, plan: Plan) -> Iterator[list[LocalFile]]:
    """The data files, in the order of the table; what was copied here is removed afterwards.

    Raises InputError if there is no such table, or if it cannot be read.
    """
    arrival = table.arrival or ARRIVAL
    with ExitStack() as stack, _plain_words(table):
        own = stack.enter_context(temporary_folder())
        is_delta = table.format == "delta"
        files = _of_delta(table, plan, stack, own) if is_delta else _of_folder(table, stack)
        found = []
        for path, name in files:
            with open_parquet(path) as parquet:
                names, metadata = parquet.schema_arrow.names, parquet.metadata
            file = LocalFile(path, name, (*names, *keys_of(name)), _bounds(metadata, arrival))
            if metadata.num_rows:
                _refuse_no_arrival(table, file, arrival)
                found.append(file)
        yield found


@contextmanager
def _plain_words(table: HistoryTable) -> Iterator[None]:
    try:
        yield
    except UnreadableTable as error:
        raise InputError(str(error).replace("source 'history'", "the history")) from error
    except pa.ArrowException as error:
        raise InputError(f"the history: {table.path}: cannot be read: {error}") from error


def _of_folder(table: HistoryTable, stack: ExitStack) -> Iterator[tuple[Path, str]]:
    if not table.path.is_dir():
        raise InputError(f"the history: {table.path}: is not a folder")
    for name in sorted(_names_below(table.path, ""), key=natural_key):
        yield stack.enter_context(local_copy(table.path / name)), name


def _names_below(folder: Place, above: str) -> Iterator[str]:
    """The data files in a folder, and in all folders of keys below it; `above`: its own name."""
    for name in names_in(folder):
        if is_hidden(name):
            continue
        if is_key(name) and (folder / name).is_dir():
            yield from _names_below(folder / name, f"{above}{name}/")
        elif name.lower().endswith(".parquet"):
            yield f"{above}{name}"


def _of_delta(table: HistoryTable, plan: Plan, stack: ExitStack, own: LocalPath) -> Iterator[tuple[Path, str]]:
    folder, store = place_to_plain(table.path)
    outside = table.outside_files
    source = DeltaSource("history", folder, table.arrival or ARRIVAL, outside_files=outside, store=store)
    position = position_at(source, None, is_read=False)
    needed = needed_names(plan, column_names(table))
    files = [file for unit in snapshot_units(source, position.version) for file in unit]
    for number, file in enumerate(files):
        path = data_file(table.path, file.path, outside=outside)
        if not path.is_file():
            raise InputError(f"the history: {path}: the data file no longer exists")
        copy = stack.enter_context(local_copy(path))
        with open_parquet(copy) as parquet:
            present = {name.casefold() for name in parquet.schema_arrow.names}
        if any(name.casefold() not in present for name in position.columns):
            whole = own / f"{number}.parquet"
            write_parquet(table_of_file(copy, file, position.columns, needed), whole)
            copy = whole
        yield copy, file.path


def _bounds(metadata: pq.FileMetaData, arrival: str) -> Bounds | None:
    """As the statistics of the file have them; None for text, whose order is another one."""
    least, most = [], []
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        columns = [group.column(place) for place in range(group.num_columns)]
        found = next((item.statistics for item in columns if item.path_in_schema == arrival), None)
        if found is None or not found.has_min_max or isinstance(found.min, str | bytes):
            return None
        least.append(found.min)
        most.append(found.max)
    return (min(least), max(most)) if least else None


def _refuse_no_arrival(table: HistoryTable, file: LocalFile, arrival: str) -> None:
    if arrival not in file.columns:
        raise InputError(
            f"the history: {table.path}: '{file.name}' has no column '{arrival}' of arrival times; it has"
            f" {listed(map(repr, file.columns[:20]))}. Set 'arrival' under 'history'"
        )


def in_order(files: Sequence[LocalFile], plan: Plan, names: ColumnNames, prefix: str) -> Iterator[pa.Table]:
    """All records in order of arrival; those that arrive together are in the table's order.

    prefix: of the names of files in the coordinates of their records

    Files whose arrivals overlap are sorted together, on disk. A column that a file lacks and
    another one has is null there, with a warning.
    """
    lacked = LackedColumns({name for file in files for name in file.columns})
    names = replace(names, elsewhere=lacked)
    to_read = [FileToRead(file.path, f"{prefix}{file.name}", place, plan, names) for place, file in enumerate(files)]
    for cluster in clusters([file.bounds for file in files]):
        with temporary_folder() as folder:
            yield from Reading([to_read[place] for place in cluster]).pieces_by_runs(folder)
    for remark in lacked.remarks:
        warn(remark.text)


def clusters(bounds: Sequence[Bounds | None]) -> list[list[int]]:
    """Which files overlap, in order of arrival; in each the places of its files, ascending."""
    known = [item for item in bounds if item is not None]
    if len(known) < len(bounds) or len({type(value) for item in known for value in item}) > 1:
        return [list(range(len(bounds)))] if bounds else []
    found: list[list[int]] = []
    until: Any = None
    for place in sorted(range(len(known)), key=lambda place: (known[place][0], place)):
        least, most = known[place]
        if found and least <= until:
            found[-1].append(place)
        else:
            found.append([])
            found[-1].append(place)
        until = most if until is None else max(until, most)
    return [sorted(cluster) for cluster in found]


ROWS = 500_000
"""Of one step, or so."""

NAME = "history"
"""What the names of its files begin with in coordinates: a source may have files of such names."""


@dataclass(frozen=True, slots=True)
class TableLimits:
    """Which records of a history table count.

    since: those that arrived before, µs, are left out; None = none are
    until: those that arrived later, µs, are left out: sources of the job bring them again
    slowest: the source partition that says how far `until` is, for people
    """

    since: int | None
    until: int
    slowest: str


def limits_of(since: int | None, program: Program, clock: JobClock) -> TableLimits:
    """The limits of a table beside a job; `clock`: of the job.

    Buckets hold what arrived when the slowest source had been read to, or later. So the table is
    left before that, and the sources themselves bring the rest.
    """
    names = met_sources(program)
    reached = [
        (item.arrival, place_name(item.source, item.partition)) for item in clock.sources if item.source in names
    ]
    least, slowest = min(reached, default=(NO_TIME, ""))
    if least == NO_TIME:
        whose = f"the source '{slowest}'" if slowest else "the job"
        raise InputError(
            f"{whose} has not brought a record yet, so it is not known up to when the history counts; deploy later"
        )
    return TableLimits(since, least - 1, slowest)


def met_sources(program: Program) -> list[str]:
    """The names of the sources whose records the queries can need."""
    groups = program.groups()
    return [item.name for item in program.sources if any(group.meets(item.name) for group in groups)]


def run_over_table(run: HistoryRun, program: Program, deployment: Deployment, limits: TableLimits) -> int:
    """Run over the records of the history table; the arrival, µs, up to which it counts.

    Raises InputError for a table that cannot be read, or that has nothing to say.
    """
    table = deployment.history
    assert table is not None, "the deployment has a history"
    reading = _TableReading(table, program, deployment, limits)
    last = reading.run_all(run)
    run.forget_sources()
    return last


class _TableReading:
    """Reads a table, and gives its records to the buckets."""

    def __init__(self, table: HistoryTable, program: Program, deployment: Deployment, limits: TableLimits) -> None:
        self._table, self._program, self._limits = table, program, limits
        self._plan = program.plan()
        self._own = {source.name: source for source in deployment.sources}
        self._ranks = {source.name: rank for rank, source in enumerate(deployment.sources)}
        self._only = table.source or (next(iter(self._own)) if len(self._own) == 1 else None)
        self._prefix = file_prefixes(deployment.sources)[self._only] if self._only is not None else ""
        self._met = met_sources(program)
        self._rows = self._malformed = 0
        self._example = ""

    def run_all(self, run: HistoryRun) -> int:
        """Run over all records that count; the arrival up to which the table has them."""
        names, last = column_names(self._table), NO_TIME
        with local_files(self._table, self._plan) as files:
            self._refuse_one_timeline(files)
            for piece in _steps(in_order(files, self._reading_plan(), names, f"{self._prefix}{NAME}:")):
                arrival = piece.column("_arrival").to_numpy()
                last = int(arrival[-1])
                own = Arrivals(piece).take(np.flatnonzero(self._counts(arrival)))
                if len(own):
                    self._note(own)
                    run.step(list(self._packed(own)), wall_ns() // 1_000_000, Signal.CATCH_UP)
                if last > self._limits.until:
                    break
        self._refuse_nothing(last)
        if self._malformed:
            warn(f"the history has {counted(self._malformed, 'row')} that cannot be read, such as {self._example}")
        return min(last, self._limits.until)

    def _reading_plan(self) -> Plan:
        event = self._table.event
        if event is None and self._table.type_field is None and self._only is not None:
            event = self._own[self._only].event
        return self._plan if event is None else plan_for_event(self._plan, event)

    def _counts(self, arrival: NDArray[np.int64]) -> NDArray[np.bool_]:
        is_early = arrival <= self._limits.until
        return is_early if self._limits.since is None else is_early & (arrival >= self._limits.since)

    def _note(self, records: Arrivals) -> None:
        is_malformed = records.system("kind") == RecordKind.MALFORMED
        if is_malformed.any() and not self._malformed:
            row = int(np.argmax(is_malformed))
            self._example = str(records.table.column("_text")[row].as_py())
        self._rows += len(records)
        self._malformed += int(np.count_nonzero(is_malformed))

    def _packed(self, records: Arrivals) -> Iterator[pa.RecordBatch]:
        """The packed rows of records, by the source that would have brought them.

        Records of sources that no query meets concern nobody.
        """
        kinds = records.system("kind")
        names = np.array([self._source_of(kind) for kind in np.unique(kinds).tolist()])
        by_row = names[np.unique(kinds, return_inverse=True)[1]]
        for name in [name for name in dict.fromkeys(names.tolist()) if name in self._met]:
            part = records.take(np.flatnonzero(by_row == name))
            yield pack_arrivals(
                part, self._program.groups(), self._program.buckets, source=name, rank=self._ranks[name]
            )

    def _source_of(self, kind: int) -> str:
        """A source that can bring records of a kind; "" = none can.

        Which one does not matter: queries that meet one of them meet all.
        """
        if self._only is not None:
            return self._only
        if kind < 0:  # of such a record it does not matter
            return self._met[0]
        event = self._plan.events[kind].name
        return next((source.name for source in self._own.values() if source.event in (None, event)), "")

    def _refuse_one_timeline(self, files: Sequence[LocalFile]) -> None:
        """Where sources have a watermark for each partition, the table must say the partition."""
        met = [self._own[name] for name in self._met]
        clocked = [source for source in met if source.ordering is not None and not source.ordering.is_per_key]
        if clocked and self._only is None and any("source" not in file.columns for file in files):
            raise InputError(
                f"the source '{clocked[0].name}' has an 'ordering' with watermarks of its own; say with 'source' under"
                " 'history', or in a column 'source', whose records these are"
            )
        source = next((item for item in clocked if item.name == self._only and kind_of(item.format).is_log), None)
        if source is None or source.ordering is None or source.ordering.timeline is not TimelineKind.PARTITION:
            return
        without = next((file for file in files if "partition" not in file.columns), None)
        if without is not None:
            raise InputError(
                f"the history: {self._table.path}: '{without.name}' has no column 'partition'. The source"
                f" '{source.name}' has a watermark for each partition, so the answer would be another one"
            )

    def _refuse_nothing(self, last: int) -> None:
        limits, path = self._limits, self._table.path
        if last == NO_TIME:
            raise InputError(f"the history: {path}: has no rows")
        if limits.since is not None and limits.since > min(last, limits.until):
            raise InputError(
                f"--from {format_time(limits.since)} lies behind the history, which counts up to"
                f" {format_time(min(last, limits.until))}"
            )
        if not self._rows:
            raise InputError(
                f"the history: {path}: all rows arrived after {format_time(limits.until)}. From there on the job's own"
                f" sources have the records: '{limits.slowest}' has been read no further"
            )
        if self._malformed == self._rows:
            raise InputError(f"the history: {path}: none of its rows can be read: {self._example}")


def _steps(pieces: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """Larger pieces. What arrives together is in one: timers that are due then run behind it."""
    waiting: list[pa.Table] = []
    for piece in pieces:
        waiting += [piece] if len(piece) else []
        if sum(map(len, waiting)) < ROWS:
            continue
        whole = concatenated_tables(waiting)
        arrival = whole.column("_arrival").to_numpy()
        count = int(np.searchsorted(arrival, arrival[-1]))
        if count:
            yield whole.slice(0, count)
        waiting = [whole.slice(count)]
    if waiting:
        yield concatenated_tables(waiting)
