"""Write the generated reference: `docs/errors.md`, and the tables of `docs/language.md` and `python.md`.

Sources are the catalogue of mistakes, `docs/errors.yaml`, the tables of `querylang.plan.library` and the keywords of
`ensue.data_options`. In the two pages the script replaces what is between `<!-- table: NAME -->` and `<!-- end -->`. A test
holds that all files are up to date. `make docs` runs it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import partial
from pathlib import Path
from typing import Any

import yaml

import querylang
from ensue.data_options import ARGUMENTS, FrameOptions
from querylang.errors import Mistake, QueryError, QueryErrors
from querylang.plan import library as types
from querylang.plan.expression import NUMBERS, Kind, Type
from querylang.plan.text_forms import LETTERS
from querylang.source import Source
from querylang.syntax.lexer import KEYWORDS
from runtime.interpreter.values import text_of
from tools import command_line, deployment_keys, deployment_schema, pattern_catalogue
from tools.prose import filled

DOCS = Path(__file__).resolve().parent.parent / "docs"
EXAMPLE = "example.query"
_TABLE = re.compile(r"(<!-- table: ([\w ]+) -->\n).*?(<!-- end -->)", re.DOTALL)
_FACT = re.compile(r"\{\w+(?:!r)?\}")


@dataclass(frozen=True, slots=True)
class Entry:
    """A code of the catalogue: its messages, and from errors.yaml an example, the way out, and the example mended."""

    code: str
    messages: tuple[str, ...]
    example: str
    way_out: str
    mended: str
    data: Mapping[str, Mapping[str, str]]
    definitions: Mapping[str, str]

    def reported(self, text: str) -> tuple[tuple[QueryError, ...], tuple[QueryError, ...]]:
        """The errors and the warnings of a text over the example's data, with the definitions beside it."""
        schemas = {
            event: {name: Type.parse(text) for name, text in fields.items()} for event, fields in self.data.items()
        }
        beside = [Source(name, text) for name, text in self.definitions.items()]
        try:
            return (), querylang.compile_text(text, EXAMPLE, schemas, beside).warnings
        except QueryErrors as found:
            return found.errors, ()


def catalogue() -> dict[str, tuple[str, ...]]:
    """Each code with the words of its messages, in the order of the catalogue."""
    words: dict[str, list[str]] = {}
    for mistake in Mistake:
        words.setdefault(mistake.code, []).append(mistake.words)
    return {code: tuple(messages) for code, messages in words.items()}


def examples() -> dict[str, dict[str, Any]]:
    """What errors.yaml says, by code."""
    document: dict[str, dict[str, Any]] = yaml.safe_load((DOCS / "errors.yaml").read_text())
    return document


def entries() -> list[Entry]:
    """All codes for which there is an example."""
    given = examples()
    return [
        Entry(
            code=code,
            messages=messages,
            example=given[code]["example"],
            way_out=given[code]["way_out"],
            mended=given[code]["mended"],
            data=given[code].get("data", {}),
            definitions=given[code].get("definitions", {}),
        )
        for code, messages in catalogue().items()
        if code in given
    ]


ERRORS_HEAD = """\
# Mistakes and the way out

<!-- Written by tools/reference.py from querylang/errors.py and errors.yaml; do not edit. -->
"""

ERRORS_ARE = (
    "`ensue check` reports all mistakes of a file at once, as `path:line:column: code: message`, with the line and carets "
    "under the place. The code is stable: scripts and editors may rely on it. Below, each code has a text that causes it; "
    "what is said of that text, with line and column; its other messages (`…` differs from text to text); the way out; and "
    "the lines of the text that are mended. What is allowed but [hardly meant](#warnings) is a warning: the query runs."
)

ERRORS_NEXT = (
    "Next: [the language](language.md) says what is meant by each word, and "
    "[why does my query not fire?](not-firing.md) helps where there is no mistake."
)


def errors_page() -> str:
    """The page of all mistakes."""
    every = entries()
    warnings = [entry for entry in every if entry.reported(entry.example)[1]]
    errors = [entry for entry in every if entry not in warnings]
    index = ", ".join(f"[`{entry.code}`](#{entry.code})" for entry in (*errors, *warnings))
    parts = [ERRORS_HEAD, filled(ERRORS_ARE), filled(index), "## Errors", *map(_section, errors)]
    parts += ["## Warnings", *map(_section, warnings), filled(ERRORS_NEXT)]
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


