"""The tables beside the stream of a job: their files, and what its checkpoint keeps of them.

The checkpoint has a file per table with all that it has held, each row with the arrivals from which
and until before which it holds. A new version of a table holds for records that arrive behind all
that were read when it was taken. So what is looked up is the same in every bucket, and again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from functools import partial
from zlib import crc32

from job_engine.clock import monotonic, sleep, wall_ns
from job_engine.deployment import Deployment, LookupFile
from job_engine.durable_files import RESTORE, JobFile, complete, indented, make_kept_folder, new_file, sync
from job_engine.errors import failed
from job_engine.job.checkpoint.job_folder import Reached
from job_engine.local_path import LocalPath, temporary_folder
from job_engine.place import Place, asked_again, local_copy, names_in, writable
from job_engine.sources.table.reading import VersionedTable
from job_engine.threads import begun
from job_engine.wire.plan_text import KeptTables, read_kept
from job_engine.wire.program import Program
from querylang.dataclass import asdict, dataclass, replace
from querylang.errors import InputError, counted
from querylang.plan.model import Plan, Table
from querylang.plan.text import VALID
from querylang.printable import masked, warn
from querylang.system_errors import reason_of
from runtime.lookup_tables import LookupTable, definition_of, name_of_content, read_lookup_table, tables_of_plan
from runtime.reading import is_table

LOOKUPS_VERSION = 2
"""Where there is a table of Delta; what has none is written as the first version."""

APART = 2.0
"""Seconds between the two looks at a file that have to be equal before it is read."""

_MOST_LOOKS = 30

_MOST_READS = 10
"""How often a file is read that is changed each time."""

DELTA = "delta"
"""The format of tables that are folders, in versions of their own."""

Look = tuple[int, int]
"""Of a file its size and when it was changed, ns; of a table of Delta its version, and a number of
the table itself: one that is made anew has another."""


@dataclass(frozen=True, slots=True)
class TableVersion:
    """A version of a table.

    number: from 1
    place: it holds for records that arrive later, µs; None = for all
    taken: by the wall clock, µs
    rows: how many it has
    digest: of its content
    delta: the version of the table of Delta that it is; None = it is a file
    """

    number: int
    place: int | None
    taken: int
    rows: int
    digest: str
    delta: int | None = None


@dataclass(frozen=True, slots=True)
class KeptTable:
    """What a checkpoint keeps of a table.

    definition: as of `definition_of`
    file, previous: names of files with all versions, and with those before the last one
    look: at its own file, when it was taken or refused last
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
    plain, version = asdict(_Kept(tuple(tables))), 1
    for own in (own for item in plain["tables"] for own in item["versions"]):
        if own["delta"] is None:
            del own["delta"]
        else:
            version = LOOKUPS_VERSION
    _file(checkpoint).write({"version": version, **plain})


def keep_tables(checkpoint: Place, tables: Collection[KeptTable]) -> None:
    """The same, and remove the contents that nothing names any more."""
    write_tables(checkpoint, tables)
    used = {name for item in tables for name in (item.file, item.previous)}
    for name in names_in(contents(checkpoint)):
        if name not in used:
            (contents(checkpoint) / name).unlink(missing_ok=True)


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
            _OwnFile(table.name, deployment.tables[table.name]).read(table, is_settled=False)


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
    for kept, file in _own_files(deployment):
        if kept.problem:
            yield f"table '{kept.name}': {kept.problem}"
            continue
        try:
            is_new = _is_new(kept, file)
        except InputError as error:
            yield str(error)
        else:
            if is_new:
                yield f"table '{kept.name}': {file.path} has changed since version {kept.last.number} was read"


def has_new_table(deployment: Deployment) -> bool:
    """Whether the file of a table is not what was taken or refused of it last; it may be away."""
    for kept, file in _own_files(deployment):
        with suppress(InputError):
            if _is_new(kept, file):
                return True
    return False


def _own_files(deployment: Deployment) -> Iterator[tuple[KeptTable, LookupFile]]:
    for kept in read_tables(deployment.checkpoint):
        if kept.name in deployment.tables:
            yield kept, deployment.tables[kept.name]


