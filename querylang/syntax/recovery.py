"""Decide where parsing continues after a syntax mistake.

Either a forgotten closing sign is inserted, or the smallest part of the text around the mistake (a
filter, a statement, a clause ...) is given up and parsing continues after it. A table lists these
parts and where each of them ends.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from querylang.source import Span
from querylang.syntax import ast
from querylang.syntax.grammar import Section
from querylang.syntax.tokens import Token

_SECTIONS = frozenset({"METADATA", "PARAMETERS", "INPUTS", "FIND", "ACTION"})
_STRUCTURE = _SECTIONS | {"QUERY", "EVENT", "PACKAGE", "USING", "SIGN"}
_CLAUSES = frozenset({"WHERE", "WITHIN", "WITHOUT", "SELECT", "HAVING", "AFTER"})
_STATEMENTS = frozenset(
    {"PRINT", "LOG", "SEND", "EMIT", "ROUTE", "IF", "IFPRESENT", "WHILE", "FOR", "BREAK", "CONTINUE", "RETURN"}
)
_INPUT = frozenset({"KEY", "RETAIN", "WITH", "TIME", "WAIT"})
_ENDS = frozenset({"SEMICOLON", "RBRACE"})
_OUTSIDE = _STRUCTURE | _CLAUSES | _STATEMENTS | _INPUT | _ENDS
PAIRS = {"LPAREN": "RPAREN", "LBRACKET": "RBRACKET", "LBRACE": "RBRACE"}
"""Each opening bracket and its closing one."""
_CLOSING = frozenset(PAIRS.values())


@dataclass(frozen=True, slots=True)
class Part:
    """A part of the text that may be given up, and how its end is found.

    Brackets are skipped whole.

    - `before`: kinds of tokens that follow it.
    - `through`: kinds that are its last token (`RBRACE`: of a block).
    - `before_in_line`: as `before`, if the token is the first of its line.
    - `never`: kinds that cannot be in it; if one comes first, the part does not end here.
    - `is_at_end`: it may end with the text.
    """

    symbol: str
    before: frozenset[str] = frozenset()
    through: frozenset[str] = frozenset()
    before_in_line: frozenset[str] = frozenset()
    never: frozenset[str] = frozenset()
    is_at_end: bool = False
    made: Callable[[Span], object] = ast.Broken


PARTS: tuple[Part, ...] = (
    Part("argument", before=frozenset({"COMMA", "RPAREN", "RBRACKET"}), never=_OUTSIDE | {"LBRACE"}),
    Part("group", before=frozenset({"RPAREN"}), never=_OUTSIDE | {"LBRACE", "COMMA", "COLON"}),
    Part("annotation_argument", before=frozenset({"COMMA", "RPAREN"}), never=_OUTSIDE | {"LBRACE"}),
    Part("filter", before=frozenset({"COMMA", "RPAREN"}), never=_OUTSIDE | {"LBRACE"}),
    Part("pattern_part", before=_CLAUSES | _ENDS | {"ARROW", "AND", "OR", "LBRACE"}, never=_STRUCTURE | _STATEMENTS),
    Part("metadata_item", before=frozenset({"COMMA", "RBRACE"}), before_in_line=frozenset({"STRING_LITERAL"})),
    Part("parameter", before=frozenset({"RBRACE"}), through=frozenset({"SEMICOLON"}), never=_STRUCTURE),
    Part("input", before=frozenset({"RBRACE"}), through=frozenset({"SEMICOLON"}), never=_STRUCTURE),
    Part(
        "statement",
        before=frozenset({"RBRACE"}),
        through=frozenset({"SEMICOLON", "RBRACE"}),
        before_in_line=_STATEMENTS,
        never=_STRUCTURE,
    ),
    Part(
        "member",
        before=frozenset({"RBRACE"}),
        through=frozenset({"SEMICOLON", "RBRACE"}),
        before_in_line=frozenset({"ACTION", "CONSTANT"}),
        never=_STRUCTURE - {"ACTION"},
    ),
    Part("clause", before=_CLAUSES | _STRUCTURE | _ENDS | {"LBRACE"}, is_at_end=True),
    Part("pattern", before=_CLAUSES | _STRUCTURE | _ENDS | {"LBRACE"}, is_at_end=True),
    Part(
        "query_section",
        before=_STRUCTURE | {"RBRACE"},
        is_at_end=True,
        made=lambda span: Section("", span, ast.Broken(span)),
    ),
    Part("item", before=_STRUCTURE, through=_ENDS, is_at_end=True, made=lambda _span: None),
)
"""Smaller parts before those that contain them."""

LONGEST = 1000
"""How many tokens are searched for a part's end, unless it may end with the text."""

FORGOTTEN: tuple[tuple[str, ...], ...] = (
    ("SEMICOLON",),
    ("RPAREN",),
    ("RBRACE",),
    ("LBRACE",),
    ("RPAREN", "SEMICOLON"),
    ("SEMICOLON", "RBRACE"),
    ("RBRACE", "RBRACE"),
    ("SEMICOLON", "RBRACE", "RBRACE"),
)
"""Signs to insert where they were forgotten."""


def may_be_forgotten(signs: Sequence[str], tokens: Sequence[Token], position: int) -> bool:
    """Whether these signs were probably forgotten before this token (or at the end of the text)."""
    if position == len(tokens):
        return True
    token = tokens[position]
    is_new = begins_line(tokens, position)
    match signs[0]:
        case "RPAREN":
            return token.type in _CLAUSES | _INPUT | _ENDS | {"LBRACE"} | _STRUCTURE
        case "SEMICOLON":
            return is_new or token.type in _ENDS | _STATEMENTS | _STRUCTURE
        case _:
            return token.type in _STRUCTURE


def begins_line(tokens: Sequence[Token], position: int) -> bool:
    """Whether a token is the first of its line."""
    if position == 0:
        return True
    token = tokens[position]
    return token.source.text.find("\n", tokens[position - 1].end, token.start) >= 0


def end_of(part: Part, tokens: Sequence[Token], partners: dict[int, int], position: int) -> int | None:
    """The position after the part that is given up; None if it does not end here.

    `partners`: the result of `paired`.
    """
    start = position
    while position < len(tokens):
        if position > start + LONGEST and not part.is_at_end:
            return None
        kind = tokens[position].type
        if kind in part.before or (kind in part.before_in_line and position > start and begins_line(tokens, position)):
            return position
        if kind in part.never:
            return None
        last = partners.get(position, position)
        position = last + 1
        has_else = tokens[last].type == "RBRACE" and position < len(tokens) and tokens[position].type == "ELSE"
        if tokens[last].type in part.through and not has_else:
            return position
    return position if part.is_at_end else None


def paired(tokens: Sequence[Token]) -> dict[int, int]:
    """The position of each opening bracket and that of its closing one, if it has one."""
    partners: dict[int, int] = {}
    awaited: list[tuple[str, int]] = []
    braces = 0
    for position, token in enumerate(tokens):
        if token.type in PAIRS:
            awaited.append((PAIRS[token.type], position))
            braces += token.type == "LBRACE"
        elif token.type in _CLOSING and (braces if token.type == "RBRACE" else awaited):
            while token.type == "RBRACE" and awaited[-1][0] != "RBRACE":
                awaited.pop()  # not closed within the braces
            if awaited[-1][0] == token.type:
                partners[awaited.pop()[1]] = position
                braces -= token.type == "RBRACE"
    return partners
