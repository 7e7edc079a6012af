"""`ensue run`: run the job of a deployment file, on Spark or on this machine alone."""

from __future__ import annotations

import logging
import sys
import threading
import time
import traceback
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO, cast

import typer

from ensue.commands.options import DeploymentFile, Json
from ensue.commands.output import (
    NO_ROW_READ,
    exit_with_no_row_read,
    print_error,
    print_idle_queries,
    print_json,
    print_line,
    print_log_line,
)
from job_engine.document.setting_keys import Engine
from querylang.errors import ExitCode, exit_code_of
from querylang.printable import LOGGER, LogForm

if TYPE_CHECKING:
    from job_engine.job.reports import BatchReport, OnBatch, RunReport
    from job_engine.settings.deployment import Deployment


SIGNAL_EXIT = 128
"""Exit code of a run that a signal ended, less the signal's number."""

STOPPED = "stopped before all input was processed; the next run continues from here"


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
    apply: Annotated[
        bool, typer.Option("--apply", help="Take over what has changed in the files of queries and values.")
    ] = False,
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
    as_json: Json = False,
) -> None:
    """Run the job of a deployment file, on Spark or on this machine alone."""
    settings = _Settings(once, flush, accept_loss, apply, tuple(skip or ()), engine, as_json)
    if log is LogForm.JSON:
        _run_with_json_log(file, settings)
        return
    from job_engine.settings.deployment_file import load_deployment

    # mistakes in the file are reported before Spark is imported
    deployment = load_deployment(file, engine=engine)
    if log is None and deployment.log is LogForm.JSON:
        _run_with_json_log(file, settings)
    else:
        _run_with_text(file, deployment, settings)


@dataclass(frozen=True, slots=True)
class _Settings:
    """The options of the command."""

    once: bool
    flush: bool
    accept_loss: bool
    apply: bool
    skip: tuple[str, ...]
    engine: Engine | None
    as_json: bool


def _run_with_text(file: Path, deployment: Deployment, settings: _Settings) -> None:
    report = _run(file, deployment, settings, _print_progress)
    print_idle_queries(report.idle)
    if settings.as_json:
        print_json(_as_one_object(report))
    else:
        _print_report(report)
    code = _exit_code(report, settings)
    if settings.once and report.stopped_by is not None:
        print_error(STOPPED)
    elif code:
        exit_with_no_row_read()
    if code:
        raise typer.Exit(code)


def _run_with_json_log(file: Path, settings: _Settings) -> None:
    """The same with a log of JSON objects, which also has errors and the end of the run."""
    from job_engine.settings.deployment_file import load_deployment
    from querylang.parameters import missing
    from querylang.printable import warn

    log = JsonLog()
    log.install()
    try:
        deployment = load_deployment(file, engine=settings.engine)
        log.job = deployment.name
        log.write("start", file=str(file), once=settings.once, flush=settings.flush)
        report = _run(file, deployment, settings, log.batch)
        for query in report.idle:
            warn(missing(query))
    except Exception as error:  # noqa: BLE001 # our own failure, too
        failure = exit_code_of(error)
        log.failed(error, failure, is_ours=failure == ExitCode.OURS)
        raise typer.Exit(failure) from None
    code = _exit_code(report, settings)
    if settings.once and report.stopped_by is not None:
        warn(STOPPED)
    elif code:
        warn(NO_ROW_READ)
    log.end(report, code)
    if settings.as_json:
        print_json(_as_one_object(report))
    if code:
        raise typer.Exit(code)


def _run(file: Path, deployment: Deployment, settings: _Settings, progress: OnBatch) -> RunReport:
    from job_engine.job.driver import driver_of

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
        skip=settings.skip,
        apply=settings.apply,
        engine=settings.engine,
    )
    archive_classes_for_next_time()
    return report


def _exit_code(report: RunReport, settings: _Settings) -> int:
    if settings.once and report.stopped_by is not None:
        return SIGNAL_EXIT + report.stopped_by
    return ExitCode.INPUT if settings.once and report.is_unreadable else ExitCode.DONE


