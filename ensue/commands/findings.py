"""What `ensue check` finds in files, and what `ensue fmt` makes of them."""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from enum import StrEnum
from hashlib import blake2b
from pathlib import Path
from typing import Any, TypedDict

import querylang
from querylang import load
from querylang.checker.checked import Checked, Written
from querylang.dataclass import dataclass, field
from querylang.errors import EnsueError, FileErrors, Mistake, QueryError, QueryErrors, near_file
from querylang.plan.routing import taken_types
from querylang.source import Source, Span
from querylang.system_errors import refused
from querylang.system_limits import exists, is_folder

# Find the mistakes in query and deployment files, for people and for editors.
#
# A finding as plain data has its place twice. `line` and `column` count from 1, in characters.
# `range` is that of the Language Server Protocol: lines and columns from 0, in UTF-16 units.

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
    """Check each query file by itself, and each deployment file with its queries.

    A folder stands for its query files and deployment files. A query file that a deployment names
    is checked with the deployment. Definition files count for all query files.
    """
    errors: list[EnsueError] = []
    sorted_out = files_by_kind(files, errors)
    programs, alone = programs_of(sorted_out)
    if sorted_out.definitions and not programs and not alone:
        programs = [sorted_out.definitions]
    found = [*map(_found_in, programs), *_found_in_each(alone)]
    warnings: list[EnsueError] = [warning for item in found for warning in item.warnings]
    errors += [error for item in found for error in item.errors]
    taken = {event for item in found for event in item.taken}
    for path, item in zip((program[-1] for program in alone), found[len(programs) :], strict=True):
        warnings += _lost_routes(item, path, taken)
    for path in sorted_out.deployments:
        try:
            warnings += _check_deployment(path)
        except EnsueError as mistake:
            errors += _single(mistake)
    count = len(sorted_out.deployments) + (len(sorted_out.queries) or len(sorted_out.definitions))
    return Report(count, _each_once(errors), _each_once(warnings))


@dataclass(frozen=True, slots=True)
class _Found:
    """What is found in the files of a program.

    - `taken`: the event types that its queries take.
    - `written`: what each query writes, by its name.
    """

    errors: Sequence[EnsueError] = ()
    warnings: Sequence[QueryError] = ()
    taken: Collection[str] = ()
    written: Mapping[str, Sequence[Written]] = field(default_factory=dict)

    @staticmethod
    def of(checked: Checked) -> _Found:
        """Of a program without mistakes."""
        from job_engine.job.plan_rules import taken_events, written_by

        plan = load.compile_checked(checked)
        return _Found((), checked.warnings, taken_events(plan), written_by(plan, checked.written))


def _found_in(program: Sequence[load.Given]) -> _Found:
    try:
        return _Found.of(querylang.check_paths(program))
    except EnsueError as mistake:
        return _Found(_single(mistake))


def _found_in_each(programs: Sequence[Sequence[Path]]) -> list[_Found]:
    """What is found in files that are programs by themselves, each behind its definition files."""
    found: dict[Path, _Found] = {}
    texts: dict[Path, list[Source]] = {}
    folders: dict[Path, list[Path]] = {}
    for program in programs:
        if program[-1] != _PIPE:
            folders.setdefault(program[-1].parent, []).extend(program)
    known = _Known.of(folders) if len(programs) >= MANY else _Known(None)
    for paths in folders.values():
        try:
            sources, definitions = load.read_sources(paths)
        except EnsueError:  # the others have to be checked nevertheless
            continue
        texts |= {Path(source.path): [*definitions, source] for source in sources}
        again = known.found_again(sources, definitions)
        found |= again
        found |= _found_at_once([source for source in sources if Path(source.path) not in again], definitions)
    own = [program[-1] for program in programs]
    for path, program in zip(own, programs, strict=True):
        if path not in found:
            found[path] = _found_in(texts.get(path, program))
    known.keep(found)
    return [found[path] for path in own]


_PIPE = Path(load.STANDARD_INPUT)
_DEFINES = re.compile(r"\b(event|table)\b")
"""Without such a word, a text defines nothing that another one could use."""


