"""Expressions, durations and statements of a plan as a user would write them.

Local variables have no names in a plan; they are printed as `v1`, `v2` ...
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from typing import assert_never

from querylang.dataclass import dataclass
from querylang.plan import model as plan
from querylang.plan.expression import (
    Aggregate,
    Binary,
    Call,
    EndOf,
    EventOf,
    Expression,
    FieldOf,
    Fold,
    IndexOf,
    Invoke,
    Items,
    KeyOf,
    Kind,
    Literal,
    LocalOf,
    Lookup,
    MemberOf,
    New,
    ParameterOf,
    PrevOf,
    SelectOf,
    Type,
    Unary,
    type_of,
)
from querylang.plan.library import EQUALITY, ORDER, TIME_FORMAT
from querylang.plan.model import QueryPlan, Statement

_BINDING = {
    "or": 1,
    "xor": 2,
    "and": 3,
    "not": 4,
    **dict.fromkeys((*EQUALITY, *ORDER), 5),
    **dict.fromkeys(("+", "-"), 6),
    **dict.fromkeys(("*", "/", "%"), 7),
}
_TIGHTEST = 9
_UNITS = ((86_400_000_000, "day"), (3_600_000_000, "hour"), (60_000_000, "minute"))
_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r"})


@dataclass(frozen=True, slots=True)
class Names:
    """The names that expressions are printed with. A term called `""` is the event itself."""

    terms: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    selects: tuple[str, ...] = ()

    @classmethod
    def of(cls, query: QueryPlan) -> Names:
        """The names in a query's conditions and block."""
        selects = tuple(item.name for item in query.selected)
        return cls(tuple(term.name for term in query.terms), query.key_names, selects)

    def with_term(self, name: str) -> Names:
        """These names with one more, of a `without`."""
        return Names((*self.terms, name), self.keys, self.selects)


INPUT_NAMES = Names(("",))
"""The names in an input's own expressions."""


def duration_text(length: plan.Duration, names: Names = INPUT_NAMES) -> str:
    """Microseconds as `10 minutes`, `1 minute 30 seconds`; an expression as it was written."""
    if not isinstance(length, int):
        return expression_text(length, names)
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


def count_text(count: plan.Count, names: Names = INPUT_NAMES) -> str:
    """A number of events, or its expression."""
    return str(count) if isinstance(count, int) else expression_text(count, names)


def expression_text(node: Expression, names: Names) -> str:
    """An expression; parentheses only where they are needed."""
    return _text(node, names, 0)


def literal_text(value: bool | float | Decimal | str) -> str:
    """A literal of the language, or `infinity`."""
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return f'"{value.translate(_ESCAPES)}"'
        case Decimal():
            return f"{value:f}d"
        case float() if math.isinf(value):
            return "infinity" if value > 0 else "-infinity"
        case float() if math.isnan(value):
            return "float.NAN"
        case _:
            return repr(value)


def action_text(action: plan.Action) -> str:
    """The head of a query's action."""
    parameters = ", ".join(f"{type_} {_local(slot)}" for slot, type_ in enumerate(action.parameters))
    returns = f" returns {action.returns}" if action.returns is not None else ""
    return f"action {action.name}({parameters}){returns}"


def statement_lines(statements: tuple[Statement, ...], names: Names) -> list[str]:
    """Statements, one per line; inner ones are indented by four spaces."""
    return [line for statement in statements for line in _lines(statement, names)]


