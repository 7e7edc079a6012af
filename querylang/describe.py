"""A query's plan as text for people: inputs, automaton, conditions and where each is checked, the state at most.

Takes a compiled plan; gives lines. `explain` prints them and adds what other rooms know.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import assert_never

from querylang.automaton import ACCEPT
from querylang.expression import Binary, Call, EventText, Expression, FieldOf, Literal, Type, Unary
from querylang.plan import Input, Plan, Print, QueryPlan, Send, Statement

_BINDING = {"or": 1, "xor": 2, "and": 3, "not": 4, "=": 5, "!=": 5, "<": 5, "<=": 5, ">": 5, ">=": 5}
_ARITHMETIC = {"+": 6, "-": 6, "*": 7, "/": 7, "%": 7}
_UNITS = ((86_400_000_000, "day"), (3_600_000_000, "hour"), (60_000_000, "minute"))


def describe_plan(plan: Plan) -> str:
    """All queries of a plan, one after the other."""
    return "\n\n".join(describe(query) for query in plan.queries)


def describe(query: QueryPlan) -> str:
    """One query as text."""
    names = [term.name for term in query.terms]
    sections = [
        f"query {query.name}",
        _section("inputs", [line for item in query.inputs for line in _input(item, query)]),
        _section("pattern", _pattern(query)),
        _section("automaton, read backwards from the latest event", _automaton(query, names)),
        _section("conditions", _conditions(query, names)),
        _section("for each match", [statement_text(statement, names) for statement in query.block] or ["output"]),
        _section("state", [_bound(item) for item in query.inputs]),
    ]
    return "\n".join(section for section in sections if section)


def duration_text(length: int) -> str:
    """Microseconds in the language's own words: `10 minutes`, `1 minute 30 seconds`."""
    parts = []
    for size, unit in _UNITS:
        number, length = divmod(length, size)
        if number:
            parts.append(f"{number} {unit}{'' if number == 1 else 's'}")
    if length or not parts:
        seconds = Fraction(length, 1_000_000)
        number_text = str(seconds.numerator) if seconds.denominator == 1 else f"{length / 1_000_000:f}".rstrip("0")
        parts.append(f"{number_text} second{'' if seconds == 1 else 's'}")
    return " ".join(parts)


def expression_text(node: Expression, names: Sequence[str]) -> str:
    """An expression as a user would write it; `names` are the terms'."""
    return _text(node, names, 0)


def statement_text(statement: Statement, names: Sequence[str]) -> str:
    """A statement of the block as a user would write it."""
    match statement:
        case Print(text=text):
            return f"print {expression_text(text, names)}"
        case Send(event=event, arguments=arguments, channel=channel):
            values = ", ".join(expression_text(argument, names) for argument in arguments)
            return f"send {event}({values}) to {expression_text(channel, names)}"
    assert_never(statement)


def _section(title: str, lines: Sequence[str]) -> str:
    return "\n".join([f"  {title}", *(f"    {line}" for line in lines)]) if lines else ""


def _input(item: Input, query: QueryPlan) -> list[str]:
    head = item.event
    if query.keys:
        keys = [name if name == key else f"{key} as {name}" for name, key in zip(query.keys, item.keys, strict=True)]
        head += f" key {', '.join(keys)}"
    head += f" within {duration_text(item.within)}" if item.within is not None else ""
    head += f" retain {item.retain}" if item.retain is not None else ""
    lines = [head]
    if item.filter is not None:
        lines.append(f"  only {_text(item.filter, [''], 0)}")
    lines.append(f"  time: {_time(item)}")
    if item.heartbeat is not None:
        heartbeat = item.heartbeat
        scope = f"for its {', '.join(heartbeat.keys)}" if heartbeat.keys else "for every key"
        lines.append(f"  heartbeat: {heartbeat.event}, {scope if query.keys else 'for the input'}")
    return lines


