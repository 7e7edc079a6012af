"""Build the parser's LALR tables from the grammar's docstrings; for developers, never at run time.

After a change of the grammar, `python -m tools.parser_tables` writes
`querylang/syntax/parsetab.py` again. A test holds that the shipped tables fit the grammar, and that
the grammar has no conflict.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ply import yacc

from querylang.syntax.grammar import PRECEDENCE, START, rules
from querylang.syntax.lexer import KINDS, PSEUDO_KINDS

SHIPPED = Path(__file__).parents[1] / "querylang" / "syntax" / "parsetab.py"


def build() -> Any:
    """Build the tables: ply's generated table, with its lists of conflicts."""
    grammar = yacc.Grammar([*KINDS, *PSEUDO_KINDS])
    for level, (associativity, *symbols) in enumerate(PRECEDENCE, start=1):
        for symbol in symbols:
            grammar.set_precedence(symbol, associativity, level)
    for name, rule in rules().items():
        for _file, _line, symbol, parts in yacc.parse_grammar(rule.__doc__, "", 0):
            grammar.add_production(symbol, parts, name, "", 0)
    grammar.set_start(START)
    missing = [symbol for symbol, _production in grammar.undefined_symbols()]
    useless = [production.name for production in grammar.unused_rules()]
    assert not missing, f"symbols without a rule: {missing}"
    assert not useless, f"rules that nothing uses: {useless}"
    return yacc.LRGeneratedTable(grammar, method="LALR")


def written(tables: Any) -> str:
    """The text of the module that ships these tables.

    Many states react to the same kinds of tokens, and most states do one thing for all of them. So
    a row is the number of its kinds, and one action per kind or one for all.
    """
    rows = [sorted(tables.lr_action[state].items()) for state in sorted(tables.lr_action)]
    kinds = [" ".join(kind for kind, _action in row) for row in rows]
    known = list(dict.fromkeys(kinds))
    actions = [tuple(dict.fromkeys(action for _kind, action in row)) for row in rows]
    packed = [
        (known.index(kind), action[0] if len(action) == 1 else tuple(value for _kind, value in row))
        for kind, action, row in zip(kinds, actions, rows, strict=True)
    ]
    lines = [
        "# fmt: off",
        "# ruff: noqa: Q000",
        '"""The LALR tables of `querylang.syntax.grammar`, written by `python -m tools.parser_tables`: do not edit."""',
        "PRODUCTIONS: list[tuple[str, str, int, str | None]] = [",
        *(f"    {(item.str, item.name, item.len, item.func)!r}," for item in tables.lr_productions),
        "]",
        "KINDS: list[str] = [",
        *(f"    {item!r}," for item in known),
        "]",
        "ACTIONS: list[tuple[int, int | tuple[int, ...]]] = [",
        *(f"    {row!r}," for row in packed),
        "]",
        "GOTOS: dict[int, dict[str, int]] = {",
        *(f"    {state}: {dict(sorted(row.items()))!r}," for state, row in sorted(tables.lr_goto.items()) if row),
        "}",
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Write the shipped module after a change of the grammar."""
    tables = build()
    assert not tables.sr_conflicts, f"shift/reduce conflicts: {tables.sr_conflicts}"
    assert not tables.rr_conflicts, f"reduce/reduce conflicts: {tables.rr_conflicts}"
    SHIPPED.write_text(written(tables), encoding="utf-8")


if __name__ == "__main__":
    main()