def _lines(statement: Statement, names: Names) -> Iterator[str]:
    def text(node: Expression) -> str:
        return expression_text(node, names)

    match statement:
        case plan.Print(text=value):
            yield f"print {text(value)}"
        case plan.Log(text=value, level=level):
            yield f"log {text(value)} at {level}"
        case plan.Send(event=event, channel=channel):
            yield f"send {text(event)} to {text(channel)}"
        case plan.Emit(event=event, channel=channel):
            yield f"emit {text(event)}{'' if channel is None else f' to {text(channel)}'}"
        case plan.Route(event=event):
            yield f"route {text(event)}"
        case plan.Assign(target=target, value=value):
            yield f"{text(target)} := {text(value)}"
        case plan.Evaluate(value=value):
            yield text(value)
        case plan.If(condition=condition, then=then, otherwise=otherwise):
            yield from _branches(f"if {text(condition)}", then, otherwise, names)
        case plan.IfPresent(values=values, slots=slots, then=then, otherwise=otherwise):
            bound = (f"{text(value)} as {_local(slot)}" for value, slot in zip(values, slots, strict=True))
            yield from _branches(f"ifpresent {', '.join(bound)}", then, otherwise, names)
        case plan.While(condition=condition, body=body):
            yield from _branches(f"while {text(condition)}", body, (), names)
        case plan.For(slot=slot, sequence=sequence, body=body):
            yield from _branches(f"for {_local(slot)} in {text(sequence)}", body, (), names)
        case plan.Break():
            yield "break"
        case plan.Continue():
            yield "continue"
        case plan.Return(value=value):
            yield "return" if value is None else f"return {text(value)}"
        case _:
            assert_never(statement)


def _branches(head: str, then: tuple[Statement, ...], otherwise: tuple[Statement, ...], names: Names) -> Iterator[str]:
    yield f"{head} {{"
    yield from (f"    {line}" for line in statement_lines(then, names))
    if otherwise:
        yield "} else {"
        yield from (f"    {line}" for line in statement_lines(otherwise, names))
    yield "}"


def _local(slot: int) -> str:
    return f"v{slot + 1}"


def _text(node: Expression, names: Names, outer: int) -> str:
    """With parentheses if the surroundings (`outer`) bind tighter than the node."""
    match node:
        case Literal(value=value):
            return literal_text(value)
        case ParameterOf(name=name):
            return name
        case KeyOf(index=index):
            return names.keys[index]
        case SelectOf(index=index):
            return names.selects[index]
        case LocalOf(slot=slot):
            return _local(slot)
        case FieldOf(term=term, field=field):
            return _member(names.terms[term], field)
        case EventOf(term=term):
            return names.terms[term] or "this event"
        case PrevOf(term=term, field=field):
            return f"prev({names.terms[term]}).{written_name(field) if field else 'getTime()'}"
        case EndOf(function=function, term=term):
            return f"{function}({names.terms[term]})"
        case Fold(function=function, argument=argument):
            return f"{function}({_text(argument, names, 0)})"
        case MemberOf(receiver=receiver, field=field):
            return f"{_text(receiver, names, _TIGHTEST)}.{written_name(field)}"
        case IndexOf(receiver=receiver, index=index_):
            return f"{_text(receiver, names, _TIGHTEST)}[{_text(index_, names, 0)}]"
        case Call(method="contains", receiver=receiver, arguments=(wanted,)) if type_of(receiver).kind is Kind.SEQUENCE:
            return _test(wanted, f"in {_text(receiver, names, _BINDING['='] + 1)}", names, outer)
        case Lookup():
            return _lookup(node, names)
        case Call() | Invoke() | New() | Items() | Aggregate():
            return _call(node, names)
        case Unary(operator="is null", operand=operand):
            return _test(operand, "is null", names, outer)
        case Unary(operator="not", operand=Unary(operator="is null", operand=operand)):
            return _test(operand, "is not null", names, outer)
        case Unary(operator="not", operand=Call(method="contains", receiver=receiver, arguments=(wanted,))) if (
            type_of(receiver).kind is Kind.SEQUENCE
        ):
            return _test(wanted, f"not in {_text(receiver, names, _BINDING['='] + 1)}", names, outer)
        case Unary(operator=operator, operand=operand):
            binding = _BINDING["not"] if operator == "not" else 8
            sign = "not " if operator == "not" else "-"
            return _grouped(sign, _text(operand, names, binding), binding, outer)
        case Binary(operator=operator, left=left, right=right):
            binding = _BINDING[operator]
            # Comparisons do not chain: both sides need parentheses; otherwise the right one.
            left_text = _text(left, names, binding + (binding == _BINDING["="]))
            return _grouped(f"{left_text} {operator} ", _text(right, names, binding + 1), binding, outer)
    assert_never(node)


