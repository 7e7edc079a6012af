"""Jobs that read tables of Delta and may write to some, and what other writers do to these tables meanwhile."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet
from deltalake import DeltaTable, Schema
from deltalake.exceptions import DeltaError

import querylang
from job_engine.deployment_file import load_deployment
from job_engine.sources.listing.manifests import what_was_read
from job_engine.sources.table.pieces import TableFile, TablePosition
from job_engine.sources.table.planning import CommitPlanner
from job_engine.sources.table.reading import UnitReader
from job_engine.sources.table.settings import DeltaSource
from querylang.errors import InputError
from runtime.file_forms import natural_key
from tests.simulation.scheduler import START
from tests.torture.answers import Answers, Control, control_tables, of_tables, place
from tests.torture.project import DEPLOYMENT, QUERIES, SINKS
from tests.torture.streams import SECOND, Row, Source, random_sources

_SOURCE = "  {name}: {{format: delta, event: {event}, path: tables/{name}, arrival: at, source_time: ts, start: {start}, options: {{maxFilesPerTrigger: {most}}}}}\n"
_TYPES = {"at": "timestamp", "k": "string", "v": "long", "n": "long", "ts": "double"}
_ARROW = {"timestamp": pa.timestamp("us", "UTC"), "string": pa.string(), "long": pa.int64(), "double": pa.float64()}
_MORE = "more"
"""A column that a table may get."""


@dataclass(frozen=True, slots=True)
class DataFile:
    """A data file; `has_statistics`: whether the log says when its rows arrive."""

    name: str
    rows: tuple[Row, ...]
    has_statistics: bool


@dataclass(frozen=True, slots=True)
class Commit:
    """What a version has brought; `changes`: whether it changes or deletes rows."""

    files: tuple[DataFile, ...] = ()
    changes: bool = False


@dataclass(slots=True)
class Table(Source):
    """A source of one table, whose log is written here.

    active: the files of the newest version, by name, in order
    removed: names of files that no version after the newest has, and that are still there
    commits: by version
    snapshots: the active files, by version
    """

    folder: Path = Path()
    active: dict[str, DataFile] = field(default_factory=dict)
    removed: list[str] = field(default_factory=list)
    commits: list[Commit] = field(default_factory=list)
    snapshots: list[tuple[DataFile, ...]] = field(default_factory=list)
    columns: dict[str, str] = field(default_factory=lambda: dict(_TYPES))
    made: int = 0

    @property
    def version(self) -> int:
        """The newest one."""
        return len(self.commits) - 1

    def begin(self, now: float) -> None:
        """Make the table, without rows."""
        (self.folder / "_delta_log").mkdir(parents=True)
        protocol = {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}
        self._commit([protocol, self._metadata()], Commit(), now)

    def append(self, parts: Sequence[Sequence[Row]], now: float, *, has_statistics: bool) -> None:
        """Add rows, each part in a file of its own."""
        files = tuple(self._file(rows, has_statistics=has_statistics) for rows in parts)
        self.files.append(("", [row for rows in parts for row in rows]))
        self._put(files, (), now, is_change=None)

    def rewrite(self, chooser: random.Random, now: float) -> None:
        """Join small files, as OPTIMIZE does: no row is new, and all stay."""
        names = list(self.active)[: chooser.randint(2, len(self.active))]
        rows = [row for name in names for row in self.active[name].rows]
        self._put((self._file(rows, has_statistics=True),), names, now, is_change=False)

    def change(self, chooser: random.Random, now: float) -> None:
        """Delete some rows of a file, or all of it."""
        name = chooser.choice(list(self.active))
        left = [row for row in self.active[name].rows if chooser.random() < 0.5]
        files = (self._file(left, has_statistics=True),) if left else ()
        self._put(files, (name,), now, is_change=True)

    def widen(self, now: float) -> None:
        """Add a column."""
        self.columns[_MORE] = "string"
        self._commit([self._metadata()], Commit(), now)

    def shorten_log(self) -> None:
        """Make a checkpoint of the log, and remove what is before it."""
        DeltaTable(self.folder).create_checkpoint()
        for version in range(self.version):
            self._log(version).unlink(missing_ok=True)

    def vacuum(self, kept: set[str]) -> None:
        """Remove files that the newest version does not have."""
        for name in self.removed:
            if f"{self.name}/{name}" not in kept:
                (self.folder / name).unlink()
        self.removed = [name for name in self.removed if f"{self.name}/{name}" in kept]

    def _log(self, version: int) -> Path:
        return self.folder / "_delta_log" / f"{version:020d}.json"

    def _metadata(self) -> dict[str, Any]:
        fields = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in self.columns.items()]
        return {
            "metaData": {
                "id": f"{self.name}-id",
                "format": {"provider": "parquet", "options": {}},
                "schemaString": json.dumps({"type": "struct", "fields": fields}),
                "partitionColumns": [],
                "configuration": {},
                "createdTime": int(START * 1000),
            }
        }

    def _file(self, rows: Sequence[Row], *, has_statistics: bool) -> DataFile:
        self.made += 1
        name = f"part-{self.made:05d}.parquet"
        columns = {
            column: pa.array([_cell(row, column) for row in rows], _ARROW[kind])
            for column, kind in self.columns.items()
        }
        pa.parquet.write_table(pa.table(columns), self.folder / name)
        return DataFile(name, tuple(rows), has_statistics)

    def _put(self, files: tuple[DataFile, ...], removed: Sequence[str], now: float, *, is_change: bool | None) -> None:
        """Commit; `is_change`: of rows, None = they are new."""
        is_data = is_change is not False
        actions = [self._add(file, now, is_data=is_data) for file in files]
        actions += [
            {"remove": {"path": name, "deletionTimestamp": int((START + now) * 1000), "dataChange": is_data}}
            for name in removed
        ]
        for name in removed:
            del self.active[name]
        self.removed += removed
        self.active |= {file.name: file for file in files}
        self._commit(actions, Commit(files if is_data else (), bool(removed) and is_data), now)

    def _add(self, file: DataFile, now: float, *, is_data: bool) -> dict[str, Any]:
        moments = [row.at for row in file.rows]
        bounds = {"minValues": {"at": _iso(min(moments))}, "maxValues": {"at": _iso(max(moments) + 999)}}
        statistics = {"numRecords": len(file.rows), **(bounds if file.has_statistics else {})}
        return {
            "add": {
                "path": file.name,
                "partitionValues": {},
                "size": (self.folder / file.name).stat().st_size,
                "modificationTime": int((START + now) * 1000) + self.made,
                "dataChange": is_data,
                "stats": json.dumps(statistics),
            }
        }

    def _commit(self, actions: list[dict[str, Any]], commit: Commit, now: float) -> None:
        info = {"commitInfo": {"timestamp": int((START + now) * 1000), "operation": "WRITE"}}
        text = "".join(json.dumps(action) + "\n" for action in (info, *actions))
        self.commits.append(commit)
        self.snapshots.append(tuple(self.active.values()))
        draft = self.folder / "_delta_log" / ".draft"
        draft.write_text(text, "utf-8")
        draft.rename(self._log(self.version))

    def read_up_to(self, position: TablePosition, gone: Gone) -> Iterator[DataFile]:
        """The files that a job has read, in order."""
        began = position.version if position.began is None else position.began
        if position.is_whole:
            yield from _in_order(self.snapshots[began])
        for version in range(began + 1, position.version + 1):
            commit = self.commits[version]
            if not commit.changes and (self.name, version) not in gone.versions:
                yield from commit.files


def _cell(row: Row, column: str) -> Any:
    if column == "at":
        return row.at
    value = row.cells.get(column, "later" if column == _MORE else None)
    return None if value == "oops" else value


def _iso(moment: int) -> str:
    found = datetime.fromtimestamp(moment // SECOND, UTC).replace(microsecond=moment % SECOND // 1000 * 1000)
    return found.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _in_order(files: Sequence[DataFile]) -> list[DataFile]:
    """The order in which the files of a version are read: of arrival, if the log says it of all."""
    if all(file.has_statistics for file in files):
        return sorted(files, key=lambda file: (min(row.at for row in file.rows) // 1000, natural_key(file.name)))
    return sorted(files, key=lambda file: natural_key(file.name))


@dataclass(slots=True)
class Gone:
    """What is not there any more, as a job has noticed.

    versions: of sources, that a job has accepted as lost
    files: data files that a job has counted as lost, each as `source/name`
    read: those that some worker has read: until the job has committed that, it has to be able to read them again
    """

    versions: set[tuple[str, int]] = field(default_factory=set)
    files: set[str] = field(default_factory=set)
    read: set[str] = field(default_factory=set)

    @contextmanager
    def noticed(self) -> Iterator[None]:
        """Note what jobs of this process do."""
        lost, records, following = UnitReader._lost, UnitReader._records, CommitPlanner._next_commit

        def notes_lost(reader: UnitReader, file: TableFile, path: Any) -> Iterator[pa.RecordBatch]:
            if reader.accepts_loss:
                self.files.add(f"{reader.source.name}/{file.path}")
            return lost(reader, file, path)

        def notes_read(reader: UnitReader, unit: Any, file: TableFile, *given: Any) -> Any:
            self.read.add(f"{reader.source.name}/{file.path}")
            return records(reader, unit, file, *given)

        def notes_gap(planner: CommitPlanner, source: DeltaSource, position: TablePosition, report: Any) -> Any:
            found = following(planner, source, position, report)
            if found is not None and planner._accepts_loss and found[1].version > position.version + 1:
                versions = range(position.version + 1, found[1].version + 1)
                self.versions.update((source.name, version) for version in versions)
            return found

        with ExitStack() as stack:
            for owner, name, value in (
                (UnitReader, "_lost", notes_lost),
                (UnitReader, "_records", notes_read),
                (CommitPlanner, "_next_commit", notes_gap),
            ):
                stack.enter_context(patch.object(owner, name, value))
            yield


def table_job(chooser: random.Random, now: float, folder: Path) -> tuple[Path, list[Source]]:
    """Write a job over tables that have no rows yet."""
    found = random_sources(chooser, chooser.choice((8, 40)), ahead=0)
    sources = [
        Table(item.name, "delta", event, [], folder=folder / "tables" / item.name)
        for item, event in zip(found, "ABC", strict=True)
    ]
    for source, item in zip(sources, found, strict=True):
        source.rows += [Row(row.number, row.at, _cells(row, source)) for row in item.rows]
        source.begin(now)
    start = chooser.choice(("earliest", "earliest", "latest", "0", "2020-01-01T00:00:00Z"))
    more = "".join(f", {setting}" for setting in SETTINGS if chooser.random() < 0.5)
    text = "".join(
        _SOURCE.format(name=source.name, event=source.event, start=start + more, most=chooser.choice((1, 1, 3, 1000)))
        for source in sources
    )
    sinks = sinks_of(chooser)
    (folder / "control").mkdir()
    # the package takes the folder `%5FThree` for `_Three`
    (folder / "tables.query").write_text(QUERIES.replace("_Three", "Three"), encoding="utf-8")
    path = folder / "tables.yaml"
    text = DEPLOYMENT.replace("torture", "tables").format(sinks=sinks, sources=text, buckets=chooser.choice((1, 2, 3)))
    path.write_text(f"{text}engine: local\nidle: none\n", encoding="utf-8")
    return path, list(sources)


def sinks_of(chooser: random.Random) -> str:
    """Sinks some of which are tables."""
    return "".join(
        line.replace("parquet", chooser.choice(FORMATS[:2] if "ledger" in line else FORMATS))
        for line in SINKS.splitlines(keepends=True)
    )


FORMATS = ("parquet", "delta", "delta", "delta, partition_by: day")
"""Of sinks."""

SETTINGS = ("skip_changes: true", "schema_changes: add_columns")
"""What a source may have to be allowed, at the latest before the end."""

REFUSALS = ("changes or deletes rows", "adds column", "ensue run --accept-loss")
"""In errors of a job that reads tables, as they should be."""


def _cells(row: Row, source: Table) -> dict[str, Any]:
    cells = {**row.cells, "event": source.event}
    return {name: None if cell == "oops" else cell for name, cell in cells.items()}


def allow(deployment: Path) -> None:
    """Allow what a job may have refused."""
    lines = deployment.read_text("utf-8").splitlines()
    for number, line in enumerate(lines):
        if "format: delta, event" in line:
            missing = "".join(f", {setting}" for setting in SETTINGS if setting not in line)
            lines[number] = line.replace(", options:", f"{missing}, options:")
    deployment.write_text("\n".join(lines) + "\n", "utf-8")


@dataclass(slots=True)
class Others:
    """Whoever else writes to the tables of a job; `is_hard`: they also change rows, and remove what is old."""

    chooser: random.Random
    is_hard: bool
    gone: Gone = field(default_factory=Gone)
    known: set[str] = field(default_factory=set)
    """The sources of which a job has on record where it has begun."""

    def write(self, source: Table, now: float) -> None:
        """The next version of a source's table."""
        chooser = self.chooser
        match chooser.randrange(10):
            case 0 if len(source.active) > 1:
                source.rewrite(chooser, now)
            case 1 if _MORE not in source.columns:
                source.widen(now)
            case 2 if self.is_hard and source.active:
                source.change(chooser, now)
            case 3 if self.is_hard and source.name in self.known:
                source.vacuum(self.gone.read)
            case 4 if self.is_hard and source.name in self.known:
                source.shorten_log()
            case _:
                done = sum(len(rows) for _, rows in source.files)
                rows = source.rows[done : done + chooser.choice((1, 1, 2, 5))]
                cut = chooser.randint(0, len(rows))
                parts = [part for part in (rows[:cut], rows[cut:]) if part]
                if parts:
                    source.append(parts, now, has_statistics=chooser.random() < 0.7)

    def note_known(self, deployment: Path) -> None:
        """Between two lives: where a job has begun to read a table stays on record for good."""
        for name, position in positions(deployment).items():
            if position is not None and position.began is not None:
                self.known.add(name)

    def commit(self, folder: str) -> None:
        """Another commit to a table that a job writes to; its rows stay what they are."""
        try:
            table = DeltaTable(folder)
        except DeltaError:  # no table yet, or one whose log the job has to mend first
            return
        match self.chooser.randrange(5):
            case 0:
                partitions = table.metadata().partition_columns
                table.create_write_transaction([], "append", table.schema(), partitions)
            case 1:
                table.alter.set_table_properties({"delta.checkpointInterval": self.chooser.choice(("2", "7"))})
            case 2:
                table.optimize.compact()
            case 3:
                table.create_checkpoint()
                for version in range(table.version()):
                    (Path(folder) / "_delta_log" / f"{version:020d}.json").unlink(missing_ok=True)
            case _:
                names = [own.name for own in table.schema().fields]
                if "_others" not in names:
                    table.alter.add_columns(Schema.from_arrow(pa.schema([("_others", pa.int64())])).fields)


