# ruff: noqa: D403 (docstrings are rules)
"""Rules of `%send(...);` and `%custom(...) { ... }`, written by the vendor's graphical editor.

The values of a `%send` are expressions in strings; they are parsed too, with places in the string.
"""

from __future__ import annotations

import re

from querylang.errors import Mistake, QueryError, nearest
from querylang.source import Span
from querylang.syntax import ast
from querylang.syntax.grammar.base import Parts, Rules, grown, of_kind
from querylang.syntax.tokens import Token

_WORDS = ("send", "custom")


class VendorRules(Rules):
    """`%word("key":"value", "fields":{"name":"expression"})`."""

    def expression_in(self, text: Token) -> ast.Expression:
        """The expression in a string; the parser implements it."""
        raise NotImplementedError

    def p_statement_vendor_send(self, p: Parts) -> None:
        """statement : PERCENT SEND LPAREN vendor_items RPAREN SEMICOLON"""
        span = p[1].span.until(p[2].span)
        strings = {key.content: value for key, value in p[4] if isinstance(value, Token)}
        fields = [item for _key, value in p[4] if isinstance(value, list) for item in of_kind(value, tuple)]
        if "eventType" not in strings:
            self.report(Mistake.VENDOR_EVENT, span)
            p[0] = ast.Broken(span)
            return
        event, channel = strings["eventType"], strings.get("channel")
        p[0] = ast.VendorSend(
            span=span,
            event=ast.Name(event.content, _inside(event)),
            channel=None if channel is None else self.expression_in(channel),
            fields=tuple((ast.Name(key.content, _inside(key)), self.expression_in(value)) for key, value in fields),
            extra=tuple((key, value.content) for key, value in strings.items() if key not in {"eventType", "channel"}),
        )

    def p_statement_vendor_custom(self, p: Parts) -> None:
        """statement : PERCENT NAME LPAREN vendor_items RPAREN block
        | PERCENT NAME LPAREN vendor_items RPAREN SEMICOLON"""
        span = p[1].span.until(p[2].span)
        if p[2].content != "custom" or not isinstance(p[6], ast.Block):
            mistake = QueryError.of(Mistake.UNEXPECTED, span, found=f"`%{p[2].content}`", expected="a statement")
            word = nearest(p[2].content, _WORDS)
            self.mistakes.append(mistake.with_hint(None if word is None else f"did you mean `%{word}`?"))
            p[0] = ast.Broken(span)
            return
        items = tuple((key.content, value.content) for key, value in p[4] if isinstance(value, Token))
        p[0] = ast.VendorCustom(span, items, p[6])

    def p_vendor_items(self, p: Parts) -> None:
        """vendor_items : vendor_item_list
        |"""
        p[0] = p[1] if len(p) == 2 else []

    def p_vendor_item_list(self, p: Parts) -> None:
        """vendor_item_list : vendor_item_list COMMA vendor_item
        | vendor_item"""
        p[0] = grown(p)

    def p_vendor_item(self, p: Parts) -> None:
        """vendor_item : STRING_LITERAL COLON STRING_LITERAL"""
        p[0] = (p[1], p[3])

    def p_vendor_item_fields(self, p: Parts) -> None:
        """vendor_item : STRING_LITERAL COLON LBRACE vendor_fields RBRACE"""
        p[0] = (p[1], p[4])

    def p_vendor_fields(self, p: Parts) -> None:
        """vendor_fields : vendor_field_list
        |"""
        p[0] = p[1] if len(p) == 2 else []

    def p_vendor_field_list(self, p: Parts) -> None:
        """vendor_field_list : vendor_field_list COMMA vendor_field
        | vendor_field"""
        p[0] = grown(p)

    def p_vendor_field(self, p: Parts) -> None:
        """vendor_field : STRING_LITERAL COLON STRING_LITERAL"""
        p[0] = (p[1], p[3])


def _inside(token: Token) -> Span:
    """The place of a string without its quotes."""
    return Span(token.source, token.start + 1, max(token.start + 1, token.end - 1))


def offsets(token: Token) -> list[int]:
    """The place in the source of each character of the string's value, and of its end."""
    raw = token.span.text[1:]
    start = token.start + 1
    found = [start + match.start() for match in re.finditer(r"\\.|[^\\\"]", raw, re.DOTALL)]
    return [*found, token.end - 1]