def _time(item: Input) -> str:
    if item.wait is None:
        return "arrival"
    origin = item.time_from if item.time_from is not None else "the source's column"
    order = "out of order" if item.out_of_order else "in order"
    return f"{origin}, {order}, wait {duration_text(item.wait)}"


def _pattern(query: QueryPlan) -> list[str]:
    terms = [f"{query.inputs[term.input].event} as {term.name}" for term in query.terms]
    within = [f"within {duration_text(query.within)}"] if query.within is not None else []
    return [" -> ".join(terms), *within]


def _automaton(query: QueryPlan, names: Sequence[str]) -> list[str]:
    rows = [("state", "consumes", "for", "checks", "then")]
    for number, state in enumerate(query.automaton.states):
        for transition in state.transitions:
            bound = ", ".join(names[term] for term in transition.binds)
            checks = ", ".join(str(check + 1) for check in transition.checks) or "-"
            target = "match" if transition.target == ACCEPT else str(transition.target)
            rows.append((str(number), query.inputs[transition.input].event, bound, checks, target))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _conditions(query: QueryPlan, names: Sequence[str]) -> list[str]:
    places = {
        check: number
        for number, state in enumerate(query.automaton.states)
        for transition in state.transitions
        for check in transition.checks
    }
    return [
        f"{index + 1}  {expression_text(condition, names)}, checked in state {places[index]}"
        for index, condition in enumerate(query.conditions)
    ]


def _bound(item: Input) -> str:
    """What must be kept of an input; an event waits for definitive time before it enters its window."""
    limits = []
    if item.retain is not None:
        limits.append(f"the {item.retain} most recent")
    if item.within is not None:
        limits.append(f"those of the last {duration_text(item.within)}")
    kept = " and of these ".join(reversed(limits)) if len(limits) > 1 else limits[0]
    per_key = " for each key" if item.keys else ""
    waiting = f", and those that wait: at most {duration_text(item.wait)}" if item.wait is not None else ""
    return f"{item.event}: {kept}{per_key}{waiting}"


def _text(node: Expression, names: Sequence[str], outer: int) -> str:
    """With parentheses where the surroundings bind tighter than the node."""
    match node:
        case Literal(type=type_, value=value):
            return _literal(type_, value)
        case FieldOf(term=term, field=field):
            return f"{names[term]}.{field}" if names[term] else field
        case EventText(term=term):
            return f"{names[term]}.toString()"
        case Call(method=method, receiver=receiver, arguments=arguments):
            values = ", ".join(_text(argument, names, 0) for argument in arguments)
            return f"{_text(receiver, names, 9)}.{method}({values})"
        case Unary(operator=operator, operand=operand):
            binding = _BINDING["not"] if operator == "not" else 8
            return _grouped(
                f"{operator} " if operator == "not" else "-", _text(operand, names, binding), binding, outer
            )
        case Binary(operator=operator, left=left, right=right):
            binding = _BINDING.get(operator) or _ARITHMETIC[operator]
            # Comparisons do not chain, so both sides of one need parentheses; else the right side does.
            left_text = _text(left, names, binding + (binding == _BINDING["="]))
            return _grouped(f"{left_text} {operator} ", _text(right, names, binding + 1), binding, outer)
    assert_never(node)


def _grouped(before: str, after: str, binding: int, outer: int) -> str:
    return f"({before}{after})" if binding < outer else f"{before}{after}"


def _literal(type_: Type, value: bool | float | str) -> str:
    match type_:
        case Type.BOOLEAN:
            return "true" if value else "false"
        case Type.STRING:
            text = str(value)
            for character, escape in (("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n"), ("\t", "\\t"), ("\r", "\\r")):
                text = text.replace(character, escape)
            return f'"{text}"'
        case Type.FLOAT if value in {float("inf"), float("-inf")}:
            return "infinity" if float(value) > 0 else "-infinity"
        case _:
            return repr(value)
