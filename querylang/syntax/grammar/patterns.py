# ruff: noqa: D403 (docstrings are rules)
"""Rules of `find`: patterns and clauses."""

from __future__ import annotations

from dataclasses import replace

from querylang.errors import Mistake
from querylang.syntax import ast
from querylang.syntax.grammar.base import Parts, Rules, grown


class PatternRules(Rules):
    """`find [every] pattern clauses block`."""

    def p_find(self, p: Parts) -> None:
        """find : FIND every pattern clauses ending"""
        span = p[1].span if p[2] is None else p[1].span.until(p[2])
        p[0] = ast.Find(span, p[2] is not None, p[3], tuple(p[4]), p[5])

    def p_every(self, p: Parts) -> None:
        """every : EVERY
        |"""
        p[0] = p[1].span if len(p) == 2 else None

    def p_ending(self, p: Parts) -> None:
        """ending : block
        | SEMICOLON
        |"""
        p[0] = p[1] if len(p) == 2 and isinstance(p[1], ast.Block) else None

    # Patterns: `->` binds loosest, `and` tightest; brackets that change nothing are not kept

    def p_pattern(self, p: Parts) -> None:
        """pattern : pattern ARROW pattern
        | pattern OR pattern
        | pattern AND pattern"""
        if isinstance(p[1], ast.Broken) or isinstance(p[3], ast.Broken):
            p[0] = ast.Broken(p[1].span.until(p[3].span))
            return
        operator = p[2].content
        parts = [
            part
            for side in (p[1], p[3])
            for part in (side.parts if isinstance(side, ast.PatternJoin) and side.operator == operator else (side,))
        ]
        span = p[1].span.until(p[3].span)
        if len(parts) > ast.MOST_TERMS + 2:  # at either end may be a `wait`
            self.report(Mistake.PATTERN_TOO_LONG, span, limit=ast.MOST_TERMS)
            p[0] = ast.Broken(span)
            return
        p[0] = ast.PatternJoin(span, operator, tuple(parts))

    def p_same_pattern(self, p: Parts) -> None:
        """pattern : pattern_part"""

    def p_pattern_part_term(self, p: Parts) -> None:
        """pattern_part : event_type naming
        | event_type LPAREN RPAREN naming"""
        name = p[len(p) - 1]
        p[0] = ast.PatternTerm(p[1].span.until(name.span), p[1], name)

    def p_pattern_part_wait(self, p: Parts) -> None:
        """pattern_part : WAIT LPAREN duration RPAREN
        | WAIT LPAREN duration RPAREN naming"""
        name = p[5] if len(p) == 6 else None
        p[0] = ast.PatternWait(p[1].span.until(p[4].span), p[3], name)

    def p_pattern_part_group(self, p: Parts) -> None:
        """pattern_part : LPAREN pattern RPAREN
        | LBRACE pattern RBRACE"""
        p[0] = replace(p[2], span=p[1].span.until(p[3].span)) if isinstance(p[2], ast.PatternJoin) else p[2]

    def p_naming(self, p: Parts) -> None:
        """naming : AS name
        | COLON name"""
        p[0] = p[2]

    # Clauses

    def p_clauses(self, p: Parts) -> None:
        """clauses : clauses clause
        |"""
        p[0] = grown(p)

    def p_clause_where(self, p: Parts) -> None:
        """clause : where"""
        p[0] = p[1]

    def p_where(self, p: Parts) -> None:
        """where : WHERE expression"""
        p[0] = ast.Where(p[1].span, p[2])

    def p_clause_within(self, p: Parts) -> None:
        """clause : WITHIN duration between"""
        p[0] = ast.Within(p[1].span.until(p[2].span), p[2], p[3])

    def p_clause_without(self, p: Parts) -> None:
        """clause : WITHOUT event_type naming without_where between"""
        p[0] = ast.Without(p[1].span.until(p[3].span), p[2], p[3], p[4], p[5])

    def p_without_where(self, p: Parts) -> None:
        """without_where : where
        | %prec NOTHING_MORE"""
        p[0] = p[1] if len(p) == 2 else None

    def p_between(self, p: Parts) -> None:
        """between : BETWEEN LPAREN between_names RPAREN
        |"""
        p[0] = ast.Between(p[1].span.until(p[4].span), tuple(p[3])) if len(p) == 5 else None

    def p_between_names(self, p: Parts) -> None:
        """between_names : between_names name
        |"""
        p[0] = grown(p)

    def p_between_names_comma(self, p: Parts) -> None:
        """between_names : between_names COMMA name"""
        self.report(Mistake.BETWEEN_COMMA, p[2].span)
        p[0] = grown(p)

    def p_clause_select(self, p: Parts) -> None:
        """clause : SELECT expression naming"""
        p[0] = ast.Select(p[1].span.until(p[3].span), p[2], p[3])

    def p_clause_having(self, p: Parts) -> None:
        """clause : HAVING expression"""
        p[0] = ast.Having(p[1].span, p[2])
