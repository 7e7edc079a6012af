"""The parser's LALR tables, shipped with the package: loaded in milliseconds, nothing is built or written at run time.

Takes the generated module `querylang.parsetab`; gives ply's tables, bound to the grammar's methods.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from ply import yacc

from querylang.grammar import Grammar


@cache
def load() -> Any:
    """The tables; one object a process, since the grammar keeps no state."""
    from querylang import parsetab

    tables = yacc.LRTable()
    kinds = [row.split() for row in parsetab.KINDS]
    tables.lr_action = {
        state: dict.fromkeys(kinds[row], action)
        if isinstance(action, int)
        else dict(zip(kinds[row], action, strict=True))
        for state, (row, action) in enumerate(parsetab.ACTIONS)
    }
    tables.lr_goto = parsetab.GOTOS
    tables.lr_productions = [yacc.MiniProduction(*production, None, 0) for production in parsetab.PRODUCTIONS]
    rules = Grammar()
    tables.bind_callables({name: getattr(rules, name) for name in vars(Grammar) if name.startswith("p_")})
    return tables
