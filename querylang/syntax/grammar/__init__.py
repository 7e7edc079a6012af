"""The grammar, for ply (LALR(1)): a rule is the docstring of the method that builds its node.

Each module has the rules of one part of the language. There are no rules for mistakes:
`querylang.syntax.mistakes` says what the parser does after one. After a change of the grammar run
`python -m tools.parser_tables`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from querylang.syntax.grammar.expressions import ExpressionRules, Parts, QueryParts, Section
from querylang.syntax.grammar.patterns import PatternRules, RepeatRules
from querylang.syntax.grammar.queries import FileRules, InputRules, QueryRules
from querylang.syntax.grammar.statements import EventTypeRules, StatementRules, VendorRules

__all__ = ["PRECEDENCE", "START", "Grammar", "QueryParts", "Section", "rules"]

START = "text"

PRECEDENCE: tuple[tuple[str, ...], ...] = (
    ("nonassoc", "NOTHING_MORE"),
    ("nonassoc", "WHERE"),
    ("left", "ARROW", "NEXT"),
    ("left", "OR"),
    ("left", "XOR"),
    ("left", "AND"),
    ("right", "NOT"),
    ("left", "PLUS", "MINUS"),
    ("left", "STAR", "SLASH", "PERCENT"),
    ("right", "NEGATIVE"),
)
"""Loosest first. A `where` after a `without` belongs to it: NOTHING_MORE is weaker."""


class Grammar(
    FileRules,
    EventTypeRules,
    QueryRules,
    InputRules,
    PatternRules,
    RepeatRules,
    StatementRules,
    VendorRules,
    ExpressionRules,
):
    """All rules. `p[0]` becomes the node of the rule; `p[1]` ... are its parts: nodes or tokens.

    A method whose name begins with `p_same` passes its only part on and is never called.
    """


@cache
def rules() -> dict[str, Callable[[Grammar, Parts], None]]:
    """The rules by name, in the order in which they are written."""
    kinds = [kind for kind in Grammar.__mro__ if kind.__name__.endswith("Rules")]
    return {name: rule for kind in kinds for name, rule in vars(kind).items() if name.startswith("p_")}