def positions(deployment: Path) -> dict[str, TablePosition | None]:
    """How far a job has read each table."""
    try:
        read = what_was_read(load_deployment(deployment).checkpoint)
    except InputError:
        return {}
    return {name: read.of(name, "delta").position for name in ("east", "west", "tide")}


def unread_tables(deployment: Path, tables: Sequence[Table]) -> list[str]:
    """What a job should have read besides what it has read."""
    problems, known = [], positions(deployment) if tables else {}
    for table in tables:
        position = known.get(table.name)
        if position is None:
            problems.append(f"nothing was read of {table.name}")
        elif position.began is None:
            problems.append(f"the job does not know where it has begun to read {table.name}")
        elif position.version != table.version or position.units_read is not None:
            problems.append(f"{table.name} was read up to {position}, and not to {table.version}")
    return problems


def replayed_tables(
    deployment: Path, queries: Path, tables: Sequence[Table], gone: Gone, controls: Sequence[Control], **options: Any
) -> Answers:
    """What a replay gives of all that a job has read, and of changes."""
    found, lost = [], 0
    known = positions(deployment)
    for table in sorted(tables, key=lambda item: item.name):
        position = known.get(table.name)
        if position is None:
            continue
        for file in table.read_up_to(position, gone):
            name = f"{table.name}/{file.name}"
            if name in gone.files:
                lost += len(file.rows)
            else:
                found.append([{**row.cells, **place(name, offset)} for offset, row in enumerate(file.rows, 1)])
    found += control_tables(controls)
    answers = of_tables(queries, found, **options) if found else Answers(Counter(), Counter(), Counter(), Counter())
    titles = [query.title for query in querylang.compile_paths([queries]).plan.queries]
    return replace(answers, ledger=answers.ledger + Counter({(title, "lost"): lost for title in titles if lost}))