def _section(entry: Entry) -> str:
    errors, warnings = entry.reported(entry.example)
    kind = "warning" if warnings else "error"
    parts = [f"### {entry.code}"]
    if entry.data:
        parts.append(filled(f"Where the data has {_columns(entry.data)}:"))
    if entry.definitions:
        parts.append("With these definitions beside the query:")
        parts += [f"```query {name}\n{text}```" for name, text in entry.definitions.items()]
    parts.append(f"```query {kind}={entry.code}{_around(entry)}\n{entry.example}```")
    said = [error.message for error in (*errors, *warnings)]
    places = [
        f"**{error.span.line}:{error.span.column}** {_marked_up(error.message)}" for error in (*errors, *warnings)
    ]
    others = [_marked_up(_FACT.sub("…", words)) for words in _others(entry.messages, said)]
    parts.append("\n".join(filled(text, "- ") for text in (*places, *others)))
    parts += [filled(entry.way_out), f"```mended\n{_mended(entry)}\n```"]
    return "\n\n".join(part for part in parts if part)


def _marked_up(message: str) -> str:
    """A message in Markdown: what would begin a tag or emphasis outside of code is escaped."""
    parts = re.split(r"(`[^`]*`)", message)
    return "".join(part if part.startswith("`") else re.sub(r"([<*_])", r"\\\1", part) for part in parts)


def _others(messages: Iterable[str], said: Sequence[str]) -> Iterator[str]:
    """The messages that the example does not show."""
    for words in messages:
        shape = ".+".join(map(re.escape, _FACT.split(words)))
        if not any(re.fullmatch(f"{shape}(?:; .*)?", text, re.DOTALL) for text in said):
            yield words


def _mended(entry: Entry) -> str:
    """The lines of the mended text that are not in the example; all of it where lines only went."""
    before, after = entry.example.splitlines(), entry.mended.splitlines()
    steps = SequenceMatcher(None, before, after, autojunk=False).get_opcodes()
    lines = [line for kind, _, _, start, end in steps if kind != "equal" for line in after[start:end]]
    return "\n".join(lines or after)


def _around(entry: Entry) -> str:
    """What the tests of the documents must know of the data and of the files beside."""
    data = [f"{event}.{name}:{text}" for event, fields in entry.data.items() for name, text in fields.items()]
    marks = [f"data={','.join(data)}"] if data else []
    marks += [f"definitions={','.join(entry.definitions)}"] if entry.definitions else []
    return "".join(f" {mark}" for mark in marks)


def _columns(data: Mapping[str, Mapping[str, str]]) -> str:
    return " and ".join(
        f"`{name}` of `{event}` as {text}" for event, fields in data.items() for name, text in fields.items()
    )


# Tables of the language


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of Markdown."""
    lines = [header, ["---"] * len(header), *rows]
    return "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines)


KINDS = (Kind.STRING, Kind.SEQUENCE, Kind.DICTIONARY, Kind.OPTIONAL, Kind.LOCATION, Kind.EVENT)
"""Kinds of values, beside numbers, with methods of their own."""

SIMPLE = (Type.BOOLEAN, *NUMBERS, Type.STRING, Type.LOCATION)


def operators() -> str:
    """Operators with what they take and give."""
    rows = []
    for operator in types.BINARY_OPERATORS:
        taken = [type_ for type_ in SIMPLE if types.binary_result(operator, type_, type_) is not None]
        every = types.binary_result(operator, Type.event("A"), Type.event("A")) is not None
        results = dict.fromkeys(str(types.binary_result(operator, type_, type_)) for type_ in taken)
        gives = next(iter(results)) if len(results) == 1 else "the same type"
        rows.append((f"`a {operator} b`", "any type" if every else _comma_separated(taken), gives))
    for operator in types.UNARY_OPERATORS:
        taken = [type_ for type_ in SIMPLE if types.unary_result(operator, type_) is not None]
        sign = f"{operator} " if operator.isalpha() else operator
        rows.append((f"`{sign}a`", _comma_separated(taken), "the same type"))
    return table(("operator", "both sides are", "result"), rows)


def methods(kind: Kind) -> str:
    """The methods of values of a kind, those that all have left out."""
    rows = [row for row in types.METHODS if kind in row.kinds and row.kinds != tuple(Kind)]
    return table(("method", "result", ""), [(_call(row), _result(row), row.summary) for row in rows])


def methods_of_numbers() -> str:
    """The methods of integers, floats and decimals, with the types that have them."""
    rows = []
    for row in types.METHODS:
        kinds = [kind for kind in row.kinds if kind in (Kind.INTEGER, Kind.FLOAT, Kind.DECIMAL)]
        if kinds and row.kinds != tuple(Kind):
            rows.append((_call(row), _result(row), _kinds(kinds), row.summary))
    return table(("method", "result", "of", ""), rows)


def methods_of_any() -> str:
    """The methods that all values have."""
    rows = [row for row in types.METHODS if row.kinds == tuple(Kind)]
    return table(("method", "result", ""), [(_call(row), _result(row), row.summary) for row in rows])


def static_methods() -> str:
    """The methods of types."""
    rows = [(f"`type.{_call(row)[1:]}", _result(row), _kinds(row.kinds), row.summary) for row in types.STATIC_METHODS]
    return table(("method", "result", "of", ""), rows)


def time_format_methods() -> str:
    """The methods of TimeFormat."""
    rows = [(f"`TimeFormat.{_call(row)[1:]}", _result(row), row.summary) for row in types.TIME_FORMAT_METHODS]
    return table(("method", "result", ""), rows)


def time_letters() -> str:
    """The letters of TimeFormat's patterns."""
    return table(("letter", "", "example"), [(f"`{item}`", row[0], row[1]) for item, row in LETTERS.items()])


