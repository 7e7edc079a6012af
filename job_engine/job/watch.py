"""The HTTP server beside a job: `/metrics`, `/healthz` and `/readyz`.

It answers from before the driver starts until the job ends.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

from job_engine.clock import monotonic, wait_for
from job_engine.deployment import Address, Deployment
from job_engine.job.checkpoint.job_folder import JobFolder, failed_tries
from job_engine.job.driver import Running
from job_engine.job.prometheus import Metrics
from job_engine.job.reports import Observed, Pulse, figures_at_start
from job_engine.job.status import backlog_of
from job_engine.threads import in_background, new_event
from querylang.errors import PassingError
from querylang.plan.model import Plan
from querylang.system_errors import refused
from runtime.policies.settings_text import parse_duration

WITHIN = 300.0
"""Seconds that a micro-batch of a job that is ready may take; `/readyz?within=` sets others."""

INTERVAL = 1.0
"""Seconds between two looks at the run."""

_TEXT = "text/plain; charset=utf-8"
_METRICS = "text/plain; version=0.0.4; charset=utf-8"


def open_watch(deployment: Deployment, plan: Plan) -> Watch | None:
    """The server that a deployment asks for; None = it asks for none. Raises InputError."""
    if deployment.metrics is None:
        return None
    titles = [query.title for query in plan.queries]
    figures = figures_at_start(JobFolder(deployment.checkpoint), titles, [it.name for it in deployment.sources])
    metrics = Metrics(
        deployment.name, figures, lambda: backlog_of(deployment), lambda: failed_tries(deployment.checkpoint)
    )
    return Watch(deployment.metrics, metrics)


class Watch:
    """The server of one run."""

    def __init__(self, address: Address, metrics: Metrics) -> None:
        """Raises InputError if the port cannot be had, PassingError where another has it."""
        self._metrics = metrics
        self._pulse = Pulse(monotonic())
        self._run: Running | None = None
        self._is_needed: Callable[[], bool] = lambda: False
        self._ended = new_event()
        self._server = _server(address, self._answer)
        in_background(partial(self._server.serve_forever, 0.2), "ensue-metrics")

    def observe(self, observed: Observed) -> None:
        """After each micro-batch, and after measures that come later."""
        self._metrics.figures = self._metrics.figures.after(observed)
        if observed.report is not None:
            self._metrics.durations.observe(observed.report.seconds)
        self._pulse.beat(monotonic())

    def hold_while(self, is_needed: Callable[[], bool]) -> None:
        """Stay open as long as `is_needed`, between two runs of the job, too."""
        self._is_needed = is_needed

    def follow(self, run: Running) -> None:
        """Look at a run of the job until the job ends; then close."""
        self._run = run
        in_background(partial(self._look, run), "ensue-pulse")

    def close(self) -> None:
        """Free the port."""
        if not self._ended.is_set():
            self._ended.set()
            self._server.shutdown()
            self._server.server_close()

    def _look(self, run: Running) -> None:
        has_ended = False
        while not wait_for(self._ended, INTERVAL):
            if not run.is_active:
                if self._run is not run:
                    return  # a change of its queries has started the job again
                if has_ended and not self._runs():
                    self.close()
                    return
                has_ended = True  # the job may be about to start again: it is seen at the next look
                continue
            if run.is_idle:
                self._pulse.beat(monotonic())

    def _runs(self) -> bool:
        return self._run is None or self._run.is_active or self._is_needed()

    def _answer(self, target: str) -> tuple[int, str, bytes]:
        """Status, type and content for a path."""
        asked = urlsplit(target)
        match asked.path:
            case "/metrics":
                return 200, _METRICS, self._metrics.text()
            case "/healthz":
                return _told("" if self._runs() else "the streaming query has ended")
            case "/readyz":
                given = parse_qs(asked.query).get("within")
                within = parse_duration(given[-1]) if given else int(WITHIN * 1e6)
                if within is None:
                    return 400, _TEXT, b"`within` must be a length of time such as `2m`\n"
                if self._run is None:
                    return _told("the job is starting")
                if not self._runs():
                    return _told("the streaming query has ended")
                return _told(self._pulse.problem(monotonic(), within / 1e6))
            case _:
                return 404, _TEXT, b"here are /metrics, /healthz and /readyz\n"


def _told(problem: str) -> tuple[int, str, bytes]:
    return (503, _TEXT, f"{problem}\n".encode()) if problem else (200, _TEXT, b"ok\n")


def _server(address: Address, answer: Callable[[str], tuple[int, str, bytes]]) -> ThreadingHTTPServer:
    class Handler(BaseHTTPRequestHandler):
        timeout = 10
        server_version = "ensue"
        sys_version = ""

        def do_GET(self) -> None:
            try:
                status, kind, content = answer(self.path)
            except Exception as error:  # noqa: BLE001 # the job continues, and who asks sees what is wrong
                status, kind, content = 500, _TEXT, f"{type(error).__name__}\n".encode()
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content)

        do_HEAD = do_GET  # noqa: N815 # the name that the library looks for

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Requests are not part of the job's log."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        address_family = socket.AF_INET6 if ":" in address.host else socket.AF_INET

        def handle_error(self, *_: object) -> None:
            """Who asked has gone away; nobody else is concerned."""

    try:
        return Server((address.host, address.port), Handler)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise PassingError(
                f"metrics: the port {address} is taken by another process; choose another one with `metrics`"
            ) from error
        raise refused(error, f"metrics: cannot listen at {address}") from error
