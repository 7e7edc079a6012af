"""Names, types, literals and expressions as text with only the necessary brackets.

The text has marks where a line may be broken, and lines that are too wide are broken there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from decimal import Decimal
from typing import assert_never

from querylang.dataclass import dataclass
from querylang.plan.text import written_name
from querylang.syntax import ast
from querylang.syntax.lexer import ESCAPES, KEYWORDS, SOFT_KEYWORDS, TYPE_KEYWORDS

ANY, NEGATION, COMPARISON, SUM, SIGN, POSTFIX = 0, 4, 5, 6, 8, 10
_TIGHTNESS = {
    "or": 1,
    "xor": 2,
    "and": 3,
    "+": SUM,
    "-": SUM,
    "*": 7,
    "/": 7,
    "%": 7,
    **dict.fromkeys(("=", "!=", "<", "<=", ">", ">=", "in", "not in"), COMPARISON),
}
_ESCAPED = {meant: f"\\{letter}" for letter, meant in ESCAPES.items()}
_DECIMAL_NUMBER = re.compile(r"([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?d?")
_HEXADECIMAL = re.compile(r"0[xX][0-9a-fA-F]+")


def name(node: ast.Name) -> str:
    """A single name; with `#` if it is a keyword that cannot be a name by itself.

    In backquotes if it is not one word.
    """
    is_hard = node.text in KEYWORDS and KEYWORDS[node.text] not in SOFT_KEYWORDS
    return f"#{node.text}" if is_hard else written_name(node.text)


def qualified(node: ast.Name) -> str:
    """A dotted name; after a dot keywords are names too."""
    return _rooted(node.text)


def type_name(node: ast.TypeName) -> str:
    """A type as written."""
    if not node.of:
        return node.word if node.word in TYPE_KEYWORDS else _rooted(node.word)
    return f"{node.word}<{', '.join(map(type_name, node.of))}>"


def quoted(text: str) -> str:
    """A string literal that means this text."""
    return '"' + "".join(_ESCAPED.get(character, character) for character in text) + '"'


def duration(node: ast.Duration) -> str:
    """A duration as it was written."""
    if isinstance(node, ast.TimeLiteral):
        return " ".join(f"{_literal(number)} {unit.text}" for number, unit in node.parts)
    return expression(node, SUM)


def argument_list(nodes: Iterable[ast.Expression]) -> str:
    """Expressions with commas between them."""
    return comma_separated(expression(node) for node in nodes)


def comma_separated(texts: Iterable[str]) -> str:
    """Texts with commas between them."""
    return f",{MARK}".join(texts)


def expression(node: ast.Expression, binding: int = ANY) -> str:
    """An expression, in brackets if it binds more loosely than its place allows."""
    tightness, text = _bare(node)
    return f"({text})" if tightness < binding else text


def _bare(node: ast.Expression) -> tuple[int, str]:
    """How tightly the expression binds, and its text."""
    match node:
        case ast.Binary():
            return _TIGHTNESS[node.operator], _binary(node)
        case ast.Unary(operator="is null" | "is not null" as operator, operand=operand):
            return COMPARISON, f"{expression(operand, SUM)}{MARK}{operator}"
        case ast.Unary(operator=operator, operand=operand):
            tightness = NEGATION if operator == "not" else SIGN
            text = expression(operand, tightness)
            return tightness, f"not {text}" if operator == "not" else f"-{' ' if text.startswith('-') else ''}{text}"
        case ast.New(type=type_):
            return SIGN, f"new {type_name(type_)}"
        case ast.DictionaryLiteral(items=items):
            return SIGN, f"{{{comma_separated(f'{expression(key)}: {expression(value)}' for key, value in items)}}}"
        case ast.Member() | ast.Call() | ast.Index():
            return POSTFIX, _postfix(node)
        case ast.Constant():
            return POSTFIX, _literal(node)
        case ast.NameUse(name=own_name):
            return POSTFIX, name(own_name)
        case ast.TypeConstant(type=type_, name=constant):
            return POSTFIX, f"{type_name(type_)}.{constant.text}"
        case ast.TypeCall(type=type_, name=method, arguments=arguments):
            called = "" if method is None else f".{method.text}"
            return POSTFIX, f"{type_name(type_)}{called}({argument_list(arguments)})"
        case ast.SequenceLiteral(items=elements):
            return POSTFIX, f"[{argument_list(elements)}]"
        case ast.Refused() | ast.Broken():
            raise AssertionError("a text with mistakes has no canonical layout")
        case _:
            assert_never(node)


def _binary(node: ast.Binary) -> str:
    """A long sum is nested on its left: print it from its right end, without recursion."""
    reversed_parts: list[str] = []
    left: ast.Expression = node
    binding = ANY
    while isinstance(left, ast.Binary) and _TIGHTNESS[left.operator] >= binding:
        tightness = _TIGHTNESS[left.operator]
        reversed_parts.append(f"{left.operator} {expression(left.right, tightness + 1)}")
        left, binding = left.left, tightness + (tightness == COMPARISON)
    reversed_parts.append(expression(left, binding))
    return MARK.join(reversed(reversed_parts))


def _postfix(node: ast.Expression) -> str:
    """A chain of members, calls and indexes, read from its end."""
    reversed_parts: list[str] = []
    while True:
        match node:
            case ast.Member(receiver=receiver, name=member):
                reversed_parts.append(f".{written_name(member.text)}")
                node = receiver
            case ast.Index(receiver=receiver, index=index, more=more):
                reversed_parts.append(f"[{argument_list((index, *more))}]")
                node = receiver
            case ast.Call(receiver=None, name=function, arguments=arguments):
                called = qualified(function) if function.text.startswith(".") else name(function)
                reversed_parts.append(f"{called}({argument_list(arguments)})")
                break
            case ast.Call(receiver=receiver, name=method, arguments=arguments) if receiver is not None:
                reversed_parts.append(f".{method.text}({argument_list(arguments)})")
                node = receiver
            case _:
                reversed_parts.append(expression(node, POSTFIX))
                break
    return "".join(reversed(reversed_parts))


def _literal(node: ast.Expression) -> str:
    assert isinstance(node, ast.Constant)
    match node.value:
        case bool() as value:
            return "true" if value else "false"
        case str() as value:
            return quoted(value)
        case value:
            written = node.span.text
            return written if _means(written, value) else f"{value}{'d' if isinstance(value, Decimal) else ''}"


def _means(written: str, value: float | Decimal) -> bool:
    """Whether a number's spelling in the text, which is kept, has this value.

    Without its brackets, a word may follow `1.`, and then the point would be that of a member.
    """
    if written.endswith("."):
        return False
    if _HEXADECIMAL.fullmatch(written):
        return int(written, 16) == value
    return _DECIMAL_NUMBER.fullmatch(written) is not None and type(value)(written.removesuffix("d")) == value


def _rooted(text: str) -> str:
    """A qualified name from its text.

    Its first word must not be a keyword, a leading dot is kept, and what is not words and dots is
    in backquotes.
    """
    root, words = ("." if text.startswith(".") else ""), text.removeprefix(".")
    if any(written_name(word) != word for word in words.split(".")):
        return f"{root}`{words}`"
    return f"{root}{'#' if words.partition('.')[0] in KEYWORDS and not root else ''}{words}"


# Line breaking. The printer has marked where a line may be broken. A line wider than WIDEST is
# broken at all of its loosest marks, and the parts are indented one level more; sums and products
# are broken only where the next operand does not fit. A line without marks outside of brackets is
# broken inside its widest brackets. Lines that are still too wide are broken again. Strings and
# names are never broken.

INDENT = "    "
WIDEST = 100
"""Columns of a line, unless it cannot be broken."""
MARK = "\t"
"""A space at which a line may be broken. Layouts contain no other tab: strings escape them."""

_CLAUSES = ("where", "between", "to", "at", "key", "within", "retain", "with", "new", "by", "time", "wait")
_LISTED = 1
"""The looseness of a mark after a comma."""
_LOOSENESS = {
    **dict.fromkeys(_CLAUSES, 0),
    **dict.fromkeys(("->", "=>"), 2),
    "or": 3,
    "xor": 4,
    "and": 5,
    **dict.fromkeys(("=", "!=", "<", "<=", ">", ">=", "in", "not", "is"), 6),
    **dict.fromkeys(("+", "-"), 7),
    **dict.fromkeys(("*", "/", "%"), 8),
}
"""The looseness of a mark by the word after it, the loosest first."""
_FILLED = 7
"""From this looseness on, a line gets as many operands as fit."""
_PIECE = re.compile(r'"(?:[^"\\]|\\.)*"|[^"\t()\[\]{}]+|.')
_WORD = re.compile(r"\S+")


@dataclass(frozen=True, slots=True)
class _Segment:
    """A part of a line.

    `first`, `rest`: by how many levels its first line and further lines are indented.
    """

    text: str
    first: int
    rest: int

    @property
    def fits(self) -> bool:
        """Whether it fits on one line."""
        return len(self.text) + self.first * len(INDENT) <= WIDEST


def wrapped(line: str) -> list[str]:
    """The line without marks, or its parts.

    After a head of several lines the block's brace gets its own line.
    """
    text = line.lstrip(" ")
    level = (len(line) - len(text)) // len(INDENT)
    if _Segment(text, level, level).fits:
        return [line.replace(MARK, " ")]
    head, brace = next(((text.removesuffix(end), end[1:]) for end in (" {", " { }") if text.endswith(end)), (text, ""))
    lines = _broken(_Segment(head, level, level + 1))
    if not brace:
        return lines
    return [*lines, INDENT * level + brace] if len(lines) > 1 else [f"{lines[0]} {brace}"]


def _broken(whole: _Segment) -> list[str]:
    """The lines of a segment; a stack of segments instead of recursion allows deep nesting."""
    lines: list[str] = []
    stack = [whole]
    while stack:
        segment = stack.pop()
        parts = [] if segment.fits else _at_marks(segment) or _at_brackets(segment)
        if parts:
            stack += reversed(parts)
        else:
            lines.append(INDENT * segment.first + segment.text.replace(MARK, " "))
    return lines


def _at_marks(segment: _Segment) -> list[_Segment]:
    """The segment broken at its loosest marks outside of brackets; empty if there are no marks."""
    text, depth = segment.text, 0
    marks: list[tuple[int, int]] = []
    for piece in _PIECE.finditer(text):
        depth = max(0, depth + _deeper(piece.group()))
        if depth == 0 and piece.group() == MARK:
            marks.append((piece.start(), _looseness(text, piece.start())))
    if not marks:
        return []
    loosest = min(looseness for _, looseness in marks)
    places = [place for place, looseness in marks if looseness == loosest]
    texts = [text[a + 1 : b] for a, b in zip([-1, *places], [*places, len(text)], strict=True)]
    first, *others = _filled(texts, segment) if loosest >= _FILLED else texts
    deeper = segment.rest + 1
    return [_Segment(first, segment.first, deeper), *(_Segment(text, segment.rest, deeper) for text in others)]


def _looseness(text: str, mark: int) -> int:
    word = _WORD.match(text, mark + 1)
    return _LISTED if word is None or text[mark - 1] == "," else _LOOSENESS[word.group()]


def _filled(texts: list[str], segment: _Segment) -> list[str]:
    """The texts of a sum, as many on each line as fit."""
    lines = texts[:1]
    for text in texts[1:]:
        longer = f"{lines[-1]}{MARK}{text}"
        if _Segment(longer, segment.first if len(lines) == 1 else segment.rest, 0).fits:
            lines[-1] = longer
        else:
            lines.append(text)
    return lines


def _at_brackets(segment: _Segment) -> list[_Segment]:
    """The segment with the inside of its widest brackets on lines of its own.

    Empty without brackets.
    """
    depth, opened = 0, 0
    widest = (0, 0)
    for piece in _PIECE.finditer(segment.text):
        deeper = _deeper(piece.group())
        if (depth, deeper) == (0, 1):
            opened = piece.end()
        elif (depth, deeper) == (1, -1):
            widest = max(widest, (opened, piece.start()), key=lambda place: place[1] - place[0])
        depth = max(0, depth + deeper)
    start, end = widest
    if not segment.text[start:end].strip():
        return []
    inside = max(segment.rest, segment.first + 1)
    return [
        _Segment(segment.text[:start], segment.first, inside),
        _Segment(segment.text[start:end], inside, inside),
        _Segment(segment.text[end:], inside - 1, inside),
    ]


def _deeper(piece: str) -> int:
    """The depth after a bracket; closing brackets of an outer segment do not count."""
    return 1 if piece in {"(", "[", "{"} else -1 if piece in {")", "]", "}"} else 0
