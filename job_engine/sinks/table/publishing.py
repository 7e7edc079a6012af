"""Delta tables as sinks, exactly once per micro-batch.

Tasks write data files into the folder of a table. Nobody sees them before the driver publishes all
of a micro-batch in one commit, with a transaction id. Matches go to one table per query, in folders
inside the sink's folder.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any
from urllib.parse import unquote

import pyarrow as pa

from job_engine import delta_log
from job_engine.delta_package import open_table, refuse_escapes, refuse_missing_package
from job_engine.delta_publishing import (
    Transaction,
    new_columns,
    opened_to_write,
    publish_files,
    refuse_mixture,
    remove_draft,
    take_out,
)
from job_engine.durable_files import remove
from job_engine.errors import writing_to
from job_engine.place import Place, RemotePath, in_same_system
from job_engine.sinks import kinds
from job_engine.sinks.kinds import Compaction, Draft, MicroBatch, Result, Sink
from job_engine.sinks.table.settings import TableSink
from job_engine.sinks.table.writing import Details, with_partitions
from querylang.errors import InputError
from querylang.printable import warn_once


class Publishing(kinds.Publishing):
    """Tables of Delta in a folder; see `kinds.Publishing`."""

    def refuse_unwritable(self, sink: Sink, parts: Mapping[str, pa.Schema]) -> None:
        """Refuse tables that results do not fit into, and folders with other files."""
        refuse_missing_package()
        own: TableSink = sink.own
        for part in sorted({part.rpartition("/")[0] for part in parts if "/" in part}.intersection(parts)):
            warn_once(
                f"{sink.folder / part}: has the tables of instances in its folder, and VACUUM of it would remove"
                " their files: give all instances a name, or say `layout: one` in a new job"
            )
        for part, schema in parts.items():
            path = sink.folder / part
            refuse_escapes(path)
            wanted = with_partitions(schema, own.partition_by, path)
            table = opened_to_write(path) if delta_log.is_table(path) else None
            if table is None:
                _refuse_other_files(path)
            else:
                delta_log.refuse_unwritable(path, table)
                new_columns(path, table, wanted, own.partition_by)

    def refuse_mixtures(self, sink: Sink, parts: Iterable[tuple[str, Sequence[pa.Schema]]]) -> None:
        """As `kinds.Publishing.refuse_mixtures`: a table has one schema."""
        for part, schemas in parts:
            refuse_mixture(sink.folder / part, schemas)

    def publish(self, batch: MicroBatch, drafts: Sequence[tuple[Sink, Sequence[Draft]]]) -> None:
        """One commit per table; what the table has already is removed."""
        for sink, own in drafts:
            found = sorted((Details.of_text(draft.details) for draft in own), key=lambda item: item.table)
            for table, group in groupby(found, key=lambda item: item.table):
                self._publish(batch, sink, in_same_system(sink.folder, table), list(group))

    def _publish(self, batch: MicroBatch, sink: Sink, table: Place, found: Sequence[Details]) -> None:
        transaction = Transaction(delta_log.application(batch.identity), batch.number)
        one_of_each = {item.schema: item for item in found}
        schemas = [item.columns for item in one_of_each.values()]
        own: TableSink = sink.own
        schema = with_partitions(_united(table, schemas), own.partition_by, table)
        with writing_to(table):
            publish_files(table, [item.file for item in found], transaction, schema, own.partition_by)

    def results(self, sink: Sink) -> Iterator[Result]:
        """The last micro-batch of each checkpoint in each table."""
        for table in delta_log.tables_below(sink.folder):
            for name, version in sorted(delta_log.transactions(table).items()):
                identity = delta_log.identity_of(name)
                if identity is not None:
                    yield Result(identity, version, f"micro-batch {version} in the Delta table {table}")

    def remove_leftovers(self, sink: Sink, batch: MicroBatch, written: Collection[str]) -> None:  # noqa: ARG002
        """Remove commits that are not whole, and data files that the micro-batch's commit lacks.

        Where the log does not tell, data files stay; VACUUM removes them.
        """
        application = delta_log.application(batch.identity)
        for table in delta_log.tables_below(sink.folder.resolve()):
            remove_draft(table, application)
            begin = f"{table}/"
            files = delta_log.files_of_table(table)
            left = [file for file in files if file.name.startswith(batch.name) and file.suffix == ".parquet"]
            if not left:
                continue
            committed = delta_log.committed_files(table, application, batch.number)
            if committed is None:
                continue
            remove([file for file in left if str(file).removeprefix(begin) not in committed])

    def table_of_one_query(self, sink: Sink) -> Place | None:
        """A table inside the sink's folder."""
        return next((table for table in delta_log.tables_below(sink.folder) if table != sink.folder), None)

    def rows(self, sink: Sink, folder: Place) -> Iterator[dict[str, Any]]:  # noqa: ARG002
        """The rows of a query's table, and of those of its instances below it."""
        for path in delta_log.tables_below(folder):
            table = open_table(path)
            assert table is not None, "its log was found"
            _refuse_outside_files(path, pa.table(table.get_add_actions()).column("path").to_pylist())
            yield from table.to_pyarrow_table().to_pylist(maps_as_pydicts="lossy")

    def removable(self, name: str, sink: Sink, results: Sequence[Result], last: int) -> list[Place]:
        """The data files; raises InputError where the log does not tell, or others merged some."""
        own = delta_log.application(results[0].identity)
        found = list[Place]()
        for table, added in _behind(sink, own, last):
            why = _irremovable(table, added)
            if why is not None:
                raise InputError(
                    f"the sink '{name}' has results of micro-batch {results[-1].batch}, and the backup ends with {last}:"
                    f" they cannot be removed from {table}, {why}: choose a new one, and restore again"
                )
            found += [in_same_system(table, unquote(add["path"])) for add in added or ()]
        return found

    def remove(self, sink: Sink, files: Sequence[Place], identity: str, last: int) -> None:  # noqa: ARG002
        """Take them out of the tables, in one commit each; VACUUM removes the files themselves."""
        transaction = Transaction(delta_log.application(identity), last)
        for table, added in _behind(sink, transaction.application, last):
            if added is not None:
                take_out(table, added, transaction)

    def compact(self, sink: Sink, compaction: Compaction) -> str:  # noqa: ARG002
        """As `kinds.Publishing.compact`."""
        return "is in Delta tables: their OPTIMIZE compacts them"


