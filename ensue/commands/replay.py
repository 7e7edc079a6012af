"""Commands that run queries over event tables: `replay`, `why`, `funnel`, `match`, `verify`."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from enum import StrEnum
from functools import partial
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Any, Self

import typer

from ensue.commands.common import (
    EventFiles,
    Json,
    QueryFile,
    exit_if_types_are_unknown,
    exit_with_no_row_read,
    print_error,
    print_idle_queries,
    print_json,
    print_line,
    print_query_warnings,
    print_slow_queries,
    print_text,
    print_warnings,
    terminal_width,
    with_data_options,
)
from ensue.data_options import DataOptions
from ensue.event_tables import NAME, refuse_store, table_paths
from ensue.queries import load
from querylang.errors import InputError, near_file
from querylang.system_limits import exists
from spark_backend.versions import refuse_missing_spark

if TYPE_CHECKING:
    from ensue.answer import Replay
    from ensue.queries import Queries
    from ensue.replay_to_file import Written
    from querylang.plan.model import Plan
    from runtime.progress_line import ProgressLine


Until = Annotated[
    str | None, typer.Option(metavar="TIME", help="Stop time at this moment; later rows are not processed.")
]
NoFlush = Annotated[bool, typer.Option("--no-flush", help="Stop at the last row, whatever timers are left.")]

MOST_LISTED = 5
"""Messages about discarded rows that are printed; the others are counted."""


class Format(StrEnum):
    """What is printed."""

    TABLE = "table"
    STEPS = "steps"
    MATCHES = "matches"
    OUTPUTS = "outputs"


@with_data_options
def replay(
    file: QueryFile,
    events: EventFiles,
    data: DataOptions,
    format_: Annotated[Format, typer.Option("--format", help="What is printed.")] = Format.TABLE,
    until: Until = None,
    no_flush: NoFlush = False,
    wide: Annotated[
        bool, typer.Option("--wide", help="Cut nothing in the table, however narrow the terminal is.")
    ] = False,
    as_json: Json = False,
    out: Annotated[
        Path | None,
        typer.Option(metavar="PATH", help="Write the matches to a new file instead: .parquet, .csv, .jsonl."),
    ] = None,
    report: Annotated[Path | None, typer.Option(metavar="OUT", help="Write the replay as an HTML page, too.")] = None,
) -> None:
    """Run queries over event tables, in this process."""
    from runtime.column_types import load_arrow_alone

    load_arrow_alone()
    from ensue.queries import load

    queries = load(file)
    print_query_warnings(queries)
    if out is not None:
        if format_ not in {Format.TABLE, Format.MATCHES}:
            raise typer.BadParameter(f"--out writes matches, not {format_.value}")
        if report is not None:
            raise typer.BadParameter("--report and --out cannot be used together")
        replay_to(queries, events, data, out, until=until, flush=not no_flush, as_json=as_json)
        return
    from ensue import embedded
    from runtime.matching.choose import slow_queries

    with ReplayProgress(events) as progress:
        to_replay = embedded.read(queries, events, data, until=until, flush=not no_flush, progress=progress.update)
        progress.close()
        rows = to_replay.records.about()
        told = slow_queries(to_replay.plan, rows)
        print_slow_queries(told)
        is_in_steps = format_ is Format.STEPS and report is None and not as_json
        result = None if is_in_steps else to_replay.replay(progress.update)
    exit_if_types_are_unknown(to_replay.records.unknown_types, queries.input_types)
    if result is None:
        plan, steps = to_replay.steps()
        print_warnings(to_replay.records.warnings)
        print_slow_queries(line for line in slow_queries(plan, rows) if line not in told)
        for step in steps:
            print_json(step)
        if until is not None or no_flush:
            _print_left(to_replay.replay())
        if to_replay.records.are_malformed:
            exit_with_no_row_read()
        return
    if report is not None:
        result.report(report)
    print_warnings(result.warnings)
    print_slow_queries(line for line in slow_queries(result.plan, rows) if line not in told)
    if as_json:
        print_json(_as_one_object(result))
    elif format_ is Format.TABLE:
        print_text(f"{result.table(None if wide else terminal_width())}\n\n{result.account()}")
    else:
        for value in _objects(result, format_):
            print_json(value)
    if format_ in {Format.MATCHES, Format.OUTPUTS, Format.TABLE} and not as_json:
        print_idle_queries(result.idle)
        _print_discards(result, has_account=format_ is Format.TABLE)
    if format_ is not Format.TABLE and not as_json:
        _print_left(result)
    if result.records.are_malformed:
        exit_with_no_row_read()


def _objects(result: Replay, format_: Format) -> Iterable[dict[str, Any]]:
    match format_:
        case Format.STEPS:
            return result.iter_steps()
        case Format.MATCHES:
            return result.match_objects()
        case _:
            return result.output_objects()


def _as_one_object(result: Replay) -> dict[str, Any]:
    from ensue.rendering.account import waiting_object

    accounts = {"ledger": result.results.ledger.to_pylist(), "metrics": result.figures.to_pylist()}
    found = {"matches": result.match_objects(), "outputs": result.output_objects()}
    return {**found, **accounts, **waiting_object(*result.waiting)}


def _print_left(result: Replay) -> None:
    """Print what is left, apart from the results, which programs read."""
    for line in result.left():
        print_error(line)


def _print_discards(result: Replay, has_account: bool) -> None:
    """Print which rows could not be read, and why.

    has_account: the account is printed already, so the number of discarded rows is not repeated
    """
    discarded = result.results.discarded
    if discarded is None or not len(discarded):
        return
    if not has_account:
        print_error(result.summary())
    rows = discarded.select(["reason", "source", "text"]).to_pylist()
    messages = [*_malformed_rows(rows, is_one=len(result.records.sources) == 1), *_unknown_types(rows, result.plan)]
    for message in messages[:MOST_LISTED]:
        print_error(f"  {message}")
    if len(messages) > MOST_LISTED:
        print_error(f"  and {len(messages) - MOST_LISTED} more")


def _malformed_rows(discarded: list[dict[str, Any]], *, is_one: bool) -> list[str]:
    """One line per row that could not be read; with the name of its table unless there is one."""
    from ensue.rendering.text_table import shortened
    from querylang.printable import one_line

    malformed = [row for row in discarded if row["reason"] == "malformed"]
    return [shortened(one_line(row["text"] if is_one else f"{row['source']}: {row['text']}")) for row in malformed]


def _unknown_types(discarded: list[dict[str, Any]], plan: Plan) -> list[str]:
    """One line per event type that no query knows."""
    from querylang.errors import counted, did_you_mean

    counts = Counter(row["text"] for row in discarded if row["reason"] == "unknown_type")
    known = [event.name for event in plan.events]
    return [
        f"unknown event type {name!r} in {counted(count, 'row')}{did_you_mean(name, known)}"
        for name, count in counts.items()
    ]


# How far a replay is, on terminals: rows, rate and time left.


class ReplayProgress:
    """A line for each part of the work, one after the other; none where nobody watches."""

    def __init__(self, events: Sequence[Path]) -> None:
        self._events = events
        self._what = ""
        self._reached = monotonic()
        self._line: ProgressLine | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def update(self, what: str, rows: int) -> None:
        """So many rows have been read or replayed; `what` says which."""
        from runtime.progress_line import ProgressLine

        if self._line is None or what != self._what:
            self.close()
            total = _about_rows(self._events)
            self._what, self._line = what, ProgressLine(sys.stderr, what, "rows", total, began=self._reached)
        self._line.update(rows)
        self._reached = monotonic()

    def close(self) -> None:
        """Ends the line, so that others can follow."""
        if self._line is not None:
            self._line.close()


def _about_rows(events: Sequence[Path]) -> int | None:
    """How many rows the files have together, about; None = unknown."""
    if not sys.stderr.isatty() or NAME in events:
        return None
    from runtime.reading import about_rows

    counts = [about_rows(path) for given in events for path in table_paths(given)]
    return None if None in counts else sum(filter(None, counts))


# `ensue replay --out PATH`: the matches to a file, however large the tables are.


def replay_to(
    queries: Queries,
    events: Sequence[Path],
    data: DataOptions,
    out: Path,
    *,
    until: str | None,
    flush: bool,
    as_json: bool,
) -> None:
    """Run queries over event tables and write the matches; print what became of the records."""
    from ensue.replay_to_file import replay_to_file

    refuse_store("--out", out)
    with ReplayProgress(events) as progress:
        report = partial(progress.update, "replay")
        written = replay_to_file(
            queries, events, data, out, until=until, flush=flush, progress=report, tell_slow=print_slow_queries
        )
    exit_if_types_are_unknown(written.unknown_types, queries.input_types)
    print_warnings(written.warnings)
    if as_json:
        ledger = [] if written.ledger is None else written.ledger.to_pylist()
        counts = {"matches": written.matches, "path": str(out), "rows": written.rows, "ledger": ledger}
        from ensue.rendering.account import waiting_object

        print_json({**counts, **waiting_object(written.waiting, written.next_due)})
    else:
        _print_account(written, out)
        print_idle_queries(written.idle)
    if written.rows and written.discarded["malformed"] == written.rows:
        exit_with_no_row_read()


def _print_account(written: Written, out: Path) -> None:
    from ensue.rendering.account import account_text, left_text
    from ensue.rendering.text_table import shortened
    from querylang.errors import counted
    from querylang.printable import one_line

    print_line(f"{counted(written.rows, 'row')}, {counted(written.matches, 'match', 'matches')} in {out}")
    if written.ledger is not None:
        print_text(account_text(written.ledger))
        for line in left_text(written.waiting, written.next_due, written.ledger):
            print_line(line)
    if written.outputs:
        print_error(f"{counted(written.outputs, 'output')} not written; `--format outputs` prints them")
    for source, text in written.unreadable:
        print_error(f"  {shortened(one_line(f'{source}: {text}'))}")
    more = written.discarded["malformed"] - len(written.unreadable)
    if more > 0:
        print_error(f"  and {more} more")


# `ensue why`: why a match came, or did not.


@with_data_options
def why(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="A query file or a folder of them, or the deployment file of a job.")
    ],
    events: Annotated[
        list[Path] | None, typer.Argument(metavar="[EVENTS...]", help="Event tables; none for a job.")
    ] = None,
    *,
    data: DataOptions,
    match: Annotated[str | None, typer.Option(metavar="ID", help="A match, by its `match_id`.")] = None,
    key: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY", help="A key: its value, or `NAME=VALUE` for each of its parts. May be repeated."),
    ] = None,
    at: Annotated[
        str | None, typer.Option(metavar="TIME", help="The moment of an event of the key; else its last event.")
    ] = None,
    row: Annotated[int | None, typer.Option(metavar="N", help="A row, by its number in its table, from 1.")] = None,
    source: Annotated[str | None, typer.Option(metavar="NAME", help="The table of the row.")] = None,
    query: Annotated[str | None, typer.Option(metavar="NAME", help="One query; else all.")] = None,
    until: Until = None,
    no_flush: NoFlush = False,
    as_json: Json = False,
) -> None:
    """Say why a match came or did not, with the values; without a question, the nearest misses.

    Of a job: what it waits for, what holds time back, and what it has discarded. By a match, a
    moment or a row it reads again what the job has read; a row is an offset in `--source`.
    """
    from runtime.column_types import load_arrow_alone

    if not events:
        is_of_tables = until is not None or no_flush or data != DataOptions()
        asked = {"match": match, "at": at, "row": row, "source": source, "query": query}
        _why_job(file, key or [], asked, is_of_tables=is_of_tables, as_json=as_json)
        return

    load_arrow_alone()
    from ensue import embedded
    from ensue.queries import load

    queries = load(file)
    print_query_warnings(queries)
    result = embedded.replay(queries, events, data, until=until, flush=not no_flush)
    exit_if_types_are_unknown(result.records.unknown_types, queries.input_types)
    answer = result.why(match, key=key or None, at=at, row=row, source=source, query=query)
    if as_json:
        print_json(answer.to_plain())
        return
    print_text(str(answer))
    if match is None and not key and at is None and row is None:
        print_error(result.account())


def _why_job(file: Path, key: list[str], asked: dict[str, Any], *, is_of_tables: bool, as_json: bool) -> None:
    """What a job waits for, or what became of what is asked.

    asked: as of `why_of_job`
    is_of_tables: whether options were given that only tables have
    """
    if file.suffix.lower() not in {".yaml", ".yml"}:
        raise typer.BadParameter("name event tables behind the query, or the deployment file of a job alone")
    if is_of_tables:
        raise InputError(
            "a job is asked by --match, --key, --row or nothing; other options are for files: `ensue why QUERY FILES`"
        )
    from ensue.commands.status import start_for_state

    start_for_state(file)
    from ensue.asking_jobs import why_job, why_of_job

    is_of_records = any(item is not None for item in asked.values())
    answer = why_of_job(file, key=key, **asked) if is_of_records else why_job(file, key)
    if as_json:
        print_json(answer.to_plain())
    else:
        print_text(str(answer))


# `ensue funnel`: how far first steps come.


@with_data_options
def funnel(
    file: QueryFile,
    events: EventFiles,
    data: DataOptions,
    query: Annotated[str | None, typer.Option(metavar="NAME", help="One query; else all.")] = None,
    until: Until = None,
    no_flush: NoFlush = False,
    svg: Annotated[
        Path | None, typer.Option(metavar="OUT", help="Draw it as an SVG picture, too; of several queries each.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Count how many first steps reached which step of a pattern, and why the others stopped."""
    from runtime.column_types import load_arrow_alone

    load_arrow_alone()
    from ensue import embedded
    from ensue.asking_why import funnels
    from ensue.queries import load
    from ensue.rendering.funnel import FunnelAnswer, draw

    queries = load(file)
    print_query_warnings(queries)
    result = embedded.replay(queries, events, data, until=until, flush=not no_flush)
    exit_if_types_are_unknown(result.records.unknown_types, queries.input_types)
    found = [FunnelAnswer(counts) for counts in funnels(result, query)]
    if svg is not None:
        draw([answer.counts for answer in found], svg)
    if as_json:
        print_json({"funnels": [answer.to_plain() for answer in found]})
        return
    print_text("\n\n".join(map(str, found)))
    print_error(result.account())


