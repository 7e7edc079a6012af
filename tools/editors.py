"""Write the TextMate grammar under `editors/` from the language's own tables: keywords, types, units, methods.

The source is the tables of `querylang`. A test holds that the file is what this script makes, so a new word of the
language cannot be forgotten. `make docs` runs it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from querylang.plan import library as types
from querylang.plan.expression import NUMBERS, Kind
from querylang.syntax import lexer

GRAMMAR = Path(__file__).resolve().parent.parent / "editors" / "vscode" / "syntaxes" / "ensue.tmLanguage.json"

OPERATORS = ("and", "or", "xor", "not", "in")
CONSTANTS = ("true", "false", "infinity")
DECLARATIONS = ("package", "using", "event", "query", "action", "constant", "metadata", "parameters", "inputs")
TYPES = tuple(str(kind) for kind in Kind if kind is not Kind.EVENT)

NAME = r"#?[A-Za-z_]\w*"
QUALIFIED = rf"{NAME}(?:\s*\.\s*{NAME})*"
NUMBER = r"(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?"

Rule = dict[str, Any]


def alone(words: Iterable[str]) -> str:
    """A pattern of these words, where they are neither a part of a name, nor a member, nor a name written with `#`."""
    return rf"(?<![\w.#])(?:{_either(words)})(?!\w)"


def keywords() -> list[str]:
    """The keywords that are neither types, nor operators, nor constants, nor declare something."""
    return sorted(set(lexer.KEYWORDS) - {*OPERATORS, *CONSTANTS, *DECLARATIONS, *TYPES})


def methods() -> list[str]:
    """The methods of values and of types."""
    return sorted({row.name for row in (*types.METHODS, *types.STATIC_METHODS, *types.TIME_FORMAT_METHODS)})


def type_constants() -> list[str]:
    """What may follow `float.` as a constant."""
    return sorted({name for type_ in NUMBERS for name in types.type_constants(type_)})


def grammar() -> Rule:
    """The grammar as TextMate has it: the first rule that matches at the leftmost place wins."""
    return {
        "$schema": "https://raw.githubusercontent.com/martinring/tmlanguage/master/tmlanguage.json",
        "information_for_contributors": "Written by tools/editors.py from the tables of the language; do not edit.",
        "name": "Ensue",
        "scopeName": "source.ensue",
        "fileTypes": ["query", "qry", "mon"],
        "patterns": [{"include": f"#{name}"} for name in _rules()],
        "repository": {name: {"patterns": rules} for name, rules in _rules().items()},
    }


def _rules() -> dict[str, list[Rule]]:
    return {
        "comments": [
            _rule("comment.line.double-slash", r"//.*$"),
            {"name": "comment.block.ensue", "begin": r"/\*", "end": r"\*/"},
        ],
        "strings": [
            {
                "name": "string.quoted.double.ensue",
                "begin": '"',
                "end": '"|$',
                "patterns": [_rule("constant.character.escape", r"\\."), _rule("invalid.illegal", r"\\$")],
            }
        ],
        "annotations": [_rule("storage.type.annotation", rf"@\s*{QUALIFIED}")],
        "vendor": [_rule("keyword.other.vendor", r"%(?:send|custom)(?!\w)")],
        "names": [_rule("variable.other.escaped", r"#[A-Za-z_]\w*")],
        "definitions": [
            _parts(rf"(?<![\w.#])(event)\s+({NAME})", "keyword.declaration", "entity.name.type.event"),
            _parts(rf"(?<![\w.#])(query)\s+({NAME})", "keyword.declaration", "entity.name.type.query"),
            _parts(rf"(?<![\w.#])(action)\s+({NAME})", "keyword.declaration", "entity.name.function"),
            _parts(
                rf"(?<![\w.#])(package|using)\s+({QUALIFIED})(\s*\.\s*\*)?",
                *("keyword.declaration", "entity.name.namespace", "keyword.operator.wildcard"),
            ),
        ],
        "phrases": [
            _parts(
                r"(?<![\w.#])(find)\s+(all)(?!\w)(?!\s*(?:as(?!\w)|[:.]|\(\s*\)))", "keyword.control", "keyword.control"
            ),
            _rule(
                "keyword.control",
                r"(?<![\w.#])new\s+by(?!\w)(?!\s*[;).,])",
            ),
            _rule(
                "keyword.control",
                r"(?<![\w.#])at\s+most(?!\w)(?!\s*[;).,])",
            ),
            _rule(
                "keyword.control",
                r"(?<![\w.#])after\s+match\s+skip\s+(?:past\s+last\s+event|to\s+(?:first|last))(?!\w)",
            ),
        ],
        "bindings": [
            _parts(rf"(?<![\w.#])(as)\s+({NAME})", "keyword.control", "variable.other.definition"),
            _parts(rf"(?<![\w.#])(for)\s+({NAME})(?=\s+in\b)", "keyword.control", "variable.other.definition"),
            _parts(
                rf"(?<![\w.#])(at)\s+({_either(types.LOG_LEVELS)})(?!\w)", "keyword.control", "constant.language.level"
            ),
        ],
        "durations": [
            _parts(
                rf"(?<![\w.])({NUMBER})\s*({_either(types.UNITS)})(?!\w)",
                "constant.numeric.duration",
                "keyword.other.unit",
            )
        ],
        "numbers": [
            _rule("constant.numeric.decimal", rf"(?<![\w.]){NUMBER}d(?!\w)"),
            _rule(
                "constant.numeric.float",
                r"(?<![\w.])(?:(?:\d+\.\d*|\.\d+)(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+)(?!\w)",
            ),
            _rule("constant.numeric.integer", r"(?<![\w.])(?:0[xX][0-9a-fA-F]+|\d+)(?!\w)"),
        ],
        "constants": [
            _parts(
                rf"(?<![\w.#])({_either(TYPES)})\s*\.\s*({_either(type_constants())})(?!\w)",
                *("storage.type", "constant.language"),
            ),
            _rule("constant.language", alone(CONSTANTS)),
        ],
        "types": [_rule("storage.type", alone(TYPES))],
        "keywords": [
            _rule("keyword.operator.word", r"(?<![\w.#])is\s+(?:not\s+)?null(?!\w)"),
            _rule("keyword.operator.word", alone(OPERATORS)),
            _rule("keyword.declaration", alone(DECLARATIONS)),
            _rule("keyword.control", alone(keywords())),
        ],
        "calls": [
            _rule("support.function.aggregate", rf"(?<![\w.#])(?:{_either(types.AGGREGATES)})(?=\s*\()"),
            _rule("support.function.method", rf"(?<=\.)(?:{_either(methods())})(?=\s*\()"),
            _rule("entity.name.type", rf"(?<![\w.#])(?:{NAME}\s*\.\s*)*#?[A-Z]\w*(?=\s*\(|\s+as(?!\w))"),
            _rule("entity.name.function.call", rf"(?<![\w#]){NAME}(?=\s*\()"),
        ],
        "operators": [
            _rule("keyword.operator.arrow", "->|=>"),
            _rule("keyword.operator.assignment", ":="),
            _rule("keyword.operator.comparison", "!=|<=|>=|=|<|>"),
            _rule("keyword.operator.arithmetic", r"[-+*/%]"),
        ],
    }


def _rule(scope: str, pattern: str) -> Rule:
    return {"name": f"{scope}.ensue", "match": pattern}


def _parts(pattern: str, *scopes: str) -> Rule:
    captures = {str(number): {"name": f"{scope}.ensue"} for number, scope in enumerate(scopes, 1)}
    return {"match": pattern, "captures": captures}


def _either(words: Iterable[str]) -> str:
    """The words as alternatives, longer ones first."""
    return "|".join(map(re.escape, sorted(words, key=lambda word: (-len(word), word))))


def grammar_text() -> str:
    """The grammar's text, as the file holds it."""
    return json.dumps(grammar(), indent=2) + "\n"


if __name__ == "__main__":
    GRAMMAR.write_text(grammar_text())
    print(f"wrote {GRAMMAR.relative_to(GRAMMAR.parents[3])}")