def _found_at_once(texts: Sequence[Source], definitions: Sequence[Source]) -> dict[Path, _Found]:
    """What is found in those texts that define nothing, and in which there is no mistake.

    Most queries of a book have the form of others: what these have alike is checked once if all are
    one set. A text that has a mistake in the set is left out, because alone it may have none.
    """
    sources = [source for source in texts if _DEFINES.search(source.text) is None]
    while sources:
        try:
            checked = querylang.check_paths([*definitions, *sources])
        except QueryErrors as mistakes:
            wrong = {mistake.span.source.path for mistake in mistakes.errors}
            left = [source for source in sources if source.path not in wrong]
            if len(left) == len(sources):  # it is in a definition file
                return {}
            sources = left
            continue
        if any("." in event.name for event in checked.events):  # a name may mean the type of another text
            return {}
        whole, by_file = _Found.of(checked), dict[str, list[QueryError]]()
        for warning in whole.warnings:
            by_file.setdefault(warning.span.source.path, []).append(warning)
        written: dict[str, dict[str, Sequence[Written]]] = {}
        for name, items in whole.written.items():
            written.setdefault(checked.files[name], {})[name] = items
        taken: dict[str, set[str]] = {}
        for query in checked.queries:
            taken.setdefault(checked.files[query.name], set()).update(taken_types(query))
        return {
            Path(path): _Found((), by_file.get(path, ()), taken.get(path, ()), written.get(path, {}))
            for path in (source.path for source in sources)
        }
    return {}


# What was found before in files that are programs by themselves, kept in the user's cache folder: a
# changed file of a book is checked, and the others are not.
#
# Only texts without mistakes and warnings are kept. One is found again as long as it, its name, its
# definitions, and the code that checks are the same. What a check leaves is of its own files only,
# so removed files leave nothing, and of two checks at once the last one is kept.

MANY = 100
"""So many files are worth it."""

_MOST_KEPT = 16
"""So many books are kept, those that were checked last."""

_Clean = tuple[list[str], list[tuple[str, str]]]
"""The event types that a text takes; the name of a query and an event type that it routes."""


class _KeptFindings(TypedDict):
    """`clean`: by digest of a text."""

    clean: dict[str, _Clean]


@dataclass(slots=True)
class _Known:
    """What was found before.

    place: the file that has it; None = nothing is kept
    before: by digest of a text
    digests: of this check's texts, by path
    """

    place: Path | None
    before: Mapping[str, _Clean] = field(default_factory=dict)
    digests: dict[Path, str] = field(default_factory=dict)

    @staticmethod
    def of(folders: Iterable[Path]) -> _Known:
        """That of a book in these folders; nothing where the cache folder is not for this user
        only, or cannot be written."""
        from runtime.compiling.files import cache_of_user, can_keep

        try:
            above = os.path.commonpath([folder.resolve() for folder in folders])
            name = blake2b(os.fsencode(above), digest_size=16).hexdigest()
            place = cache_of_user() / f"checked_{name}.json"
            return _Known(place, _read_clean(place)) if can_keep(place.parent) else _Known(None)
        except (OSError, ValueError):
            return _Known(None)

    def found_again(self, sources: Sequence[Source], definitions: Sequence[Source]) -> dict[Path, _Found]:
        """What was found in those texts of a folder that are as they were."""
        if self.place is None:
            return {}
        digests = dict(zip((Path(source.path) for source in sources), _digests(sources, definitions), strict=True))
        self.digests |= digests
        return {path: _found_of(self.before[digest]) for path, digest in digests.items() if digest in self.before}

    def keep(self, found: Mapping[Path, _Found]) -> None:
        """Keep what was found in this check."""
        if self.place is None:
            return
        all_found = [(digest, found[path]) for path, digest in self.digests.items() if path in found]
        now = {digest: _clean_of(item) for digest, item in all_found if not item.errors and not item.warnings}
        if now != self.before:
            _write_clean(self.place, now)


def _digests(sources: Sequence[Source], definitions: Sequence[Source]) -> Iterator[str]:
    """Of each text all that decides what is found in it."""
    from importlib import metadata

    from runtime.compiling.files import code_digest

    common = [metadata.version("ensue"), code_digest("querylang", "job_engine.job", "ensue.commands")]
    of_all = blake2b(repr([*common, [item.text for item in definitions]]).encode("utf-8", "surrogatepass"))
    folders = {Path(item.path).parent for item in definitions}
    for source in sources:
        path, digest = Path(source.path), of_all.copy()
        digest.update(repr((path.name, path.parent in folders, source.text)).encode("utf-8", "surrogatepass"))
        yield digest.hexdigest()[:32]


def _found_of(clean: _Clean) -> _Found:
    taken, routes = clean
    written: dict[str, list[Written]] = {}
    for name, event in routes:
        written.setdefault(name, []).append(Written("route", event=event))
    return _Found(taken=taken, written=written)