# `ensue match`: find matches on Spark, in batch.


@with_data_options
def match(
    file: QueryFile,
    events: EventFiles,
    data: DataOptions,
    out: Annotated[Path, typer.Option(metavar="PATH", help="A folder for the matches, as Parquet.")],
    as_json: Json = False,
) -> None:
    """Find the matches in event tables on Spark, in batch, and write them as Parquet."""
    refuse_missing_spark()
    from ensue import spark
    from ensue.plans import any_row_is_read
    from job_engine.errors import in_plain_words
    from querylang.errors import counted
    from spark_backend.plain_errors import plain_error

    refuse_store("--out", out)
    if exists(out):
        raise InputError(f"{out}: exists already; matches are written to a new folder")
    paths = [path for given in events for path in table_paths(given)]
    for path in paths:
        if not exists(path):
            raise InputError(f"{path}: no such file or folder{near_file(path)}")
    queries = load(file)
    with in_plain_words({}, plain_error):
        frame = spark.match_files(queries, paths, data)
        frame.write.parquet(str(out.resolve()))
        count = frame.sparkSession.read.parquet(str(out.resolve())).count()
    if as_json:
        print_json({"matches": count, "path": str(out)})
    else:
        print_line(f"{counted(count, 'match', 'matches')} in {out}")
    if not count and not any_row_is_read(queries, paths, data):
        exit_with_no_row_read()


# `ensue verify`: compare the ways of running queries on a user's data.


@with_data_options
def verify(
    file: QueryFile,
    events: EventFiles,
    data: DataOptions,
    batches: Annotated[int, typer.Option(metavar="N", min=1, help="Micro-batches of the streams.")] = 3,
    as_json: Json = False,
) -> None:
    """Compare embedded, local, batch and stream on this data; exit code 1 if they differ."""
    from ensue import embedded
    from ensue.executors import compare
    from runtime.reading import input_types

    result = embedded.replay(file, events, data)
    exit_if_types_are_unknown(result.records.unknown_types, input_types(result.plan))
    print_warnings(result.warnings)
    verdict = compare(result, batches)
    if as_json:
        print_json(verdict.to_plain())
    else:
        print_text(verdict.text())
    if not verdict.is_equal:
        raise typer.Exit(1)
