"""Delta tables as sinks, exactly once per micro-batch.

Tasks write data files into the folder of a table. Nobody sees them before the driver publishes all
of a micro-batch in one commit, with a transaction id. Matches go to one table per query, in folders
inside the sink's folder.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import PurePosixPath

import pyarrow as pa

from querylang.errors import InputError
from spark_backend.delta.commit_log import is_table, tables_below
from spark_backend.delta.features import refuse_unwritable
from spark_backend.delta.package import open_table, refuse_missing_package
from spark_backend.delta.publishing import Transaction, publish_files
from spark_backend.delta.table_schemas import new_columns
from spark_backend.delta.transactions import application, committed_files, identity_of, transactions
from spark_backend.errors import unwritable
from spark_backend.places.place import Place, files_below, in_same_system
from spark_backend.sinks.delta_files import DeltaWriter, Details, with_partitions
from spark_backend.sinks.formats import Draft, Result, Sink, SinkFormat


class DeltaTables:
    """Tables of Delta in a folder; see `SinkFormat`."""

    def refuse_unwritable(self, sink: Sink, parts: Mapping[str, pa.Schema]) -> None:
        """Refuse tables that results do not fit into, and folders with other files."""
        refuse_missing_package()
        for part, schema in parts.items():
            path = sink.path / part
            wanted = with_partitions(schema, sink.partition_by, path)
            table = open_table(path) if is_table(path) else None
            if table is None:
                _refuse_other_files(path)
            else:
                refuse_unwritable(path, table)
                new_columns(path, table, wanted, sink.partition_by)

    def open(self, sink: Sink, batch: str, task: int, attempt: int) -> DeltaWriter:  # noqa: ARG002
        """A writer of data files. Their names are new: a commit may have the older ones."""
        return DeltaWriter(sink, f"{batch}{task:05d}")

    def publish(self, batch: str, drafts: Sequence[tuple[Sink, Sequence[Draft]]]) -> None:  # noqa: ARG002
        """One commit per table; what the table has already is removed."""
        for sink, own in drafts:
            found = sorted((Details.of_text(draft.details) for draft in own), key=lambda item: item.table)
            for table, group in groupby(found, key=lambda item: item.table):
                self._publish(sink, in_same_system(sink.path, table), list(group))

    def _publish(self, sink: Sink, table: Place, found: Sequence[Details]) -> None:
        files = [item.file for item in found]
        identity, batch, *_ = PurePosixPath(files[0].path).name.split("-")
        transaction = Transaction(application(identity), int(batch))
        one_of_each = {item.schema: item for item in found}
        schemas = [item.columns for item in one_of_each.values()]
        schema = with_partitions(_united(table, schemas), sink.partition_by, table)
        try:
            publish_files(table, files, transaction, schema, sink.partition_by)
        except OSError as error:
            raise unwritable(table, error) from error

    def results(self, sink: Sink) -> Iterator[Result]:
        """The last micro-batch of each checkpoint in each table; see `SinkFormat`."""
        for table in tables_below(sink.path):
            for name, version in sorted(transactions(table).items()):
                identity = identity_of(name)
                if identity is not None:
                    yield Result(identity, version, f"micro-batch {version} in the Delta table {table}")

    def remove_leftovers(self, sink: Sink, batch: str, written: Collection[str]) -> None:  # noqa: ARG002
        """Remove data files of the micro-batch that its commit does not have.

        Where the log does not tell, they stay; VACUUM removes them.
        """
        identity, number, *_ = batch.split("-")
        for table in tables_below(sink.path.resolve()):
            begin = f"{table}/"
            left = [file for file in files_below(table) if file.name.startswith(batch) and file.suffix == ".parquet"]
            if not left:
                continue
            committed = committed_files(table, application(identity), int(number))
            if committed is None:
                continue
            for file in left:
                if str(file).removeprefix(begin) not in committed:
                    file.unlink(missing_ok=True)


def _united(table: Place, schemas: Sequence[pa.Schema]) -> pa.Schema:
    """The columns of all files; raises InputError if types of one name differ."""
    try:
        return pa.unify_schemas(schemas)
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise InputError(
            f"{table}: matches of two texts of a query do not fit into one Delta table: {error}"
        ) from error


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


FORMATS: Mapping[str, SinkFormat] = {"delta": DeltaTables()}