def _clean_of(found: _Found) -> _Clean:
    routes = [(name, item.event) for name, items in found.written.items() for item in items]
    return sorted(found.taken), [(name, event) for name, event in routes if event is not None]


def _read_clean(place: Path) -> dict[str, _Clean]:
    from runtime.json_reader import DamagedJson, read_json

    try:
        return read_json(place, _KeptFindings, way_out="")["clean"]
    except (OSError, DamagedJson):
        return {}


def _write_clean(place: Path, clean: Mapping[str, _Clean]) -> None:
    """Replace the file; without it, the next check takes longer."""
    with suppress(OSError):
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=place.parent, prefix=f".{place.name}.")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                json.dump({"clean": clean}, file)
            Path(name).replace(place)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
        kept = sorted(place.parent.glob("checked_*.json"), key=lambda path: path.stat().st_mtime, reverse=True)
        for old in kept[_MOST_KEPT:]:
            old.unlink(missing_ok=True)


def _lost_routes(found: _Found, path: Path, taken: Collection[str]) -> list[EnsueError]:
    """The warnings of a file that is a program by itself.

    taken: the event types that the queries of all files take, because they may run together
    """
    from job_engine.job.plan_rules import lost_routes

    return [FileErrors(str(path), [(None, warning)]) for warning in lost_routes(found.written, taken)]


@dataclass(frozen=True, slots=True)
class FilesByKind:
    """The files to read, by what they are."""

    deployments: list[Path]
    definitions: list[Path]
    queries: list[Path]


def files_by_kind(files: Sequence[Path], errors: list[EnsueError]) -> FilesByKind:
    """Each file once, those of folders too; adds to `errors` what does not exist."""
    found: dict[Path, None] = {}
    for path in files:
        try:
            found |= dict.fromkeys(_files_of(path))
        except EnsueError as missing:
            errors.append(missing)
    deployments = [path for path in found if path.suffix in DEPLOYMENT_SUFFIXES]
    definitions = [path for path in found if path.suffix == load.DEFINITION_SUFFIX]
    others = {*deployments, *definitions}
    return FilesByKind(deployments, definitions, [path for path in found if path not in others])


def programs_of(found: FilesByKind) -> tuple[list[list[Path]], list[list[Path]]]:
    """The files that are compiled together: those of a deployment; each other query file alone."""
    joined = [program for path in found.deployments if (program := _queries_of(path))]
    given = {path.resolve(): path for path in found.queries}
    programs = [
        [given.get(path, path) for path in program] for program in joined if not given.keys().isdisjoint(program)
    ]
    for program in joined:
        for path in program:
            given.pop(path, None)
    return programs, [[*found.definitions, path] for path in given.values()]


def _files_of(path: Path) -> list[Path]:
    if is_folder(path):
        yamls = [item for item in sorted(path.rglob("*")) if item.suffix in DEPLOYMENT_SUFFIXES and item.is_file()]
        return [*load.query_files(path), *filter(_is_deployment, yamls)]
    if str(path) != load.STANDARD_INPUT and not exists(path) and path.suffix not in DEPLOYMENT_SUFFIXES:
        raise FileErrors(str(path), [(None, f"no such file or folder{near_file(path)}")])
    return [path]


def _is_deployment(path: Path) -> bool:
    """Whether a file of a folder is a deployment: other tools write YAML too."""
    keys = {line.partition(":")[0] for line in path.read_text("utf-8", errors="replace").splitlines() if ":" in line}
    return {"queries", "sources"} <= keys


def _queries_of(path: Path) -> list[Path]:
    """The query files that a deployment names, resolved; none if it has mistakes."""
    from job_engine.deployment_file import load_deployment

    try:
        given = [item for item in load_deployment(path).queries if isinstance(item, Path)]
        return [file.resolve() for item in given for file in (load.query_files(item) if is_folder(item) else [item])]
    except EnsueError:  # reported when the deployment is checked
        return []


def _each_once(found: Sequence[EnsueError]) -> tuple[EnsueError, ...]:
    """A query file is checked by itself and with each deployment that names it, by other paths."""
    return tuple({_identity(error): error for error in reversed(found)}.values())[::-1]


def _identity(error: EnsueError) -> tuple[object, ...]:
    if not isinstance(error, QueryError):
        return (str(error),)
    place = error.span
    message = error.message.replace(f"{Path.cwd()}{os.sep}", "")  # it may name another file
    return Path(place.source.path).absolute(), place.start, place.end, error.code, message