def _print_progress(batch: BatchReport) -> None:
    from querylang.errors import counted

    records = counted(batch.records, "record")
    matches = counted(sum(batch.matches.values()), "match", "matches")
    print_error(f"batch {batch.batch}: {records}, {matches}, {batch.seconds:.1f} s")


def _as_one_object(report: RunReport) -> dict[str, object]:
    ledger = [
        {"query": query, "source": source, "what": what, "count": count}
        for (query, source, what), count in sorted(report.ledger.items())
    ]
    counts = {"batches": report.batches, "records": report.records, "matches": dict(report.matches)}
    return {**counts, "discarded": report.discarded, "ledger": ledger}


def _print_report(report: RunReport) -> None:
    from ensue.rendering.account import left_text
    from querylang.errors import counted
    from runtime.results.ledger import ledger_table

    batches, records = counted(report.batches, "batch", "batches"), counted(report.records, "record")
    print_line(f"{batches}, {records}, {report.discarded} discarded, {report.seconds:.1f} s")
    for query, count in report.matches.items():
        print_line(f"{query}: {counted(count, 'match', 'matches')}")
    for line in left_text(report.waiting, report.next_due, ledger_table(Counter(report.ledger))):
        print_line(line)


# The log of a run as JSON: one object a line, on standard error.


class JsonLog(logging.Handler):
    """Writes events; also a handler for what Ensue warns of.

    job: the job's name; "" = it is not known yet
    """

    def __init__(self) -> None:
        super().__init__()
        self.job = ""
        self._own_lock = threading.Lock()

    def install(self) -> None:
        """Take what Ensue, its compiler of kernels and Java say from now on."""
        from runtime.compiling.notice import tell_on
        from spark_backend.launch.jvm import take_lines

        logger = logging.getLogger(LOGGER)
        logger.addHandler(self)
        logger.propagate = False
        tell_on(cast("TextIO", _Lines(self)))
        take_lines(lambda line: self.write("java", "error", message=line.decode("utf-8", "replace").rstrip()))

    def emit(self, record: logging.LogRecord) -> None:
        """A warning of Ensue."""
        fields = {"event": "warning", "message": record.getMessage(), **getattr(record, "fields", {})}
        self.write(level=record.levelname.lower(), **fields)

    def write(self, event: str, level: str = "info", **fields: Any) -> None:
        """One line; a field that is None is left out."""
        now = time.time_ns() // 1000
        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now // 10**6)) + f".{now % 10**6:06d}Z"
        entry = {"time": moment, "level": level, "event": event, "job": self.job or None, **fields}
        with self._own_lock:
            print_log_line({key: value for key, value in entry.items() if value is not None})

    def batch(self, report: BatchReport) -> None:
        """After each micro-batch."""
        self.write(
            "micro_batch",
            batch=report.batch,
            records=report.records,
            matches=dict(report.matches),
            outputs=report.outputs,
            errors=report.errors,
            discarded=report.discarded,
            malformed=report.malformed,
            state_bytes=report.state_bytes,
            seconds=round(report.seconds, 6),
        )

    def end(self, report: RunReport, exit_code: int) -> None:
        """At the end of a run that nothing has broken."""
        from runtime.timestamps import format_time

        self.write(
            "end",
            exit_code=exit_code,
            batches=report.batches,
            records=report.records,
            matches=dict(report.matches),
            discarded=report.discarded,
            seconds=round(report.seconds, 6),
            waiting=report.waiting,
            next_due=None if report.next_due is None else format_time(report.next_due),
            signal=report.stopped_by,
        )

    def failed(self, error: BaseException, exit_code: int, *, is_ours: bool) -> None:
        """At the end of a run that an error has ended."""
        lines = "".join(traceback.format_exception(error)) if is_ours else None
        self.write("failed", "error", exit_code=exit_code, message=str(error), traceback=lines)


class _Lines:
    """A stream for the notice that kernels are compiled."""

    closed = False

    def __init__(self, log: JsonLog) -> None:
        self._log = log

    def write(self, text: str) -> int:
        """One line."""
        self._log.write("compiling", message=text.strip())
        return len(text)

    def flush(self) -> None:
        """Nothing is held back."""
        sys.stderr.flush()

    def isatty(self) -> bool:
        """No progress line is wanted."""
        return False
