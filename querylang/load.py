"""From texts and files to checked queries and plans: all stages of the language in order.

Mistakes in texts raise one `QueryErrors` with all of them in text order. A path that cannot be read
is an `InputError`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache
from os import PathLike
from pathlib import Path, PurePath

from querylang.checker.alike import Alike, Piece, alike
from querylang.checker.catalogue import Catalogue
from querylang.checker.checked import Checked, Diagnostics, Written
from querylang.checker.routes import check_routes
from querylang.dataclass import dataclass
from querylang.errors import InputError, Mistake, QueryError, QueryErrors, limited_hints, near_file
from querylang.plan.expression import Type
from querylang.plan.model import EventType, Plan, QueryPlan, Table
from querylang.plan.routing import with_routes
from querylang.source import Source, Span
from querylang.syntax import ast
from querylang.syntax.lexer import Token, tokenize
from querylang.syntax.parser import parse, parse_tokens
from querylang.system_errors import refused
from querylang.system_limits import exists, is_folder

# Read the event definitions of `.mon` files, which are programs in a larger language.
#
# Monitors, aggregates and everything else are skipped. An action or constant that queries cannot
# use is a `Refused` member.

_OPENING = {"LBRACE": "RBRACE", "LPAREN": "RPAREN"}
_FOREIGN = frozenset({"static", "import"})
"""Words that begin members only in the larger language."""


def parse_definitions(source: Source) -> tuple[ast.File, list[QueryError]]:
    """The events defined at the top level of the text, and the mistakes in their definitions."""
    return parse_tokens(source, list(_definitions(source, tokenize(source).tokens)), [])


def _definitions(source: Source, tokens: list[Token]) -> Iterator[Token]:
    position = 0
    while position < len(tokens):
        match tokens[position].type:
            case "PACKAGE" | "USING":
                end = _after(tokens, position, "SEMICOLON")
                yield from tokens[position:end]
            case "SIGN":
                end = _after_annotation(tokens, position)
                yield from tokens[position:end]
            case "EVENT":
                end = _after_group(tokens, position, "LBRACE")
                yield from _event(source, tokens[position:end])
            case "LBRACE":
                end = _after_group(tokens, position, "LBRACE")
            case _:
                end = position + 1
        position = end


def _event(source: Source, tokens: list[Token]) -> Iterator[Token]:
    """An event's tokens; each member that queries cannot use becomes one REFUSED."""
    position = next((index + 1 for index, token in enumerate(tokens) if token.type == "LBRACE"), len(tokens))
    head = tokens[:position]
    yield from head
    while position < len(tokens):
        if tokens[position].type == "RBRACE":
            yield tokens[position]
            position += 1
            continue
        end = _after_member(tokens, position)
        member = tokens[position:end]
        yield from [_refused(member)] if _is_foreign(source, head, member) else member
        position = end


def _after_member(tokens: list[Token], position: int) -> int:
    """The position after a member: an action's block, or the next `;`.

    A field may have an action's type.
    """
    kinds = [token.type for token in tokens[position : position + 3]]
    is_action = kinds[:1] == ["ACTION"] and kinds[1:2] != ["LT"]
    is_static = tokens[position].content == "static" and kinds[1:2] == ["ACTION"]
    if is_action or is_static:
        return _after_group(tokens, position, "LBRACE")
    return _after(tokens, position, "SEMICOLON")


def _is_foreign(source: Source, head: list[Token], member: list[Token]) -> bool:
    """Whether a member is probably legal only in the larger language; a field never is."""
    first = member[0]
    if first.content in _FOREIGN and first.type == "NAME":
        return True
    if first.type not in {"ACTION", "CONSTANT"}:
        return False
    closing = member[-1].replaced("RBRACE", "}", member[-1].end)
    _file, mistakes = parse_tokens(source, [*head, *member, closing], [])
    return bool(mistakes)


def _refused(member: list[Token]) -> Token:
    return member[0].replaced("REFUSED", "member", member[-1].end)


def _after(tokens: list[Token], position: int, kind: str) -> int:
    """The position after the next token of that kind."""
    return next((index + 1 for index in range(position, len(tokens)) if tokens[index].type == kind), len(tokens))


