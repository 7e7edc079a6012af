"""Publish data files in a Delta table: one commit with a transaction id, or none if it is there.

Readers see all files of a commit or none. The id names the checkpoint and the micro-batch, so a
micro-batch that is repeated after a crash is committed once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote

import pyarrow as pa

from job_engine.chance import any_length
from job_engine.clock import sleep, wall_seconds
from job_engine.delta.commit_log import LOG, commit_file
from job_engine.delta.features import refuse_unwritable
from job_engine.delta.package import delta_errors, open_table
from job_engine.delta.store_access import store_settings, table_uri
from job_engine.delta.table_schemas import new_columns
from job_engine.delta.transactions import committed_files
from job_engine.durable_files import make_folder, sync
from job_engine.places.place import Place, retry_of
from job_engine.places.remote_path import RemotePath
from job_engine.retrying import Outage
from querylang.errors import InputError
from querylang.logger import warn

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from deltalake.transaction import AddAction

ATTEMPTS = 20
"""So often a commit is tried that other writers were faster than, or that changes of theirs met."""

CHECKPOINT_EVERY = 100
"""Commits between two checkpoints of the log, unless the table says otherwise."""

SETTINGS = {"delta.logRetentionDuration": "interval 1 days"}
"""Of tables that are made here: with a commit per second, 30 days of log are 2.6 million files."""


@dataclass(frozen=True, slots=True)
class DataFile:
    """A data file that is complete.

    path: below the table's folder
    size: in bytes
    partition: values by partition column, as the log has them; None = null
    statistics: as JSON text
    """

    path: str
    size: int
    partition: Mapping[str, str | None]
    statistics: str


@dataclass(frozen=True, slots=True)
class Transaction:
    """What is committed once: the application's name and a version, which only grows."""

    application: str
    version: int


def publish_files(
    path: Place, files: Sequence[DataFile], transaction: Transaction, schema: pa.Schema, partition_by: Sequence[str]
) -> bool:
    """Commit files to the table in a folder, which is made if there is none.

    schema: of the files, with the columns of partitions

    Gives False if the transaction is in the table already. Then files that it does not have are
    removed: a store may have lost its answer to the commit that has them. Raises InputError, and
    OSError of a store.
    """
    adds = [_add(file) for file in files]
    outage = Outage(retry_of(path) or 0.0, warn)
    attempt = 0
    while attempt < ATTEMPTS:
        table = open_table(path)
        if table is not None and _has(table, transaction):
            outage.over(_store_of(path))
            _remove_others(path, files, transaction)
            return False
        try:
            with delta_errors(path):
                version = _tried(path, table, adds, transaction, schema, partition_by)
        except ConnectionError as problem:
            outage.wait_for_store(problem)  # not an attempt: nobody was faster
            continue
        outage.over(_store_of(path))
        if version is not None:
            _sync_log(path, version)
            return True
        sleep(any_length(0.05 * 2 ** min(attempt, 5)))  # writers that meet once shall not again
        attempt += 1
    raise InputError(f"{path}: other writers have changed the Delta table during each of {ATTEMPTS} commits; try again")


def _store_of(path: Place) -> str:
    return path.root if isinstance(path, RemotePath) else str(path)


def _tried(
    path: Place,
    table: DeltaTable | None,
    adds: list[AddAction],
    transaction: Transaction,
    schema: pa.Schema,
    partition_by: Sequence[str],
) -> int | None:
    """The version that the commit has at least; None = another writer was faster."""
    from deltalake import CommitProperties, PostCommitHookProperties, Schema
    from deltalake import Transaction as Id
    from deltalake.exceptions import CommitFailedError, DeltaError
    from deltalake.transaction import create_table_with_add_actions

    ids = CommitProperties(app_transactions=[Id(transaction.application, transaction.version)])
    if table is None:
        make_folder(path)
        try:
            create_table_with_add_actions(
                table_uri(path),
                Schema.from_arrow(schema),
                adds,
                partition_by=list(partition_by),
                configuration=SETTINGS,
                commit_properties=ids,
                storage_options=store_settings(path),
            )
        except DeltaError:
            if open_table(path) is None:
                raise
            return None
        return 0
    is_due = _is_checkpoint_due(table)
    hooks = PostCommitHookProperties(create_checkpoint=is_due, cleanup_expired_logs=None if is_due else False)
    try:
        fit_table(path, table, schema, partition_by)
        table.create_write_transaction(
            actions=list(adds),
            mode="append",
            schema=table.schema(),
            partition_by=list(partition_by),
            commit_properties=ids,
            post_commithook_properties=hooks,
        )
    except CommitFailedError:
        newest = open_table(path)
        if newest is not None and newest.version() == table.version():
            raise  # nobody was faster: the next attempt would end like this one
        return None
    return int(table.version()) + 1


def _is_checkpoint_due(table: DeltaTable) -> bool:
    """Whether the next commit is followed by a checkpoint. Looking for that doubles its time."""
    every = table.metadata().configuration.get("delta.checkpointInterval", "")
    return (table.version() + 2) % (int(every) if every.isdigit() and int(every) else CHECKPOINT_EVERY) == 0


def _sync_log(path: Place, version: int) -> None:
    """Sync the commits from a version on: after a power cut the files must not be empty."""
    if isinstance(path, RemotePath):
        return  # what a store has accepted survives
    while commit_file(path, version).exists():
        sync(commit_file(path, version))
        version += 1
    sync(path / LOG)
    sync(path)


def fit_table(path: Place, table: DeltaTable, schema: pa.Schema, partition_by: Sequence[str]) -> None:
    """Add the columns that a table does not have yet; raises InputError if it cannot be written."""
    refuse_unwritable(path, table)
    missing = new_columns(path, table, schema, partition_by)
    if missing:
        from deltalake import Schema

        fields = [field for field in Schema.from_arrow(schema).fields if field.name in missing]
        table.alter.add_columns(fields)
        table.update_incremental()


def _remove_others(path: Place, files: Sequence[DataFile], transaction: Transaction) -> None:
    """Remove files that the transaction's commit does not have; all stay if it is not known."""
    committed = committed_files(path, transaction.application, transaction.version)
    for file in files if committed is not None else ():
        if file.path not in (committed or ()):
            (path / file.path).unlink(missing_ok=True)


def _has(table: DeltaTable, transaction: Transaction) -> bool:
    version = table.transaction_version(transaction.application)
    return version is not None and version >= transaction.version


def _add(file: DataFile) -> AddAction:
    from deltalake.transaction import AddAction

    return AddAction(
        quote(file.path, safe="/="),
        file.size,
        file.partition,
        int(wall_seconds() * 1000),
        data_change=True,
        stats=file.statistics,
    )
