"""`ensue run`: run the Spark streaming job of a deployment file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ensue.commands.options import DeploymentFile, Json
from ensue.commands.output import print_error, print_idle_queries, print_json, print_line

if TYPE_CHECKING:
    from spark_backend.job.reports import BatchReport, RunReport

SIGNAL_EXIT = 128
"""Exit code of a run that a signal ended, less the signal's number."""


def run(
    file: DeploymentFile,
    once: Annotated[bool, typer.Option("--once", help="Process all available input, then stop.")] = False,
    flush: Annotated[
        bool, typer.Option("--flush", help="Before stopping, advance time until no timer is left.")
    ] = False,
    accept_loss: Annotated[
        bool,
        typer.Option(
            "--accept-loss", help="Continue without files that were removed or changed since a micro-batch read them."
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Run the Spark streaming job of a deployment file."""
    from spark_backend.job.settings import load_deployment

    load_deployment(file)  # mistakes in the file are reported before Spark is imported
    from ensue.background import archive_classes_for_next_time
    from spark_backend.job import job

    report = job.run(file, once=once, flush=flush, progress=_print_progress, accept_loss=accept_loss)
    archive_classes_for_next_time()
    print_idle_queries(report.idle)
    if as_json:
        print_json(_as_one_object(report))
    else:
        _print_report(report)
    if once and report.stopped_by is not None:
        print_error("stopped before all input was processed; the next run continues from here")
        raise typer.Exit(SIGNAL_EXIT + report.stopped_by)


def _print_progress(batch: BatchReport) -> None:
    matches = sum(batch.matches.values())
    print_error(f"batch {batch.batch}: {batch.records} records, {matches} matches, {batch.seconds:.1f} s")


def _as_one_object(report: RunReport) -> dict[str, object]:
    ledger = [
        {"query": query, "source": source, "what": what, "count": count}
        for (query, source, what), count in sorted(report.ledger.items())
    ]
    counts = {"batches": report.batches, "records": report.records, "matches": dict(report.matches)}
    return {**counts, "discarded": report.discarded, "ledger": ledger}


def _print_report(report: RunReport) -> None:
    from querylang.errors import counted

    print_line(
        f"{report.batches} batches, {report.records} records, {report.discarded} discarded, {report.seconds:.1f} s"
    )
    for query, count in report.matches.items():
        print_line(f"{query}: {counted(count, 'match', 'matches')}")
