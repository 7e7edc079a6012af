"""The tables beside the stream of a job: their files, and what its checkpoint keeps of them.

The checkpoint has a file per table with all that it has held, each row with the arrivals from which
and until before which it holds. A new version of a table holds for records that arrive behind all
that were read when it was taken. So what is looked up is the same in every bucket, and again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager

from job_engine.clock import monotonic, sleep, wall_ns
from job_engine.durable_files import RESTORE, JobFile, complete, indented, make_kept_folder, new_file, sync
from job_engine.job.checkpoint.job_folder import Reached
from job_engine.places.local_path import LocalPath, temporary_folder
from job_engine.places.place import Place, local_copy, names_in, writable
from job_engine.settings.deployment import Deployment, LookupFile
from job_engine.wire.kept_lookups import KeptTables, read_kept
from job_engine.wire.program import Program
from querylang.dataclass import asdict, dataclass, replace
from querylang.errors import InputError, counted
from querylang.plan.model import Plan, Table
from querylang.printable import warn
from querylang.system_errors import reason_of
from runtime.lookup_tables import LookupTable, definition_of, name_of_content, read_lookup_table, tables_of_plan

LOOKUPS_VERSION = 1

APART = 2.0
"""Seconds between the two looks at a file that have to be equal before it is read."""

_MOST_LOOKS = 30

Look = tuple[int, int]
"""The size of a file and when it was changed, ns."""


@dataclass(frozen=True, slots=True)
class TableVersion:
    """A version of a table.

    number: from 1
    place: it holds for records that arrive later, µs; None = for all
    taken: by the wall clock, µs
    rows: how many it has
    digest: of its content
    """

    number: int
    place: int | None
    taken: int
    rows: int
    digest: str


@dataclass(frozen=True, slots=True)
class KeptTable:
    """What a checkpoint keeps of a table.

    definition: as of `definition_of`
    file, previous: names of files with all versions, and with those before the last one
    look: at its own file, when it was read last
    versions: oldest first, at least one
    problem: why a newer version was not taken; "" = there is none
    """

    name: str
    definition: str
    file: str
    previous: str
    look: Look
    versions: tuple[TableVersion, ...]
    problem: str = ""

    @property
    def last(self) -> TableVersion:
        """The version that holds."""
        return self.versions[-1]


@dataclass(frozen=True, slots=True)
class _Kept:
    tables: tuple[KeptTable, ...]


def read_tables(checkpoint: Place) -> tuple[KeptTable, ...]:
    """The tables that a checkpoint keeps; raises InputError."""
    found = _file(checkpoint).read()
    return () if found is None else found.tables


def write_tables(checkpoint: Place, tables: Iterable[KeptTable]) -> None:
    """Replace what a checkpoint keeps; it survives a power cut."""
    _file(checkpoint).write({"version": LOOKUPS_VERSION, **asdict(_Kept(tuple(tables)))})


def _file(checkpoint: Place) -> JobFile[_Kept]:
    file = checkpoint / "ensue" / "lookups.json"
    return JobFile(file, _Kept, RESTORE, range(1, LOOKUPS_VERSION + 1), text=indented)


def contents(checkpoint: Place) -> Place:
    """Where the files with contents are."""
    return checkpoint / "ensue" / "lookups"


def with_kept_tables(program: Program, deployment: Deployment) -> Program:
    """The program with what the checkpoint keeps of its tables; raises InputError."""
    return replace(program, tables=_as_sent(read_tables(deployment.checkpoint), deployment.checkpoint))


def _as_sent(kept: Iterable[KeptTable], checkpoint: Place) -> KeptTables:
    folder = contents(checkpoint)
    return tuple(sorted((item.definition, str((folder / item.file).resolve())) for item in kept))


def refuse_unread_tables(program: Program, deployment: Deployment) -> None:
    """Raise InputError for a table with a wrong file, of which the checkpoint keeps nothing."""
    known = {definition for definition, _ in program.tables}
    for table in tables_of_plan(program.plan()):
        if definition_of(table) not in known:
            _read(table, deployment.tables[table.name])


def refuse_unknown_tables(program: Program, plan: Plan) -> None:
    """Raise InputError if a plan looks something up in a table of which a job keeps nothing yet."""
    known = {definition for definition, _ in program.tables}
    for table in tables_of_plan(plan):
        if definition_of(table) not in known:
            raise InputError(
                f"the job has read nothing of table '{table.name}' yet, so nothing can be looked up in it for earlier"
                " records: deploy the queries without a history"
            )


def changed_tables(deployment: Deployment) -> Iterator[str]:
    """What a start would do about tables whose files have changed, a line each."""
    for kept in read_tables(deployment.checkpoint):
        file = deployment.tables.get(kept.name)
        if file is None:
            continue
        if kept.problem:
            yield f"table '{kept.name}': {kept.problem}"
        elif _look_at(file) != kept.look:
            yield f"table '{kept.name}': {file.path} has changed since version {kept.last.number} was read"


def take_tables(program: Program, deployment: Deployment, reached: Reached, accepts: Collection[str]) -> Program:
    """The program with what its tables hold now; new versions are written down first.

    accepts: names of tables that may have fewer than half of their rows

    While a micro-batch is open, none is taken: it is repeated as it was. Raises InputError for a
    table that cannot be read and of which nothing is kept.
    """
    checkpoint, wanted = deployment.checkpoint, tables_of_plan(program.plan())
    kept = {item.definition: item for item in read_tables(checkpoint)}
    if not wanted and not kept:
        return program
    taken: dict[str, KeptTable] = {}
    for table in wanted:
        before = kept.get(definition_of(table))
        if before is None or (reached.batches.open is None and table.name in deployment.tables):
            place = reached.progress.furthest
            before = _taken(table, deployment, before, place, is_accepted=table.name in accepts)
        taken[before.definition] = before
    if taken != kept:
        write_tables(checkpoint, taken.values())
        used = {name for item in taken.values() for name in (item.file, item.previous)}
        for name in names_in(contents(checkpoint)):
            if name not in used:
                (contents(checkpoint) / name).unlink(missing_ok=True)
    return replace(program, tables=_as_sent(taken.values(), checkpoint))


def _taken(
    table: Table, deployment: Deployment, before: KeptTable | None, place: int | None, *, is_accepted: bool
) -> KeptTable:
    """The table with the newest version of its file.

    before: None = nothing is kept of it
    place: the furthest arrival that was read; None = no record was
    """
    file = deployment.tables[table.name]
    if before is not None and not before.problem and _look_at(file) == before.look:
        return before
    look = None
    try:
        look = _settled(table, file)
        new = _read_as_seen(table, file, look)
    except InputError as error:
        if before is None:
            raise
        return _with_problem(before, look, str(error))
    data = new.to_bytes()
    digest = hashlib.sha256(data).hexdigest()[:32]
    if before is None:
        return _written(deployment, table, new, look, (TableVersion(1, None, _now(), len(new), digest),), "")
    if digest == before.last.digest:
        return replace(before, look=look, problem="")
    if 2 * len(new) < before.last.rows and not is_accepted:
        fewer = f"{file.path} has {counted(len(new), 'row')}, and had {before.last.rows}"
        return _with_problem(before, look, f"{fewer}; to take it: `ensue run {deployment.file} --accept {table.name}`")
    version = TableVersion(before.last.number + 1, place, _now(), len(new), digest)
    if place is not None:
        old = read_kept(table, str((contents(deployment.checkpoint) / before.file).resolve()))
        new = old.followed_by(new, place)
    return _written(deployment, table, new, look, (*before.versions, version), before.file)


def _with_problem(before: KeptTable, look: Look | None, problem: str) -> KeptTable:
    warn(f"table '{before.name}': {problem}; version {before.last.number} still holds")
    return replace(before, look=before.look if look is None else look, problem=problem)


def _now() -> int:
    return wall_ns() // 1000


def _written(
    deployment: Deployment,
    table: Table,
    content: LookupTable,
    look: Look,
    versions: tuple[TableVersion, ...],
    previous: str,
) -> KeptTable:
    """The table, once its content is on the disk."""
    data, folder = content.to_bytes(), contents(deployment.checkpoint)
    place = folder / name_of_content(table.name, data)
    make_kept_folder(folder)
    here = writable(place)
    with new_file(here) as file:
        file.write(data)
    complete([(here, place)])
    sync(folder)
    return KeptTable(table.name, definition_of(table), place.name, previous, look, versions)


def _settled(table: Table, file: LookupFile) -> Look:
    """A look at a file that nobody is writing; raises InputError."""
    look = _look_at(file)
    for _ in range(_MOST_LOOKS):
        sleep(APART)
        again = _look_at(file)
        if again == look and again is not None:
            return again
        look = again
    state = "is not there" if look is None else "is changed all the time"
    raise InputError(f"table '{table.name}': {file.path} {state}")


def _look_at(file: LookupFile) -> Look | None:
    """None = it is not there."""
    try:
        found = file.path.stat()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InputError(f"{file.path}: cannot be read: {reason_of(error)}") from error
    return found.st_size, found.st_mtime_ns


def _read(table: Table, file: LookupFile) -> LookupTable:
    """What a file says; raises InputError."""
    try:
        with local_copy(file.path) as here, _of_format(here, file) as named:
            return read_lookup_table(table, named)
    except OSError as error:
        raise InputError(f"table '{table.name}': {file.path} cannot be read: {reason_of(error)}") from error


def _read_as_seen(table: Table, file: LookupFile, look: Look) -> LookupTable:
    """What a file says that stays as it was seen; raises InputError."""
    found = _read(table, file)
    if _look_at(file) != look:
        raise InputError(f"table '{table.name}': {file.path} was changed while it was read")
    return found


@contextmanager
def _of_format(here: LocalPath, file: LookupFile) -> Iterator[LocalPath]:
    """A file whose name says its format."""
    if file.format is None or f".{file.format}" in here.suffixes:
        yield here
        return
    with temporary_folder() as folder:
        copy = folder / f"{here.stem}.{file.format}"
        copy.write_bytes(here.read_bytes())
        yield copy


class LookupWatch:
    """Looks from time to time whether the files of tables have changed, of a job that runs."""

    def __init__(self, deployment: Deployment) -> None:
        self._checkpoint = deployment.checkpoint
        self._files: Mapping[str, LookupFile] = {
            name: file for name, file in deployment.tables.items() if file.refresh is not None
        }
        self._next = {name: monotonic() + _seconds(file) for name, file in self._files.items()}

    def has_change(self) -> bool:
        """Whether a file differs from what was read of it last."""
        if not self._next:
            return False
        now = monotonic()
        due = [name for name, at in self._next.items() if at <= now]
        if not due:
            return False
        for name in due:
            self._next[name] = now + _seconds(self._files[name])
        kept = {item.name: item for item in read_tables(self._checkpoint)}
        return any(name in kept and self._differs(kept[name]) for name in due)

    def _differs(self, kept: KeptTable) -> bool:
        try:
            look = _look_at(self._files[kept.name])
        except InputError:
            return False  # the next look may say more
        return look is not None and look != kept.look


def _seconds(file: LookupFile) -> float:
    return (file.refresh or 0) / 1_000_000
