"""The log of a run as JSON: one object a line, on standard error."""

from __future__ import annotations

import logging
import sys
import threading
import time
import traceback
from typing import TYPE_CHECKING, Any, TextIO, cast

from ensue.commands.output import print_log_line
from querylang.printable import LOGGER

if TYPE_CHECKING:
    from job_engine.job.reports import BatchReport, RunReport


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
