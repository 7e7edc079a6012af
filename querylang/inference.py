"""Expressions: names resolved, types found, mistakes told.

Takes expression nodes and a scope; gives typed expressions of the plan, or None where a mistake is told or where a
type is open (nothing defines it): about None nothing more is said.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import assert_never

from querylang import ast
from querylang.errors import Mistake, QueryError, counted
from querylang.expression import Binary, Call, EventText, Expression, FieldOf, Literal, Type, Unary
from querylang.plan import Field
from querylang.source import Span
from querylang.types import (
    AGGREGATES,
    BINARY,
    FLOAT_CONSTANTS,
    LARGEST_INTEGER,
    LATER_EVENT_METHODS,
    LATER_METHODS,
    METHODS,
    SMALLEST_INTEGER,
    UNARY,
    EventSchema,
    conversion,
    methods_of,
)

DEEPEST = 200
"""Levels of nesting of one expression; all that reads expressions later may use recursion."""


@dataclass(frozen=True, slots=True)
class BoundEvent:
    """What a name of the pattern stands for."""

    term: int
    schema: EventSchema


@dataclass(frozen=True, slots=True)
class Scope:
    """The names an expression may use. `values`: None where a type is open. `missing`: the mistake of any other name."""

    missing: Callable[[ast.Name], QueryError | None]
    events: dict[str, BoundEvent] = field(default_factory=dict)
    values: dict[str, Expression | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Inference:
    """Types expressions in one scope; mistakes go into `mistakes`."""

    scope: Scope
    mistakes: list[QueryError]

    def value(self, node: ast.Expression) -> Expression | None:
        """The typed expression; an event is no value."""
        if _is_too_deep(node):
            return self._wrong(QueryError.of(Mistake.TOO_DEEP, node.span, limit=DEEPEST))
        return self._value(node)

    def value_of_type(self, node: ast.Expression, wanted: Type, what: str) -> Expression | None:
        """The typed expression, which must be of this type; `what` says in messages what it is for."""
        found = self.value(node)
        if found is None or found.type is wanted:
            return found
        mistake = QueryError.of(
            Mistake.EXPECTED_TYPE, node.span, what=what, expected=str(wanted), found=str(found.type)
        )
        return self._wrong(mistake.with_hint(conversion(found.type, wanted)))

    def conditions(self, node: ast.Expression) -> list[Expression]:
        """The parts between the outer `and`s, each boolean."""
        parts = [self.value_of_type(part, Type.BOOLEAN, "a condition") for part in conjuncts(node)]
        return [part for part in parts if part is not None]

    def event(self, node: ast.Expression) -> BoundEvent | None:
        """The event that a name stands for; None if it is none."""
        return self.scope.events.get(node.name.text) if isinstance(node, ast.NameUse) else None

    def arguments(
        self, name: ast.Name, nodes: Sequence[ast.Expression], event: EventSchema
    ) -> tuple[Expression, ...] | None:
        """The arguments of an event's constructor: one a field."""
        if len(nodes) != len(event.fields) and not event.is_open:
            expected = counted(len(event.fields), "argument")
            self.mistakes.append(_wrong_count(name.span, event.name, expected, len(nodes)))
            return None
        if event.is_open:
            for node in nodes:
                self.value(node)
            return None
        values = [self._argument(node, item, event) for node, item in zip(nodes, event.fields, strict=True)]
        found = tuple(value for value in values if value is not None)
        return found if len(found) == len(values) else None

    def _argument(self, node: ast.Expression, item: Field, event: EventSchema) -> Expression | None:
        return self.value_of_type(node, item.type, f"'{item.name}' of '{event.name}'")

    def _value(self, node: ast.Expression) -> Expression | None:
        match node:
            case ast.Constant():
                return self._constant(node, node.value)
            case ast.NameUse(name=name):
                return self._name(name)
            case ast.TypeConstant():
                return self._type_constant(node)
            case ast.Member():
                return self._member(node)
            case ast.Call():
                return self._call(node)
            case ast.Unary():
                return self._unary(node)
            case ast.Binary():
                return self._binary(node)
            case ast.Unsupported(what=what):
                return self._wrong(QueryError.of(Mistake.NOT_SUPPORTED, node.span, what=what))
            case ast.Broken():
                return None
        assert_never(node)

    def _constant(self, node: ast.Constant, value: bool | float | str) -> Expression | None:
        is_integer_beyond = node.type is Type.INTEGER and not SMALLEST_INTEGER <= int(value) <= LARGEST_INTEGER
        if is_integer_beyond or (node.type is Type.FLOAT and float(value) in {float("inf"), float("-inf")}):
            type_ = "64 bits" if is_integer_beyond else "a float"
            return self._wrong(QueryError.of(Mistake.NUMBER_RANGE, node.span, type=type_))
        return Literal(node.type, value)

    def _name(self, name: ast.Name) -> Expression | None:
        if name.text in self.scope.events:
            mistake = QueryError.of(Mistake.NOT_A_VALUE, name.span, name=name.text)
            return self._wrong(mistake.with_hint("take a field or `.toString()`"))
        if name.text in self.scope.values:
            return self.scope.values[name.text]
        if name.text == "infinity":
            return Literal(Type.FLOAT, float("inf"))
        missing = self.scope.missing(name)
        return None if missing is None else self._wrong(missing)

    def _type_constant(self, node: ast.TypeConstant) -> Expression | None:
        constants = FLOAT_CONSTANTS if node.type == Type.FLOAT else {}
        if node.name.text not in constants:
            name = node.name.text
            mistake = QueryError.of(Mistake.UNKNOWN_CONSTANT, node.name.span, type=node.type, name=name)
            return self._wrong(mistake.suggesting(name, constants))
        return Literal(Type.FLOAT, constants[node.name.text])

    def _member(self, node: ast.Member) -> Expression | None:
        event = self.event(node.receiver)
        if event is not None:
            return self._field(event, node.name)
        receiver = self._value(node.receiver)
        if receiver is None:
            return None
        name = node.name.text
        mistake = QueryError.of(Mistake.UNKNOWN_FIELD, node.name.span, event=str(receiver.type), name=name)
        return self._wrong(mistake.with_hint(f"a method is called: `{name}()`" if name in METHODS else None))

    def _field(self, event: BoundEvent, name: ast.Name) -> Expression | None:
        type_ = event.schema.type_of(name.text)
        if type_ is not None:
            return FieldOf(type_, event.term, name.text)
        if event.schema.is_open:
            return None
        if event.schema.field_of_action(name.text) is not None or name.text in METHODS:
            mistake = QueryError.of(Mistake.UNKNOWN_FIELD, name.span, event=event.schema.name, name=name.text)
            return self._wrong(mistake.with_hint(f"a method is called: `{name.text}()`"))
        return self._wrong(no_field(event.schema, name))

    def _call(self, node: ast.Call) -> Expression | None:
        if node.receiver is None:
            return self._function(node)
        event = self.event(node.receiver)
        if event is not None:
            return self._event_method(node, event)
        receiver = self._value(node.receiver)
        return None if receiver is None else self._method(node, receiver)

    def _function(self, node: ast.Call) -> Expression | None:
        name, span = node.name.text, node.name.span
        if name in AGGREGATES:
            return self._wrong(QueryError.of(Mistake.NOT_SUPPORTED, span, what=f"the aggregate `{name}`"))
        if name[:1].isupper():
            return self._wrong(QueryError.of(Mistake.NOT_SUPPORTED, span, what="a constructor outside of `send`"))
        return self._wrong(QueryError.of(Mistake.UNKNOWN_FUNCTION, span, name=name).suggesting(name, AGGREGATES))

    def _event_method(self, node: ast.Call, event: BoundEvent) -> Expression | None:
        name, schema = node.name.text, event.schema
        field_name = schema.field_of_action(name)
        if field_name is None and name != "toString":
            if schema.is_open:
                return None
            if name in LATER_EVENT_METHODS:
                what = f"`{name}()` of an event"
                return self._wrong(QueryError.of(Mistake.NOT_SUPPORTED, node.name.span, what=what))
            near = [*dict(schema.actions), "toString", *LATER_EVENT_METHODS]
            mistake = QueryError.of(Mistake.UNKNOWN_METHOD, node.name.span, type=f"'{schema.name}'", name=name)
            return self._wrong(mistake.suggesting(name, near))
        if not self._has_no_arguments(node):
            return None
        if field_name is None:
            return EventText(event.term)
        type_ = schema.type_of(field_name)
        return None if type_ is None else FieldOf(type_, event.term, field_name)

    def _method(self, node: ast.Call, receiver: Expression) -> Expression | None:
        name, type_ = node.name.text, receiver.type
        result = METHODS.get(name, {}).get(type_)
        if result is None:
            if name in LATER_METHODS[type_]:
                what = f"`{name}()` of {type_}"
                return self._wrong(QueryError.of(Mistake.NOT_SUPPORTED, node.name.span, what=what))
            mistake = QueryError.of(Mistake.UNKNOWN_METHOD, node.name.span, type=str(type_), name=name)
            return self._wrong(mistake.suggesting(name, methods_of(type_)))
        if not self._has_no_arguments(node):
            return None
        return receiver if result is type_ else Call(result, name, receiver)

    def _has_no_arguments(self, node: ast.Call) -> bool:
        if node.arguments:
            mistake = _wrong_count(node.name.span, node.name.text, "no argument", len(node.arguments))
            self.mistakes.append(mistake)
        return not node.arguments

    def _unary(self, node: ast.Unary) -> Expression | None:
        if node.operator == "-" and isinstance(node.operand, ast.Constant) and node.operand.type is not Type.STRING:
            constant = node.operand
            if constant.type is not Type.BOOLEAN:
                assert not isinstance(constant.value, str), "a number's constant holds a number"
                return self._constant(ast.Constant(node.span, constant.type, -constant.value), -constant.value)
        operand = self._value(node.operand)
        if operand is None:
            return None
        if operand.type not in UNARY[node.operator]:
            found = str(operand.type)
            return self._wrong(QueryError.of(Mistake.OPERAND_TYPE, node.span, operator=node.operator, operand=found))
        return Unary(operand.type, node.operator, operand)

    def _binary(self, node: ast.Binary) -> Expression | None:
        left, right = self._value(node.left), self._value(node.right)
        if left is None or right is None:
            return None
        result = BINARY[node.operator].get(left.type) if left.type is right.type else None
        if result is None:
            mistake = QueryError.of(
                Mistake.OPERATOR_TYPES, node.span, operator=node.operator, left=str(left.type), right=str(right.type)
            )
            return self._wrong(mistake.with_hint(_operands_hint(node.operator, left.type, right.type)))
        return Binary(result, node.operator, left, right)

    def _wrong(self, mistake: QueryError) -> Expression | None:
        """Tells the mistake; gives the None that stands for the expression."""
        self.mistakes.append(mistake)
        return None


