"""The settings of a sink of Delta tables; what is wrong with them is reported, with its line."""

from __future__ import annotations

from collections.abc import Mapping

from job_engine.setting_values import read_table_name, refuse_unknown_settings
from job_engine.sinks.kinds import MATCHES, Layout, Sink, SinkEntry, SinkKind
from querylang.dataclass import dataclass

DAY = "day"
"""The partition column that results do not have: the day of their time."""

PARTITION_COLUMNS: Mapping[str, tuple[str, ...]] = {
    MATCHES: (DAY, "instance"),
    "output": (DAY, "query", "kind", "channel"),
    "discarded": (DAY, "query", "reason", "event"),
    "ledger": ("query", "what"),
}
"""By sink, the columns that its tables can be partitioned by."""


@dataclass(frozen=True, slots=True)
class TableSink:
    """What only a sink of Delta tables has.

    partition_by: the columns that its tables are partitioned by
    """

    partition_by: tuple[str, ...] = ()


class TableSinkKind(SinkKind):
    """Delta tables; see `SinkKind`."""

    keys: Mapping[str, str] = {
        **dict.fromkeys(("path", "shared", "layout"), "folders"),
        **dict.fromkeys(("table", "partition_by"), "Delta tables"),
    }
    needs = ("path", "table")

    def read(self, entry: SinkEntry) -> Sink:
        """As `SinkKind.read`."""
        found = entry.found
        table = read_table_name(found)
        if entry.name == MATCHES and table and not entry.is_channel and entry.layout is Layout.QUERY:
            found["table"].wrong(
                "'matches' has a table per query; set its folder with 'path', then CREATE TABLE ... USING delta LOCATION"
                " gives each a name; or set 'layout: one'"
            )
        place = entry.place()
        if place is not None:
            refuse_unknown_settings(found, place)
        return entry.sink(TableSink(_partition_by(entry)), place, table)


KIND = TableSinkKind()


def _partition_by(entry: SinkEntry) -> tuple[str, ...]:
    """One column or several."""
    if "partition_by" not in entry.found:
        return ()
    possible = {column: column for column in PARTITION_COLUMNS["output" if entry.is_channel else entry.name]}
    if entry.layout is Layout.ONE:
        possible["query"] = "query"
    columns = [item.one_of(possible) for item in entry.found["partition_by"].items()]
    return tuple(dict.fromkeys(column for column in columns if column is not None))