def _check_deployment(path: Path) -> list[EnsueError]:
    """The warnings of a deployment; raises its mistakes."""
    from job_engine.deployment_file import load_deployment
    from job_engine.errors import in_plain_words
    from job_engine.job.plan_rules import (
        lost_outputs,
        lost_routes,
        open_waits,
        refuse_missing_tables,
        refuse_name_conflicts,
        refuse_unknown_fields,
        silent_channels,
        taken_events,
        unused_source_times,
        unused_tables,
        with_source_orderings,
        written_by,
    )
    from querylang.parameters import with_instances

    deployment = load_deployment(path)
    with in_plain_words(deployment.environment):
        checked = querylang.check_paths(deployment.queries)
        plan = load.compile_checked(checked)
        instances = with_instances(plan, deployment.parameters, is_check=True)
        refuse_name_conflicts(path, instances)
        refuse_missing_tables(deployment, plan)
        refuse_unknown_fields(deployment, plan)
        unseen = [event.name for event in plan.events if not event.fields]
        with_source_orderings(plan, deployment, unseen=unseen)
        ordered = with_source_orderings(instances, deployment, unseen=unseen)
    written = written_by(instances, checked.written)
    told = [
        *open_waits(instances, deployment),
        *unused_source_times(ordered, deployment),
        *lost_outputs(written, deployment),
        *silent_channels(written, deployment),
        *lost_routes(written, taken_events(instances)),
        *unused_tables(plan, deployment),
    ]
    remarks = [FileErrors(str(path), [(None, warning)]) for warning in told]
    is_kept = deployment.forget_keys is None
    kept = [item for item in checked.warnings if is_kept and item.code == Mistake.KEPT_KEYS.code]
    return [*remarks, *kept]


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


# Lay out files in the canonical layout, which `querylang.format_text` defines.
#
# A file is written completely or not at all.


@dataclass(frozen=True, slots=True)
class Layout:
    """A file before and after.

    mistakes: why the file stays as it is; None = it can be formatted
    """

    path: Path
    before: str
    after: str
    mistakes: EnsueError | None = None

    @property
    def is_changed(self) -> bool:
        """Whether the file is not in the canonical layout yet."""
        return self.before != self.after

    @property
    def can_be_written(self) -> bool:
        """Whether it is a file: a pipe is read once, and has nothing to replace."""
        return self.path.is_file()


def layouts(paths: Sequence[Path]) -> Iterator[Layout]:
    """The layout of each file, once; those of a folder in order of name.

    A link in a folder that leads out of it is left out: nobody asked for that file.
    """
    seen: dict[Path, None] = {}
    for path in paths:
        if not exists(path):
            yield _refused(path, "", FileErrors(str(path), [(None, f"no such file or folder{near_file(path)}")]))
        seen.update(dict.fromkeys(_files(path)))
    for path in seen:
        yield _layout(path)


def _files(path: Path) -> list[Path]:
    if not is_folder(path):
        return [path] if exists(path) else []
    suffixes = (*load.QUERY_SUFFIXES, load.DEFINITION_SUFFIX)
    inside = path.resolve()
    return [
        item
        for item in sorted(path.rglob("*"))
        if item.suffix in suffixes and item.is_file() and item.resolve().is_relative_to(inside)
    ]


def _layout(path: Path) -> Layout:
    try:
        before = path.read_bytes().decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        return _refused(path, "", refused(error, f"{path}: cannot be read"))
    try:
        return Layout(path, before, querylang.format_text(before, str(path)))
    except EnsueError as mistakes:
        return _refused(path, before, mistakes)


def _refused(path: Path, text: str, mistakes: EnsueError) -> Layout:
    return Layout(path, text, text, mistakes)


def write(layout: Layout) -> None:
    """Replace the file in one step; its owner, its permissions, and links to it are kept.

    Raises InputError.
    """
    try:
        _replace(layout.path.resolve(), layout.after)
    except OSError as error:
        raise refused(error, f"{layout.path}: cannot be written") from error


def _replace(target: Path, text: str) -> None:
    before = target.stat()
    if before.st_nlink > 1:  # a new file would have one of the names only
        target.write_bytes(text.encode())
        return
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(text.encode())
        if (before.st_uid, before.st_gid) != (os.geteuid(), os.getegid()):
            os.chown(name, before.st_uid, before.st_gid)
        shutil.copymode(target, name)
        Path(name).replace(target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