def _after_annotation(tokens: list[Token], position: int) -> int:
    """The position after an annotation, which may have no brackets."""
    kinds = (token.type for token in tokens[position + 1 :])
    length = next((index for index, kind in enumerate(kinds) if kind not in {"NAME", "DOT"}), len(tokens))
    end = position + 1 + length
    return _after_group(tokens, end, "LPAREN") if [token.type for token in tokens[end : end + 1]] == ["LPAREN"] else end


def _after_group(tokens: list[Token], position: int, opening: str) -> int:
    """The position after the next group in such brackets, nested ones included."""
    depth = 0
    for index in range(position, len(tokens)):
        if tokens[index].type == opening:
            depth += 1
        elif tokens[index].type == _OPENING[opening] and depth:
            depth -= 1
            if depth == 0:
                return index + 1
    return len(tokens)


QUERY_SUFFIXES = (".query", ".qry")
DEFINITION_SUFFIX = ".mon"
_TABLE_SUFFIXES = (".csv", ".tsv", ".json", ".jsonl", ".ndjson", ".parquet", ".arrow", ".feather")
PATH_SUFFIXES = (*QUERY_SUFFIXES, DEFINITION_SUFFIX, ".yaml")
"""A text that ends so is a path."""
MOST_EVENT_TYPES = 30_000
"""Event types of a plan; the engine numbers them with 16 bits."""
NAMELESS = "query"
"""The name of a bare query body whose text has no path."""
STANDARD_INPUT = "-"
"""The path of a query text on standard input."""

Given = str | PathLike[str] | Source
"""A file, a folder, or a text with the path that messages show for it."""

Schemas = Mapping[str, Mapping[str, Type]]
"""Event type to its fields in order, for types that come with data."""


@dataclass(frozen=True, slots=True)
class Compiled:
    """A set of queries, ready to run."""

    plan: Plan
    warnings: tuple[QueryError, ...]


_ONLY_IN_TEXT = frozenset("{<(\n")


def is_query_text(text: str) -> bool:
    """Whether a text has signs that queries have, and is not the name of a file that exists."""
    return bool(_ONLY_IN_TEXT & set(text)) and not text.endswith(PATH_SUFFIXES) and not exists(text)


def check_text(
    text: str, path: str = "", schemas: Schemas | None = None, definitions: Sequence[Source] = ()
) -> Checked:
    """Check a query text; types that nothing defines stay open. Raises QueryErrors."""
    source = Source(path or NAMELESS, text)
    return _check([source], definitions, schemas, [_folder(source)] if definitions else [], is_final=False)


def compile_text(
    text: str, path: str = "", schemas: Schemas | None = None, definitions: Sequence[Source] = ()
) -> Compiled:
    """Compile a query text; types that nothing defines have no fields. Raises QueryErrors."""
    source = Source(path or NAMELESS, text)
    return _compiled(_check([source], definitions, schemas, [_folder(source)] if definitions else [], is_final=True))


def compile_for_known(
    text: str, known: Sequence[EventType], schemas: Schemas, tables: Sequence[Table] = ()
) -> Compiled:
    """Compile a query text that uses event types of earlier texts. Raises QueryErrors.

    known, tables: those that the text does not define
    schemas: as of `compile_text`
    """
    fields = {event.name: {field.name: field.type for field in event.fields} for event in known}
    data = {**schemas, **fields}
    return _compiled(_check([Source(NAMELESS, text)], (), data, (), is_final=True, known=known, tables=tables))


def check_paths(paths: Iterable[Given], schemas: Schemas | None = None) -> Checked:
    """Check files, folders and texts as one set. Raises QueryErrors, InputError."""
    sources, definitions = read_sources(paths)
    return _check(sources, definitions, schemas, map(_folder, definitions), is_final=False)


def compile_paths(paths: Iterable[Given], schemas: Schemas | None = None) -> Compiled:
    """Compile files, folders and texts as one set. Raises QueryErrors, InputError."""
    sources, definitions = read_sources(paths)
    return _compiled(_check(sources, definitions, schemas, map(_folder, definitions), is_final=True))


