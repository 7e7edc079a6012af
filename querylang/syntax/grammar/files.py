# ruff: noqa: D102, D403 (docstrings are rules)
"""Rules of a whole file: `package`, `using`, event types and queries in any number; names."""

from __future__ import annotations

from querylang.errors import Mistake
from querylang.syntax import ast
from querylang.syntax.foreign_constructs import REASONS
from querylang.syntax.grammar.base import Parts, Rules
from querylang.syntax.tokens import SOFT_KEYWORDS


class FileRules(Rules):
    """A file, and the names that stand everywhere in it."""

    def p_text(self, p: Parts) -> None:
        """text : items"""

    def p_text_expression(self, p: Parts) -> None:
        """text : ONLY_EXPRESSION expression"""
        self.value = p[2]

    def p_items(self, p: Parts) -> None:
        """items : items item
        |"""
        if len(p) == 3 and p[2] is not None:
            self.items.append(p[2])

    def p_item(self, p: Parts) -> None:
        """item : event_definition
        | query
        | section"""
        p[0] = p[1]

    def p_item_package(self, p: Parts) -> None:
        """item : PACKAGE qualified_name SEMICOLON"""
        if self.package is not None or self.usings or self.items:
            self.report(Mistake.PACKAGE_PLACE, p[1].span)
        self.package = self.package or ast.Package(p[1].span.until(p[3].span), p[2])

    def p_item_using(self, p: Parts) -> None:
        """item : USING qualified_name SEMICOLON
        | USING qualified_name DOT STAR SEMICOLON"""
        if self.items:
            self.report(Mistake.USING_PLACE, p[1].span)
        self.usings.append(ast.Using(p[1].span.until(p[len(p) - 1].span), p[2], is_all=len(p) == 6))

    def p_item_refused(self, p: Parts) -> None:
        """item : REFUSED"""
        self.report(Mistake.NOT_IN_QUERIES, p[1].span, what=f"`{p[1].content}`", reason=REASONS[p[1].content])

    # Names

    def p_name(self, p: Parts) -> None:
        p[0] = ast.Name(p[1].content, p[1].span)

    p_name.__doc__ = "name : NAME\n" + "\n".join(f"| {kind}" for kind in SOFT_KEYWORDS)

    def p_qualified_name(self, p: Parts) -> None:
        """qualified_name : NAME
        | qualified_name DOT NAME"""
        if len(p) == 2:
            p[0] = ast.Name(p[1].content, p[1].span)
        else:
            p[0] = ast.Name(f"{p[1].text}.{p[3].content}", p[1].span.until(p[3].span))

    def p_event_type(self, p: Parts) -> None:
        """event_type : qualified_name
        | DOT qualified_name"""
        p[0] = p[1] if len(p) == 2 else ast.Name(f".{p[2].text}", p[1].span.until(p[2].span))
