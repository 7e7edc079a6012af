"""Publish data files in a Delta table: one commit with a transaction id, or none if it is there.

Readers see all files of a commit or none. The id names the checkpoint and the micro-batch, so a
micro-batch that is repeated after a crash is committed once.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from itertools import combinations
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq

from job_engine.chance import any_length, new_guid
from job_engine.clock import sleep, wall_seconds
from job_engine.delta_log import (
    LAST_CHECKPOINT,
    LOG,
    checkpoint_files,
    commit_file,
    committed_files,
    fields_of,
    fields_of_text,
    refuse_unwritable,
    without_part,
)
from job_engine.delta_package import delta_errors, open_table, store_settings, table_uri
from job_engine.durable_files import create_durably, make_folder, remove, sync
from job_engine.errors import Outage
from job_engine.local_path import LocalPath
from job_engine.place import Place, RemotePath, retry_of
from querylang.dataclass import dataclass
from querylang.errors import InputError, PassingError, listed
from querylang.printable import warn

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from deltalake.transaction import AddAction


# Statistics of a data file for a Delta table's log, from the footer of the Parquet file.
#
# Readers leave out files by them. So a bound that is not certain is left out: those of floats,
# where NaN is not part of them, and those of long text.

INDEXED = 32
"""Columns with statistics: the first so many, as other writers do by default."""

_LONGEST = 32
"""Characters of text that is a bound."""

_MILLISECOND = timedelta(milliseconds=1)


def file_statistics(metadata: pq.FileMetaData, schema: pa.Schema) -> str:
    """The statistics as JSON text."""
    found: dict[str, Any] = {"numRecords": metadata.num_rows, "minValues": {}, "maxValues": {}, "nullCount": {}}
    places = {metadata.schema.column(number).path: number for number in range(metadata.num_columns)}
    for path in list(_leaves(schema))[:INDEXED]:
        number = places.get(".".join(path))
        if number is None or any("." in name for name in path):
            continue
        groups = [metadata.row_group(group).column(number).statistics for group in range(metadata.num_row_groups)]
        if all(group is not None and group.has_null_count for group in groups):
            _put(found["nullCount"], path, sum(group.null_count for group in groups))
        bounds = [group for group in groups if group is not None and group.has_min_max]
        if bounds and len(bounds) == len([group for group in groups if group is None or group.num_values]):
            _put(found["minValues"], path, _bound(min(group.min for group in bounds), is_most=False))
            _put(found["maxValues"], path, _bound(max(group.max for group in bounds), is_most=True))
    return json.dumps(found)


def _leaves(fields: Any, above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The columns that are stored by themselves and not in lists or maps."""
    for field in fields:
        path = (*above, field.name)
        if pa.types.is_struct(field.type):
            yield from _leaves(field.type, path)
        elif not pa.types.is_nested(field.type):
            yield path


def _put(tree: dict[str, Any], path: Sequence[str], value: Any) -> None:
    if value is not None:
        for name in path[:-1]:
            tree = tree.setdefault(name, {})
        tree[path[-1]] = value


def _bound(value: object, *, is_most: bool) -> object:
    """A bound as the log has it; None = it is not certain, or has no use."""
    match value:
        case bool() | float():
            return None
        case int():
            return value
        case str() if len(value) <= _LONGEST:
            return value
        case str():
            return None if is_most else value[:_LONGEST]
        case datetime():
            return _moment(value, is_most=is_most)
        case date():
            return value.isoformat()
        case _:
            return None


def _moment(value: datetime, *, is_most: bool) -> str | None:
    """Milliseconds: rounded so that the bound holds."""
    moment = value if value.tzinfo is None else value.astimezone(UTC)
    if is_most and moment.microsecond % 1000:
        if moment.replace(tzinfo=None) > datetime.max - _MILLISECOND:  # noqa: DTZ901 # only compared
            return None
        moment += _MILLISECOND
    return moment.replace(tzinfo=None).isoformat(timespec="milliseconds") + ("Z" if value.tzinfo is not None else "")


# Whether results fit into a Delta table that exists: its columns, types and partitions.


