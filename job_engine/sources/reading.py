"""How the records of a source are read, and its files of records."""

from __future__ import annotations

import json
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from job_engine.clock import wall_seconds
from job_engine.local_path import LocalPath, temporary_folder
from job_engine.place import Place, RemotePath, local_copy
from job_engine.wire.packed_rows import pack_arrivals, pack_reports
from job_engine.wire.program import Program
from job_engine.wire.reports import ProgressBy, Report, reports_of_remarks
from querylang.dataclass import asdict, dataclass, replace
from querylang.errors import InputError, PassingError
from querylang.plan.model import Input, Plan, QueryPlan
from querylang.printable import one_line
from runtime.columns.arrivals import Arrivals, RecordKind
from runtime.file_forms import USUAL_CSV, CsvForm, kind_of
from runtime.instants import NO_TIME
from runtime.json_reader import json_of_text
from runtime.policies.settings_text import USUAL_TIMES, TimeForm
from runtime.reading import (
    ARRIVAL,
    NONE,
    STANDARD,
    ColumnNames,
    Elsewhere,
    LackedColumns,
    NamedElsewhere,
    Remark,
    TableRecords,
    iter_arrival_times,
    iter_table,
    leniency,
    open_parquet,
)
from runtime.threads import in_threads
from runtime.timestamps import format_time, given_times

# Read tables and files with a source's settings, and pack their records; on driver and workers.
#
# The reader is that of the embedded replay, so types, malformed rows and coordinates are the same,
# hence also the matches.

DAY = 86_400_000_000
"""µs; what arrives later than this after it is read is reported."""


@dataclass(frozen=True, slots=True)
class Reading:
    """How the records of a source are read.

    event: every row is of this event type, whatever its columns say; None = `type_field` says it
    type_field, source_time, arrival: names of columns; None = the usual ones
    source: the name of the source in the records; None = the file's name
    prefix: prepended to the names of files
    name: the name of the source in the job's clock; "" = as `source`
    rank: number of the source among all, by name; the control stream comes last
    place: `_place` of its records, as in `Arrivals`
    is_control: whether this is the control stream
    max_record: length of the longest record that is read, in bytes
    csv: how CSV files are written, as `CsvForm.to_plain` gives it; None = as usual
    time_unit, time_format: how times are written, as in `TimeForm`
    is_mixed: rows of event types that the table has no columns for are malformed, not a mistake
    source_column, partition, offset, is_typeless, elsewhere: as in `ColumnNames`
    inferred: the event types whose fields come from the data, because nothing defines them
    frame_names: of the columns of a DataFrame, which have others in Spark; empty = they have not
    since: records that arrived before this, µs, are left out; None = none are
    """

    event: str | None = None
    type_field: str | None = None
    source_time: str | None = None
    arrival: str | None = None
    source: str | None = None
    prefix: str = ""
    name: str = ""
    rank: int = 0
    place: int = 0
    is_control: bool = False
    max_record: int = STANDARD.max_record
    csv: Mapping[str, Any] | None = None
    time_unit: str = USUAL_TIMES.unit
    time_format: str | None = None
    is_mixed: bool = False
    source_column: str | None = None
    partition: str | None = None
    offset: str | None = None
    is_typeless: bool = False
    elsewhere: tuple[str, ...] = ()
    since: int | None = None
    inferred: tuple[str, ...] = ()
    frame_names: tuple[str, ...] = ()

    @staticmethod
    def of_columns(columns: ColumnNames, source: str | None) -> Reading:
        """The settings that users name beside a table."""
        return Reading(
            None,
            columns.type,
            columns.source_time,
            columns.arrival,
            source,
            max_record=columns.max_record,
            csv=plain_csv(columns.csv),
            time_unit=columns.times.unit,
            time_format=columns.times.pattern,
            source_column=columns.source,
            partition=columns.partition,
            offset=columns.offset,
            inferred=tuple(sorted(columns.inferred)),
        )

    @staticmethod
    def of_text(text: str) -> Reading:
        """The inverse of `to_text`."""
        return json_of_text(text, Reading)

    def to_text(self) -> str:
        """The settings as JSON text."""
        return json.dumps(asdict(self))

    @property
    def columns(self) -> ColumnNames:
        """The names of the columns, as readers of tables want them."""
        has_one_type = self.event is not None and self.type_field is None
        return ColumnNames(
            self.arrival,
            NONE if has_one_type else self.type_field,
            self.source_time,
            self.max_record,
            USUAL_CSV if self.csv is None else CsvForm.of_plain(self.csv),
            TimeForm(self.time_unit, self.time_format),
            self.is_mixed,
            self.source_column,
            self.partition,
            self.offset,
            self.is_typeless and not has_one_type,
            frozenset(self.inferred),
            elsewhere=NamedElsewhere(self.elsewhere),
        )

    def records(self, table: object, plan: Plan, elsewhere: Container[str] | None = None) -> Iterator[Read]:
        """The records of a path or an Arrow table; raises InputError if it is not a table.

        elsewhere: the columns that it may lack, of those that the plan needs; None = as of the
            reading
        """
        lacked = LackedColumns(NamedElsewhere(self.elsewhere) if elsewhere is None else elsewhere)
        for part in self._read(table, plan, lacked):
            arrivals = part.arrivals
            if self.since is not None:
                arrivals = arrivals.take(np.flatnonzero(arrivals.system("arrival") >= self.since))
            remarks = (*lacked.remarks, *part.remarks)
            yield Read(_as_controls(arrivals) if self.is_control else arrivals, remarks)

    def arrivals(self, table: object, plan: Plan, elsewhere: Container[str] | None = None) -> Iterator[Arrivals]:
        """As `records`, without remarks."""
        return (part.arrivals for part in self.records(table, plan, elsewhere))

    def least_arrival(self, table: object, plan: Plan, elsewhere: Container[str]) -> int | None:
        """When the first of these records arrives, µs; None = there is none.

        elsewhere: as of `records`

        What can be read before a mistake counts.
        """
        least: int | None = None
        own = plan if self.event is None else plan_for_event(plan, self.event)
        try:
            for moments in iter_arrival_times(
                table, own, self._columns_for(plan, LackedColumns(elsewhere)), self.source
            ):
                found = int(moments.min())
                least = found if least is None else min(least, found)
        except PassingError:
            raise  # what comes behind it may arrive earlier
        except InputError:
            pass
        return least if least is None or self.since is None else max(least, self.since)

    def _columns_for(self, plan: Plan, elsewhere: Elsewhere) -> ColumnNames:
        """As `columns`, with the fields that no query of the whole plan reads."""
        columns = replace(self.columns, elsewhere=elsewhere)
        if not columns.inferred or self.event is None:
            return columns
        return replace(columns, unread=leniency(plan, columns.inferred).unread)

    def _read(self, table: object, plan: Plan, elsewhere: Elsewhere) -> Iterator[TableRecords]:
        return iter_table(
            table,
            plan if self.event is None else plan_for_event(plan, self.event),
            self._columns_for(plan, elsewhere),
            self.source,
            self.place,
        )