def _is_new(kept: KeptTable, file: LookupFile) -> bool:
    return _OwnFile(kept.name, _asked_once(file)).look() != kept.look


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
        keep_tables(checkpoint, list(taken.values()))
    return replace(program, tables=_as_sent(taken.values(), checkpoint))


def _taken(
    table: Table, deployment: Deployment, before: KeptTable | None, place: int | None, *, is_accepted: bool
) -> KeptTable:
    """The table with the newest version of its file.

    before: None = nothing is kept of it
    place: the furthest arrival that was read; None = no record was
    """
    file, own = deployment.tables[table.name], None
    file = file if before is None else _asked_once(file)
    try:
        own = _OwnFile(table.name, file)
        if before is not None and not before.problem and own.look() == before.look:
            return before
        look, new = own.read(table, is_settled=True)
    except InputError as error:
        if before is None:
            raise
        refused = None if own is None else own.refused  # what has none is looked at again
        return _with_problem(before, refused, _problem_of(table.name, error, deployment))
    data = new.to_bytes()
    digest = hashlib.sha256(data).hexdigest()[:32]
    if before is None:
        first = TableVersion(1, None, _now(), len(new), digest, own.delta_version(look))
        return _written(deployment, table, new, look, (first,), "")
    if digest == before.last.digest:
        last = replace(before.last, delta=own.delta_version(look))
        return replace(before, look=look, versions=(*before.versions[:-1], last), problem="")
    if 2 * len(new) < before.last.rows and not is_accepted:
        fewer = f"{file.path} has {counted(len(new), 'row')}, and had {before.last.rows}"
        return _with_problem(before, look, f"{fewer}; to take it: `ensue run {deployment.file} --accept {table.name}`")
    number = before.last.number + 1
    version = TableVersion(number, place, _now(), len(new), digest, own.delta_version(look))
    if place is not None:
        old = read_kept(table, str((contents(deployment.checkpoint) / before.file).resolve()))
        new = old.followed_by(new, place)
    return _written(deployment, table, new, look, (*before.versions, version), before.file)


def _with_problem(before: KeptTable, look: Look | None, problem: str) -> KeptTable:
    warn(f"{_title(before.name)}{problem}; version {before.last.number} still holds")
    return replace(before, look=before.look if look is None else look, problem=problem)


def _problem_of(name: str, error: InputError, deployment: Deployment) -> str:
    """In one line, without values of the environment."""
    return masked(" ".join(str(error).split()), deployment.environment).removeprefix(_title(name))


def _title(name: str) -> str:
    return f"table '{name}': "


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
    file = write_content(deployment.checkpoint, content)
    return KeptTable(table.name, definition_of(table), file, previous, look, versions)


def write_content(checkpoint: Place, content: LookupTable) -> str:
    """Write the content of a table; returns the name of its file. It survives a power cut."""
    data, folder = content.to_bytes(), contents(checkpoint)
    place = folder / name_of_content(content.table.name, data)
    make_kept_folder(folder)
    here = writable(place)
    with new_file(here) as file:
        file.write(data)
    complete([(here, place)])
    sync(folder)
    return place.name


# How a table's own file looks, and what it says.


