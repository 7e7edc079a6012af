"""Names, types, literals and expressions as text with only the necessary brackets.

The text has marks where a line may be broken (`querylang.formatter.line_breaking`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from decimal import Decimal
from typing import assert_never

from querylang.formatter.line_breaking import MARK
from querylang.plan.text import written_name
from querylang.syntax import ast
from querylang.syntax.lexer import ESCAPES
from querylang.syntax.tokens import KEYWORDS, SOFT_KEYWORDS, TYPE_KEYWORDS

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
    **dict.fromkeys(("=", "!=", "<", "<=", ">", ">="), COMPARISON),
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


def expression(node: ast.Expression, place: int = ANY) -> str:
    """An expression, in brackets if it binds more loosely than its place allows."""
    tightness, text = _bare(node)
    return f"({text})" if tightness < place else text


def _bare(node: ast.Expression) -> tuple[int, str]:
    """How tightly the expression binds, and its text."""
    match node:
        case ast.Binary():
            return _TIGHTNESS[node.operator], _binary(node)
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
    place = ANY
    while isinstance(left, ast.Binary) and _TIGHTNESS[left.operator] >= place:
        tightness = _TIGHTNESS[left.operator]
        reversed_parts.append(f"{left.operator} {expression(left.right, tightness + 1)}")
        left, place = left.left, tightness + (tightness == COMPARISON)
    reversed_parts.append(expression(left, place))
    return MARK.join(reversed(reversed_parts))


def _postfix(node: ast.Expression) -> str:
    """A chain of members, calls and indexes, read from its end."""
    reversed_parts: list[str] = []
    while True:
        match node:
            case ast.Member(receiver=receiver, name=member):
                reversed_parts.append(f".{written_name(member.text)}")
                node = receiver
            case ast.Index(receiver=receiver, index=index):
                reversed_parts.append(f"[{expression(index)}]")
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

    Its first word must not be a keyword, and a leading dot is kept.
    """
    root, words = ("." if text.startswith(".") else ""), text.removeprefix(".")
    return f"{root}{'#' if words.partition('.')[0] in KEYWORDS and not root else ''}{words}"
