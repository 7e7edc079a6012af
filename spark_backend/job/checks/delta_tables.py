"""Delta sources that cannot be read: reported before a job starts."""

from __future__ import annotations

from querylang.errors import InputError, did_you_mean, listed
from spark_backend.delta.features import fields_of, refuse_unreadable
from spark_backend.delta.package import open_table, refuse_missing_package
from spark_backend.settings.deployment import Deployment


def refuse_unreadable_tables(deployment: Deployment) -> None:
    """Raise InputError for folders without a table, and tables that ask too much of readers."""
    for source in deployment.sources:
        if source.delta is None:
            continue
        refuse_missing_package()
        path = source.delta.place
        table = open_table(path)
        if table is None:
            raise InputError(f"{path}: the source '{source.name}' is not a Delta table: it has no folder '_delta_log'")
        refuse_unreadable(path, table)
        columns = [field["name"] for field in fields_of(table)]
        if source.delta.arrival.casefold() not in {column.casefold() for column in columns}:
            raise InputError(
                f"{path}: the source '{source.name}' has no column '{source.delta.arrival}' for its 'arrival'"
                f"{did_you_mean(source.delta.arrival, columns) or f'; it has {listed(columns)}'}"
            )
