"""Check literals, constants of types and `new`; check the ranges of numbers."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import ROUND_HALF_EVEN, Context, Decimal

from querylang.checker.expressions.defaults import LARGEST, TooLargeError, default_of
from querylang.checker.expressions.inference_context import Inferring, fitting, type_of
from querylang.errors import Mistake, QueryError
from querylang.plan.expression import Expression, Items, Kind, Literal, Type
from querylang.plan.library import DECIMAL_LIMIT, DECIMAL_PLACES, LARGEST_INTEGER, SMALLEST_INTEGER, type_constants
from querylang.source import Span
from querylang.syntax import ast

_LAST_PLACE = Decimal(1).scaleb(-DECIMAL_PLACES)
_EXACT = Context(prec=60, rounding=ROUND_HALF_EVEN)


def constant(inferring: Inferring, node: ast.Constant) -> Expression | None:
    """A literal that fits its type: 64-bit integers, decimals below 10^20 with 18 places.

    The parser checks the range of floats.
    """
    match node.value:
        case bool(value):
            return Literal(Type.BOOLEAN, value)
        case int(value):
            if not SMALLEST_INTEGER <= value <= LARGEST_INTEGER:
                return _out_of_range(inferring, node.span, Type.INTEGER)
            return Literal(Type.INTEGER, value)
        case float(value):
            return Literal(Type.FLOAT, value)
        case Decimal() as value:
            if not value.is_finite() or abs(value) >= DECIMAL_LIMIT:
                return _out_of_range(inferring, node.span, Type.DECIMAL)
            exponent = value.as_tuple().exponent
            is_longer = isinstance(exponent, int) and exponent < -DECIMAL_PLACES
            return Literal(Type.DECIMAL, value.quantize(_LAST_PLACE, context=_EXACT) if is_longer else value)
        case str(value):
            return Literal(Type.STRING, value)


def negated(inferring: Inferring, node: ast.Unary) -> Expression | None:
    """A minus sign and a number as one literal, so that the smallest integer can be written."""
    assert isinstance(node.operand, ast.Constant), "who calls has looked"
    value = node.operand.value
    assert not isinstance(value, str), "who calls has looked"
    return constant(inferring, ast.Constant(node.span, -value))


def is_number(node: ast.Expression) -> bool:
    """Whether it is a literal that can have a minus sign."""
    return isinstance(node, ast.Constant) and not isinstance(node.value, str | bool)


def type_constant(inferring: Inferring, node: ast.TypeConstant) -> Expression | None:
    """Check `float.INFINITY`."""
    type_ = inferring.namespace.type_of(node.type)
    if type_ is None:
        return None
    constants = type_constants(type_)
    name = node.name.text
    if name not in constants:
        mistake = QueryError.of(Mistake.UNKNOWN_CONSTANT, node.name.span, type=str(type_), name=name)
        return inferring.report(mistake.suggesting(name, constants))
    return Literal(type_, constants[name])


def sequence(inferring: Inferring, node: ast.SequenceLiteral, wanted: Type | None) -> Expression | None:
    """Check `[a, b]`: all elements have one type; an empty one has the wanted type."""
    expected = wanted if wanted is not None and wanted.kind is Kind.SEQUENCE else None
    if not node.items:
        return _empty(inferring, node.span, expected, "sequence", "sequence<...>")
    items = _alike(inferring, node.items, None if expected is None else expected.of[0], "elements")
    return None if items is None else Items(Type.sequence(type_of(items[0])), items)


def dictionary(inferring: Inferring, node: ast.DictionaryLiteral, wanted: Type | None) -> Expression | None:
    """Check `{k: v}`: all keys have one type, and all values; an empty one has the wanted type."""
    expected = wanted if wanted is not None and wanted.kind is Kind.DICTIONARY else None
    if not node.items:
        return _empty(inferring, node.span, expected, "dictionary", "dictionary<..., ...>")
    key, value = (None, None) if expected is None else expected.of
    keys = _alike(inferring, [pair[0] for pair in node.items], key, "keys")
    values = _alike(inferring, [pair[1] for pair in node.items], value, "values")
    if keys is None or values is None:
        return None
    type_ = Type.dictionary(type_of(keys[0]), type_of(values[0]))
    return Items(type_, tuple(part for pair in zip(keys, values, strict=True) for part in pair))


def new(inferring: Inferring, node: ast.New) -> Expression | None:
    """Check `new T`, the default value of the type."""
    type_ = inferring.namespace.type_of(node.type)
    return None if type_ is None else default(inferring, type_, node.span)


def default(inferring: Inferring, type_: Type, span: Span) -> Expression | None:
    """The default value of a type; None if the type is open, or too large, which is reported."""
    try:
        return default_of(type_, inferring.namespace)
    except TooLargeError:
        return inferring.report(QueryError.of(Mistake.EVENT_TOO_LARGE, span, type=str(type_), limit=LARGEST))


def _alike(
    inferring: Inferring, nodes: Sequence[ast.Expression], wanted: Type | None, what: str
) -> tuple[Expression, ...] | None:
    """The parts of a literal, all of the type of the first; None if one has a mistake."""
    values: list[Expression] = []
    for node in nodes:
        expected = values[0].type if values else wanted
        value = _part(inferring, node, expected)
        if value is None:
            continue
        if values and value.type != values[0].type:
            facts = {"found": str(value.type), "expected": str(values[0].type), "what": what}
            inferring.report(QueryError.of(Mistake.ITEM_TYPE, node.span, **facts))
        else:
            values.append(value)
    return tuple(values) if len(values) == len(nodes) else None


def _part(inferring: Inferring, node: ast.Expression, expected: Type | None) -> Expression | None:
    """One part; a plain value becomes an optional where that is expected."""
    value = inferring.typed(node, expected)
    return value if value is None or expected is None else fitting(value, expected)


def _empty(inferring: Inferring, span: Span, expected: Type | None, what: str, example: str) -> Expression | None:
    if expected is None:
        return inferring.report(QueryError.of(Mistake.EMPTY_LITERAL, span, what=what, example=example))
    return Items(expected, ())


def _out_of_range(inferring: Inferring, span: Span, type_: Type) -> Expression | None:
    return inferring.report(QueryError.of(Mistake.NUMBER_RANGE, span, type=str(type_)))
