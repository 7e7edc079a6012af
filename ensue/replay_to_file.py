"""Replay event tables into one file: matches in pieces, however large the tables are."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import BinaryIO, Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet

from ensue.background import compile_for_next_time
from ensue.changing import asks_for_changes
from ensue.data_options import DataOptions, read_parameters, stop_time
from ensue.embedded import idle_queries
from ensue.plans import as_tables, fitted
from ensue.queries import Queries, load
from ensue.rendering.match_tables import own_matches
from job_engine.durable_files import RESULT, new_file
from querylang.dataclass import dataclass, field
from querylang.errors import InputError
from querylang.parameters import with_instances
from querylang.plan.model import Plan, QueryPlan
from querylang.printable import json_text
from querylang.system_errors import refused
from querylang.system_limits import exists, is_folder
from runtime import replay
from runtime.engine import Engine
from runtime.matching.choose import slow_queries
from runtime.policies.plan_policies import parse_orderings
from runtime.policies.settings_text import parse_forget_keys, with_forget_keys
from runtime.results import for_users
from runtime.results.ledger import late_warning
from runtime.results.schemas import Results, in_order, match_schema, matches_in_order
from runtime.threads import thread_count

_MOST_UNKNOWN = 100
_MOST_UNREADABLE = 5

Progress = Callable[[int], None]
"""Is called with how many records have been processed."""


@dataclass(slots=True)
class Written:
    """What a replay has found, beside the matches in its file.

    rows: records that were processed
    matches, outputs: how many there were
    discarded: how many records were discarded, by reason
    unreadable: source and text of the first rows that could not be read
    unknown: the first event types that no query knows
    ledger: the accounts
    waiting: how many matches wait at the end
    next_due: when the next of them is due, µs; None = none waits
    warnings: what is suspicious in the tables, a line each
    idle: queries without an instance
    """

    rows: int = 0
    matches: int = 0
    outputs: int = 0
    discarded: Counter[str] = field(default_factory=Counter)
    unreadable: list[tuple[str, str]] = field(default_factory=list)
    unknown: dict[str, None] = field(default_factory=dict)
    ledger: pa.Table | None = None
    waiting: int = 0
    next_due: int | None = None
    warnings: Sequence[str] = ()
    idle: Sequence[QueryPlan] = ()

    @property
    def unknown_types(self) -> Sequence[str]:
        """The event types of the records; none if the queries know one."""
        lost = self.discarded["malformed"] + self.discarded["unknown_type"]
        return list(self.unknown) if lost == self.rows else ()

    def add(self, results: Results) -> None:
        """Counts the results of a call, and keeps the texts of the first unreadable rows."""
        self.matches += sum(map(len, results.matches.values()))
        self.outputs += len(results.outputs)
        if results.discarded is None or not len(results.discarded):
            return
        self.discarded.update(results.discarded.column("reason").to_pylist())
        rows = results.discarded.select(["reason", "source", "text"]).to_pylist()
        for row in rows:
            if row["reason"] == "unknown_type" and len(self.unknown) < _MOST_UNKNOWN:
                self.unknown[row["text"]] = None
        malformed = [(row["source"], row["text"]) for row in rows if row["reason"] == "malformed"]
        self.unreadable += malformed[: _MOST_UNREADABLE - len(self.unreadable)]


def replay_to_file(
    queries: Queries | Path,
    events: Sequence[Path],
    options: DataOptions,
    out: Path,
    *,
    until: str | None = None,
    flush: bool = True,
    progress: Progress | None = None,
    tell_slow: Callable[[Sequence[str]], None] | None = None,
) -> Written:
    """Run queries over files, and write the matches to a new file. Raises InputError, QueryErrors.

    tell_slow: is called before the first row with a line for each query on the reference matcher

    Files that are not sorted by arrival are read a second time, and sorted beside the new file.
    """
    refuse_bad_path(out)
    loaded, paths = load(queries), [Path(path) for path in as_tables(list(events))]
    stop = stop_time(until)
    ready = fitted(loaded, paths, options.columns)
    template = ready.template
    orderings = parse_orderings(options.ordering)
    instances = with_instances(template, read_parameters(options.parameters))
    files = replay.files_to_read(paths, instances, ready.columns, orderings)
    plan = replay.plan_for_files(paths, instances, ready.columns, orderings)
    plan = options.lookup_tables.bound(with_forget_keys(plan, parse_forget_keys(options.forget_keys)))
    refuse_several_queries(out, plan)
    if tell_slow is not None:
        tell_slow(slow_queries(plan, replay.about_rows_of(file.path for file in files)))
    run = _Run(plan, files, out, stop, flush=flush, progress=progress)
    try:
        written = run.with_pieces(replay.Reading.sorted_pieces)
    except replay.NotSortedError:
        parent, name = out.parent, f".{out.name}."
        with TemporaryDirectory(".runs", name, parent) as folder, held(Path(folder)):
            written = run.with_pieces(lambda reading: reading.pieces_by_runs(Path(folder)))
    compile_for_next_time()
    written.idle = idle_queries(template, plan)
    return written


@dataclass(frozen=True, slots=True)
class _Run:
    plan: Plan
    files: Sequence[replay.FileToRead]
    out: Path
    until: int | None
    flush: bool
    progress: Progress | None

    def with_pieces(self, pieces_of: Callable[[replay.Reading], Iterator[pa.Table]]) -> Written:
        reading, written, engine = replay.Reading(self.files), Written(), Engine(self.plan)

        def report(rows: int) -> None:
            written.rows = rows
            if self.progress is not None:
                self.progress(rows)

        with match_file(self.out, self.plan, reading.row_of) as file:
            pieces = replay.arrived_by(pieces_of(reading), self.until)
            for results in replay.replay_calls(engine, pieces, until=self.until, flush=self.flush, progress=report):
                if asks_for_changes(results):
                    raise InputError("control events change the queries in these tables; replay them without --out")
                ordered = in_order(self.plan, results)
                file.write(ordered)
                written.add(ordered)
        written.waiting, written.next_due = engine.waiting()
        written.ledger = engine.ledger()
        late = late_warning(written.ledger)
        written.warnings = (*reading.warnings, *([] if late is None else [late]))
        return written


# Matches as a file, written in pieces: Parquet, CSV or JSON lines, as the file's name says.


class MatchFile(Protocol):
    """A file that is being written."""

    def write(self, results: Results) -> None:
        """Append the matches of a call of the engine; they are in order."""

    def close(self) -> None:
        """Write the end of the file."""


class _Parquet:
    """The matches as the engine has them: a struct for the key and for each event.

    Parquet has no structs without fields: a query without keys has no `key`, one without names no
    `members`, and an event without fields no `fields`.
    """

    def __init__(self, file: BinaryIO, plan: Plan, _row_of: for_users.RowOf) -> None:
        nothing = for_users.without_order_columns(match_schema(plan, plan.queries[0]).empty_table())
        self._schema = for_users.without_empty_structs(nothing).schema
        self._writer = pa.parquet.ParquetWriter(file, self._schema, **for_users.parquet_settings(self._schema))
        self._plan = plan

    def write(self, results: Results) -> None:
        table = _in_one(self._plan, results)
        if table is not None:
            self._writer.write_table(for_users.without_empty_structs(table))

    def close(self) -> None:
        self._writer.close()


class _Csv:
    """A column for each field of each event."""

    def __init__(self, file: BinaryIO, plan: Plan, row_of: for_users.RowOf) -> None:
        self._plan, self._row_of = plan, row_of
        nothing = csv_matches(
            for_users.without_order_columns(match_schema(plan, plan.queries[0]).empty_table()), row_of
        )
        self._writer = pa.csv.CSVWriter(file, nothing.schema)

    def write(self, results: Results) -> None:
        table = _in_one(self._plan, results)
        if table is not None:
            self._writer.write_table(csv_matches(table, self._row_of))

    def close(self) -> None:
        self._writer.close()


class _JsonLines:
    """The objects of `--format matches`, one a line."""

    def __init__(self, file: BinaryIO, plan: Plan, row_of: for_users.RowOf) -> None:
        self._file, self._plan, self._plain = file, plan, for_users.PlainMatches(row_of)

    def write(self, results: Results) -> None:
        plain = self._plain.of(results)
        lines = [f"{json_text(plain[name][row])}\n" for name, row in matches_in_order(self._plan, results)]
        self._file.write("".join(lines).encode())

    def close(self) -> None:
        """Every line is complete."""


class _Beside:
    """Writes the matches of one call while the next ones are found."""

    def __init__(self, file: MatchFile) -> None:
        self._file, self._pool = file, ThreadPoolExecutor(1)
        self._written: Future[None] | None = None

    def write(self, results: Results) -> None:
        self._wait()
        self._written = self._pool.submit(self._file.write, results)

    def close(self) -> None:
        try:
            self._wait()
        finally:
            self._pool.shutdown()
            self._file.close()

    def _wait(self) -> None:
        """Raises what the last writing has raised, once."""
        written, self._written = self._written, None
        if written is not None:
            written.result()


_FORMATS: Mapping[str, Callable[[BinaryIO, Plan, for_users.RowOf], MatchFile]] = {
    ".parquet": _Parquet,
    ".csv": _Csv,
    ".jsonl": _JsonLines,
    ".ndjson": _JsonLines,
}


def refuse_bad_path(path: Path) -> None:
    """Raise InputError for a path that cannot become a file of matches."""
    if path.suffix.lower() not in _FORMATS:
        found = f"unknown format {path.suffix}" if path.suffix else "no suffix that names a format"
        raise InputError(f"{path}: {found}; matches are written as {' '.join(_FORMATS)}")
    if exists(path):
        raise InputError(f"{path}: exists already; matches are written to a new file")
    if not is_folder(path.parent):
        raise InputError(f"{path}: there is no folder {path.parent}")


def refuse_several_queries(path: Path, plan: Plan) -> None:
    """Raise InputError if the format has one set of columns, and the queries have several."""
    if path.suffix.lower() in {".jsonl", ".ndjson"}:
        return
    names = list(dict.fromkeys(query.name for query in plan.queries))
    if len(names) != 1:
        found = f"{len(names)} queries ({', '.join(names[:5])}) have" if names else "no query has"
        raise InputError(f"{path}: {found} matches of their own columns; write them as .jsonl, or replay one query")


@contextmanager
def match_file(path: Path, plan: Plan, row_of: for_users.RowOf) -> Iterator[MatchFile]:
    """A new file of matches. It appears when it is complete, and not at all if something fails."""
    draft = path.with_name(f".{path.name}.{os.getpid()}.draft")
    try:
        remove_left_over(path)
        with new_file(draft, RESULT) as file, held(draft):
            writer = _FORMATS[path.suffix.lower()](file, plan, row_of)
            writer = writer if thread_count() == 1 else _Beside(writer)
            try:
                yield writer
            finally:
                writer.close()
        refuse_bad_path(path)  # somebody else may have made one meanwhile
        draft.replace(path)
    except OSError as error:
        raise refused(error, f"{path}: cannot be written") from None
    finally:
        with suppress(OSError):
            draft.unlink(missing_ok=True)


def _in_one(plan: Plan, results: Results) -> pa.Table | None:
    """The matches of all instances of a query, in order; None = there are none."""
    return own_matches(plan, results, plan.queries[0].name) if results.matches else None


# Matches as CSV can hold them: a column for each part of the key and each field.


def csv_matches(matches: pa.Table, row_of: for_users.RowOf) -> pa.Table:
    """The matches of one query, flat. Moments are text as in JSON, lists and objects are JSON."""
    flat = for_users.flat_matches(matches, row_of)
    return pa.table([_plain(column.combine_chunks()) for column in flat.columns], names=flat.column_names)


def _plain(column: pa.Array) -> pa.Array:
    """The cells as CSV can hold them."""
    kind = column.type
    if pa.types.is_timestamp(kind):
        return pc.replace_substring(pc.cast(column, pa.string()), " ", "T", max_replacements=1)
    if pa.types.is_nested(kind):
        texts = [
            None if cell is None else json_text(for_users.plain_value(cell)) for cell in for_users.column_cells(column)
        ]
        return pa.array(texts, pa.string())
    return column


# What a process that was killed has left beside the file that it was to write.
#
# It may be as large as that file, and nobody would look for it: its name begins with a point.

YOUNGEST = 60.0
"""Seconds. What is younger may belong to a process that is about to say that it needs it."""


@contextmanager
def held(place: Path) -> Iterator[None]:
    """Says that this process needs a file or folder: others do not remove it meanwhile."""
    handle = os.open(place, os.O_RDONLY | os.O_CLOEXEC)
    try:
        with suppress(OSError):  # where there are no locks, nothing is removed
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        yield
    finally:
        os.close(handle)


def remove_left_over(path: Path) -> None:
    """Remove drafts and folders for a file, unless a process needs them."""
    names = re.compile(rf"\.{re.escape(path.name)}\.(\d+\.draft|\w+\.runs)")
    for place in [place for place in path.parent.iterdir() if names.fullmatch(place.name)]:
        with suppress(OSError):
            if time.time() - place.stat().st_mtime > YOUNGEST:
                _remove_if_not_held(place)


def _remove_if_not_held(place: Path) -> None:
    """Raises OSError if a process needs it."""
    handle = os.open(place, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if place.is_dir():
            shutil.rmtree(place)
        else:
            place.unlink()
    finally:
        os.close(handle)