def new_columns(path: Place, table: DeltaTable, wanted: pa.Schema, partition_by: Sequence[str]) -> list[str]:
    """The columns that the table does not have yet; raises InputError if it does not fit.

    wanted: the columns of the results, those of partitions too
    """
    from deltalake import Schema

    before = list(table.metadata().partition_columns)
    if before != list(partition_by):
        raise InputError(f"{path}: the Delta table is partitioned {_by(before)}, and the sink {_by(partition_by)}")
    present = {field["name"]: field for field in fields_of(table)}
    ours = {field["name"]: field for field in fields_of_text(Schema.from_arrow(wanted).to_json())}
    mistakes = [
        f"column '{name}' is {_shown(present[name]['type'])}, and would be {_shown(field['type'])}"
        for name, field in ours.items()
        if name in present and not _fits(field["type"], present[name]["type"])
    ]
    mistakes += [
        f"column '{name}' must not be null" for name, field in present.items() if not field.get("nullable", True)
    ]
    folded = {name.casefold(): name for name in present}
    mistakes += [
        f"column '{name}' would be there beside '{folded[name.casefold()]}'"
        for name in ours
        if name not in present and name.casefold() in folded
    ]
    if mistakes:
        raise InputError(f"{path}: the Delta table has another schema: {'; '.join(mistakes)}. Choose another folder")
    return [name for name in ours if name not in present]


def refuse_mixture(path: Place, schemas: Sequence[pa.Schema]) -> None:
    """Raise InputError if a new table could not have results of all these schemas."""
    from deltalake import Schema

    texts = [{field["name"]: field for field in fields_of_text(Schema.from_arrow(own).to_json())} for own in schemas]
    for one, other in combinations(texts, 2):
        for name in sorted(one.keys() & other.keys()):
            own, new = one[name]["type"], other[name]["type"]
            if not (_fits(own, new) and _fits(new, own)):
                raise InputError(
                    f"{path}: matches of two texts of the query do not fit into one Delta table: column '{name}' is"
                    f" {_shown(own)} in one and {_shown(new)} in the other: deploy it under another name"
                )


def _by(columns: Sequence[str]) -> str:
    return f"by {listed(list(columns))}" if columns else "by nothing"


def _fits(ours: Any, present: Any) -> bool:
    """Whether values of our type fit the column's; a struct there may have more fields."""
    if isinstance(ours, str) or isinstance(present, str):
        return bool(ours == present)
    if ours["type"] != present["type"]:
        return False
    match ours["type"]:
        case "struct":
            fields = {field["name"]: field["type"] for field in present["fields"]}
            return all(
                field["name"] in fields and _fits(field["type"], fields[field["name"]]) for field in ours["fields"]
            )
        case "array":
            return _fits(ours["elementType"], present["elementType"])
        case _:
            return _fits(ours["keyType"], present["keyType"]) and _fits(ours["valueType"], present["valueType"])


def _shown(type_: Any) -> str:
    """A type in few words: those of the fields of structs too."""
    if isinstance(type_, str):
        return type_
    match type_["type"]:
        case "struct":
            fields = [f"{field['name']}: {_shown(field['type'])}" for field in type_["fields"]]
            return f"struct<{', '.join(fields)}>"
        case "array":
            return f"array<{_shown(type_['elementType'])}>"
        case _:
            return f"map<{_shown(type_['keyType'])}, {_shown(type_['valueType'])}>"


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
    outage = Outage(retry_of(path) or 0.0, warn)
    attempt = 0
    while attempt < ATTEMPTS:
        table = opened_to_write(path)
        try:
            with delta_errors(path):
                is_there = table is not None and _has(table, transaction)
                is_done = is_there is False and _tried(path, table, files, transaction, schema, partition_by)
        except ConnectionError as problem:
            outage.wait_for_store(problem)  # not an attempt: nobody was faster
            continue
        outage.over(_store_of(path))
        if is_there:
            _remove_others(path, files, transaction)
            return False
        if is_done:
            return True
        sleep(any_length(0.05 * 2 ** min(attempt, 5)))  # writers that meet once shall not again
        attempt += 1
    raise _too_many(path)


