"""SQL text with a `MATCH_RECOGNIZE` clause to a row pattern; sqlglot reads the SQL around it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

import sqlglot
from sqlglot import exp
from sqlglot.dialects.snowflake import Snowflake
from sqlglot.errors import SqlglotError
from sqlglot.tokenizer_core import Token

from ensue.importing.row_patterns import MOST_DIGITS, NotTranslatedError, RowPattern, Skip, as_name, elements_of
from querylang.plan.text import MATCH_COLUMNS

UNITS = {"DAY": "day", "HOUR": "hour", "MINUTE": "min", "SECOND": "sec"}

_NO_CLAUSE = "this text has no MATCH_RECOGNIZE clause"


class _Dialect(Snowflake):
    """The clause as all engines write it; names may be in backticks, too, as in Flink."""

    class Tokenizer(Snowflake.Tokenizer):
        IDENTIFIERS: ClassVar = ['"', "`"]


def read(text: str) -> RowPattern:
    """The only `MATCH_RECOGNIZE` clause of a text; raises NotTranslatedError."""
    tokens = _tokens(text)
    start, end = _pattern_range(tokens)
    if start == end:
        raise NotTranslatedError(tokens[start].line, "the pattern is empty")
    elements = elements_of(tokens[start:end])
    within, text = _without_within(text, tokens, end + 1)
    text = _with_last(text, tokens[:start])
    try:
        statements = sqlglot.parse(text, read=_Dialect)
    except (SqlglotError, ValueError) as error:  # the parser raises ValueError for some empty names
        raise _not_understood(error) from None
    clauses = [clause for statement in statements if statement for clause in statement.find_all(exp.MatchRecognize)]
    if not clauses:
        raise NotTranslatedError(1, _NO_CLAUSE)
    if len(clauses) > 1:
        why = "this text has several MATCH_RECOGNIZE clauses: write each into a file of its own"
        raise NotTranslatedError(line_of(clauses[-1]), why)
    others: list[Any] = [item for item in statements if item and not item.find(exp.MatchRecognize)]
    if others:
        raise NotTranslatedError(line_of(others[0]), "a statement without MATCH_RECOGNIZE is not translated")
    clause = clauses[0]
    table, never_null = _table_around(clause)
    partition, measures = (clause.args.get(part) or () for part in ("partition_by", "measures"))
    _refuse_twice(((line_of(key), str(key.name)) for key in partition), "PARTITION BY")
    _refuse_twice(((line_of(item), str(item.this.alias_or_name)) for item in measures), "MEASURES")
    return RowPattern(
        table=table,
        keys=tuple(_column(key, "PARTITION BY") for key in partition),
        null_keys=frozenset(str(key.name) for key in partition if str(key.name).lower() not in never_null),
        order=_order(clause),
        measures=tuple(map(_measure, measures)),
        elements=elements,
        skip=_skip(clause, _line_of_skip(tokens[:start])),
        within=within,
        conditions={item.alias.upper(): item.this for item in clause.args.get("define") or ()},
    )


def line_of(node: exp.Expression) -> int:
    """The line of the first name or number in an expression, or in what it is part of; else 1."""
    lines = [part.meta["line"] for part in node.walk() if "line" in part.meta]
    around = node.parent
    return line_of(around) if not lines and isinstance(around, exp.Expression) else min(lines, default=1)


MOST_BRACKETS = 40
"""Brackets in each other that are always read; how many more there may be depends on the rest."""


def line_too_deep(text: str) -> int:
    """The line of the bracket with the most around it; without deep ones, of the longest part."""
    deepest, depth, longest, length, line, begins = 0, 0, 0, 0, 1, 1
    for token in _tokens(text):
        depth += (token.text == "(") - (token.text == ")")
        if depth > max(deepest, MOST_BRACKETS):
            deepest, line = depth, token.line
        is_end = token.text == "," or token.text.upper() in ("DEFINE", "MEASURES")
        length, begins = (0, token.line) if is_end else (length + 1, begins if length else token.line)
        if length > longest and not deepest:
            longest, line = length, begins
    return line


def _tokens(text: str) -> list[Token]:
    try:
        return _Dialect().tokenize(text)
    except SqlglotError as error:
        raise _not_understood(error) from None


def _not_understood(error: Exception) -> NotTranslatedError:
    errors = getattr(error, "errors", None)
    if errors:
        first: dict[str, Any] = errors[0]
        why = str(first["description"]).rstrip(".")
        return NotTranslatedError(int(first["line"]), f"the SQL is not understood: {why}")
    return NotTranslatedError(1, f"the SQL is not understood: {str(error).splitlines()[0]}")


def _pattern_range(tokens: Sequence[Token]) -> tuple[int, int]:
    """Where the tokens inside the brackets of `PATTERN` are."""
    words = [token.text.upper() for token in tokens]
    if "MATCH_RECOGNIZE" not in words:
        raise NotTranslatedError(1, _NO_CLAUSE)
    for number in range(words.index("MATCH_RECOGNIZE"), len(tokens) - 1):
        if words[number] == "PATTERN" and words[number + 1] == "(":
            depth = 1
            for end in range(number + 2, len(tokens)):
                depth += (words[end] == "(") - (words[end] == ")")
                if words[end] == "DEFINE":
                    break
                if not depth:
                    return number + 2, end
            raise NotTranslatedError(tokens[number].line, "the bracket of PATTERN is not closed")
    raise NotTranslatedError(tokens[words.index("MATCH_RECOGNIZE")].line, "this MATCH_RECOGNIZE has no PATTERN")


def _without_within(text: str, tokens: Sequence[Token], at: int) -> tuple[str, str]:
    """The duration behind a pattern, and the text without it; SUBSET is refused."""
    words = [token.text.upper() for token in tokens[at : at + 4]]
    if words[:1] == ["SUBSET"]:
        raise NotTranslatedError(tokens[at].line, "SUBSET is not translated")
    if words[:1] != ["WITHIN"]:
        return "", text
    if len(words) < 4 or words[1] != "INTERVAL" or words[3].rstrip("S") not in UNITS or not _is_whole(words[2]):
        raise NotTranslatedError(tokens[at].line, "this WITHIN is not understood; write INTERVAL '10' MINUTE")
    first, last = tokens[at].start, tokens[at + 3].end
    if at + 4 < len(tokens) and tokens[at + 4].text == "(":
        raise NotTranslatedError(tokens[at].line, "an interval with a precision is not translated")
    return f"{int(words[2])} {UNITS[words[3].rstrip('S')]}", text[:first] + " " * (last + 1 - first) + text[last + 1 :]


def _is_whole(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= MOST_DIGITS and int(text) > 0


def _table_around(clause: exp.Expression) -> tuple[str, frozenset[str]]:
    """The table that the clause reads, and its columns, lower case, that are said to be never null.

    What stands around the clause must only read its rows, name its columns, and leave out nulls.
    """
    select = clause.parent
    if not isinstance(select, exp.Select) or select.find_ancestor(exp.Query) is not None:
        raise NotTranslatedError(line_of(clause), "a query around that of MATCH_RECOGNIZE is not translated")
    _refuse_parts(select, {"expressions", "from_", "where", "order", "match"}, "MATCH_RECOGNIZE")
    for item in select.expressions:
        if not isinstance(item, exp.Column | exp.Star):
            raise NotTranslatedError(line_of(item), f"`{item.sql()}` is more than a column: make it a measure")
    source = select.args.get("from_")
    holder = source.this if source is not None else None
    kept = _not_null(select, clause)
    if isinstance(holder, exp.Subquery) and isinstance(holder.this, exp.Select):
        inner = holder.this
        _refuse_parts(holder, {"this", "alias"}, "MATCH_RECOGNIZE")
        _refuse_parts(inner, {"expressions", "from_", "where"}, "the table of MATCH_RECOGNIZE")
        if [type(item) for item in inner.expressions] != [exp.Star]:
            raise NotTranslatedError(line_of(inner), "the SELECT that MATCH_RECOGNIZE reads must be SELECT *")
        holder, kept = inner.args["from_"].this, kept | _not_null(inner, clause)
    if not isinstance(holder, exp.Table) or not isinstance(holder.this, exp.Identifier):
        raise NotTranslatedError(line_of(clause), "MATCH_RECOGNIZE reads something other than a table by its name")
    _refuse_parts(holder, {"this", "db", "catalog", "alias"}, "the table of MATCH_RECOGNIZE")
    as_name(str(holder.this.name), line_of(holder))
    return str(holder.this.name), kept


def _refuse_parts(node: exp.Expression, known: set[str], around: str) -> None:
    """Refuse what a part of the text has beside what is known of it, so that nothing is lost."""
    for name, part in node.args.items():
        if part and name not in known:
            first = part[0] if isinstance(part, list) else part
            is_part = isinstance(first, exp.Expression)
            word = name.rstrip("_") if name in ("with_", "sample") or not is_part else first.key
            line = line_of(first if is_part else node)
            raise NotTranslatedError(line, f"{word.upper()} around {around} is not translated")


def _not_null(select: exp.Select, clause: exp.Expression) -> frozenset[str]:
    """Columns of `PARTITION BY`, lower case, whose nulls a WHERE leaves out; it must do no more."""
    where = select.args.get("where")
    if where is None:
        return frozenset()
    keys = {key.name.lower() for key in clause.args.get("partition_by") or ()}
    keys -= {item.this.alias.lower() for item in clause.args.get("measures") or ()}
    conditions = where.this.flatten() if isinstance(where.this, exp.And) else [where.this]
    found = [_without_nulls(condition) for condition in conditions]
    if not all(name in keys for name in found):
        why = "WHERE around MATCH_RECOGNIZE is not translated, other than that a column of PARTITION BY IS NOT NULL"
        raise NotTranslatedError(line_of(where), why)
    return frozenset(filter(None, found))


def _without_nulls(condition: Any) -> str | None:
    """`k` of `k IS NOT NULL`, in lower case."""
    bare = condition.unnest()
    test = bare.this.unnest() if isinstance(bare, exp.Not) else None
    is_test = isinstance(test, exp.Is) and isinstance(test.this, exp.Column) and isinstance(test.expression, exp.Null)
    return test.this.name.lower() if is_test and test is not None else None


def _column(node: exp.Expression, where: str) -> str:
    if not isinstance(node, exp.Column):
        raise NotTranslatedError(line_of(node), f"`{node.sql()}` in {where} is not a column")
    as_name(str(node.name), line_of(node))
    return str(node.name)


def _order(clause: exp.Expression) -> str:
    order = clause.args.get("order")
    columns = order.expressions if order is not None else []
    if len(columns) != 1:
        raise NotTranslatedError(
            line_of(order if order is not None else clause), "ORDER BY must name one column, the time"
        )
    if columns[0].args.get("desc"):
        raise NotTranslatedError(line_of(columns[0]), "ORDER BY … DESC is not translated: time runs forward")
    return _column(columns[0].this, "ORDER BY")


def _measure(item: exp.Expression) -> tuple[str, exp.Expression]:
    named = item.this
    if not isinstance(named, exp.Alias):
        raise NotTranslatedError(line_of(item), f"the measure `{named.sql()}` has no name")
    if str(item.args.get("window_frame") or "").upper().endswith("RUNNING"):
        raise NotTranslatedError(line_of(item), "RUNNING is not translated: a match is given at its end")
    name, line = str(named.alias), line_of(item)
    as_name(name, line)
    if name in MATCH_COLUMNS:
        raise NotTranslatedError(line, f"the measure '{name}' has the name of a column that every match has")
    return name, named.this


def _refuse_twice(names: Iterable[tuple[int, str]], where: str) -> None:
    """Refuse a name that another one has, which a query has once; names come with their lines."""
    known: set[str] = set()
    for line, name in names:
        if name in known:
            raise NotTranslatedError(line, f"the name '{name}' is in {where} twice: give each another one")
        known.add(name)


def _with_last(text: str, tokens: Sequence[Token]) -> str:
    """The text with `SKIP TO LAST b` for `SKIP TO b`, which sqlglot does not read."""
    words = [token.text.upper() for token in tokens]
    for number in range(len(words) - 2):
        if words[number : number + 2] == ["SKIP", "TO"] and words[number + 2] not in ("NEXT", "FIRST", "LAST"):
            at = tokens[number + 2].start
            return f"{text[:at]}LAST {text[at:]}"
    return text


def _line_of_skip(tokens: Sequence[Token]) -> int:
    """The line of the rows per match, or of where the next begins; else of the pattern."""
    words = [" ".join(token.text.upper() for token in tokens[at : at + 2]) for at in range(len(tokens))]
    said = (number for number, pair in enumerate(words) if pair in ("ONE ROW", "ALL ROWS", "AFTER MATCH"))
    return tokens[next(said, -1)].line


def _skip(clause: exp.Expression, line: int) -> Skip:
    rows = str(clause.args.get("rows") or "ONE ROW PER MATCH").upper()
    if rows != "ONE ROW PER MATCH":
        raise NotTranslatedError(line, f"{rows} is not translated: a match is one row")
    said = clause.args.get("after")
    words = str(said or "AFTER MATCH SKIP PAST LAST ROW").upper().split()[3:]
    match words:
        case ["PAST", "LAST", "ROW"]:
            return Skip("past last row", line, is_default=not said)
        case ["TO", "NEXT", "ROW"]:
            return Skip("next row", line)
        case ["TO", "FIRST" | "LAST" as end, variable]:
            return Skip(end.lower(), line, variable)
    raise NotTranslatedError(line, f"AFTER MATCH SKIP {' '.join(words)} is not translated")