def read_sources(paths: Iterable[Given]) -> tuple[list[Source], list[Source]]:
    """The query files under these paths, and the definition files in their folders; each file once.

    Texts are taken as they are; those of definition files are definitions.

    Raises InputError.
    """
    queries: dict[Path, Source] = {}
    definitions: dict[Path, Source] = {}
    folders: set[Path] = set()
    for given in paths:
        if isinstance(given, Source):
            path = Path(given.path)
            (definitions if path.suffix == DEFINITION_SUFFIX else queries)[path] = given
            continue
        for path in _files(Path(given)):
            if path.suffix == DEFINITION_SUFFIX:
                definitions.setdefault(path, _read(path))
                continue
            queries.setdefault(path, _read(path))
            if str(path) == STANDARD_INPUT or path.parent in folders:  # nothing is beside it, or it was read
                continue
            folders.add(path.parent)
            for beside in sorted(path.parent.glob(f"*{DEFINITION_SUFFIX}")):
                definitions.setdefault(beside, _read(beside))
    return list(queries.values()), list(definitions.values())


def texts_of(paths: Iterable[Given]) -> tuple[Source, ...]:
    """All of `read_sources`, to be given in place of the paths: a pipe can be read once.

    Raises InputError.
    """
    queries, definitions = read_sources(paths)
    return (*queries, *definitions)


def words_of(paths: Iterable[Given]) -> set[str]:
    """The words of query texts, in lower case: every name that a query reads is one of them."""
    return {word.casefold() for item in read_sources(paths)[0] for word in re.findall(r"\w+", item.text)}


def query_files(folder: Path) -> list[Path]:
    """The query files below a folder, in order of name; InputError if there are none."""
    found = [item for item in sorted(folder.rglob("*")) if item.suffix in QUERY_SUFFIXES and item.is_file()]
    if not found:
        raise InputError(f"{folder}: no query files in this folder")
    return found


def _files(path: Path) -> list[Path]:
    if is_folder(path):
        return query_files(path)
    if str(path) != STANDARD_INPUT and not exists(path):
        raise InputError(f"{path}: no such file or folder{near_file(path)}")
    return [path]


def _read(path: Path) -> Source:
    if path.suffix in (*_TABLE_SUFFIXES, ".yaml", ".yml"):
        what = "a table of events" if path.suffix in _TABLE_SUFFIXES else "a YAML file"
        raise InputError(
            f"{path}: is {what}, not a query file; expected one that ends in {' or '.join(QUERY_SUFFIXES)}"
        )
    try:
        is_piped = str(path) == STANDARD_INPUT
        text = _standard_input() if is_piped else path.read_text(encoding="utf-8-sig")  # without a byte order mark
        return Source(str(path), text)
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 text (byte {error.start + 1})") from error
    except OSError as error:
        raise refused(error, str(path)) from error


@cache
def _standard_input() -> str:
    """What standard input brings: queries are read again when they are compiled for data."""
    return sys.stdin.buffer.read().decode("utf-8-sig").replace("\r\n", "\n")


def _compiled(checked: Checked) -> Compiled:
    return Compiled(compile_checked(checked), checked.warnings)


def _check(
    sources: Sequence[Source],
    definitions: Sequence[Source],
    schemas: Schemas | None,
    defining_folders: Iterable[str],
    *,
    is_final: bool,
    known: Sequence[EventType] = (),
    tables: Sequence[Table] = (),
) -> Checked:
    """Check texts as one set, with a limit to the work for hints."""
    folders = set(defining_folders)

    def checked(own: Alike) -> Checked:
        with limited_hints():
            catalogue = Catalogue(schemas or {}, is_final, known, tables)
            return _check_all(sources, definitions, catalogue, folders, own)

    # All mistakes of a text are found where each of its queries is checked by itself. A query that
    # is made of another one has none, so each text with mistakes is known after the first time.
    wrong = set[str]()
    while (shared := alike([source for source in sources if source.path not in wrong], folders)) is not None:
        try:
            return checked(shared)
        except QueryErrors as mistakes:
            before = len(wrong)
            wrong |= {mistake.span.source.path for mistake in mistakes.errors}
            if len(wrong) == before:
                raise
    return checked(Alike())


