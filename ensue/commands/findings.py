"""Find the mistakes in query and deployment files, for people and for editors.

A finding as plain data has its place twice. `line` and `column` count from 1, in characters.
`range` is that of the Language Server Protocol: lines and columns from 0, in UTF-16 units.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import querylang
from querylang.errors import EnsueError, FileErrors, Mistake, QueryError, QueryErrors
from querylang.paths import exists
from querylang.source import Span

DEPLOYMENT_SUFFIXES = (".yaml", ".yml")


class Severity(StrEnum):
    """An error must be corrected, a warning read."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class Report:
    """The mistakes in a set of files, each once.

    files: number of files that were read
    """

    files: int
    errors: tuple[EnsueError, ...]
    warnings: tuple[EnsueError, ...]

    def to_plain(self) -> dict[str, Any]:
        """For machines."""
        errors = [item for error in self.errors for item in findings(error, Severity.ERROR)]
        warnings = [item for warning in self.warnings for item in findings(warning, Severity.WARNING)]
        return {"files": self.files, "errors": errors, "warnings": warnings}


def check_files(files: Sequence[Path]) -> Report:
    """Check query files and folders as one set, and each deployment file with its queries."""
    deployments = [path for path in files if path.suffix in DEPLOYMENT_SUFFIXES]
    missing = [path for path in files if path not in deployments and not exists(path)]
    queries = [path for path in files if path not in deployments and path not in missing]
    errors: list[EnsueError] = [FileErrors(str(path), [(None, "no such file or folder")]) for path in missing]
    warnings: list[EnsueError] = []
    count = len(deployments)
    if queries:
        try:
            sources, definitions = querylang.read_sources(queries)
            count += len(sources) or len(definitions)
            warnings += querylang.check_paths(queries).warnings
        except EnsueError as found:
            errors += _single(found)
    for path in deployments:
        try:
            warnings += _check_deployment(path)
        except EnsueError as found:
            errors += _single(found)
    return Report(count, _each_once(errors), _each_once(warnings))


def _each_once(found: Sequence[EnsueError]) -> tuple[EnsueError, ...]:
    """A query file is checked by itself and with each deployment that names it, by other paths."""
    return tuple({_identity(error): error for error in reversed(found)}.values())[::-1]


def _identity(error: EnsueError) -> tuple[object, ...]:
    if not isinstance(error, QueryError):
        return (str(error),)
    place = error.span
    return Path(place.source.path).absolute(), place.start, place.end, error.code, error.message


def _check_deployment(path: Path) -> list[EnsueError]:
    """The warnings of a deployment; raises its mistakes."""
    from querylang.compiler import compile_checked
    from querylang.parameters.instances import with_instances
    from spark_backend.errors import in_plain_words
    from spark_backend.job.checks.lost_outputs import lost_outputs
    from spark_backend.job.checks.name_conflicts import refuse_name_conflicts
    from spark_backend.job.checks.open_waits import open_waits
    from spark_backend.job.settings import load_deployment
    from spark_backend.job.source_orderings import with_source_orderings

    deployment = load_deployment(path)
    with in_plain_words(deployment.environment):
        checked = querylang.check_paths(deployment.queries)
        plan = compile_checked(checked)
        instances = with_instances(plan, deployment.parameters, is_check=True)
        refuse_name_conflicts(path, instances)
        with_source_orderings(plan, deployment, unseen=[event.name for event in plan.events if not event.fields])
    told = [*open_waits(instances, deployment), *lost_outputs(instances, deployment)]
    own = [FileErrors(str(path), [(None, warning)]) for warning in told]
    is_kept = deployment.forget_keys is None
    kept = [item for item in checked.warnings if is_kept and item.code == Mistake.KEPT_KEYS.code]
    return [*own, *kept]


def _single(found: EnsueError) -> Sequence[EnsueError]:
    return found.errors if isinstance(found, QueryErrors) else (found,)


def findings(error: EnsueError, severity: Severity) -> Iterator[dict[str, Any]]:
    """A mistake as plain data: one finding per line that it names."""
    match error:
        case QueryError(span=span):
            place = {"path": str(span.source.path), "line": span.line, "column": span.column}
            yield _finding(place, error.code, error.message, severity, editor_range(span))
        case FileErrors():
            for line, message in error.found:
                place = {"path": error.path, "line": line, "column": None}
                yield _finding(place, "input", message, severity, None if line is None else _whole_line(line))
        case _:
            yield _finding({"path": None, "line": None, "column": None}, "input", str(error), severity, None)


def _whole_line(line: int) -> dict[str, Any]:
    return {"start": _position(line - 1, 0), "end": _position(line, 0)}


def _finding(
    place: dict[str, Any], code: str, message: str, severity: Severity, range_: dict[str, Any] | None
) -> dict[str, Any]:
    return {**place, "code": code, "message": message, "severity": str(severity), "range": range_}


def editor_range(span: Span) -> dict[str, Any]:
    """A place as a range of the Language Server Protocol; its end is exclusive."""
    return {"start": _editor_position(span, span.start), "end": _editor_position(span, max(span.start, span.end))}


def _editor_position(span: Span, offset: int) -> dict[str, int]:
    before = span.source.text[:offset]
    line = before[before.rfind("\n") + 1 :]
    return _position(before.count("\n"), len(line.encode("utf-16-le", "surrogatepass")) // 2)


def _position(line: int, character: int) -> dict[str, int]:
    return {"line": line, "character": character}
