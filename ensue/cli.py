"""The command line.

Exit codes: 0 fine; 1 the user's input is wrong or a check found a difference; 2 wrong usage; 3 our own failure. Results go
to standard output, errors to standard error. Each command imports what it needs when it runs: `ensue check` needs
the language only.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Iterable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ensue.queries import load
from querylang.errors import EnsueError, InputError

if TYPE_CHECKING:
    from ensue.result import Replay
    from querylang.plan.model import QueryPlan

OUR_FAILURE = 3
MOST_TOLD = 5
"""Lines about rows that could not be used; of more only their number is told."""

app = typer.Typer(
    name="ensue",
    help="Pattern queries over event streams and tables.",
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


class Format(StrEnum):
    """What `replay` prints."""

    TABLE = "table"
    STEPS = "steps"
    MATCHES = "matches"
    OUTPUTS = "outputs"


QueryFile = Annotated[Path, typer.Argument(metavar="FILE", help="A query file or a folder of them.")]
Events = Annotated[list[Path], typer.Argument(metavar="EVENTS", help="Event tables: CSV, JSON lines, Parquet, YAML.")]
Arrival = Annotated[str | None, typer.Option(metavar="NAME", help="The column of arrival times, else `at`.")]
TypeColumn = Annotated[
    str | None, typer.Option("--type", metavar="NAME", help="The column of event types, else `event`.")
]
SourceTime = Annotated[str | None, typer.Option(metavar="NAME", help="The column of source times, else `ts`.")]
Parameters = Annotated[
    str | None,
    typer.Option(metavar="YAML", help="Values of parameters: a file, or text like `{least: 10.0}`."),
]
Ordering = Annotated[
    list[str] | None,
    typer.Option(
        metavar="POLICY",
        help="How records are put in order: `apama`, `stream_analytics late=5s ...`, `streaminsight every=1 ...`; "
        "`SOURCE: POLICY ...` for one source. May be repeated.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


@app.command()
def check(files: Annotated[list[Path], typer.Argument(metavar="FILE...")], as_json: Json = False) -> None:
    """All mistakes of query and deployment files, each with its place."""
    from ensue.commands.findings import check_files

    report = check_files(files)
    if as_json:
        _print_json(report.to_plain())
    else:
        for error in report.errors:
            _complain(str(error))
        for warning in report.warnings:
            _complain(f"warning: {warning}")
        if not report.errors:
            _print(f"{_counted(report.files, 'file')}, no mistakes")
    if report.errors:
        raise typer.Exit(1)


@app.command()
def fmt(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Files or folders; `-` is standard input.")],
    only_check: Annotated[
        bool, typer.Option("--check", help="Change nothing; exit code 1 if a file would be.")
    ] = False,
    to_stdout: Annotated[bool, typer.Option("--stdout", help="Print the result, change nothing.")] = False,
) -> None:
    """Bring files into the one canonical layout, comments kept.

    Tells which files it changed.
    """
    from ensue.rendering import layout

    if files == [Path("-")]:
        import querylang

        text = sys.stdin.read()
        laid_out = querylang.format_text(text, "-")
        if not only_check:
            sys.stdout.write(laid_out)
        raise typer.Exit(int(only_check and text != laid_out))
    has_mistakes = has_changes = False
    for item in layout.layouts(files):
        if item.mistakes is not None:
            has_mistakes = True
            _complain(str(item.mistakes))
        elif to_stdout:
            sys.stdout.write(item.after)
        elif item.is_changed:
            if not only_check:
                layout.write(item)
            _print(str(item.path))
        has_changes = has_changes or item.is_changed
    if has_mistakes or (only_check and has_changes):
        raise typer.Exit(1)


@app.command()
def explain(
    file: QueryFile,
    events: Annotated[
        list[Path] | None, typer.Argument(metavar="[EVENTS...]", help="Tables with the types that nothing defines.")
    ] = None,
    parameters: Parameters = None,
    ordering: Ordering = None,
    dot: Annotated[bool, typer.Option("--dot", help="Print the automaton as a graph for graphviz.")] = False,
    svg: Annotated[
        Path | None, typer.Option(metavar="OUT", help="Draw the automaton, with graphviz; of several queries each.")
    ] = None,
    as_json: Json = False,
) -> None:
    """What a query compiles to: automaton, conditions and where each is checked, state, matcher, pushdown."""
    from ensue.parameters import read_parameters
    from ensue.plans import template_for
    from ensue.rendering import explanation
    from querylang.parameters.instances import with_instances
    from querylang.plan.describe import to_dot
    from runtime.policies.plan_policies import SourceOrdering, parse_orderings, with_ordering
    from runtime.reading.tables import ColumnNames

    queries = load(file)
    plan = template_for(queries, events, ColumnNames()) if events else queries.template()
    if parameters is not None:
        plan = with_instances(plan, read_parameters(parameters))
    plan = with_ordering(plan, [SourceOrdering(*chosen) for chosen in parse_orderings(ordering).items()])
    if svg is not None:
        for path in explanation.draw(plan, svg):
            _print(str(path))
    elif dot:
        _print("\n\n".join(map(to_dot, plan.queries)))
    elif as_json:
        _print_json(explanation.plain(plan))
    else:
        _print("\n\n".join(item.text() for item in explanation.explain(plan)))


@app.command()
def replay(
    file: QueryFile,
    events: Events,
    format_: Annotated[Format, typer.Option("--format", help="What is printed.")] = Format.TABLE,
    until: Annotated[str | None, typer.Option(metavar="TIME", help="Let time go on to this moment.")] = None,
    no_flush: Annotated[bool, typer.Option("--no-flush", help="Stop at the last row.")] = False,
    parameters: Parameters = None,
    ordering: Ordering = None,
    arrival: Arrival = None,
    type_: TypeColumn = None,
    source_time: SourceTime = None,
    as_json: Json = False,
) -> None:
    """Run queries over event tables, in this process."""
    import ensue

    result = ensue.replay(
        file,
        events,
        arrival=arrival,
        type=type_,
        source_time=source_time,
        parameters=parameters,
        ordering=ordering,
        until=until,
        flush=not no_flush,
    )
    _tell_warnings(result)
    if as_json:
        _print_json(_result_object(result))
    elif format_ is Format.TABLE:
        _print(f"{result.table()}\n\n{result.account()}")
    else:
        _print_lines(_objects(result, format_))
    if format_ in {Format.MATCHES, Format.OUTPUTS, Format.TABLE} and not as_json:
        _tell_idle(result.idle)
        _tell_discards(result, has_account=format_ is Format.TABLE)


def _objects(result: Replay, format_: Format) -> list[dict[str, Any]]:
    match format_:
        case Format.STEPS:
            return result.steps
        case Format.MATCHES:
            return result.match_objects()
        case _:
            return result.output_objects()


def _result_object(result: Replay) -> dict[str, Any]:
    accounts = {"ledger": result.results.ledger.to_pylist(), "metrics": result.figures.to_pylist()}
    return {"matches": result.match_objects(), "outputs": result.output_objects(), **accounts}


def _tell_idle(idle: Iterable[QueryPlan]) -> None:
    from querylang.parameters.instances import missing

    for query in idle:
        _complain(missing(query))


def _tell_warnings(result: Replay) -> None:
    for warning in result.warnings:
        _complain(f"warning: {warning}")


def _tell_discards(result: Replay, has_account: bool) -> None:
    """Which rows could not be used and why; how many were discarded, where no account has said so."""
    if not len(result.discarded):
        return
    if not has_account:
        _complain(result.summary())
    told = [*_told_malformed(result), *_told_unknown_types(result)]
    for text in told[:MOST_TOLD]:
        _complain(f"  {text}")
    if len(told) > MOST_TOLD:
        _complain(f"  and {len(told) - MOST_TOLD} more")


def _told_malformed(result: Replay) -> list[str]:
    """One line a record that could not be read; where there are several tables, with its table."""
    from ensue.rendering.text_table import shortened

    malformed = result.discarded[result.discarded["reason"] == "malformed"]
    is_one = len(result.records.sources) == 1
    places = zip(malformed["source"], malformed["text"], strict=True)
    return [shortened(text if is_one else f"{source}: {text}") for source, text in places]


def _told_unknown_types(result: Replay) -> list[str]:
    from querylang.errors import counted

    unknown = result.discarded[result.discarded["reason"] == "unknown_type"]
    counts = unknown["text"].value_counts(sort=False).items()
    return [f"unknown event type {name!r}: {counted(count, 'row')}" for name, count in counts]


@app.command()
def match(
    file: QueryFile,
    events: Events,
    out: Annotated[Path, typer.Option(metavar="PATH", help="A folder for the matches, as Parquet.")],
    arrival: Arrival = None,
    type_: TypeColumn = None,
    source_time: SourceTime = None,
    parameters: Parameters = None,
    ordering: Ordering = None,
    as_json: Json = False,
) -> None:
    """Find the matches in event tables on Spark, in batch, and write them as Parquet."""
    from ensue import spark
    from ensue.data_options import DataOptions

    if out.exists():
        raise InputError(f"{out}: exists already; matches are written to a new folder")
    for path in events:
        if not path.exists():
            raise InputError(f"{path}: no such file or folder")
    frame = spark.match_files(load(file), events, DataOptions(arrival, type_, source_time, parameters, ordering))
    frame.write.parquet(str(out.resolve()))
    count = frame.sparkSession.read.parquet(str(out.resolve())).count()
    if as_json:
        _print_json({"matches": count, "path": str(out)})
    else:
        _print(f"{_counted(count, 'match', 'matches')} in {out}")


@app.command()
def run(
    file: Annotated[Path, typer.Argument(metavar="DEPLOYMENT.yaml")],
    once: Annotated[bool, typer.Option("--once", help="Take what is there, and stop.")] = False,
    flush: Annotated[bool, typer.Option("--flush", help="Then let time go on until nothing is due.")] = False,
    as_json: Json = False,
) -> None:
    """The Spark streaming job of a deployment file."""
    from spark_backend.job.settings import load_deployment

    load_deployment(file)
    from spark_backend.job import deployment

    def progress(batch: deployment.BatchReport) -> None:
        matches = sum(batch.matches.values())
        _complain(f"batch {batch.batch}: {batch.records} records, {matches} matches, {batch.seconds:.1f} s")

    report = deployment.run(file, once=once, flush=flush, progress=progress)
    _tell_idle(report.idle)
    ledger = [{"query": q, "source": s, "what": w, "count": n} for (q, s, w), n in sorted(report.ledger.items())]
    if as_json:
        counts = {"batches": report.batches, "records": report.records, "matches": dict(report.matches)}
        _print_json({**counts, "discarded": report.discarded, "ledger": ledger})
    else:
        _print(
            f"{report.batches} batches, {report.records} records, {report.discarded} discarded, {report.seconds:.1f} s"
        )
        for query, count in report.matches.items():
            _print(f"{query}: {_counted(count, 'match', 'matches')}")
    if once and report.stopped_by is not None:
        _complain("stopped before everything was taken; the next run goes on from here")
        raise typer.Exit(128 + report.stopped_by)


@app.command()
def status(
    file: Annotated[Path, typer.Argument(metavar="DEPLOYMENT.yaml")],
    as_json: Json = False,
) -> None:
    """What a deployment's job does: how far time has come and who holds it back, the accounts, sizes, rates."""
    from ensue.rendering.status_text import status_text
    from spark_backend.job.status import status_of

    found = status_of(file)
    if as_json:
        _print_json(found.to_plain())
    else:
        _print(status_text(found))


