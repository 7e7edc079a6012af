"""What commands print: results to standard output, messages about them to standard error.

This is the only way out: text of data and file names has nothing here that acts on a terminal, and
nothing on standard error shows a value of a variable or a password of the settings.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn, TextIO

import typer

from querylang.errors import ExitCode, Mistake, listed, nearest
from querylang.printable import json_text, masked, one_line, printable
from querylang.system_errors import refused

if TYPE_CHECKING:
    from ensue.queries import Queries
    from querylang.plan.model import QueryPlan


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
