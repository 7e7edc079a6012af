"""The pytest plugin: a `*.case.yaml` beside a query is a test.

A case runs on each executor of `--ensue-executors` (embedded, local, batch, stream). Results are
compared with expectations row by row; a failure shows both tables side by side, and says why the
first difference came. `--ensue-accept` rewrites expectations to the results of the embedded run.
The fixture `ensue_replay` is `ensue.replay`. Everything heavy is imported when a case is read:
other people's tests pay nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from ensue.answer import Replay
    from ensue.testing.case_run import JobRuns, Outcome
    from ensue.testing.cases import Case
    from querylang.errors import EnsueError

EXECUTORS = ("embedded", "local", "batch", "stream")
JOB_RUNS = pytest.StashKey[dict[str, "JobRuns"]]()
HAS_CASES = pytest.StashKey[bool]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    group = parser.getgroup("ensue")
    group.addoption(
        "--ensue-executors",
        default="embedded",
        help="how cases run: a comma-separated list of embedded, local, batch, stream (default: embedded)",
    )
    group.addoption("--ensue-accept", action="store_true", help="rewrite the cases' expectations to what comes out")


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Collect case files like modules."""
    if file_path.name.endswith(".case.yaml"):
        return CaseFile.from_parent(parent, path=file_path)
    return None


def pytest_sessionfinish(session: pytest.Session) -> None:
    """After cases: let kernels be compiled for the next run."""
    if session.config.stash.get(HAS_CASES, False):
        from ensue.background import compile_for_next_time

        compile_for_next_time()


class _Terminal(StringIO):
    """Writes to the terminal, past pytest's capture of what tests print."""

    def __init__(self, config: pytest.Config) -> None:
        super().__init__()
        self._capture = config.pluginmanager.getplugin("capturemanager")

    def write(self, text: str) -> int:
        """Write, while nothing is captured; a test that has redirected its output keeps that."""
        redirected = sys.stdout, sys.stderr
        with nullcontext() if self._capture is None else self._capture.global_and_fixture_disabled():
            sys.stderr.write(text)
            sys.stderr.flush()
        sys.stdout, sys.stderr = redirected
        return len(text)


@pytest.fixture
def ensue_replay() -> Callable[..., Replay]:
    """`ensue.replay`: queries over event tables, in this process."""
    import ensue

    return ensue.replay


class CaseDiffersError(Exception):
    """The results differ from what a case expects; the message shows both."""


class CaseFile(pytest.File):
    """A file of cases."""

    def collect(self) -> Iterable[pytest.Item]:
        """One test per case and executor."""
        from ensue.testing.cases import read_cases
        from querylang.errors import EnsueError
        from querylang.printable import one_line
        from runtime.progress_line import tell_on

        chosen = [word.strip() for word in self.config.getoption("--ensue-executors").split(",")]
        unknown = [word for word in chosen if word not in EXECUTORS]
        if unknown:
            raise pytest.UsageError(
                f"--ensue-executors: unknown executor {unknown[0]!r}; expected {', '.join(EXECUTORS)}"
            )
        try:
            cases = read_cases(self.path)
        except EnsueError as error:
            yield BrokenFile.from_parent(self, name="file", error=error)
            return
        if not self.config.stash.get(HAS_CASES, False):
            tell_on(_Terminal(self.config))
            self.config.stash[HAS_CASES] = True
        for case in cases:
            for executor in chosen:
                yield CaseItem.from_parent(
                    self, name=f"{one_line(case.name)}[{executor}]", case=case, executor=executor
                )


class BrokenFile(pytest.Item):
    """A file of cases that cannot be read: it fails by itself, and the others run."""

    def __init__(self, *, error: EnsueError, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.error = error

    def runtest(self) -> None:
        """Raise the mistakes of the file."""
        raise self.error

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> str | Any:
        """The mistakes without a traceback."""
        return str(self.error) if excinfo.value is self.error else super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        """The file."""
        from querylang.printable import one_line

        return self.path, None, one_line(self.path.name)


class CaseItem(pytest.Item):
    """One case on one executor."""

    def __init__(self, *, case: Case, executor: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.case = case
        self.executor = executor

    def runtest(self) -> None:
        """Raise CaseDiffersError at the first difference."""
        from ensue.testing.case_check import accept, first_difference, side_by_side

        for outcome in self._outcomes():
            difference = first_difference(outcome.expected, outcome.observed)
            if difference is None:
                continue
            if self.config.getoption("--ensue-accept") and self.executor == "embedded":
                accept(self.case, outcome.observed)
                return
            from ensue.testing.case_run import why_differs

            tables = side_by_side(outcome.expected, outcome.observed, difference)
            parts = [f"{outcome.what}\n{tables}", why_differs(self.case, outcome, difference)]
            raise CaseDiffersError("\n\n".join(part for part in parts if part))

    def _outcomes(self) -> Iterable[Outcome]:
        from ensue.testing.case_run import JobRuns, run_embedded

        if self.executor == "embedded":
            return run_embedded(self.case)
        runs = self.config.stash.setdefault(JOB_RUNS, {})
        if self.executor not in runs:
            items = [item for item in self.session.items if isinstance(item, CaseItem)]
            runs[self.executor] = JobRuns(
                self.executor, [item.case for item in items if item.executor == self.executor]
            )
        return runs[self.executor].outcomes(self.case)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> str | Any:
        """Our own errors without a traceback."""
        from querylang.errors import EnsueError

        if isinstance(excinfo.value, CaseDiffersError | EnsueError):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        """The case's file and name."""
        from querylang.printable import one_line

        return self.path, None, f"{one_line(self.path.name)}: {self.name}"