@app.command()
def verify(
    file: QueryFile,
    events: Events,
    batches: Annotated[int, typer.Option(metavar="N", min=1, help="Micro-batches of the stream.")] = 3,
    arrival: Arrival = None,
    type_: TypeColumn = None,
    source_time: SourceTime = None,
    parameters: Parameters = None,
    ordering: Ordering = None,
    as_json: Json = False,
) -> None:
    """Embedded, batch and stream must give the same on this data; exit code 1 where they do not."""
    import ensue
    from ensue.verify import compare

    result = ensue.replay(
        file,
        events,
        arrival=arrival,
        type=type_,
        source_time=source_time,
        parameters=parameters,
        ordering=ordering,
    )
    _tell_warnings(result)
    verdict = compare(result, batches)
    if as_json:
        _print_json(verdict.to_plain())
    else:
        _print(verdict.text())
    if not verdict.is_equal:
        raise typer.Exit(1)


def _print(text: str) -> None:
    sys.stdout.write(text + "\n")


def _print_json(value: Mapping[str, Any]) -> None:
    _print(json.dumps(value, ensure_ascii=False))


def _print_lines(objects: Iterable[Mapping[str, Any]]) -> None:
    for value in objects:
        _print_json(value)


def _complain(text: str) -> None:
    from ensue.commands.colour import coloured, wants_colour

    sys.stderr.write((coloured(text) if wants_colour(sys.stderr, os.environ) else text) + "\n")


def _counted(count: int, word: str, plural: str = "") -> str:
    return f"{count} {word if count == 1 else plural or f'{word}s'}"


def main() -> None:
    """The entry point: no traceback for a user's mistake."""
    try:
        app()
    except EnsueError as error:
        _complain(str(error))
        sys.exit(1)
    except BrokenPipeError:  # the reader of our output has gone: nothing to tell, nobody to tell it to
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except Exception:  # noqa: BLE001  our own failure, whatever it is
        traceback.print_exc()
        _complain("ensue: this is a failure of Ensue itself, not of your input")
        sys.exit(OUR_FAILURE)


if __name__ == "__main__":
    main()
