"""Commands about texts: `ensue check`, `fmt`, `explain`, `list`, `import` and `schema`."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ensue.commands.common import (
    Json,
    QueryFile,
    QueryPattern,
    names_like,
    print_content,
    print_error,
    print_json,
    print_line,
    print_text,
    with_data_options,
)
from ensue.data_options import DataOptions
from ensue.queries import Queries, load
from querylang.dataclass import dataclass, replace
from querylang.errors import EnsueError, QueryErrors
from querylang.plan.model import Plan, QueryPlan
from querylang.system_errors import refused

if TYPE_CHECKING:
    from ensue.commands.findings import FilesByKind

# `ensue check`: check query and deployment files.


def check(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE...", help="Files or folders; `-` is a query on standard input.")
    ],
    as_json: Json = False,
) -> None:
    """Check query and deployment files: all mistakes, each with its place.

    Each query file is checked by itself, those that a deployment names together. What was found in
    a hundred files and more is kept in the user's cache folder, for files that have not changed.
    """
    from ensue.commands.findings import check_files
    from querylang.errors import counted, exit_code_of_all

    report = check_files(files)
    if as_json:
        print_json(report.to_plain())
    else:
        for error in report.errors:
            print_error(str(error))
        for warning in report.warnings:
            print_error(f"warning: {warning}")
        if not report.errors:
            print_text(f"{counted(report.files, 'file')}, no mistakes")
    raise typer.Exit(exit_code_of_all(report.errors))


# `ensue schema`: print the JSON schema of deployment files.


def schema() -> None:
    """Print the JSON schema of deployment files, for editors."""
    import job_engine

    folder = Path(job_engine.__file__).parent
    print_content((folder / "deployment.schema.json").read_text("utf-8"))


# `ensue explain`: show what queries compile to.


@with_data_options
def explain(
    file: QueryFile,
    events: Annotated[
        list[Path] | None, typer.Argument(metavar="[EVENTS...]", help="Tables with the types that nothing defines.")
    ] = None,
    *,
    data: DataOptions,
    dot: Annotated[bool, typer.Option("--dot", help="Print the automaton as a graph for graphviz.")] = False,
    svg: Annotated[
        Path | None, typer.Option(metavar="OUT", help="Draw the automaton as an SVG picture; of several queries each.")
    ] = None,
    program: Annotated[
        bool, typer.Option("--program", help="Print what the kernel interprets: tables, and each condition's program.")
    ] = False,
    query: QueryPattern = None,
    as_json: Json = False,
) -> None:
    """Show what a query compiles to.

    The automaton, the conditions and where each is checked, the state, the matcher, the pushdown.
    """
    from ensue.data_options import read_parameters
    from ensue.rendering import explanation
    from querylang.parameters import with_instances
    from querylang.plan.describe import program_to_dot, to_dot
    from runtime.policies.plan_policies import SourceOrdering, parse_orderings, with_ordering
    from runtime.policies.settings_text import parse_forget_keys, with_forget_keys

    plan = _template(load(file), file, events or [], data)
    if data.parameters is not None:
        plan = with_instances(plan, read_parameters(data.parameters))
    plan = with_ordering(plan, [SourceOrdering(*chosen) for chosen in parse_orderings(data.ordering).items()])
    plan = with_forget_keys(plan, parse_forget_keys(data.forget_keys))
    shown = names_like(query, (item.public_title for item in plan.queries))
    whole, plan = plan, replace(plan, queries=tuple(item for item in plan.queries if item.public_title in shown))
    if svg is not None:
        for path in explanation.draw(plan, svg):
            print_line(str(path))
    elif dot:
        graphs = [program_to_dot(plan.queries), *map(to_dot, plan.queries)]
        print_text("\n\n".join(filter(None, graphs)))
    elif program:
        print_text(explanation.programs(plan))
    elif as_json:
        print_json(explanation.plain(plan))
    else:
        explained = (item for item in explanation.explain(whole) if item.query in plan.queries)
        print_text("\n\n".join(item.text() for item in explained))


def _template(queries: Queries, file: Path, events: list[Path], data: DataOptions) -> Plan:
    """The queries before they get their parameters. Raises QueryErrors and InputError."""
    if events:
        from ensue.plans import as_tables, fitted

        return fitted(queries, as_tables(list(events)), data.columns).template
    try:
        return queries.template()
    except QueryErrors:
        if queries.open_types:
            types = ", ".join(queries.open_types)
            print_error(f"nothing defines {types}; a table shows the fields: `ensue explain {file} EVENTS`")
        raise


# `ensue list`: what queries there are, of all files at once.

SEVERITY = "severity"
"""The key of a query's metadata that is shown by itself."""


def list_queries(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Query and deployment files, or folders.")],
    query: QueryPattern = None,
    as_json: Json = False,
) -> None:
    """List queries: severity, inputs with keys and windows, what each takes and routes.

    As JSON with filters, metadata and the bound of the state, too. A file with mistakes is reported
    and left out.
    """
    from ensue.commands.findings import files_by_kind
    from querylang.errors import exit_code_of_all

    errors: list[EnsueError] = []
    queries = list(_listed(files_by_kind(files, errors), errors))
    if query is not None and queries:
        shown = names_like(query, (item.query.name for item in queries))
        queries = [item for item in queries if item.query.name in shown]
    for error in errors:
        print_error(str(error))
    if as_json:
        print_json({"queries": [item.to_plain() for item in queries], "errors": len(errors)})
    elif queries:
        print_text(_table(queries))
    elif not errors:
        print_text("no queries")
    raise typer.Exit(exit_code_of_all(errors))