def _too_many(path: Place) -> PassingError:
    return PassingError(
        f"{path}: other writers have changed the Delta table during each of {ATTEMPTS} commits; try again"
    )


def _store_of(path: Place) -> str:
    return path.root if isinstance(path, RemotePath) else str(path)


def _tried(
    path: Place,
    table: DeltaTable | None,
    files: Sequence[DataFile],
    transaction: Transaction,
    schema: pa.Schema,
    partition_by: Sequence[str],
) -> bool:
    """Commit; False = another writer was faster."""
    if isinstance(path, RemotePath):
        return _committed_in_store(path, table, [_add(file) for file in files], transaction, schema, partition_by)
    if not _committed(path, table, files, transaction, schema, partition_by):
        return False
    version, settings = (0, SETTINGS) if table is None else (table.version() + 1, table.metadata().configuration)
    if _is_checkpoint_due(version, settings):
        _shorten_log(path, settings)
    return True


# Commits in local folders are written here: those of the package are not synced. A power cut would
# leave parts of them. Then nobody can read the table, or it has rows without their transaction.


def _committed(
    path: LocalPath,
    table: DeltaTable | None,
    files: Sequence[DataFile],
    transaction: Transaction,
    schema: pa.Schema,
    partition_by: Sequence[str],
) -> bool:
    """Make the next version, all of it at once and on the disk; False = there is one already."""
    make_folder(path / LOG)
    moment = int(wall_seconds() * 1000)
    own = {"appId": transaction.application, "version": transaction.version, "lastUpdated": moment}
    told = {"mode": "Append", "partitionBy": json.dumps(list(partition_by))}
    actions = [
        {"commitInfo": {"timestamp": moment, "operation": "WRITE", "operationParameters": told, "engineInfo": "ensue"}},
        *(_of_new(schema, partition_by, moment) if table is None else _widened(path, table, schema, partition_by)),
        *({"add": _add_of_log(file, moment)} for file in files),
        {"txn": own},
    ]
    text = "".join(f"{json.dumps(action)}\n" for action in actions)
    version = 0 if table is None else table.version() + 1
    return create_durably(commit_file(path, version), text, _draft_of(transaction.application))


def take_out(path: Place, files: Sequence[Mapping[str, Any]], transaction: Transaction) -> None:
    """Remove data files of later transactions from a local table: this one is its last one then.

    files: `add` actions of the log

    Raises PassingError if other writers are faster all the time.
    """
    moment = int(wall_seconds() * 1000)
    own = {"appId": transaction.application, "version": transaction.version, "lastUpdated": moment}
    told = {"timestamp": moment, "operation": "DELETE", "operationParameters": {}, "engineInfo": "ensue"}
    removed = {"deletionTimestamp": moment, "dataChange": True, "extendedFileMetadata": True}
    known = ("path", "partitionValues", "size")
    actions: list[dict[str, Any]] = [
        {"commitInfo": told},
        *({"remove": {**{key: file[key] for key in known}, **removed}} for file in files),
        {"txn": own},
    ]
    text = "".join(f"{json.dumps(action)}\n" for action in actions)
    for _ in range(ATTEMPTS):
        table = opened_to_write(path)
        assert table is not None, "it has these files"
        if create_durably(commit_file(path, table.version() + 1), text, _draft_of(transaction.application)):
            return
    raise _too_many(path)


def remove_draft(path: Place, application: str) -> None:
    """Remove a commit that is not whole; the other names in the log are on the disk then, too."""
    if not isinstance(path, RemotePath):  # a store has whole files only
        remove([path / LOG / _draft_of(application)])


def _draft_of(application: str) -> str:
    """The name of a commit that is not whole: one job writes one at a time."""
    return f".{application}.draft"