def _lookup(node: Lookup, names: Names) -> str:
    keys = _comma_separated(node.keys, names)
    if not node.field:
        return f"{node.table}.hasKey({keys})"
    row = f".getOrDefault({keys})" if node.has_default else f"[{keys}]"
    return f"{node.table}{row}.{written_name(node.field)}"


def _test(value: Expression, test: str, names: Names, outer: int) -> str:
    """A value with a test behind it, which binds as a comparison does."""
    binding = _BINDING["="]
    return _grouped(f"{_text(value, names, binding + 1)} ", test, binding, outer)


def _call(node: Call | Invoke | New | Items | Aggregate, names: Names) -> str:
    """What has its parts in brackets."""
    match node:
        case Call(method=method, receiver=receiver, arguments=arguments) if "." in method:
            shown = method.removeprefix(TIME_FORMAT.removesuffix("TimeFormat"))
            return f"{shown}({_comma_separated((receiver, *arguments), names)})"
        case Call(method=method, receiver=receiver, arguments=arguments):
            return f"{_receiver(receiver, method, names)}({_comma_separated(arguments, names)})"
        case Invoke(action=action, receiver=None, arguments=arguments):
            return f"{action}({_comma_separated(arguments, names)})"
        case Invoke(action=action, receiver=receiver, arguments=arguments):
            assert receiver is not None
            return f"{_receiver(receiver, action, names)}({_comma_separated(arguments, names)})"
        case New(type=type_, arguments=arguments):
            return f"{type_}({_comma_separated(arguments, names)})"
        case Items(type=Type(kind=Kind.SEQUENCE), items=items) if items:
            return f"[{_comma_separated(items, names)}]"
        case Items(items=items) if items:
            pairs = zip(items[::2], items[1::2], strict=True)
            return f"{{{', '.join(f'{_text(key, names, 0)}: {_text(value, names, 0)}' for key, value in pairs)}}}"
        case Items(type=type_):
            return f"new {type_}"
        case Aggregate(function=function, arguments=arguments):
            return f"{function}({_comma_separated(arguments, names)})"
    assert_never(node)


def _receiver(receiver: Expression, method: str, names: Names) -> str:
    if isinstance(receiver, EventOf):
        return _member(names.terms[receiver.term], method)
    return f"{_text(receiver, names, _TIGHTEST)}.{method}"


def _member(term: str, name: str) -> str:
    return f"{term}.{written_name(name)}" if term else written_name(name)


def _comma_separated(nodes: tuple[Expression, ...], names: Names) -> str:
    return ", ".join(_text(node, names, 0) for node in nodes)


def _grouped(before: str, after: str, binding: int, outer: int) -> str:
    return f"({before}{after})" if binding < outer else f"{before}{after}"


def wait_text(duration: plan.Duration, name: str | None, names: Names = INPUT_NAMES) -> str:
    """`wait(5 seconds) as t`, without a repeat."""
    return f"wait({duration_text(duration, names)})" + (f" as {name}" if name is not None else "")


def repeat_text(least: int, most: int | None, sign: str, *, is_consecutive: bool) -> str:
    """A repeat behind a step: ` {2,3} consecutive`, `+`."""
    numbers = f"{least}" if most == least else f"{least},{'' if most is None else most}"
    return (sign or f" {{{numbers}}}") + (" consecutive" if is_consecutive else "")


MATCH_COLUMNS = frozenset(
    {
        *("match_id", "query", "instance", "key", "time", "definitive", "emitted", "waited"),
        *("members", "selected", "points"),
    }
)
"""Names of columns that all tables of matches may have; none of them can be selected."""

VALID = ("valid_from", "valid_to")
"""Columns of the data of a table beside the stream: from when and until before when a row holds."""

SUPPRESSED = "suppressed"
"""A column of the matches of a query with `at most`."""

_WORD = re.compile(r"(?!__)[^\W\d]\w*")


def written_name(name: str) -> str:
    """The name of a field as users write it: `amount`, `` `Amount EUR` ``."""
    return name if _WORD.fullmatch(name) else f"`{name}`"
