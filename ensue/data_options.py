"""How event tables are to be read: the settings that every way of running queries accepts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ensue.parameters import Parameters
from querylang.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from runtime.policies.forget_keys import ForgetKeys
    from runtime.policies.plan_policies import GivenOrderings
    from runtime.reading.column_names import ColumnNames


def stop_time(until: str | float | datetime | None) -> int | None:
    """The time at which a replay stops, µs; None = after the last row. Raises InputError."""
    from runtime.columns.timestamps import parse_time

    try:
        return None if until is None else parse_time(str(until))
    except InputError as error:
        raise InputError(f"until: {error}") from None


@dataclass(frozen=True, slots=True)
class DataOptions:
    """Column names, limits, parameter values and ordering policies, as users give them.

    arrival: column of arrival times; None = `at`
    type: column of event types; None = `event`
    source_time: column of source times; None = `ts`
    parameters: values of the queries' parameters; None = defaults only
    ordering: ordering policies, for all sources or by source; None = as the queries say
    forget_keys: after which length without records a key is forgotten; None = never
    max_record: length of the longest record that is read, such as `16 MB`, which is also None
    csv: how CSV files are written: `delimiter=; encoding=latin-1 missing=NA`, or a mapping
    time_unit: unit of times that are numbers: `s` (also None), `ms`, `us` or `ns`
    time_format: form of times that are text, in the letters of strptime; None = ISO 8601
    source_column, partition_column, offset_column: where a row came from; None = `source`,
        `partition`, `offset`

    The name `none` of a column = there is no such column.
    """

    arrival: str | None = None
    type: str | None = None
    source_time: str | None = None
    parameters: Parameters = None
    ordering: GivenOrderings = None
    forget_keys: ForgetKeys = None
    max_record: str | None = None
    csv: str | Mapping[str, str] | None = None
    time_unit: str | None = None
    time_format: str | None = None
    source_column: str | None = None
    partition_column: str | None = None
    offset_column: str | None = None

    @property
    def columns(self) -> ColumnNames:
        """As readers of tables want them; raises InputError for what is not a size, a form."""
        from runtime.policies.sizes import parse_size
        from runtime.policies.time_forms import read_time_form
        from runtime.reading.column_names import STANDARD, ColumnNames
        from runtime.reading.formats.csv_form import read_csv_form

        longest = STANDARD.max_record if self.max_record is None else parse_size(self.max_record)
        if longest is None:
            raise InputError(f"max_record: {self.max_record!r} is not a size from '1 kB' to '1 GB', such as '16 MB'")
        times = read_time_form(self.time_unit, self.time_format)
        return ColumnNames(
            self.arrival,
            self.type,
            self.source_time,
            longest,
            read_csv_form(self.csv),
            times,
            source=self.source_column,
            partition=self.partition_column,
            offset=self.offset_column,
        )
