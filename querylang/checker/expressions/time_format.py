"""Check calls of TimeFormat, with their patterns and zones if these are written in the text."""

from __future__ import annotations

from collections.abc import Sequence

from querylang.checker.expressions.inference_context import Inferring, arguments_of
from querylang.errors import Mistake, QueryError
from querylang.plan.expression import Call, Expression, Literal
from querylang.plan.library import TIME_FORMAT, TIME_FORMAT_METHODS
from querylang.plan.time_patterns import TimePatternError, pieces_of, zone_of
from querylang.syntax import ast

_ROWS = {row.name: row for row in TIME_FORMAT_METHODS}
_CLOCK = "the clock gives another result each time; `getTime()` of an event gives its time"
_COMPILED = "patterns are compiled by themselves; call `TimeFormat.parseTime(pattern, text)`"
_REFUSED = {
    **dict.fromkeys(("getSystemTime", "getMicroTime"), _CLOCK),
    **dict.fromkeys(("compilePattern", "compilePatternUTC", "compilePatternWithTimeZone"), _COMPILED),
}


def time_format_call(inferring: Inferring, name: ast.Name, nodes: Sequence[ast.Expression]) -> Expression | None:
    """Check `TimeFormat.name(arguments)`; in the plan the first argument is the receiver."""
    if name.text in _REFUSED:
        facts = {"what": f"`{name.text}`", "reason": _REFUSED[name.text]}
        return inferring.report(QueryError.of(Mistake.NOT_IN_QUERIES, name.span, **facts))
    row = _ROWS.get(name.text)
    if row is None:
        mistake = QueryError.of(Mistake.UNKNOWN_METHOD, name.span, type="TimeFormat", name=name.text)
        return inferring.report(mistake.suggesting(name.text, _ROWS))
    parameters = [(f"an argument of '{name.text}'", type_) for type_ in row.parameters]
    arguments = arguments_of(inferring, name, nodes, parameters)
    if arguments is None:
        return None
    assert row.result is not None, "the methods of TimeFormat return a value"
    is_right = _are_right(inferring, nodes, arguments, 1 if row.name.startswith("format") else 0)
    return Call(row.result, f"{TIME_FORMAT}.{row.name}", arguments[0], arguments[1:]) if is_right else None


def _are_right(
    inferring: Inferring, nodes: Sequence[ast.Expression], arguments: Sequence[Expression], place: int
) -> bool:
    """Whether the pattern, at that place, and the zone after all others can be right."""
    for at, check in ((place, pieces_of), (2, zone_of)):
        value = arguments[at] if at < len(arguments) else None
        if isinstance(value, Literal):
            try:
                check(str(value.value))
            except TimePatternError as error:
                inferring.report(QueryError.of(Mistake.TIME_FORMAT, nodes[at].span, problem=str(error)))
                return False
    return True
