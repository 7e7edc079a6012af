# ruff: noqa: D403 (docstrings are rules)
"""Rules of repeats, which follow a step or a group."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from querylang.errors import Mistake
from querylang.source import Span
from querylang.syntax import ast
from querylang.syntax.grammar.base import Parts, Rules
from querylang.syntax.tokens import Token

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