def constants() -> str:
    """The constants of types, with their values as `toString` writes them."""
    rows = [
        (f"`{type_}.{name}`", f"`{text_of(value)}`")
        for type_ in NUMBERS
        for name, value in types.type_constants(type_).items()
    ]
    return table(("constant", "value"), rows)


def aggregates() -> str:
    """Aggregates with what they take and give."""
    rows = []
    for rule in types.AGGREGATES.values():
        names = ["value", "place" if rule.name == "nth" else "weight" if rule.name == "wavg" else "percent"]
        given = [f"{name}{'' if place < rule.required else '?'}" for place, name in enumerate(names[: len(rule.takes)])]
        taken = _comma_separated(rule.takes[0]) if rule.takes and rule.takes[0] is not None else "any type"
        gives = str(rule.result) if rule.result is not None else "the value's type"
        rows.append((f"`{rule.name}({', '.join(given)})`", taken, gives, rule.summary))
    return table(("aggregate", "value is", "result", ""), rows)


def units() -> str:
    """Units of time, each size in a row."""
    sizes = dict.fromkeys(types.UNITS.values())
    rows = [
        (", ".join(f"`{unit}`" for unit, size in types.UNITS.items() if size == wanted), f"{wanted / 1_000_000:g}")
        for wanted in sizes
    ]
    return table(("unit", "seconds"), rows)


def keywords() -> str:
    """All keywords, as one line."""
    return filled(" ".join(f"`{word}`" for word in sorted(KEYWORDS))) + "\n"


def levels() -> str:
    """The levels of `log`, as one line."""
    return ", ".join(f"`{level}`" for level in types.LOG_LEVELS) + f"; without one it is `{types.DEFAULT_LOG_LEVEL}`.\n"


def arguments() -> str:
    """The keywords that functions of Python share, which say how rows are read."""
    rows = []
    for name, text in ARGUMENTS.items():
        only = "" if name in FrameOptions.__annotations__ else "only `replay` and `open`: "
        rows.append((f"`{name}`", f"`--{name.replace('_', '-')}`", only + " ".join(text.split())))
    return table(("argument", "of commands", ""), rows)


TABLES: dict[str, Callable[[], str]] = {
    "operators": operators,
    "methods of any value": methods_of_any,
    "methods of numbers": methods_of_numbers,
    **{f"methods of {kind}": partial(methods, kind) for kind in KINDS},
    "static methods": static_methods,
    "methods of TimeFormat": time_format_methods,
    "letters of TimeFormat": time_letters,
    "constants": constants,
    "aggregates": aggregates,
    "units": units,
    "keywords": keywords,
    "log levels": levels,
    "arguments of calls": arguments,
}


def with_tables(text: str) -> str:
    """A page with its tables as they are now; a name of no table is our own mistake."""
    return _TABLE.sub(lambda found: f"{found[1]}{TABLES[found[2]]()}{found[3]}", text)


def _call(row: types.Method) -> str:
    parameters = [f"{item}{'' if place < row.required else '?'}" for place, item in enumerate(row.parameters)]
    return f"`{row.name}({', '.join(parameters)})`"


def _result(row: types.Method) -> str:
    return "" if row.result is None else f"`{row.result}`"


def _kinds(kinds: Sequence[Kind]) -> str:
    return "any type" if tuple(kinds) == tuple(Kind) else ", ".join(map(str, kinds))


def _comma_separated(taken: Sequence[Type]) -> str:
    return ", ".join(map(str, taken))


def pages() -> dict[Path, str]:
    """Each page that is made here, as it must be."""
    language, python = DOCS / "language.md", DOCS / "python.md"
    return {
        DOCS / "errors.md": errors_page(),
        DOCS / "cli.md": command_line.page(),
        DOCS / "deployment.md": deployment_keys.page(),
        DOCS.parent / "job_engine" / "deployment.schema.json": deployment_schema.text(),
        language: with_tables(language.read_text()),
        python: with_tables(python.read_text()),
        **pattern_catalogue.pages(),
    }


if __name__ == "__main__":
    for path, text in pages().items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        print(f"wrote {path.relative_to(DOCS.parent)}")