@dataclass(frozen=True, slots=True)
class ListedQuery:
    """A query of a file.

    routes: the event types that it routes
    """

    file: str
    query: QueryPlan
    routes: tuple[str, ...]

    @property
    def severity(self) -> str | None:
        """As the query's metadata say."""
        return dict(self.query.metadata).get(SEVERITY)

    def to_plain(self) -> dict[str, Any]:
        """For machines."""
        from querylang.plan.describe import filter_text, key_text, state_lines, window_text

        return {
            "query": self.query.name,
            "file": self.file,
            "severity": self.severity,
            "metadata": dict(self.query.metadata),
            "keys": list(self.query.key_names),
            "inputs": [
                {
                    "event": item.event,
                    **({} if item.role is None else {"role": item.role}),
                    "filter": filter_text(item),
                    "key": key_text(item, self.query) or None,
                    "window": window_text(item),
                }
                for item in self.query.inputs
            ],
            "takes": list(dict.fromkeys(item.event for item in self.query.inputs)),
            "routes": list(self.routes),
            "state": state_lines(self.query),
        }

    def row(self) -> tuple[str, ...]:
        """For people."""
        from querylang.plan.describe import input_text, window_text

        inputs = "; ".join(f"{input_text(item)} {window_text(item)}" for item in self.query.inputs)
        keys = ", ".join(self.query.key_names)
        return (self.query.name, self.severity or "-", inputs, keys or "-", ", ".join(self.routes) or "-", self.file)


def _listed(found: FilesByKind, errors: list[EnsueError]) -> Iterator[ListedQuery]:
    """The queries of files, each once; adds what cannot be read to `errors`."""
    from ensue.commands.findings import programs_of
    from job_engine.job.plan_rules import written_by
    from querylang.load import check_paths, compile_checked

    programs, alone = programs_of(found)
    files = {path.resolve(): str(path) for path in found.queries}
    seen: set[tuple[str, str]] = set()
    for program in [*programs, *alone]:
        try:
            checked = check_paths(program)
        except EnsueError as mistake:
            errors.append(mistake)
            continue
        plan = compile_checked(checked)
        written = written_by(plan, checked.written)
        for query in plan.queries:
            place = checked.files[query.name]
            file = files.get(Path(place).resolve(), place)
            if (file, query.name) not in seen:
                seen.add((file, query.name))
                routes = (item.event or "?" for item in written[query.name] if item.word == "route")
                yield ListedQuery(file, query, tuple(dict.fromkeys(routes)))


def _table(queries: Sequence[ListedQuery]) -> str:
    from ensue.rendering.text_table import text_table

    return text_table(("query", "severity", "inputs", "key", "routes", "file"), [item.row() for item in queries])


# `ensue fmt`: format query and definition files.


def fmt(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Files or folders; `-` is standard input.")],
    only_check: Annotated[
        bool, typer.Option("--check", help="Change nothing; exit code 1 if a file would be.")
    ] = False,
    to_stdout: Annotated[bool, typer.Option("--stdout", help="Print the result, change nothing.")] = False,
) -> None:
    """Format files in the one canonical layout; comments are kept.

    Prints the names of the files that it changed. What comes from a pipe is printed, as of
    standard input.
    """
    from ensue.commands import findings
    from querylang.errors import ExitCode, exit_code_of_all

    if files == [Path("-")]:
        raise typer.Exit(_format_standard_input(only_check=only_check))
    mistakes: list[EnsueError] = []
    has_changes = False
    for item in findings.layouts(files):
        if item.mistakes is not None:
            mistakes.append(item.mistakes)
            print_error(str(item.mistakes))
        elif to_stdout or not (only_check or item.can_be_written):
            print_content(item.after)
        elif item.is_changed:
            if not only_check:
                findings.write(item)
            print_line(str(item.path))
        has_changes = has_changes or item.is_changed
    if only_check and has_changes:
        raise typer.Exit(ExitCode.INPUT)
    raise typer.Exit(exit_code_of_all(mistakes))


def _format_standard_input(*, only_check: bool) -> int:
    import querylang

    text = sys.stdin.read()
    formatted = querylang.format_text(text, "-")
    if only_check:
        return int(text != formatted)
    print_content(formatted)
    return 0


# `ensue import`: a pattern that was written for another engine to a query file.


def import_sql(
    file: Annotated[
        Path, typer.Argument(metavar="FILE.sql", help="A text with one MATCH_RECOGNIZE clause; `-` is standard input.")
    ],
    out: Annotated[Path | None, typer.Option("--out", help="The query file; without it the text is printed.")] = None,
) -> None:
    """Translate a MATCH_RECOGNIZE clause to a query, where it means the same.

    The query finds the same matches in the same rows. What has no counterpart, or would mean
    something else, is refused with its line and the reason. Rows without a key are a partition, as
    in SQL, unless the text leaves them out.
    """
    from querylang.errors import InputError

    try:
        from ensue.importing.translation import translate
    except ModuleNotFoundError:
        raise InputError("ensue import needs the package sqlglot: pip install 'ensue[sql]'") from None

    found = translate(_text(file), str(file), _name(out or file))
    if out is not None and out.exists():
        raise InputError(f"{out}: exists already; remove it, or give another name")
    if out is None:
        print_content(found)
        return
    out.write_text(found, encoding="utf-8")
    print_line(str(out))


def _text(file: Path) -> str:

    try:
        text = sys.stdin.read() if file == Path("-") else file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise refused(error, f"{file}: cannot be read") from None
    return text.removeprefix("\ufeff")  # of an editor on Windows


def _name(file: Path) -> str:
    """The name of the query, from that of a file."""
    words = "".join(letter if letter.isascii() and letter.isalnum() else " " for letter in file.stem).split()
    name = "".join(word[:1].upper() + word[1:] for word in words)
    return name if name[:1].isalpha() else f"Query{name}"
