# ruff: noqa: D403 (docstrings are rules)
"""Rules of `find`: patterns, repeats and clauses."""

from __future__ import annotations

import re
from collections.abc import Iterator

from querylang.dataclass import dataclass, replace
from querylang.errors import Mistake
from querylang.source import Span
from querylang.syntax import ast
from querylang.syntax.grammar.expressions import Parts, Rules, grown
from querylang.syntax.lexer import Token


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

    def p_clause_at_most(self, p: Parts) -> None:
        """clause : AT MOST sum PER duration
        | AT MOST sum PER duration BY compared"""
        values = tuple(p[7]) if len(p) == 8 else ()
        p[0] = ast.MatchLimit(p[1].span.until(p[5].span), p[3], p[5], values)

    def p_compared(self, p: Parts) -> None:
        """compared : compared COMMA expression
        | expression"""
        p[0] = grown(p)


# Rules of repeats, which follow a step or a group.


CONSECUTIVE = "consecutive"
"""A name everywhere but behind a repeat."""

_BOUNDS = re.compile("([0-9]+)(,?)([0-9]*)")
_OF_SIGNS: dict[str, tuple[int, int | None]] = {"+": (1, None), "*": (0, None), "?": (0, 1)}


@dataclass(frozen=True, slots=True)
class _Repeat:
    """As `ast.PatternRepeat`, without what is repeated."""

    span: Span
    least: int
    most: int | None
    sign: str
    is_consecutive: bool

    def of(self, inside: ast.Pattern | ast.Broken, start: Span) -> ast.PatternRepeat | ast.Broken:
        """The repeat of a step or a group that begins at `start`."""
        span = start.until(self.span)
        if isinstance(inside, ast.Broken):
            return ast.Broken(span)
        return ast.PatternRepeat(span, inside, self.least, self.most, self.sign, self.is_consecutive)


class RepeatRules(Rules):
    """`A as a {2,3}`, `(A as a -> B as b)+`. `{2,3}` is one token."""

    def p_pattern_part_repeated_term(self, p: Parts) -> None:
        """pattern_part : event_type naming repeat
        | event_type LPAREN RPAREN naming repeat"""
        name, repeat = p[len(p) - 2], p[len(p) - 1]
        p[0] = repeat.of(ast.PatternTerm(p[1].span.until(name.span), p[1], name), p[1].span)

    def p_pattern_part_repeated_group(self, p: Parts) -> None:
        """pattern_part : LPAREN pattern RPAREN repeat
        | LBRACE pattern RBRACE repeat"""
        span = p[1].span.until(p[3].span)
        inside = replace(p[2], span=span) if isinstance(p[2], ast.PatternJoin) else p[2]
        p[0] = p[4].of(inside, p[1].span)

    def p_pattern_part_repeated_wait(self, p: Parts) -> None:
        """pattern_part : WAIT LPAREN duration RPAREN repeat
        | WAIT LPAREN duration RPAREN naming repeat"""
        name, repeat = p[5] if len(p) == 7 else None, p[len(p) - 1]
        is_possible = not repeat.sign and not repeat.is_consecutive and repeat.least == 1
        if not is_possible or repeat.most is None or not 1 <= repeat.most <= ast.MOST_ROUNDS:
            self.report(Mistake.WAIT_REPEAT, repeat.span, most=f"{ast.MOST_ROUNDS:,}")
        p[0] = ast.PatternWait(p[1].span.until(p[4].span), p[3], name, repeat.most or 1)

    def p_repeat(self, p: Parts) -> None:
        """repeat : bounds
        | bounds NAME"""
        is_consecutive = len(p) == 3
        if is_consecutive and p[2].content != CONSECUTIVE:
            self.report(Mistake.UNEXPECTED, p[2].span, found=f"'{p[2].content}'", expected=f"`{CONSECUTIVE}`")
        sign = p[1].content if p[1].type != "REPEAT" else ""
        least, most = _OF_SIGNS.get(sign) or self._bounds(p[1])
        p[0] = _Repeat(p[1].span.until(p[len(p) - 1].span), least, most, sign, is_consecutive)

    def p_same_bounds(self, p: Parts) -> None:
        """bounds : REPEAT
        | PLUS
        | STAR
        | QUESTION"""

    def _bounds(self, token: Token) -> tuple[int, int | None]:
        """The numbers of `{2}`, `{2,}` and `{2,3}`; anything else is read as `+`."""
        found = _BOUNDS.fullmatch(token.content)
        if found is None:
            self.report(Mistake.REPEAT_FORM, token.span, text=f"{{{token.content}}}")
            return 1, None
        least, comma, most = found.groups()
        return int(least), int(most) if most else None if comma else int(least)
