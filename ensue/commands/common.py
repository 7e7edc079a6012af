"""What commands share: their options, and how they print."""

from __future__ import annotations

import inspect
import os
import re
import shutil
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, TextIO

import typer

from ensue.data_options import DataOptions
from querylang.errors import ExitCode, InputError, Mistake, did_you_mean, listed, nearest
from querylang.parameters import Given
from querylang.printable import json_text, masked, one_line, printable
from querylang.system_errors import refused

if TYPE_CHECKING:
    from ensue.queries import Queries
    from querylang.plan.model import QueryPlan


# Arguments and options that several commands share.

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


# What commands print: results to standard output, messages about them to standard error.
#
# This is the only way out: text of data and file names has nothing here that acts on a terminal,
# and nothing on standard error shows a value of a variable or a password of the settings.

NO_ROW_READ = "no row could be read: all are malformed"
MOST_TYPES = 3
"""Event types that a message names."""


def print_text(text: str) -> None:
    """A result as text."""
    _write(printable(text) + "\n")


def _write(text: str) -> None:
    with _output_in_plain_words():
        sys.stdout.write(text)


def write_out() -> None:
    """Write what waits. Raises InputError, such as for a full disk."""
    with _output_in_plain_words():
        sys.stdout.flush()


@contextmanager
def _output_in_plain_words() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        write_nowhere()
        raise refused(error, "standard output cannot be written") from error


def write_nowhere() -> None:
    """Let nothing more of this process go to standard output."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def terminal_width() -> int | None:
    """Columns of the terminal that standard output is; None = it is something else."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def print_line(text: str) -> None:
    """A result of one line, whatever the names in it."""
    print_text(one_line(text))


def print_json(value: Mapping[str, Any]) -> None:
    """A result as one line of JSON."""
    print_text(json_text(value))


def print_content(text: str) -> None:
    """The content of a file: exactly, but on a terminal as other text."""
    _write(printable(text) if sys.stdout.isatty() else text)


def print_error(text: str) -> None:
    """An error, a warning or a remark to standard error; in colour on a terminal."""
    shown = printable(masked(text))
    sys.stderr.write((coloured(shown) if wants_colour(sys.stderr, os.environ) else shown) + "\n")


def print_log_line(entry: Mapping[str, Any], out: TextIO | None = None) -> None:
    """A line of a log of JSON objects; `out`: None = to standard error."""
    stream = out or sys.stderr
    stream.write(json_text(_masked(entry)) + "\n")
    stream.flush()


def _masked(value: Any) -> Any:
    match value:
        case str():
            return masked(value)
        case Mapping():
            return {key: _masked(item) for key, item in value.items()}
        case list() | tuple():
            return [_masked(item) for item in value]
        case _:
            return value


def print_failure() -> None:
    """The failure of Ensue itself that is being handled, with its traceback."""
    sys.stderr.write(printable(masked(traceback.format_exc())))
    print_error("ensue: this is a failure of Ensue itself, not of your input")


def print_query_warnings(queries: Queries) -> None:
    """What is suspicious in the text of queries; what is kept for ever is a matter of jobs."""
    for warning in queries.warnings:
        if warning.code != Mistake.KEPT_KEYS.code:
            print_error(f"warning: {warning}")


def print_warnings(warnings: Iterable[str]) -> None:
    """What is suspicious in the event tables of a replay."""
    for warning in warnings:
        print_error(one_line(f"warning: {warning}"))


def print_idle_queries(queries: Iterable[QueryPlan]) -> None:
    """Which queries have no instance, and which parameters lack a value."""
    from querylang.parameters import missing

    for query in queries:
        print_error(one_line(missing(query)))


def print_slow_queries(queries: Iterable[str]) -> None:
    """Which queries run on the reference matcher."""
    for line in queries:
        print_error(one_line(line))


def exit_if_types_are_unknown(found: Sequence[str], known: Sequence[str]) -> None:
    """End a command whose tables have rows of event types, and none that the queries know.

    found: the event types of all rows, if the queries know none of them
    known: the event types that the queries read
    """
    from ensue.rendering.text_table import shortened

    if not found:
        return
    shown = [shortened(repr(name)) for name in found[:MOST_TYPES]]
    if len(found) > MOST_TYPES:
        shown.append(f"{len(found) - MOST_TYPES:,} more")
    near = next((name for one in found[:100] if (name := nearest(one, known)) is not None), None)
    hint = f"; did you mean {near!r}?" if near is not None else ""
    print_error(
        one_line(
            f"no row has an event type that the queries read: they read {listed(known)}, and the rows are {listed(shown)}"
            f"{hint}; `--type none` where the column is a field"
        )
    )
    raise typer.Exit(ExitCode.INPUT)


def exit_with_no_row_read() -> NoReturn:
    """End a command whose tables have rows, and none that can be read."""
    print_error(NO_ROW_READ)
    raise typer.Exit(ExitCode.INPUT)


# Colour printed errors on terminals: the place bold, the code and the carets red.
#
# The code and the carets of warnings are yellow. As https://no-color.org asks, any value of
# `NO_COLOR` that is not empty switches colour off.

BOLD, RED, YELLOW, PLAIN = "\x1b[1m", "\x1b[31m", "\x1b[33m", "\x1b[0m"

_HEAD = re.compile(r"^(warning: )?(\S.*?:\d+(?::\d+)?): ((?:[a-z-]+: )?)", re.MULTILINE)
_CARETS = re.compile(r"^( +\| *[\t ]*)(\^+)$", re.MULTILINE)


def wants_colour(stream: TextIO, environment: Mapping[str, str]) -> bool:
    """Whether the stream is a terminal whose user has not switched colour off."""
    return stream.isatty() and not environment.get("NO_COLOR") and environment.get("TERM") != "dumb"


def coloured(text: str) -> str:
    """The printed text of errors with ANSI escapes."""
    colour = YELLOW if text.startswith("warning: ") else RED

    def head(found: re.Match[str]) -> str:
        warning, place, code = found.groups(default="")
        return f"{_in(colour, warning)}{_in(BOLD, place)}: {_in(colour, code)}"

    return _CARETS.sub(lambda found: f"{found[1]}{_in(colour, found[2])}", _HEAD.sub(head, text))


def _in(colour: str, text: str) -> str:
    return f"{colour}{text}{PLAIN}" if text else ""
