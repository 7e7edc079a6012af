"""The log of a run as JSON: one object a line, whatever writes to standard output or error.

A process beside the run reads what others write there: libraries, Java, workers, and a process that
dies. Each line of theirs becomes an object, too. The run's own objects do not pass through it.
"""

from __future__ import annotations

import json
import logging
import os
import select
import signal
import socket
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TextIO, TypedDict, cast

from ensue.commands.common import print_log_line
from querylang.printable import LOGGER, keep_secret, kept_secrets, masked
from runtime.json_reader import DamagedJson, json_of_text
from runtime.progress_line import ONCE

if TYPE_CHECKING:
    from job_engine.job.reports import BatchReport, RunReport

IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""They reach all processes of a terminal or service; the reader ends when nobody writes."""

LONGEST_LINE = 1 << 20
"""Bytes. A longer line becomes several."""

LONGEST_WAIT = 2.0
"""Seconds that a run waits at its end until all lines are written."""

KILLED = "the process of the run ended without a word, as one does that is killed; the next run continues from here"


def entry_of(event: str, level: str, job: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    """An object of the log; what is None or empty is left out."""
    now = time.time_ns() // 1000
    moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now // 10**6)) + f".{now % 10**6:06d}Z"
    entry = {"time": moment, "level": level, "event": event, "job": job or None, **fields}
    return {key: value for key, value in entry.items() if value is not None}


class JsonLog(logging.Handler):
    """Writes events; also a handler for what Ensue warns of.

    job: the job's name; "" = it is not known yet
    """

    def __init__(self) -> None:
        super().__init__()
        self.job = ""
        self._own_lock = threading.Lock()
        self._beside: Beside | None = None

    def install(self) -> None:
        """Take what Ensue, Python, its compiler of kernels, Java and all others say from now on."""
        from runtime.progress_line import tell_on
        from spark_backend.launch.jvm import take_lines

        self._beside = begin_beside()
        logger = logging.getLogger(LOGGER)
        logger.addHandler(self)
        logger.propagate = False
        tell_on(cast("TextIO", _Lines(self)))
        take_lines(lambda line: self.write("java", "error", message=line.decode("utf-8", "replace").rstrip()))
        warnings.showwarning = self._python_warns

    def know(self, job: str) -> None:
        """The job's name, and the secrets of its file, are known from now on."""
        self.job = job
        if self._beside is not None:
            self._beside.know(job)

    def _python_warns(self, message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
        self.write("warning", "warning", message=f"{category.__name__}: {message}")

    def emit(self, record: logging.LogRecord) -> None:
        """A warning of Ensue."""
        fields = {"event": "warning", "message": record.getMessage(), **getattr(record, "fields", {})}
        self.write(level=record.levelname.lower(), **fields)

    def write(self, event: str, level: str = "info", **fields: Any) -> None:
        """One line; a field that is None is left out."""
        out = None if self._beside is None else self._beside.log
        with self._own_lock:
            print_log_line(entry_of(event, level, self.job, fields), out)

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

    def stopped(self, number: int, exit_code: int) -> None:
        """At the end of a run that a signal has ended before it had started."""
        self.write("end", exit_code=exit_code, batches=0, records=0, matches={}, discarded=0, signal=number)

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


class _Said(TypedDict):
    """What a run tells the process beside it."""

    job: str
    secrets: dict[str, str]
    has_ended: bool


class Beside:
    """The process that reads what others write; it is forked before there are threads.

    log: where the run's own objects go
    """

    def __init__(self) -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        real = {number: os.dup(number) for number in (1, 2)}
        pipes = {number: os.pipe() for number in real}
        self._control, theirs = socket.socketpair()
        self._job = ""
        if os.fork() == 0:
            self._control.close()
            for number, (_, end) in pipes.items():
                os.close(end)
                os.close(number)
            _Reader(theirs, {end: real[number] for number, (end, _) in pipes.items()}, real[2]).run()
            os._exit(0)
        theirs.close()
        for number, (ours, end) in pipes.items():
            os.dup2(end, number)
            os.close(end)
            os.close(ours)
        os.close(real[1])
        self.log: TextIO = os.fdopen(real[2], "w", encoding="utf-8", errors="surrogateescape")

    def know(self, job: str) -> None:
        """Hand over what lines must not show, and the name of the job."""
        self._job = job
        self._tell(has_ended=False)

    def end(self) -> None:
        """The run ends by itself; returns when all lines so far are written, or soon."""
        with suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        self._tell(has_ended=True)
        with suppress(OSError):
            self._control.settimeout(LONGEST_WAIT)
            self._control.recv(1)

    def _tell(self, *, has_ended: bool) -> None:
        said = {"job": self._job, "secrets": kept_secrets(), "has_ended": has_ended}
        with suppress(OSError):
            self._control.sendall(json.dumps(said).encode() + b"\n")


_beside: Beside | None = None


def asks_for_objects(arguments: Sequence[str]) -> bool:
    """Whether the arguments of the command line ask for a log of JSON objects."""
    return arguments[:1] == ["run"] and (
        "--log=json" in arguments or any(pair == ("--log", "json") for pair in pairwise(arguments))
    )


def begin_beside() -> Beside:
    """Let every line of this process, and of those that it starts, become an object from now on."""
    global _beside  # noqa: PLW0603 # a process has one standard output
    _beside = _beside or Beside()
    return _beside


def end_beside() -> None:
    """This process ends by itself."""
    if _beside is not None:
        _beside.end()


class _Reader:
    """What the process beside a run does: objects pass, other lines become objects.

    real: by the pipe that is read, where its objects go
    log: where all other lines go, as objects
    """

    def __init__(self, control: socket.socket, real: Mapping[int, int], log: int) -> None:
        self._control, self._real, self._log = control, dict(real), log
        self._held = dict.fromkeys(self._real, b"")
        self._told = b""
        self._job = ""
        self._has_ended = False

    def run(self) -> None:
        """Until nobody can write any more."""
        for number in IGNORED:
            signal.signal(number, signal.SIG_IGN)
        control = [self._control.fileno()]
        while self._held:
            ready, _, _ = select.select([*control, *self._held], [], [])
            if control and control[0] in ready and not self._is_told():
                control = []
                if not self._has_ended:
                    self._write(KILLED, "failed")
            for pipe in [pipe for pipe in self._held if pipe in ready]:
                self._read(pipe)
            if control and self._has_ended and self._is_silent():
                control = []
                with suppress(OSError):
                    self._control.sendall(b"1")

    def _is_told(self) -> bool:
        """Take what the run says; False = it is not there any more."""
        data = b""
        with suppress(OSError):
            data = self._control.recv(1 << 16)
        *lines, self._told = (self._told + data).split(b"\n")
        for line in lines:
            said = json_of_text(line, _Said)
            self._job, self._has_ended = said["job"], said["has_ended"]
            for name, value in said["secrets"].items():
                keep_secret(name, value)
        return bool(data)

    def _is_silent(self) -> bool:
        return not select.select([*self._held], [], [], 0)[0]

    def _read(self, pipe: int) -> None:
        data = os.read(pipe, 1 << 16)
        *lines, rest = (self._held[pipe] + data).split(b"\n")
        if not data or len(rest) > LONGEST_LINE:
            lines, rest = [*lines, rest], b""
        self._held[pipe] = rest
        for line in lines:
            self._pass(pipe, line)
        if not data:
            del self._held[pipe]

    def _pass(self, pipe: int, line: bytes) -> None:
        text = line.decode("utf-8", "replace").rstrip()
        if not text:
            return
        if self._real[pipe] != self._log and _is_object(text):  # a result of the run
            with suppress(OSError), os.fdopen(os.dup(self._real[pipe]), "w", encoding="utf-8") as out:
                out.write(masked(text) + "\n")
        else:
            is_notice = text == ONCE  # of a worker
            self._write(text, *(("compiling", "info") if is_notice else ("output",)))

    def _write(self, text: str, event: str, level: str = "error") -> None:
        with suppress(OSError), os.fdopen(os.dup(self._log), "w", encoding="utf-8") as out:
            print_log_line(entry_of(event, level, self._job, {"message": text}), out)


def _is_object(text: str) -> bool:
    if not text.startswith("{"):
        return False
    try:
        json_of_text(text, dict[str, Any])
    except DamagedJson:
        return False
    return True