class _OwnFile:
    """The file of a table, or its folder if it is one of Delta; opened anew for each question.

    Raises InputError, with an OSError as its cause for what may be different at another time.
    """

    def __init__(self, name: str, file: LookupFile) -> None:
        self._title, self._file, self._path = _title(name), file, file.path
        self.refused: Look | None = None
        """How it looked when `read` refused what it says."""
        self._delta: VersionedTable | None = None
        with self._plain_errors():
            has_other_name = file.format is None and not is_table(file.path.name)
            if file.format == DELTA or (has_other_name and file.path.is_dir()):
                self._delta = VersionedTable(f"table '{name}'", file.path, file.outside_files)

    def look(self) -> Look:
        """How it looks now."""
        with self._plain_errors():
            if self._delta is None:
                found = self._path.stat()
                return found.st_size, found.st_mtime_ns
            newest = self._delta.newest()
        if newest is None:
            raise InputError(f"{self._title}{self._path} is not a Delta table: it has no folder '_delta_log'")
        version, identity = newest
        return version, crc32(identity.encode())

    def read(self, table: Table, *, is_settled: bool) -> tuple[Look, LookupTable]:
        """What it says, and how it looked; it is read again if it is changed meanwhile.

        is_settled: once nobody writes
        """
        for _ in range(_MOST_READS):
            look = self._settled() if is_settled else self.look()
            try:
                found = self._read(table, look)
            except InputError as error:
                if self._is_still(look):
                    is_different_later = isinstance(error.__cause__, OSError)
                    self.refused = None if is_different_later else look
                    raise
            else:
                if self._is_still(look):
                    return look, found
        raise self._changes()

    def _settled(self) -> Look:
        """The last look, once nobody writes: a version of a table of Delta is whole and stays."""
        look = self.look()
        if self._delta is not None:
            return look
        for _ in range(_MOST_LOOKS):
            sleep(APART)
            again = self.look()
            if again == look:
                return again
            look = again
        raise self._changes()

    def _read(self, table: Table, look: Look) -> LookupTable:
        with self._plain_errors():
            if self._delta is not None:
                needed = [field.name for field in (*table.keys, *table.fields)]
                return read_lookup_table(table, self._delta.rows(look[0], needed, VALID)).in_order()
            with local_copy(self._path) as here, _of_format(here, self._file) as named:
                return read_lookup_table(table, named)

    def _is_still(self, look: Look) -> bool:
        """Whether what a look saw is there still: a table of Delta may have newer versions."""
        again = self.look()
        return again[1] == look[1] if self._delta is not None else again == look

    def _changes(self) -> InputError:
        return InputError(f"{self._title}{self._path} is changed all the time")

    def delta_version(self, look: Look) -> int | None:
        """As `TableVersion.delta`."""
        return None if self._delta is None else look[0]

    @contextmanager
    def _plain_errors(self) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError as error:
            raise InputError(f"{self._title}{error.filename or self._path}: {reason_of(error)}") from error
        except OSError as error:
            text = f"{self._title}{error.filename or self._path}: cannot be read: {reason_of(error)}"
            raise failed(error, text) from error


def _asked_once(file: LookupFile) -> LookupFile:
    """The same file, whose store is not asked again: there is a version that holds."""
    return replace(file, path=asked_again(file.path, 0.0))


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
    """Looks from time to time whether the files of tables have changed, of a job that runs.

    A store may take long to answer, so looks are beside the job, which asks what came of them.
    """

    def __init__(self, deployment: Deployment) -> None:
        self._deployment = deployment
        self._files: Mapping[str, LookupFile] = {
            name: _asked_once(file) for name, file in deployment.tables.items() if file.refresh is not None
        }
        self._next = {name: monotonic() + _seconds(file) for name, file in self._files.items()}
        self._looks: dict[str, Future[Look]] = {}
        self._away: set[str] = set()

    def has_change(self) -> bool:
        """Whether a file differs from what was taken or refused of it last, or is there again.

        One that cannot be looked at is reported: what the job has read of it holds.
        """
        now = monotonic()
        for name in [name for name, at in self._next.items() if at <= now and name not in self._looks]:
            self._looks[name] = begun(partial(_look_at, name, self._files[name]), "ensue tables")
        done = {name: self._looks.pop(name) for name, look in list(self._looks.items()) if look.done()}
        if not done:
            return False
        self._next |= {name: now + _seconds(self._files[name]) for name in done}
        has_change, kept = False, read_tables(self._deployment.checkpoint)
        found = []
        for item in kept:
            after, differs = self._judged(item, done[item.name]) if item.name in done else (item, False)
            has_change |= differs
            found.append(after)
        if tuple(found) != kept:
            write_tables(self._deployment.checkpoint, found)
        return has_change

    def _judged(self, kept: KeptTable, looked: Future[Look]) -> tuple[KeptTable, bool]:
        """What is kept of a table then, and whether its file is to be read."""
        try:
            look = looked.result()
        except InputError as error:
            self._away.add(kept.name)
            problem = _problem_of(kept.name, error, self._deployment)
            return kept if kept.problem == problem else _with_problem(kept, None, problem), False
        is_back = kept.name in self._away
        self._away.discard(kept.name)
        return kept, is_back or look != kept.look


def _look_at(name: str, file: LookupFile) -> Look:
    return _OwnFile(name, file).look()


def _seconds(file: LookupFile) -> float:
    return (file.refresh or 0) / 1_000_000
