"""Load the parser's LALR tables, which are shipped with the package (`querylang.syntax.parsetab`).

Loading takes milliseconds; nothing is built or written at run time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from querylang.syntax.grammar import Grammar, rules
from querylang.syntax.grammar.base import Parts
from querylang.syntax.recovery import PARTS, Part

Rule = Callable[[Grammar, Parts], None]


@dataclass(frozen=True, slots=True)
class Tables:
    """What to do in each state.

    - `actions`: state, then kind of token: above 0 the next state, below 0 the rule to apply, 0 the
      end.
    - `gotos`: state, then symbol, to the next state.
    - `productions`: for each rule its symbol, its number of parts, its method (None: it passes its
      only part on).
    - `parts`: state to what may be given up in it, and the state after that.
    """

    actions: list[dict[str, int]]
    gotos: dict[int, dict[str, int]]
    productions: list[tuple[str, int, Rule | None]]
    parts: list[tuple[tuple[Part, int], ...]]


@cache
def load() -> Tables:
    """The tables; one object per process, since they are never changed."""
    from querylang.syntax import parsetab

    kinds = [row.split() for row in parsetab.KINDS]
    actions = [
        dict.fromkeys(kinds[row], action) if isinstance(action, int) else dict(zip(kinds[row], action, strict=True))
        for row, action in parsetab.ACTIONS
    ]
    bound = rules()
    productions = [
        (name, length, None if rule is None or rule.startswith("p_same") else bound[rule])
        for _text, name, length, rule in parsetab.PRODUCTIONS
    ]
    gotos = parsetab.GOTOS
    parts = [
        tuple((part, gotos[state][part.symbol]) for part in PARTS if part.symbol in gotos.get(state, ()))
        for state in range(len(actions))
    ]
    return Tables(actions, gotos, productions, parts)