def plain_csv(form: CsvForm) -> dict[str, Any] | None:
    """As `Reading.csv`."""
    return None if form == USUAL_CSV else form.to_plain()


@dataclass(frozen=True, slots=True)
class Read:
    """Records, and what may surprise people in the tables that they are from."""

    arrivals: Arrivals
    remarks: Sequence[Remark] = ()


def pack_parts(
    parts: Iterable[Read], program: Program, reading: Reading, *, by_partition: bool = True
) -> Iterator[pa.RecordBatch]:
    """The packed rows of batches of records, and a report of what is remarked of all of them.

    by_partition: as in `ProgressBy`

    What concerns a table as a whole is counted once, in however many parts it is read.
    """
    source = reading.name or reading.source or "table"
    is_topic = source in program.topic_sources
    is_limited = program.ahead_of(source) is not None and not is_topic
    remarks: dict[Remark, None] = {}
    for part in parts:
        arrivals = part.arrivals
        remarks |= dict.fromkeys(part.remarks)
        if len(arrivals):
            yield pack_arrivals(
                arrivals,
                program.groups(),
                program.buckets,
                source=source,
                rank=reading.rank,
                is_control=reading.is_control,
                counted=ProgressBy(by_partition, is_limited, is_topic),
            )
            if not program.is_bounded:
                yield from _far_records(arrivals, source)
    reports = reports_of_remarks(remarks, source)
    if reports:
        yield pack_reports(reports)


def pack_refused_records(
    arrivals: Arrivals, program: Program, reading: Reading, latest: int
) -> Iterator[pa.RecordBatch]:
    """The packed rows of records that arrive later than `latest`, µs, and are refused."""
    if len(arrivals):
        source = reading.name or reading.source or "table"
        yield pack_arrivals(
            arrivals, program.groups(), program.buckets, source=source, rank=reading.rank, latest=latest
        )


def _far_records(arrivals: Arrivals, source: str) -> Iterator[pa.RecordBatch]:
    """A report of records that arrive more than a day after they are read."""
    arrival = arrivals.system("arrival")
    is_far = arrival > int(wall_seconds() * 1_000_000) + DAY
    if is_far.any():
        row = int(np.argmax(arrival))
        where = arrivals.table.slice(row, 1).to_pylist()[0]
        example = f"{where['_source']}, record {where['_offset']} arrives at {format_time(where['_arrival'])}"
        yield pack_reports([Report("far_ahead", source, int(np.count_nonzero(is_far)), example)])


def _as_controls(arrivals: Arrivals) -> Arrivals:
    """Treat unknown event types as control events: the engine then reports what is wrong with them.

    Of such a record the reader keeps only the name of its type.
    """
    table, kinds = arrivals.table, arrivals.system("kind")
    is_unknown = kinds == RecordKind.UNKNOWN_TYPE
    if not is_unknown.any():
        return arrivals
    text = table.column("_text")
    texts = pc.if_else(pa.array(is_unknown), pc.binary_join_element_wise(text, "()", ""), text)
    for name, column in (
        ("_kind", pa.array(np.where(is_unknown, np.int16(RecordKind.CONTROL), kinds))),
        ("_text", texts),
    ):
        position = table.schema.get_field_index(name)
        table = table.set_column(position, table.schema.field(position), column)
    return Arrivals(table)


