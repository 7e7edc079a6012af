"""`ensue run`: run the job of a deployment file, on Spark or on this machine alone."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ensue.commands import common
from ensue.commands.json_log import JsonLog
from job_engine.setting_keys import Engine
from job_engine.stopping import SIGNAL_EXIT, Stopped
from querylang.dataclass import dataclass
from querylang.errors import ExitCode, exit_code_of
from querylang.printable import LogForm

if TYPE_CHECKING:
    from job_engine.deployment import Deployment
    from job_engine.job.reports import BatchReport, OnBatch, RunReport


STOPPED_EARLY = "stopped before the job had started; the next run continues where the last one has ended"
STOPPED = "stopped before all input was processed; the next run continues from here"


def run(
    file: common.DeploymentFile,
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
    apply: Annotated[
        bool, typer.Option("--apply", help="Take over what has changed in the files of queries and values.")
    ] = False,
    accept: Annotated[
        list[str] | None,
        typer.Option(
            "--accept", metavar="TABLE", help="Take a table that has lost more than half of its rows. May be repeated."
        ),
    ] = None,
    skip: Annotated[
        list[str] | None,
        typer.Option(
            "--skip",
            metavar="SOURCE/PARTITION/OFFSET",
            help="Leave out a message of a topic from now on; it counts as malformed. May be repeated.",
        ),
    ] = None,
    engine: Annotated[
        Engine | None,
        typer.Option(
            "--engine", help="What runs it, in place of `engine` of the file, else of `ENSUE_ENGINE`, else `spark`."
        ),
    ] = None,
    log: Annotated[
        LogForm | None, typer.Option("--log", help="Write the log as lines of text or as JSON objects, a line each.")
    ] = None,
    as_json: common.Json = False,
) -> None:
    """Run the job of a deployment file, on Spark or on this machine alone."""
    settings = _Settings(once, flush, accept_loss, apply, tuple(accept or ()), tuple(skip or ()), engine, as_json)
    if log is LogForm.JSON:
        _run_with_json_log(file, settings)
        return
    try:
        from job_engine.deployment_file import load_deployment

        # mistakes in the file are reported before Spark is imported
        deployment = load_deployment(file, engine=engine)
        if log is None and deployment.log is LogForm.JSON:
            _run_with_json_log(file, settings)
        else:
            _run_with_text(file, deployment, settings)
    except Stopped as stop:
        common.print_error(STOPPED_EARLY)
        raise typer.Exit(_code_of_signal(stop.number, settings)) from None


@dataclass(frozen=True, slots=True)
class _Settings:
    """The options of the command."""

    once: bool
    flush: bool
    accept_loss: bool
    apply: bool
    accept: tuple[str, ...]
    skip: tuple[str, ...]
    engine: Engine | None
    as_json: bool


def _run_with_text(file: Path, deployment: Deployment, settings: _Settings) -> None:
    report = _run(file, deployment, settings, _print_progress)
    common.print_idle_queries(report.idle)
    if settings.as_json:
        common.print_json(_as_one_object(report))
    else:
        _print_report(report)
    code = _exit_code(report, settings)
    if settings.once and report.stopped_by is not None:
        common.print_error(STOPPED)
    elif code:
        common.exit_with_no_row_read()
    if code:
        raise typer.Exit(code)


def _run_with_json_log(file: Path, settings: _Settings) -> None:
    """The same with a log of JSON objects, which also has errors and the end of the run."""
    from querylang.parameters import missing
    from querylang.printable import warn

    log = JsonLog()
    log.install()
    try:
        from job_engine.deployment_file import load_deployment

        deployment = load_deployment(file, engine=settings.engine)
        log.know(deployment.name)
        log.write("start", file=str(file), once=settings.once, flush=settings.flush)
        report = _run(file, deployment, settings, log.batch)
        for query in report.idle:
            warn(missing(query))
    except Stopped as stop:
        code = _code_of_signal(stop.number, settings)
        warn(STOPPED_EARLY)
        log.stopped(stop.number, code)
        raise typer.Exit(code) from None
    except Exception as error:  # noqa: BLE001 # our own failure, too
        failure = exit_code_of(error)
        log.failed(error, failure, is_ours=failure == ExitCode.OURS)
        raise typer.Exit(failure) from None
    code = _exit_code(report, settings)
    if settings.once and report.stopped_by is not None:
        warn(STOPPED)
    elif code:
        warn(common.NO_ROW_READ)
    log.end(report, code)
    if settings.as_json:
        common.print_json(_as_one_object(report))
    if code:
        raise typer.Exit(code)


def _run(file: Path, deployment: Deployment, settings: _Settings, progress: OnBatch) -> RunReport:
    from job_engine.job.driver import driver_of
    from job_engine.setting_keys import Engine
    from runtime.column_types import load_arrow_alone

    if deployment.engine is Engine.LOCAL:
        load_arrow_alone()
    driver = driver_of(deployment)
    driver.refuse_missing()
    driver.start_early(deployment)
    from ensue.background import archive_classes_for_next_time, compile_for_job
    from job_engine.job import job

    def tell(batch: BatchReport) -> None:
        if batch.batch == 0:  # not before: the first micro-batch needs the processor
            compile_for_job()
        progress(batch)

    report = job.run(
        file,
        once=settings.once,
        flush=settings.flush,
        progress=tell,
        accept_loss=settings.accept_loss,
        accept=settings.accept,
        skip=settings.skip,
        apply=settings.apply,
        engine=settings.engine,
    )
    archive_classes_for_next_time()
    return report


def _code_of_signal(number: int, settings: _Settings) -> int:
    """A run without an end is ended by a signal, in order; one with `--once` is interrupted."""
    return SIGNAL_EXIT + number if settings.once else ExitCode.DONE


def _exit_code(report: RunReport, settings: _Settings) -> int:
    if report.stopped_by is not None:
        return _code_of_signal(report.stopped_by, settings)
    return ExitCode.INPUT if settings.once and report.is_unreadable else ExitCode.DONE


def _print_progress(batch: BatchReport) -> None:
    from querylang.errors import counted

    records = counted(batch.records, "record")
    matches = counted(sum(batch.matches.values()), "match", "matches")
    common.print_error(f"batch {batch.batch}: {records}, {matches}, {batch.seconds:.1f} s")


def _as_one_object(report: RunReport) -> dict[str, object]:
    ledger = [
        {"query": query, "source": source, "what": what, "count": count}
        for (query, source, what), count in sorted(report.ledger.items())
    ]
    counts = {"batches": report.batches, "records": report.records, "matches": dict(report.matches)}
    return {**counts, "discarded": report.discarded, "ledger": ledger}


def _print_report(report: RunReport) -> None:
    from ensue.rendering.account import MOST_LINES, left_text
    from querylang.errors import counted
    from runtime.results.ledger import ledger_table

    batches, records = counted(report.batches, "batch", "batches"), counted(report.records, "record")
    common.print_line(f"{batches}, {records}, {report.discarded} discarded, {report.seconds:.1f} s")
    without = [query for query, count in report.matches.items() if not count]
    is_long = len(report.matches) > MOST_LINES
    for query, count in report.matches.items():
        if count or not is_long:
            common.print_line(f"{query}: {counted(count, 'match', 'matches')}")
    if is_long and without:
        common.print_line(f"{counted(len(without), 'query', 'queries')} without a match")
    for line in left_text(report.waiting, report.next_due, ledger_table(Counter(report.ledger))):
        common.print_line(line)
