"""`ensue replay`: run queries over event tables, in this process."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ensue.commands.options import EventFiles, Json, QueryFile, with_data_options
from ensue.commands.output import (
    exit_if_types_are_unknown,
    exit_with_no_row_read,
    print_error,
    print_idle_queries,
    print_json,
    print_query_warnings,
    print_slow_queries,
    print_text,
    print_warnings,
    terminal_width,
)
from ensue.commands.replay_out import replay_to
from ensue.commands.replay_progress import ReplayProgress
from ensue.data_options import DataOptions

if TYPE_CHECKING:
    from ensue.result import Replay
    from querylang.plan.model import Plan

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
    until: Annotated[
        str | None, typer.Option(metavar="TIME", help="Stop time at this moment; later rows are not processed.")
    ] = None,
    no_flush: Annotated[
        bool, typer.Option("--no-flush", help="Stop at the last row, whatever timers are left.")
    ] = False,
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
    from ensue.commands.fast_start import load_arrow_alone

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
        is_in_steps = format_ is Format.STEPS and report is None and not as_json
        result = None if is_in_steps else to_replay.replay(progress.update)
    exit_if_types_are_unknown(to_replay.records.unknown_types, queries.input_types)
    if result is None:
        plan, steps = to_replay.steps()
        print_warnings(to_replay.records.warnings)
        print_slow_queries(slow_queries(plan))
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
    print_slow_queries(slow_queries(result.plan))
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
