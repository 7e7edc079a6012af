"""How event tables are to be read, and values of parameters: what all ways of running accept."""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from inspect import cleandoc
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypedDict, TypeVar

from querylang.dataclass import dataclass, fields
from querylang.errors import EnsueError, InputError, did_you_mean, in_words, kind_in_words
from querylang.parameters import NOTHING, Given

if TYPE_CHECKING:
    from datetime import datetime

    from runtime.lookup_tables import GivenTables
    from runtime.policies.plan_policies import GivenOrderings
    from runtime.policies.settings_text import ForgetKeys
    from runtime.reading import ColumnNames


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
    tables: by name, what tables beside the stream hold: files, also in stores, folders of Delta
        tables, DataFrames, Arrow tables or lists of mappings; None = the queries look nothing up
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
    tables: Mapping[str, Any] | None
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
    tables: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        """Refuse what is not text where text is meant; raises InputError."""
        for name in _TEXTS:
            value = getattr(self, name)
            if not isinstance(value, str | None):
                raise InputError(f"{name}: expected a text, not {kind_in_words(value)}")
        if not isinstance(self.csv, str | Mapping | None):
            raise InputError(f"csv: expected a text or a mapping, not {kind_in_words(self.csv)}")
        if not isinstance(self.tables, Mapping | None):
            raise InputError(f"tables: expected a mapping of names to tables, not {kind_in_words(self.tables)}")

    @property
    def lookup_tables(self) -> GivenTables:
        """The tables beside the stream; they are read when the first plan needs them."""
        from ensue.event_tables import read_given_table
        from runtime.lookup_tables import GivenTables

        return GivenTables(self.tables, read_given_table)

    @property
    def columns(self) -> ColumnNames:
        """As readers of tables want them; raises InputError for what is not a size, a form."""
        from runtime.file_forms import read_csv_form
        from runtime.policies.settings_text import parse_size, read_time_form
        from runtime.reading import STANDARD, ColumnNames

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


_TEXTS = (
    "arrival",
    "type",
    "source_time",
    "max_record",
    "time_unit",
    "time_format",
    "source_column",
    "partition_column",
    "offset_column",
)
"""The keywords that are nothing but texts."""


def path_of(name: str, given: object) -> Path:
    """What a user gives as a path. Raises InputError; `name`: of the argument."""
    if not isinstance(given, str | Path):
        raise InputError(f"{name}: expected a path, not {kind_in_words(given)}")
    return Path(given)


_ENTRY = re.compile(r"^(\w+): (.*(?:\n +\S.*)*)", re.MULTILINE)


def _texts() -> dict[str, str]:
    documents = (cleandoc(options.__doc__ or "") for options in (FrameOptions, TableOptions))
    found = {name: text for document in documents for name, text in _ENTRY.findall(document)}
    return {field.name: found[field.name] for field in fields(DataOptions)}


ARGUMENTS = _texts()
"""What each keyword means, as lines of a docstring, in the order of `DataOptions`."""


# The values of parameters: a mapping, a YAML file, or YAML text.

Parameters = Mapping[str, Any] | str | Path | Given | None
SUFFIXES = (".yaml", ".yml", ".json")


def read_parameters(given: Parameters) -> Given:
    """Values by query and instance; a mistake is a FileErrors with its line.

    A text is a path if it ends with `SUFFIXES` or names a file or a pipe. What was read stays it.
    """
    match given:
        case None:
            return NOTHING
        case Given():
            return given
        case Mapping():
            return Given(given)
        case str() if not given.endswith(SUFFIXES) and not _is_file(given):
            return _read_text(given, NOTHING.origin)
        case str() | Path():
            pass
        case _:
            raise InputError(f"parameters: {type(given).__name__} is neither a mapping nor a path nor text")
    from runtime.yaml_reader import file_text

    return _read_text(file_text(Path(given), may_be_pipe=True), str(given))


def _read_text(text: str, origin: str) -> Given:
    from job_engine.yaml_document import Mistakes, read_document, read_given

    mistakes = Mistakes(origin, os.environ)
    found = read_given(read_document(text, mistakes, NOTHING.origin, "values are written like `{least: 10.0}`"))
    mistakes.raise_if_any()
    return found


def _is_file(text: str) -> bool:
    try:
        return Path(text).exists() and not Path(text).is_dir()
    except (OSError, ValueError):  # too long for a path, or not a path
        return False


# What public functions share. A message says `time_unit="ms"` where the command line has `--time-
# unit ms`.

Call = ParamSpec("Call")
Answer = TypeVar("Answer")

_OPTION = re.compile(r'`--([a-z-]+) ("[^`]*"|[^`]+)`')


def public_call(options: type[FrameOptions]) -> Callable[[Callable[Call, Answer]], Callable[Call, Answer]]:
    """Make a public function of one whose `**options` are the keywords of a table.

    Its signature and documentation have each of them, a wrong one is a TypeError that names the
    nearest, and messages name arguments.
    """

    def made(function: Callable[Call, Answer]) -> Callable[Call, Answer]:
        signature = _with_keywords(inspect.signature(function), options)

        @wraps(function)
        def call(*args: Call.args, **given: Call.kwargs) -> Answer:
            for name in given:
                if name not in signature.parameters:
                    near = did_you_mean(name, signature.parameters)
                    raise TypeError(f"{function.__name__}() got an unexpected keyword argument '{name}'{near}")
            try:
                with in_python_words():
                    return function(*args, **given)
            except EnsueError as error:
                raise error.with_traceback(None)  # noqa: B904  the message counts, not our calls

        call.__signature__ = signature  # type: ignore[attr-defined]  # what `help` and notebooks read
        call.__doc__ = _OPTIONS.sub(_texts_of(options), function.__doc__ or "")
        return call

    return made


_OPTIONS = re.compile(r"    options: .*\n")
"""The line of a docstring in whose place the keywords are."""


def _with_keywords(signature: inspect.Signature, options: type[FrameOptions]) -> inspect.Signature:
    *before, _ = signature.parameters.values()
    types = DataOptions.__annotations__
    own = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=types[name])
        for name in ARGUMENTS
        if name in options.__annotations__
    ]
    return signature.replace(parameters=[*before, *own])


def _texts_of(options: type[FrameOptions]) -> str:
    lines = (f"{name}: {text}" for name, text in ARGUMENTS.items() if name in options.__annotations__)
    return "".join(f"    {line}\n" for text in lines for line in text.splitlines())


@contextmanager
def in_python_words() -> Iterator[None]:
    """What a call raises and warns of names its arguments, not options of the command line."""
    with in_words(python_words):
        yield


def python_words(text: str) -> str:
    """The message with arguments for the options in it."""
    return _OPTION.sub(_argument, text)


def _argument(found: re.Match[str]) -> str:
    name, value = found[1].replace("-", "_"), found[2]
    if name == "table":
        table, _, content = value.partition("=")
        return f'`tables={{"{table}": {content}}}`'
    if name not in ARGUMENTS:
        return found[0]
    return f"`{name}={value}`" if value.startswith('"') else f'`{name}="{value}"`'