def plan_for_event(plan: Plan, event: str) -> Plan:
    """The plan reduced to the inputs of one event type, to read a source of that type."""
    queries = []
    for query in plan.queries:
        inputs = tuple(chosen for item in query.inputs for chosen in _as_inputs(item) if chosen.event == event)
        if inputs:
            queries.append(replace(query, inputs=inputs))
    return Plan(plan.events, tuple(queries) or (_reading_only(plan, event),))


def _as_inputs(item: Input) -> tuple[Input, ...]:
    if item.heartbeat is None:
        return (item,)
    beat = item.heartbeat
    heartbeat = replace(item, event=beat.event, keys=beat.keys, time_from=beat.time_from, filter=None, heartbeat=None)
    return (replace(item, heartbeat=None), heartbeat)


def _reading_only(plan: Plan, event: str) -> QueryPlan:
    """A query over an event type that no query reads: its events are counted as unrelated."""
    item = Input(event, (), None, None, None, (), None, None, out_of_order=False, heartbeat=None)
    return replace(plan.queries[0], inputs=(item,))


# Files of records of any kind of source: their names, their columns, their first arrivals.

# The columns that a file of a job may lack, once its source has brought records: any.


class AnyColumn(Container[str]):
    """All columns: the source has brought records, so the queries name its columns rightly."""

    def __contains__(self, _name: object) -> bool:
        """A file may lack each."""
        return True


ANY_COLUMN = AnyColumn()


# Files of sources for readers of tables: on this machine, under names that UTF-8 can hold.


def shown(path: str | Place) -> str:
    r"""A path as text that UTF-8 can hold: bytes of a name that are not UTF-8 as `\xff`."""
    return str(path).encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


@contextmanager
def readable(path: Place) -> Iterator[LocalPath]:
    """A local path of a file for readers of tables, which need names in UTF-8."""
    if isinstance(path, RemotePath):
        with local_copy(path) as copy, _named(copy, path):
            yield copy
        return
    if shown(path) == str(path):
        yield path
        return
    with temporary_folder() as folder:
        link = folder / f"table{''.join(map(shown, kind_of(path)))}"
        link.symlink_to(path)
        with _named(link, path):
            yield link


@contextmanager
def _named(copy: Path, path: Place) -> Iterator[None]:
    """Name the file itself in errors, not its copy."""
    try:
        yield
    except InputError as error:
        kind = PassingError if isinstance(error, PassingError) else InputError
        raise kind(str(error).replace(one_line(str(copy)), shown(path))) from error


# The least arrival of files that are still to be read: what each kind of files looks up alike.
#
# Files that were listed together are merged by arrival, whatever micro-batches read them. So their
# clock has to know what those can bring that are still to be read.

THREADS = 8
"""Files that are looked at at once in a store, which answers slowly."""

LOCAL_THREADS = 4
"""The same in a folder, which may be one of a network."""

Looked = TypeVar("Looked")


def reading_of_source(options: Mapping[str, str], source: str) -> Reading:
    """How the records of a source are read; `options`: as of `reading_options`."""
    return Reading.of_text(json_of_text(options["readings"], dict[str, str])[source])


def of_each(place: Place, first: Callable[[Looked], int | None], files: Sequence[Looked]) -> list[int | None]:
    """That of each file, several at once; `place`: their folder."""
    return in_threads(first, files, THREADS if isinstance(place, RemotePath) else LOCAL_THREADS)


def of_statistics(path: Path, reading: Reading) -> int | None:
    """The least arrival by the statistics of a Parquet file's row groups; None = not known."""
    column = reading.columns.of(ARRIVAL)
    try:
        with open_parquet(path) as file:
            schema, groups = file.schema_arrow, file.metadata
            if column is None or column not in schema.names:
                return None
            kind = schema.field(column).type
            if not (pa.types.is_timestamp(kind) or pa.types.is_integer(kind)):
                return None
            place = [groups.schema.column(at).path for at in range(groups.num_columns)].index(column)
            chunks = [groups.row_group(at).column(place) for at in range(groups.num_row_groups)]
            if not all(chunk.is_stats_set and chunk.statistics.has_min_max for chunk in chunks):
                return None
            values = pa.array([chunk.statistics.min for chunk in chunks], kind)
    except (pa.ArrowException, OSError, ValueError, OverflowError):
        return None
    return earliest(values, reading)


def earliest(values: pa.Array, reading: Reading) -> int | None:
    """The least of arrival times as a column has them, µs; None = not known."""
    known = [item for item in given_times(values, reading.columns.times).micros.tolist() if item != NO_TIME]
    least = min(known, default=None)
    return least if least is None or reading.since is None else max(least, reading.since)
