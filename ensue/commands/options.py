"""Arguments and options that several commands share."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any

import typer

from ensue.data_options import DataOptions
from querylang.errors import InputError, did_you_mean
from querylang.parameters import Given

QueryFile = Annotated[
    Path, typer.Argument(metavar="FILE", help="A query file or a folder of them; `-` is standard input.")
]
EventFiles = Annotated[
    list[Path], typer.Argument(metavar="EVENTS", help="Event tables, also in stores: CSV, JSON lines, Parquet, YAML.")
]
DeploymentFile = Annotated[Path, typer.Argument(metavar="DEPLOYMENT.yaml")]
ParameterValues = Annotated[
    str | None,
    typer.Option("--parameters", metavar="YAML", help="Values of parameters: a file, or text like `{least: 10.0}`."),
]
OrderingPolicies = Annotated[
    list[str] | None,
    typer.Option(
        "--ordering",
        metavar="POLICY",
        help="How records are put in order: `apama`, `stream_analytics late=5s ...`, `streaminsight every=1 ...`; "
        "`SOURCE: POLICY ...` for one source. May be repeated.",
    ),
]
ArrivalColumn = Annotated[
    str | None, typer.Option("--arrival", metavar="NAME", help="The column of arrival times, else `at`.")
]
TypeColumn = Annotated[
    str | None,
    typer.Option("--type", metavar="NAME", help="The column of event types, else `event`; `none`: no column."),
]
SourceTimeColumn = Annotated[
    str | None, typer.Option("--source-time", metavar="NAME", help="The column of source times, else `ts`.")
]
ForgetKeysAfter = Annotated[
    str | None,
    typer.Option("--forget-keys", metavar="LENGTH", help="Forget keys without records for so long: `30 days`."),
]
LongestRecord = Annotated[
    str | None,
    typer.Option("--max-record", metavar="SIZE", help="The longest record that is read, else `16 MB`."),
]
CsvForm = Annotated[
    list[str] | None,
    typer.Option(
        "--csv",
        metavar="FORM",
        help="How CSV files are written: `delimiter=; encoding=latin-1 decimal=, missing=NA header=no`. May be repeated.",
    ),
]
TimeUnit = Annotated[
    str | None, typer.Option("--time-unit", metavar="UNIT", help="The unit of times that are numbers: s, ms, us, ns.")
]
TimeFormat = Annotated[
    str | None,
    typer.Option("--time-format", metavar="FORM", help="The form of times that are text: `%d.%m.%Y %H:%M:%S`."),
]
SourceColumn = Annotated[
    str | None,
    typer.Option("--source-column", metavar="NAME", help="The column of a row's source, else `source`; or `none`."),
]
PartitionColumn = Annotated[
    str | None,
    typer.Option("--partition-column", metavar="NAME", help="That of its partition, else `partition`; or `none`."),
]
OffsetColumn = Annotated[
    str | None,
    typer.Option("--offset-column", metavar="NAME", help="That of its offset, else `offset`; or `none`."),
]
InputFormat = Annotated[
    str | None,
    typer.Option("--input-format", metavar="FORMAT", help="What standard input `-` holds: csv, tsv, json, parquet."),
]
LookupTables = Annotated[
    list[str] | None,
    typer.Option(
        "--table",
        metavar="NAME=FILE",
        help="What a table beside the stream holds, as a file or a Delta table, also in stores. May be repeated.",
    ),
]
QueryPattern = Annotated[
    str | None, typer.Option("--query", metavar="PATTERN", help="Only queries of such names: `Burst`, `Fraud*`.")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


def _data_options(
    arrival: ArrivalColumn = None,
    type_: TypeColumn = None,
    source_time: SourceTimeColumn = None,
    parameters: ParameterValues = None,
    ordering: OrderingPolicies = None,
    forget_keys: ForgetKeysAfter = None,
    max_record: LongestRecord = None,
    csv: CsvForm = None,
    time_unit: TimeUnit = None,
    time_format: TimeFormat = None,
    source_column: SourceColumn = None,
    partition_column: PartitionColumn = None,
    offset_column: OffsetColumn = None,
    tables: LookupTables = None,
) -> DataOptions:
    return DataOptions(
        arrival,
        type_,
        source_time,
        _read_once(parameters),
        ordering,
        forget_keys,
        max_record,
        " ".join(csv) if csv else None,
        time_unit,
        time_format,
        source_column,
        partition_column,
        offset_column,
        _tables(tables),
    )


def _tables(given: list[str] | None) -> dict[str, Path] | None:
    """The files of tables, by name. Raises InputError."""
    tables: dict[str, Path] = {}
    for text in given or ():
        name, sign, file = text.partition("=")
        if not sign or not name or not file:
            raise InputError(f"--table: expected NAME=FILE, such as `Asset=assets.csv`, not {text!r}")
        if name in tables:
            raise InputError(f"--table: {name!r} is given twice")
        tables[name] = Path(file)
    return tables or None


def _read_once(parameters: str | None) -> Given | None:
    """The values themselves: a pipe cannot be read again."""
    if parameters is None:
        return None
    from ensue.data_options import read_parameters

    return read_parameters(parameters)


def _input_format(input_format: InputFormat = None) -> None:
    """The option that is about standard input alone."""


def _with_standard_input(file: Path, events: list[Path], format_: str | None) -> list[Path]:
    """The event tables, with a file in place of `-`. Raises InputError."""
    from ensue.event_tables import NAME, table_of_standard_input

    if (file, *events).count(NAME) > 1:
        raise InputError("-: standard input can be given once only")
    if NAME not in events:
        if format_ is not None:
            raise InputError("--input-format: is for standard input, the event table `-`")
        return events
    table = table_of_standard_input(format_)
    return [table if path == NAME else path for path in events]


def names_like(pattern: str | None, names: Iterable[str]) -> frozenset[str]:
    """The names that a pattern with `*` and `?` fits, with regard to case; None = all.

    The title of an instance, `Query/instance`, fits by the name of its query, too. Raises
    InputError if none fits.
    """
    known = list(dict.fromkeys(names))
    if pattern is None:
        return frozenset(known)
    fitting = {name for name in known if any(fnmatchcase(part, pattern) for part in (name, name.partition("/")[0]))}
    if not fitting:
        raise InputError(f"--query: no query is called '{pattern}'{did_you_mean(pattern, known)}")
    return frozenset(fitting)


def with_data_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options of `DataOptions` to a command, in place of its parameter `data`.

    The command gets their values as one `DataOptions`.
    """
    options = inspect.signature(_data_options, eval_str=True).parameters
    input_format = inspect.signature(_input_format, eval_str=True).parameters
    signature = inspect.signature(command, eval_str=True)

    def run(**given: Any) -> None:
        data = _data_options(**{name: given.pop(name) for name in options})
        events = given["events"] or []
        given["events"] = _with_standard_input(given["file"], events, given.pop("input_format"))
        try:
            command(data=data, **given)
        except InputError as error:
            text = str(error)
            for told, read in zip(events, given["events"], strict=True):
                text = text.replace(str(read), str(told))  # nobody knows the file of standard input
            if text == str(error) or type(error) is not InputError:
                raise
            raise InputError(text) from error

    parameters: list[inspect.Parameter] = []
    for parameter in signature.parameters.values():
        parameters += [*options.values(), *input_format.values()] if parameter.name == "data" else [parameter]
    by_name = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in parameters]
    run.__name__, run.__doc__, run.__annotations__ = command.__name__, command.__doc__, {}
    run.__signature__ = signature.replace(parameters=by_name)  # type: ignore[attr-defined]  # what typer reads
    return run


# What makes commands start fast: imports that they do without.