def _check_all(
    sources: Sequence[Source],
    definitions: Sequence[Source],
    catalogue: Catalogue,
    folders: Collection[str],
    shared: Alike,
) -> Checked:
    """Check texts as one set.

    - `folders`: those with definition files, in which an unknown event type is a mistake.
    - `shared`: queries that are checked as one.
    """
    diagnostics = Diagnostics()
    for source in definitions:
        catalogue.add_definitions(*parse_definitions(source))
    files: list[ast.File] = []
    is_twice = len(set(sources)) < len(sources)  # their nodes are told apart by identity
    for source in sources:
        file, mistakes = parse(source) if is_twice else shared.parsed(source)
        catalogue.add(file)
        files.append(file)
        diagnostics.extend(mistakes)
    diagnostics.extend(catalogue.complete())
    queries: list[QueryPlan | None] = []
    written: dict[str, tuple[Written, ...]] = {}
    places: dict[str, Span] = {}
    for file in files:
        is_strict = bool(file.events) or _folder(file.source) in folders
        namespace = catalogue.namespace(file, diagnostics, is_strict=is_strict)
        for query in shared.queries(file):
            name = _named(file.source, query, places, diagnostics)
            found = shared.check(query, name, file.source, namespace)
            queries.append(found.plan)
            written[name] = found.written
    diagnostics.extend(catalogue.problems(of_all=not sources))
    events = catalogue.event_types()
    checked = with_routes([query for query in queries if query is not None], events)
    if not diagnostics.mistakes:
        check_routes(checked, written, places, diagnostics)
    if sources and len(events) > MOST_EVENT_TYPES:
        diagnostics.report(Mistake.TOO_MANY_TYPES, sources[0].span(0, 0), limit=MOST_EVENT_TYPES)
    if diagnostics.mistakes:
        raise QueryErrors(_in_text_order(diagnostics.mistakes, [*sources, *definitions]))
    assert len(checked) == len(queries), "a query that could not be checked has a mistake"
    warnings = tuple(_in_text_order(diagnostics.warnings, sources))
    files_of = {name: span.source.path for name, span in places.items()}
    return Checked(events, checked, warnings, written, files_of, not catalogue.types.has_unseen)


def _folder(source: Source) -> str:
    return str(PurePath(source.path).parent)


def _named(source: Source, query: ast.Query | Piece, places: dict[str, Span], diagnostics: Diagnostics) -> str:
    """The query's name, or the file's stem for a bare body; reports a duplicate."""
    if isinstance(query, Piece):
        name, span = query.name, source.span(query.name_start, query.name_start + len(query.name))
        return _first(name, span, places, diagnostics)
    name = query.name.text if query.name is not None else PurePath(source.path).stem
    name = NAMELESS if name == STANDARD_INPUT else name
    return _first(name, query.name.span if query.name is not None else query.span, places, diagnostics)


def _first(name: str, span: Span, places: dict[str, Span], diagnostics: Diagnostics) -> str:
    """The name; reports that it is that of another query."""
    first = places.setdefault(name, span)
    if first is not span:
        place = f"{first.source.path}:{first.line}"
        diagnostics.report(Mistake.DUPLICATE_QUERY, span, name=name, place=place)
    return name


def _in_text_order(mistakes: Iterable[QueryError], sources: Sequence[Source]) -> list[QueryError]:
    """Sort by file as given, then by place; the same mistake at the same place is kept once."""
    order = {source.path: number for number, source in reversed(list(enumerate(sources)))}
    unique = {(error.span.source.path, error.span.start, error.message): error for error in mistakes}
    return sorted(unique.values(), key=lambda error: (order[error.span.source.path], error.span.start, error.span.end))


def compile_checked(checked: Checked) -> Plan:
    """The plan; queries with parameters are templates in it (`querylang.parameters`)."""
    return Plan(checked.events, checked.queries)
