"""How event tables are to be read: the settings that every way of running queries accepts."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from inspect import cleandoc
from typing import TYPE_CHECKING, TypedDict

from ensue.parameters import Parameters
from querylang.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from runtime.policies.plan_policies import GivenOrderings
    from runtime.policies.settings_text import ForgetKeys
    from runtime.reading.column_names import ColumnNames


def stop_time(until: str | float | datetime | None) -> int | None:
    """The time at which a replay stops, µs; None = after the last row. Raises InputError."""
    from runtime.timestamps import parse_time

    try:
        return None if until is None else parse_time(str(until))
    except InputError as error:
        raise InputError(f"until: {error}") from None


class FrameOptions(TypedDict, total=False):
    """How rows are read: the keywords that public functions have for it, and their texts in `help`.

    arrival: the column of arrival times; None = `at`
    type: the column of event types; None = `event`; `"none"` = there is none
    source_time: the column of source times; None = `ts`
    parameters: values of the queries' parameters; None = defaults only. A mapping, a YAML file or
        YAML text: `{query: {instance: {parameter: value}}}`; for a single instance
        `{query: {parameter: value}}`; if only one query has parameters `{parameter: value}`
    ordering: how records are put in order; None = as the queries say. A policy for all sources,
        such as `"stream_analytics late=5s over=card"` or the same as a mapping,
        `{"policy": "stream_analytics", "late": "5s", "over": ["card"]}`; or a mapping of sources'
        names to policies
    forget_keys: how long after its last record a key is forgotten, such as `30 days`; None = never
    max_record: length of the longest record that is read, such as `64 MB`; longer ones are
        malformed; None = `16 MB`
    time_unit: unit of times that are numbers: `s`, `ms`, `us` or `ns`; None = seconds
    time_format: form of times that are text, in the letters of strptime, such as `%d.%m.%Y %H:%M`;
        None = ISO 8601 or HH:MM:SS
    source_column: the column that says which source a row is of; None = `source`, if its values can
        be that; `"none"` = there is none
    partition_column: that of its partition, text or integers; None = `partition`, likewise
    offset_column: that of its offset, unique in the partition; None = `offset`, likewise
    """

    arrival: str | None
    type: str | None
    source_time: str | None
    parameters: Parameters
    ordering: GivenOrderings
    forget_keys: ForgetKeys
    max_record: str | None
    time_unit: str | None
    time_format: str | None
    source_column: str | None
    partition_column: str | None
    offset_column: str | None


class TableOptions(FrameOptions, total=False):
    """The same of tables, which may be files.

    csv: how CSV files are written, such as `delimiter=; encoding=latin-1` or the same as a mapping;
        None = with commas (`.tsv`: tabs), in UTF-8
    """

    csv: str | Mapping[str, str] | None


@dataclass(frozen=True, slots=True)
class DataOptions:
    """Column names, limits, parameter values and ordering policies, as users give them.

    Each field is a keyword of `TableOptions`, which says what it is.
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
        from runtime.file_forms import read_csv_form
        from runtime.policies.settings_text import parse_size, read_time_form
        from runtime.reading.column_names import STANDARD, ColumnNames

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


_ENTRY = re.compile(r"^(\w+): (.*(?:\n +\S.*)*)", re.MULTILINE)


def _texts() -> dict[str, str]:
    documents = (cleandoc(options.__doc__ or "") for options in (FrameOptions, TableOptions))
    found = {name: text for document in documents for name, text in _ENTRY.findall(document)}
    return {field.name: found[field.name] for field in fields(DataOptions)}


ARGUMENTS = _texts()
"""What each keyword means, as lines of a docstring, in the order of `DataOptions`."""
