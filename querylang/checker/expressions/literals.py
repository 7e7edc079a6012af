"""Check literals, constants of types, `new`, and operators; the default values of types."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import ROUND_HALF_EVEN, Context, Decimal

from querylang.checker.namespaces import Namespace
from querylang.checker.scope import (
    LONG,
    Inferring,
    alike,
    as_float,
    check_untyped,
    fitting,
    flat_chain,
    is_empty_literal,
    type_of,
)
from querylang.errors import Mistake, QueryError
from querylang.plan import library
from querylang.plan.expression import NUMBERS, Binary, Call, EventOf, Expression, Items, Kind, Literal, New, Type, Unary
from querylang.source import Span
from querylang.syntax import ast

_LAST_PLACE = Decimal(1).scaleb(-library.DECIMAL_PLACES)
_EXACT = Context(prec=60, rounding=ROUND_HALF_EVEN)
_ASSOCIATIVE = (Type.BOOLEAN, Type.INTEGER, Type.STRING)
"""Types whose `and`, `or` and `+` may be grouped in any way; floats are rounded at each `+`."""


def constant(inferring: Inferring, node: ast.Constant) -> Expression | None:
    """A literal that fits its type: 64-bit integers, decimals below 10^20 with 18 places.

    The parser checks the range of floats.
    """
    match node.value:
        case bool() as value:
            return Literal(Type.BOOLEAN, value)
        case int() as value:
            if not library.SMALLEST_INTEGER <= value <= library.LARGEST_INTEGER:
                return _out_of_range(inferring, node.span, Type.INTEGER)
            return Literal(Type.INTEGER, value)
        case float() as value:
            return Literal(Type.FLOAT, value)
        case Decimal() as value:
            if not value.is_finite() or abs(value) >= library.DECIMAL_LIMIT:
                return _out_of_range(inferring, node.span, Type.DECIMAL)
            exponent = value.as_tuple().exponent
            is_longer = isinstance(exponent, int) and exponent < -library.DECIMAL_PLACES
            return Literal(Type.DECIMAL, value.quantize(_LAST_PLACE, context=_EXACT) if is_longer else value)
        case str() as value:
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
    constants = library.type_constants(type_)
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
    except DefaultTooLargeError:
        return inferring.report(QueryError.of(Mistake.EVENT_TOO_LARGE, span, type=str(type_), limit=LARGEST))


def _alike(
    inferring: Inferring, nodes: Sequence[ast.Expression], wanted: Type | None, what: str
) -> tuple[Expression, ...] | None:
    """The parts of a literal, all of the type of the first; None if one has a mistake."""
    values: list[Expression] = []
    expected = wanted
    for node in nodes:
        value = _part(inferring, node, expected)
        if value is None:
            continue
        if not values:
            expected = value.type
        if value.type is not expected and value.type != expected:
            facts = {"found": str(value.type), "expected": str(expected), "what": what}
            inferring.report(QueryError.of(Mistake.ITEM_TYPE, node.span, **facts))
        else:
            values.append(value)
    return tuple(values) if len(values) == len(nodes) else None


def _part(inferring: Inferring, node: ast.Expression, expected: Type | None) -> Expression | None:
    """One part; a plain value becomes an optional where that is expected."""
    # Lists of thousands of numbers are asked straight away.
    value = constant(inferring, node) if isinstance(node, ast.Constant) else inferring.typed(node, expected)
    return value if value is None or expected is None or value.type is expected else fitting(value, expected)


def _empty(inferring: Inferring, span: Span, expected: Type | None, what: str, example: str) -> Expression | None:
    if expected is None:
        return inferring.report(QueryError.of(Mistake.EMPTY_LITERAL, span, what=what, example=example))
    return Items(expected, ())


def _out_of_range(inferring: Inferring, span: Span, type_: Type) -> Expression | None:
    return inferring.report(QueryError.of(Mistake.NUMBER_RANGE, span, type=str(type_)))


# Default values: of declarations without a value, `new T`, and fields that `%send` leaves out.

LARGEST = 1000
"""The most parts of a default value, nested ones included."""

_SIMPLE: dict[Type, Expression] = {
    Type.BOOLEAN: Literal(Type.BOOLEAN, False),
    Type.INTEGER: Literal(Type.INTEGER, 0),
    Type.FLOAT: Literal(Type.FLOAT, 0.0),
    Type.DECIMAL: Literal(Type.DECIMAL, Decimal(0)),
    Type.STRING: Literal(Type.STRING, ""),
    Type.LOCATION: New(Type.LOCATION, (Literal(Type.FLOAT, 0.0),) * 4),
}


class DefaultTooLargeError(Exception):
    """The default value would have more than `LARGEST` parts."""


def default_of(type_: Type, namespace: Namespace) -> Expression | None:
    """The default value; None for an event type that is open. Raises DefaultTooLargeError."""
    return _Defaults(namespace).of(type_)


class _Defaults:
    def __init__(self, namespace: Namespace) -> None:
        self._namespace = namespace
        self._parts = 0

    def of(self, type_: Type) -> Expression | None:
        self._parts += 1
        if self._parts > LARGEST:
            raise DefaultTooLargeError
        match type_.kind:
            case Kind.SEQUENCE | Kind.DICTIONARY:
                return Items(type_, ())
            case Kind.OPTIONAL:
                return New(type_, ())
            case Kind.EVENT:
                return self._event(type_)
            case _:
                return _SIMPLE[type_]

    def _event(self, type_: Type) -> Expression | None:
        schema = self._namespace.of(type_)
        parts = [] if schema.is_open else [self.of(item.type) for item in schema.fields]
        values = tuple(part for part in parts if part is not None)
        return New(type_, values) if not schema.is_open and len(values) == len(parts) else None


# Operators.

_EQUALITY = ("=", "!=")


def unary(inferring: Inferring, node: ast.Unary) -> Expression | None:
    """Check `-x`, `not x`, `x is null`."""
    if node.operator == "-" and is_number(node.operand):
        return negated(inferring, node)
    operand = inferring.typed(node.operand)
    if operand is None:
        return None
    if node.operator in ("is null", "is not null"):
        return _null_test(inferring, node, operand)
    result = library.unary_result(node.operator, type_of(operand))
    if result is None:
        facts = {"operator": node.operator, "operand": str(operand.type)}
        return inferring.report(QueryError.of(Mistake.OPERAND_TYPE, node.span, **facts))
    return Unary(result, node.operator, operand)


def _null_test(inferring: Inferring, node: ast.Unary, operand: Expression) -> Expression | None:
    if operand.type is not None and operand.type.kind is Kind.EVENT and isinstance(operand, EventOf):
        return inferring.report(QueryError.of(Mistake.NULL_EVENT, node.span, name=node.operand.span.text))
    test = Unary(Type.BOOLEAN, "is null", operand)
    return test if node.operator == "is null" else Unary(Type.BOOLEAN, "not", test)


def _one_of(inferring: Inferring, node: ast.Binary) -> Expression | None:
    """Check `x in [...]`, `x not in [...]`: a look-up in a sequence."""
    left = None if is_empty_literal(node.left) else inferring.typed(node.left)
    if left is None:
        check_untyped(inferring, node.right)
        return inferring.typed(node.left) if is_empty_literal(node.left) else None
    is_optional = type_of(left).kind is Kind.OPTIONAL  # refused below, as beside `=`
    right = inferring.typed(node.right, None if is_optional else Type.sequence(type_of(left)))
    if right is None:
        return None
    if type_of(right).kind is not Kind.SEQUENCE:
        mistake = QueryError.of(Mistake.NO_LIST, node.right.span, operator=node.operator, found=str(right.type))
        return inferring.report(mistake.with_hint(_look_up_hint(node, type_of(right))))
    element = type_of(right).of[0]
    wanted = as_float(left) if (left.type, element) == (Type.INTEGER, Type.FLOAT) else fitting(left, element)
    if wanted.type != element:
        facts = {"operator": node.operator, "left": str(left.type), "right": str(right.type)}
        mistake = QueryError.of(Mistake.OPERATOR_TYPES, node.span, **facts)
        return inferring.report(mistake.with_hint(_hint("=", type_of(left), element)))
    found = Call(Type.BOOLEAN, "contains", right, (wanted,))
    return found if node.operator == "in" else Unary(Type.BOOLEAN, "not", found)


def _look_up_hint(node: ast.Binary, container: Type) -> str | None:
    """How something is looked up in what is not a list."""
    left, right = node.left.span.text, node.right.span.text
    method = {Kind.STRING: "contains", Kind.DICTIONARY: "hasKey"}.get(container.kind)
    if method is not None:
        return f"write `{right}.{method}({left})`"
    return f"one value is compared by `=`: `{left} = {right}`" if isinstance(node.right, ast.Constant) else None


def binary(inferring: Inferring, node: ast.Binary) -> Expression | None:
    """Check `left operator right`; both sides have one type, or are an integer and a float.

    An empty literal gets the type of the other side.
    """
    if node.operator in ("in", "not in"):
        return _one_of(inferring, node)
    chain = flat_chain(node)
    return _combined(inferring, node, *_sides(inferring, node)) if len(chain) < LONG else _long(inferring, chain)


def _combined(
    inferring: Inferring, node: ast.Binary, left: Expression | None, right: Expression | None
) -> Expression | None:
    if left is None or right is None:
        return None
    left, right = alike(left, right)
    result = library.binary_result(node.operator, type_of(left), type_of(right))
    if result is None:
        facts = {"operator": node.operator, "left": str(left.type), "right": str(right.type)}
        mistake = QueryError.of(Mistake.OPERATOR_TYPES, node.span, **facts)
        hint = _decimal_hint(node, left, right) or _hint(node.operator, type_of(left), type_of(right))
        return inferring.report(mistake.with_hint(hint))
    return Binary(result, node.operator, left, right)


def _long(inferring: Inferring, chain: Sequence[ast.Binary]) -> Expression | None:
    """A chain of many terms, without recursion; its plan is nested by halves."""
    found = _combined(inferring, chain[0], *_sides(inferring, chain[0]))
    parts = [found.left, found.right] if isinstance(found, Binary) else []
    for node in chain[1:]:
        if found is None:
            return None
        right = inferring.typed(node.right, found.type)
        found = _combined(inferring, node, found, right)
        if right is not None:
            parts.append(right)
    if found is None:
        return None
    if {part.type for part in parts} != {found.type} or found.type not in _ASSOCIATIVE:
        return inferring.report(QueryError.of(Mistake.TOO_DEEP, chain[-1].span, limit=LONG))
    return _in_halves(chain[0].operator, type_of(found), parts)


def _in_halves(operator: str, type_: Type, parts: Sequence[Expression]) -> Expression:
    """The terms of a chain in their order, nested as little as possible."""
    level = [*parts]
    while len(level) > 1:
        pairs = [Binary(type_, operator, *level[at : at + 2]) for at in range(0, len(level) - 1, 2)]
        level = [*pairs, *level[len(pairs) * 2 :]]
    return level[0]


def _sides(inferring: Inferring, node: ast.Binary) -> tuple[Expression | None, Expression | None]:
    if is_empty_literal(node.left) and not is_empty_literal(node.right):
        right = inferring.typed(node.right)
        return None if right is None else inferring.typed(node.left, right.type), right
    left = inferring.typed(node.left)
    if left is None:
        return None, check_untyped(inferring, node.right)
    return left, inferring.typed(node.right, left.type)


def _decimal_hint(node: ast.Binary, left: Expression, right: Expression) -> str | None:
    """How a number beside a decimal is written as one; None: it is not that."""
    for number, other in ((node.left, right), (node.right, left)):
        if other.type == Type.DECIMAL and isinstance(number, ast.Constant) and is_number(number):
            span = number.span
            return f"write the number as a decimal, `{span.source.text[span.start : span.end]}d`"
    return None


def _hint(operator: str, left: Type, right: Type) -> str | None:
    """A hint how to convert one side to the other's type."""
    for found, wanted in ((left, right), (right, left)):
        if found.kind is Kind.OPTIONAL and found.of[0] == wanted:
            return "what may be unset is read in `ifpresent` or with `.getOrThrow()`"
        if wanted == Type.STRING and operator == "+":
            return library.conversion(found, wanted)
    if left in NUMBERS and right in NUMBERS and left != right:
        found, wanted = sorted((left, right), key=NUMBERS.index)
        return library.conversion(found, wanted)
    if operator in _EQUALITY and Type.STRING in (left, right):
        return library.conversion(left if right == Type.STRING else right, Type.STRING)
    return None