PUBLISHING = Publishing()


def _behind(sink: Sink, application: str, last: int) -> Iterator[tuple[Place, list[Mapping[str, Any]] | None]]:
    """Tables with transactions behind `last`, and the data files of these; as of `added_behind`."""
    for table in delta_log.tables_below(sink.folder):
        if delta_log.transactions(table).get(application, last) > last:
            yield table, delta_log.added_behind(table, application, last)


def _irremovable(table: Place, added: Sequence[Mapping[str, Any]] | None) -> str | None:
    """Why a commit cannot take these files out of a table; None = it can."""
    if isinstance(table, RemotePath):
        return "which is in a store"
    if added is None:
        return "whose log no longer has all commits since then"
    opened = opened_to_write(table)
    assert opened is not None, "its log was found"
    delta_log.refuse_unwritable(table, opened)
    if opened.metadata().configuration.get("delta.appendOnly") == "true":
        return "which is only appended to (`delta.appendOnly`)"
    present = {unquote(path) for path in pa.table(opened.get_add_actions()).column("path").to_pylist()}
    if not {unquote(add["path"]) for add in added} <= present:
        return "where another writer has merged or deleted them"
    return None


def _united(table: Place, schemas: Sequence[pa.Schema]) -> pa.Schema:
    """The columns of all files; raises InputError if types of one name differ."""
    try:
        return pa.unify_schemas(schemas)
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise InputError(
            f"{table}: matches of two texts of a query do not fit into one Delta table: {error}"
        ) from error


def _refuse_outside_files(folder: Place, paths: Sequence[str]) -> None:
    """Results of a job are in its folders: a log that names others is not that of a job."""
    for path in map(unquote, paths):
        if not delta_log.is_below(path):
            raise InputError(f"{folder}: its log names a data file outside of the table: {path!r}")


def _refuse_other_files(path: Place) -> None:
    if not path.is_dir():
        return
    others = sorted(item.name for item in path.iterdir() if item.is_file() and not item.name.startswith((".", "_")))
    foreign = [name for name in others if not _is_ours(name)]
    if foreign:
        raise InputError(f"{path}: holds files such as '{foreign[0]}', and is not a Delta table; choose another folder")


def _is_ours(name: str) -> bool:
    """Whether it is a data file of a run that was killed before its first commit."""
    return re.fullmatch(r"[0-9a-f]{12}-[0-9]{8,18}-[0-9]{5,}-[0-9a-f]{8}\.parquet", name) is not None