def _of_new(schema: pa.Schema, partition_by: Sequence[str], moment: int) -> list[dict[str, Any]]:
    """The actions that make a table."""
    from deltalake import Schema

    metadata = _metadata(new_guid(), Schema.from_arrow(schema).to_json(), partition_by, SETTINGS, moment)
    return [{"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}, {"metaData": metadata}]


def _widened(path: Place, table: DeltaTable, schema: pa.Schema, partition_by: Sequence[str]) -> list[dict[str, Any]]:
    """The action that gives a table the columns it does not have yet; none if it has all.

    Raises InputError for a table that cannot be written.
    """
    from deltalake import Schema

    refuse_unwritable(path, table)
    missing = new_columns(path, table, schema, partition_by)
    if not missing:
        return []
    more = [field for field in fields_of_text(Schema.from_arrow(schema).to_json()) if field["name"] in missing]
    text = json.dumps({"type": "struct", "fields": [*fields_of(table), *more]})
    before = table.metadata()
    found = _metadata(str(before.id), text, partition_by, before.configuration, before.created_time)
    return [{"metaData": found | {"name": before.name, "description": before.description}}]


def _metadata(
    identity: str, schema: str, partition_by: Sequence[str], settings: Mapping[str, str], moment: int | None
) -> dict[str, Any]:
    return {
        "id": identity,
        "format": {"provider": "parquet", "options": {}},
        "schemaString": schema,
        "partitionColumns": list(partition_by),
        "createdTime": moment,
        "configuration": dict(settings),
    }


def _add_of_log(file: DataFile, moment: int) -> dict[str, Any]:
    return {
        "path": quote(file.path, safe="/="),
        "partitionValues": dict(file.partition),
        "size": file.size,
        "modificationTime": moment,
        "dataChange": True,
        "stats": file.statistics,
    }


def _shorten_log(path: Place, settings: Mapping[str, str]) -> None:
    """Make a checkpoint of the log. Once it is on the disk, old commits are removed."""
    table = open_table(path)
    assert table is not None, "it has a commit"
    with delta_errors(path):
        table.create_checkpoint()
        for file in (*checkpoint_files(path)[1], path / LOG / LAST_CHECKPOINT, path / LOG):
            sync(file)
        if settings.get("delta.enableExpiredLogCleanup", "true") != "false":
            table.cleanup_metadata()


def opened_to_write(path: Place) -> DeltaTable | None:
    """As `open_table`, without a checkpoint of the log that a power cut has left as a part."""
    return without_part(path, lambda: open_table(path), InputError)


# In stores, what the package writes appears whole, and survives.


def _committed_in_store(
    path: RemotePath,
    table: DeltaTable | None,
    adds: list[AddAction],
    transaction: Transaction,
    schema: pa.Schema,
    partition_by: Sequence[str],
) -> bool:
    from deltalake import CommitProperties, PostCommitHookProperties, Schema
    from deltalake import Transaction as Id
    from deltalake.exceptions import CommitFailedError, DeltaError
    from deltalake.transaction import create_table_with_add_actions

    ids = CommitProperties(app_transactions=[Id(transaction.application, transaction.version)])
    if table is None:
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
            return False
        return True
    is_due = _is_checkpoint_due(table.version() + 1, table.metadata().configuration)
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
        return False
    return True


def _is_checkpoint_due(version: int, settings: Mapping[str, str]) -> bool:
    """Whether a commit is followed by a checkpoint. Looking for that doubles its time."""
    every = settings.get("delta.checkpointInterval", "")
    return (version + 1) % (int(every) if every.isdigit() and int(every) else CHECKPOINT_EVERY) == 0


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
    """Remove files that the transaction's commit does not have; all stay if it is not known.

    A process that was killed may have made the commit without waiting for its name.
    """
    remove_draft(path, transaction.application)
    committed = committed_files(path, transaction.application, transaction.version)
    if committed is not None:
        remove([path / file.path for file in files if file.path not in committed])


def _has(table: DeltaTable, transaction: Transaction) -> bool | None:
    """Whether a table has a transaction; None = its log was shortened since it was opened."""
    from deltalake.exceptions import DeltaError

    try:
        version = table.transaction_version(transaction.application)
    except DeltaError as error:
        if "not found" not in str(error).lower():
            raise
        return None
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
