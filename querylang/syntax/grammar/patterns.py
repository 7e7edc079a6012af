# ruff: noqa: D403 (docstrings are rules)
"""Rules of `find`: patterns and clauses."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from querylang.errors import Mistake
from querylang.source import Span
from querylang.syntax import ast
from querylang.syntax.grammar.base import Parts, Rules, grown


def _joined(span: Span, left: ast.Pattern, link: str, right: ast.Pattern) -> ast.PatternJoin:
    """Two patterns as one join, without brackets that change nothing.

    Brackets behind a `=>`, or around one, do: the first event in them may be any of theirs.
    """
    operator = "->" if link == "=>" else link
    parts: list[ast.Pattern] = []
    links: list[str] = []
    for side, is_flat in ((left, True), (right, link != "=>")):
        links += [link] if parts else []
        if (
            isinstance(side, ast.PatternJoin)
            and side.operator == operator
            and is_flat
            and not (parts and any(side.nexts))
        ):
            parts += side.parts
            links += side.links
        else:
            parts.append(side)
    nexts = tuple(item == "=>" for item in links)
    return ast.PatternJoin(span, operator, tuple(parts), nexts if any(nexts) else ())


def _at_edges(left: ast.Pattern, operator: str, right: ast.Pattern) -> Iterator[ast.PatternWait]:
    """The waits at the inner edges of brackets that are not kept."""
    if operator in {"->", "=>"} and isinstance(left, ast.PatternJoin):
        last = left.parts[-1]
        if isinstance(last, ast.PatternWait) and left.span.end > last.span.end:
            yield last
    if operator == "->" and isinstance(right, ast.PatternJoin) and not any(right.nexts):
        first = right.parts[0]  # behind an arrow a chain is in brackets
        if isinstance(first, ast.PatternWait):
            yield first


class PatternRules(Rules):
    """`find [every | all] pattern clauses block`."""

    def p_find(self, p: Parts) -> None:
        """find : FIND extent pattern clauses ending"""
        word = "" if p[2] is None else p[2].content
        span = p[1].span if p[2] is None else p[1].span.until(p[2].span)
        p[0] = ast.Find(span, word == "every", p[3], tuple(p[4]), p[5], is_all=word == "all")

    def p_extent(self, p: Parts) -> None:
        """extent : EVERY
        | ALL
        |"""
        p[0] = p[1] if len(p) == 2 else None

    def p_ending(self, p: Parts) -> None:
        """ending : block
        | SEMICOLON
        |"""
        p[0] = p[1] if len(p) == 2 and isinstance(p[1], ast.Block) else None

    # Patterns: `->` binds loosest, `and` tightest; brackets that change nothing are not kept

    def p_pattern(self, p: Parts) -> None:
        """pattern : pattern ARROW pattern
        | pattern NEXT pattern
        | pattern OR pattern
        | pattern AND pattern"""
        if isinstance(p[1], ast.Broken) or isinstance(p[3], ast.Broken):
            p[0] = ast.Broken(p[1].span.until(p[3].span))
            return
        for wait in _at_edges(p[1], p[2].content, p[3]):
            self.report(Mistake.WAIT_PLACE, wait.span)
        joined = _joined(p[1].span.until(p[3].span), p[1], p[2].content, p[3])
        if len(joined.parts) > 2 * ast.MOST_TERMS + 1:  # before, between and after them may be `wait`s
            self.report(Mistake.PATTERN_TOO_LONG, joined.span, limit=ast.MOST_TERMS)
            p[0] = ast.Broken(joined.span)
            return
        p[0] = joined

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
        """between_names : between_names between_name
        |"""
        p[0] = grown(p)

    def p_between_names_comma(self, p: Parts) -> None:
        """between_names : between_names COMMA between_name"""
        self.report(Mistake.BETWEEN_COMMA, p[2].span)
        p[0] = grown(p)

    def p_between_previous(self, p: Parts) -> None:
        """between_name : name
        | name LPAREN name RPAREN"""
        p[0] = p[1] if len(p) == 2 else ast.Previous(p[1].span.until(p[4].span), p[1], p[3])

    def p_clause_select(self, p: Parts) -> None:
        """clause : SELECT expression naming"""
        p[0] = ast.Select(p[1].span.until(p[3].span), p[2], p[3])

    def p_clause_having(self, p: Parts) -> None:
        """clause : HAVING expression"""
        p[0] = ast.Having(p[1].span, p[2])

    def p_clause_skip_past(self, p: Parts) -> None:
        """clause : AFTER MATCH SKIP PAST LAST EVENT"""
        p[0] = ast.Skip(p[1].span.until(p[6].span), "", None)

    def p_clause_skip_to(self, p: Parts) -> None:
        """clause : AFTER MATCH SKIP TO FIRST name
        | AFTER MATCH SKIP TO LAST name"""
        p[0] = ast.Skip(p[1].span.until(p[6].span), p[5].content, p[6])
