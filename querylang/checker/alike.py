"""Check once what many queries have alike: those that differ in constants and names only.

The first query of each form is checked as it is written. A second time it is checked with marks in
place of its constants: they show where each constant is in the plan, and whether anything depends
on it (`querylang.plan.constants`). The other queries are neither parsed nor checked, but made of
this plan. If anything is unusual, a query is parsed and checked by itself; if a text has mistakes,
all of it is (`querylang.load`).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import PurePath

from querylang.checker.checked import Diagnostics, Written
from querylang.checker.namespaces import Namespace
from querylang.checker.query.check_query import check_query, written_by
from querylang.checker.query.warnings import compares_fields_often, warn_of_no_match
from querylang.dataclass import dataclass, field, replace
from querylang.errors import QueryError
from querylang.plan.constants import Constant, Template, template_of
from querylang.plan.model import QueryPlan
from querylang.source import Source
from querylang.syntax import ast
from querylang.syntax.lexer import KEYWORDS, SOFT_WORDS
from querylang.syntax.parser import parse, parsed

# Find the queries of a text without parsing it, and what those of one form have alike.
#
# A book of rules has few shapes and many queries. What is found here is certain for texts without
# mistakes; texts in which something is unusual have no pieces.

_STRING = r'"[^"\\\n]*(?:\\.[^"\\\n]*)*"'
_COMMENT = r"//[^\n]*|/\*[\s\S]*?\*/"
_NUMBER = r"(?<![\w.#])[0-9]{1,18}(?:\.[0-9]{1,18})?(?![\w.])"
_SIGN = re.compile(rf"{_STRING}|{_COMMENT}|(?<![\w.#])query[ \t\r\n]+([^\W\d]\w*)[ \t\r\n]*{{|[{{}}'`\"]")
_CONSTANT = re.compile(rf"({_STRING}|{_COMMENT}|{_NUMBER})")
_METHOD = re.compile(r"\.\s*\w+\s*\($")
_BEFORE = frozenset("=<>[,+-*")
"""Signs behind which a constant is an operand or an element."""
_WORDS = (" print", " log")
_UNUSUAL = re.compile("[\0\ud800-\udfff]")

INTEGER, FLOAT, TEXT = "\0i", "\0f", "\0s"
"""What stands for a constant in a form, by its kind."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A query of a text.

    - `start`, `end`: its place. `name_start`: that of its name.
    - `form`: what is behind its name, without comments, and with a mark for each constant that may
      be another one.
    - `constants`: these constants, as they are written.
    """

    start: int
    end: int
    name_start: int
    name: str
    form: str
    constants: tuple[str, ...]


def pieces(text: str) -> list[Piece]:
    """The queries of a text that have a name, in their order."""
    if _UNUSUAL.search(text):
        return []
    found = list[Piece]()
    depth, begun = 0, None
    for sign in _SIGN.finditer(text):
        match sign.group()[-1] if sign.group(1) else sign.group()[0]:
            case "{":
                begun = sign if depth == 0 and sign.group(1) else begun
                depth += 1
            case "}":
                depth -= 1
                if depth == 0 and begun is not None:
                    found += _piece(text, begun, sign.end())
                    begun = None
            case "'" | "`":
                return []
            case '"' if len(sign.group()) == 1:
                return []
        if depth < 0:
            return []
    return found if depth == 0 else []


def _piece(text: str, begun: re.Match[str], end: int) -> Iterator[Piece]:
    """The piece, unless its name is a word of the language."""
    name = begun.group(1)
    if name in KEYWORDS or name in SOFT_WORDS or name.startswith("__"):
        return
    parts = _CONSTANT.split(text[begun.end(1) : end])
    constants = list[str]()
    for place in range(1, len(parts), 2):
        part = parts[place]
        if part[0] == "/":
            parts[place] = " "
        elif "\\" not in part and _may_differ(parts[place - 1].rstrip(), parts[place + 1].lstrip()[:1]):
            constants.append(part)
            parts[place] = TEXT if part[0] == '"' else FLOAT if "." in part else INTEGER
    yield Piece(begun.start(), end, begun.start(1), name, "".join(parts), tuple(constants))


def _may_differ(before: str, after: str) -> bool:
    """Whether a constant is an operand, an element or an argument, by what is beside it."""
    last = before[-1:]
    if after == ":" or (last == "," and after == "}"):  # of a range, of a repeat
        return False
    return last in _BEFORE or before.endswith(_WORDS) or (last == "(" and _METHOD.search(before[-80:]) is not None)


def written_with(piece: Piece, constants: Mapping[str, str]) -> str:
    """The text of the query with other constants in place of its own."""
    given = iter(piece.constants)
    return f"query {piece.name}" + re.sub("\0[ifs]", lambda _: constants[next(given)], piece.form)


FEWEST = 3
"""Queries of one form, from which on they are checked as one."""

_MARK = 7_000_000_000_000
"""Marks are numbers from here on, and texts with such a number."""


@dataclass(frozen=True, slots=True)
class CheckedQuery:
    """A query with its plan, None if it has mistakes; and what it writes."""

    plan: QueryPlan | None
    written: tuple[Written, ...]


@dataclass(frozen=True, slots=True)
class _Example:
    """A query that was checked as it is written, for others of the same form.

    - `constants`: its different ones.
    """

    piece: Piece
    query: ast.Query
    found: CheckedQuery
    constants: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Shared:
    """What queries of a form are made of.

    - `free`: which of the different constants the template takes.
    - `has_limits`: whether some constants are compared with one field, which may leave no value.
    """

    template: Template
    example: _Example
    free: tuple[int, ...]
    has_limits: bool


@dataclass(slots=True)
class _Form:
    """The queries of one form.

    - `pinned`: which of the different constants are part of a template; None: not known yet.
    - `examples`, `shared`: by the values of these constants.
    - `is_shared`: nothing has shown that they cannot be checked as one.
    """

    pinned: frozenset[int] | None = None
    examples: dict[tuple[str, ...], _Example] = field(default_factory=dict)
    shared: dict[tuple[str, ...], _Shared] = field(default_factory=dict)
    is_shared: bool = True

    def values_of(self, constants: Sequence[str]) -> tuple[str, ...]:
        """The values of the pinned constants."""
        return tuple(constants[number] for number in sorted(self.pinned or ()))


_Key = tuple[str, str, str, tuple[int, ...]]


@dataclass(slots=True)
class Alike:
    """The queries of a set of texts that have the form of others.

    - `forms`: by text and place of a query, the key of its form.
    - `left_out`: by text, those that are not parsed with it, by their place.
    - `first`: by text, the first of each form, by its place.
    """

    forms: dict[tuple[str, int], _Form] = field(default_factory=dict)
    left_out: dict[str, dict[int, Piece]] = field(default_factory=dict)
    first: dict[str, dict[int, Piece]] = field(default_factory=dict)

    def parsed(self, source: Source) -> tuple[ast.File, tuple[QueryError, ...]]:
        """The tree of a text without what is left out."""
        own = self.left_out.get(source.path, {})
        return parsed(source, tuple([(piece.start, piece.end) for piece in own.values()]))

    def queries(self, file: ast.File) -> list[ast.Query | Piece]:
        """The queries of a text in text order."""
        own: dict[int, ast.Query | Piece] = {query.span.start: query for query in file.queries}
        own |= self.left_out.get(file.source.path, {})
        return [own[start] for start in sorted(own)]

    def check(self, query: ast.Query | Piece, name: str, source: Source, namespace: Namespace) -> CheckedQuery:
        """Check a query of a text, or make it of another that was checked."""
        if isinstance(query, ast.Query):
            piece = self.first.get(source.path, {}).get(query.span.start)
            return _checked(query, name, namespace) if piece is None else self._example(piece, query, source, namespace)
        form = self.forms[source.path, query.start]
        if form.is_shared and (made := _made(form, query, namespace)) is not None:
            return made
        file, mistakes = parse(source, only=(query.start, query.end))
        namespace.diagnostics.extend(mistakes)
        found = [self._example(query, item, source, namespace) for item in file.queries]
        return found[0] if found else CheckedQuery(None, ())

    def _example(self, piece: Piece, query: ast.Query, source: Source, namespace: Namespace) -> CheckedQuery:
        """Check a query as it is written; others may be made of it."""
        diagnostics, form = namespace.diagnostics, self.forms[source.path, piece.start]
        before = len(diagnostics.mistakes), len(diagnostics.warnings)
        found = _checked(query, piece.name, namespace)
        if before != (len(diagnostics.mistakes), len(diagnostics.warnings)) or found.plan is None or _routes(found):
            # The places of warnings, and of what is routed, are those of each query.
            form.is_shared = form.is_shared and bool(form.shared)
            return found
        constants = tuple(dict.fromkeys(piece.constants))
        form.examples.setdefault(form.values_of(constants), _Example(piece, query, found, constants))
        return found


def alike(sources: Sequence[Source], folders: Collection[str]) -> Alike | None:
    """Which queries of these texts have the form of others; None if none has.

    folders: those with definition files, where an unknown event type is a mistake
    """
    paths = [source.path for source in sources]
    if len(set(paths)) < len(paths) or sum(source.text.count("query") for source in sources) < FEWEST:
        return None
    forms: dict[_Key, list[tuple[str, Piece]]] = {}
    for source in sources:
        found = pieces(source.text)
        where = _where(source, found, folders)
        for piece in found:
            known = tuple(dict.fromkeys(piece.constants))
            key = *where, piece.form, tuple([known.index(item) for item in piece.constants])
            forms.setdefault(key, []).append((source.path, piece))
    made = Alike()
    for own in forms.values():
        if len(own) < FEWEST:
            continue
        form = _Form()
        for place, (path, piece) in enumerate(own):
            made.forms[path, piece.start] = form
            (made.left_out if place else made.first).setdefault(path, {})[piece.start] = piece
    return made if made.forms else None


_DEFINES = re.compile(r"\b(event|table)\b")


def _where(source: Source, found: Sequence[Piece], folders: Collection[str]) -> tuple[str, str]:
    """What names mean in a text: queries of two texts are alike only if they mean the same.

    All texts see the same event types; package and `using` decide which of them a name is.
    """
    starts = [0, *(piece.end for piece in found)]
    ends = [*(piece.start for piece in found), len(source.text)]
    beside = "".join(source.text[start:end] for start, end in zip(starts, ends, strict=True)).strip()
    if (len(found) != 1 and beside) or _DEFINES.search(beside):
        return source.path, ""
    folder = str(PurePath(source.path).parent)
    return beside, "strict" if folder in folders else "open"


def _checked(query: ast.Query, name: str, namespace: Namespace) -> CheckedQuery:
    plan = check_query(query, name, namespace)
    return CheckedQuery(plan, () if plan is None else written_by(query, namespace))


def _routes(found: CheckedQuery) -> bool:
    return any(item.event is not None or item.word == "route" for item in found.written)


def _made(form: _Form, piece: Piece, namespace: Namespace) -> CheckedQuery | None:
    """A query, made of one that was checked; None if it has to be checked by itself."""
    constants = tuple(dict.fromkeys(piece.constants))
    shared = form.shared.get(form.values_of(constants))
    if shared is None:
        example = form.examples.get(form.values_of(constants))
        if example is None:
            return None
        _share(form, example, namespace)
        shared = form.shared.get(form.values_of(constants))
        if shared is None:
            return None
    plan = shared.template.filled(piece.name, [_value(constants[number]) for number in shared.free])
    if shared.has_limits and _warns(shared.example.query, plan):
        return None
    return CheckedQuery(plan, shared.example.found.written)


def _share(form: _Form, example: _Example, namespace: Namespace) -> None:
    """Check an example with marks in place of its constants; the first time all of them."""
    count = len(example.constants)
    while True:
        free = tuple(number for number in range(count) if number not in (form.pinned or ()))
        marked = _marked(example.constants, free)
        plan = _checked_alone(written_with(example.piece, marked), example.piece.name, namespace)
        if plan is None:
            form.is_shared = bool(form.shared)
            return
        template, refused = template_of(plan, [_value(marked[example.constants[number]]) for number in free])
        if not refused:
            break
        form.pinned = (form.pinned or frozenset()) | {free[number] for number in refused}
        form.examples = {form.values_of(example.constants): example}
        form.shared.clear()
    own = template.filled(example.piece.name, [_value(example.constants[number]) for number in free])
    if own != example.found.plan:  # something else depends on a constant
        form.is_shared = bool(form.shared)
        return
    form.pinned = form.pinned or frozenset()
    form.shared[form.values_of(example.constants)] = _Shared(template, example, free, compares_fields_often(own))


def _checked_alone(text: str, name: str, namespace: Namespace) -> QueryPlan | None:
    """The plan of a query; None if there is anything to say of it."""
    file, mistakes = parse(Source(name, text))
    own = replace(namespace, diagnostics=Diagnostics())
    if mistakes or len(file.queries) != 1:
        return None
    plan = check_query(file.queries[0], name, own)
    return None if own.diagnostics.mistakes or own.diagnostics.warnings else plan


def _warns(query: ast.Query, plan: QueryPlan) -> bool:
    """Whether the constants of a query leave no match."""
    diagnostics = Diagnostics()
    assert isinstance(query.find, ast.Find), "a query without mistakes has it"
    warn_of_no_match(query.find, plan, diagnostics)
    return bool(diagnostics.warnings)


def _value(constant: str) -> Constant:
    """The value of a constant, as the parser reads it."""
    if constant[0] == '"':
        return constant[1:-1]
    return float(constant) if "." in constant else int(constant)


def _marked(constants: Sequence[str], free: Sequence[int]) -> dict[str, str]:
    """A mark for each of these constants, and the others as they are; numbers keep their order."""
    ordered = sorted(free, key=lambda number: _order(constants[number]))
    found = dict(zip(constants, constants, strict=True))
    for place, number in enumerate(ordered, _MARK // 1000):
        constant, mark = constants[number], place * 1000
        found[constant] = f'"{mark}"' if constant[0] == '"' else f"{mark}.5" if "." in constant else str(mark)
    return found


def _order(constant: str) -> tuple[bool, Constant]:
    return constant[0] == '"', _value(constant)
