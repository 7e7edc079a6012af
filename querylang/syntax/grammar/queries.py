# ruff: noqa: D403 (docstrings are rules)
"""Rules of a query and its sections `metadata` and `parameters`; the parser checks their order."""

from __future__ import annotations

from querylang.syntax import ast
from querylang.syntax.grammar.base import Parts, QueryParts, Rules, Section, grown, of_kind


class QueryRules(Rules):
    """`query Name { sections }`, or sections alone."""

    def p_query(self, p: Parts) -> None:
        """query : QUERY name LBRACE query_sections RBRACE"""
        p[0] = QueryParts(p[1].span.until(p[5].span), p[2], of_kind(p[4], Section))

    def p_query_sections(self, p: Parts) -> None:
        """query_sections : query_sections query_section
        |"""
        p[0] = grown(p)

    def p_same_query_section(self, p: Parts) -> None:
        """query_section : section"""

    def p_section(self, p: Parts) -> None:
        """section : metadata
        | parameters
        | inputs
        | find
        | action"""
        keyword = _KEYWORDS[type(p[1])]
        p[0] = Section(keyword, self.source.span(p[1].span.start, p[1].span.start + len(keyword)), p[1])

    def p_metadata(self, p: Parts) -> None:
        """metadata : METADATA LBRACE metadata_items RBRACE"""
        p[0] = ast.Metadata(p[1].span.until(p[4].span), of_kind(p[3], tuple))

    def p_metadata_items(self, p: Parts) -> None:
        """metadata_items : metadata_items metadata_item
        |"""
        p[0] = grown(p)

    def p_metadata_items_comma(self, p: Parts) -> None:
        """metadata_items : metadata_items metadata_item COMMA"""
        p[0] = grown(p[:3])

    def p_metadata_item(self, p: Parts) -> None:
        """metadata_item : STRING_LITERAL COLON STRING_LITERAL"""
        p[0] = (p[1].content, p[3].content)

    def p_parameters(self, p: Parts) -> None:
        """parameters : PARAMETERS LBRACE parameter_list RBRACE"""
        p[0] = ast.Parameters(p[1].span.until(p[4].span), tuple(p[3]))

    def p_parameter_list(self, p: Parts) -> None:
        """parameter_list : parameter_list parameter
        |"""
        p[0] = grown(p)

    def p_parameter(self, p: Parts) -> None:
        """parameter : type name SEMICOLON
        | type name ASSIGN signed_literal SEMICOLON"""
        value = p[4] if len(p) == 6 else None
        p[0] = ast.ParameterDefinition(p[1].span.until(p[2].span), p[1], p[2], value)


_KEYWORDS = {
    ast.Metadata: "metadata",
    ast.Parameters: "parameters",
    ast.Inputs: "inputs",
    ast.Find: "find",
    ast.ActionDefinition: "action",
}