def no_field(schema: EventSchema, name: ast.Name) -> QueryError:
    """The mistake of a name that is no field of this event type."""
    if schema.is_unseen:
        return QueryError.of(Mistake.UNSEEN_FIELD, name.span, event=schema.name, name=name.text)
    mistake = QueryError.of(Mistake.UNKNOWN_FIELD, name.span, event=schema.name, name=name.text)
    return mistake.suggesting(name.text, schema.field_names)


def _wrong_count(span: Span, name: str, expected: str, count: int) -> QueryError:
    return QueryError.of(Mistake.ARGUMENT_COUNT, span, name=name, expected=expected, count=count)


def conjuncts(node: ast.Expression) -> list[ast.Expression]:
    """The parts of an expression between its outer `and`s, in text order; any number of them."""
    parts: list[ast.Expression] = []
    waiting = [node]
    while waiting:
        part = waiting.pop()
        if isinstance(part, ast.Binary) and part.operator == "and":
            waiting += [part.right, part.left]
        else:
            parts.append(part)
    return parts


def _operands_hint(operator: str, left: Type, right: Type) -> str | None:
    match left, right:
        case (Type.INTEGER, Type.FLOAT) | (Type.FLOAT, Type.INTEGER):
            return conversion(Type.INTEGER, Type.FLOAT)
        case (Type.STRING, other) | (other, Type.STRING) if operator == "+":
            return conversion(other, Type.STRING)
        case _:
            return None


def _is_too_deep(node: ast.Expression) -> bool:
    level: list[ast.Expression] = [node]
    for _ in range(DEEPEST):
        level = [child for item in level for child in _children(item)]
        if not level:
            return False
    return True


def _children(node: ast.Expression) -> tuple[ast.Expression, ...]:
    match node:
        case ast.Unary(operand=operand):
            return (operand,)
        case ast.Binary(left=left, right=right):
            return (left, right)
        case ast.Member(receiver=receiver):
            return (receiver,)
        case ast.Call(receiver=receiver, arguments=arguments):
            return arguments if receiver is None else (receiver, *arguments)
        case _:
            return ()
