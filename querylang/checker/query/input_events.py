"""Check what an input asks of its events, of which each is term 0: filters, times, heartbeats."""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from typing import assert_never

from querylang.checker.checked import Diagnostics
from querylang.checker.definitions import source_time
from querylang.checker.expressions.inference import Inference, parts_of
from querylang.checker.expressions.members import no_field
from querylang.checker.namespaces import EventSchema
from querylang.checker.query.durations import Constants
from querylang.checker.scope import Scope, alike, type_of
from querylang.dataclass import dataclass, replace
from querylang.errors import Mistake, counted
from querylang.plan.constants import NoValueError, is_constant, value_of
from querylang.plan.expression import Binary, EventOf, Expression, FieldOf, Type
from querylang.plan.library import ARITHMETIC, binary_result
from querylang.plan.model import Heartbeat
from querylang.syntax import ast


def check_filters(filters: tuple[ast.Filter, ...], schema: EventSchema, constants: Constants) -> Expression | None:
    """All filters joined to one condition; None: there is no filter."""
    checker = _Filters(schema, constants, *_scopes(schema, constants))
    seen: set[str] = set()
    conditions: list[Expression] = []
    is_named = False
    for position, item in enumerate(filters):
        if isinstance(item.test, ast.Condition) and checker.is_condition(item.test.expression):
            conditions += checker.condition(item.test.expression)
            is_named = True
            continue
        is_named = is_named or item.field is not None
        if item.field is None and is_named:
            checker.report(Mistake.FILTER_ORDER, item)
            continue
        name = checker.field(item, position)
        if name is None:
            checker.check_untyped(item.test)
            continue
        if name in seen:
            checker.report(Mistake.FILTER_TWICE, item, name=name)
        seen.add(name)
        conditions += checker.conditions(item, name)
    return reduce(_both, conditions) if conditions else None


def _scopes(schema: EventSchema, constants: Constants) -> tuple[Scope, Scope]:
    """The scopes of values and of conditions.

    A name that is a field and a parameter is the parameter in a value, `user = user`, and cannot be
    used in a condition.
    """
    fields = {name: event_field(schema, name) for name in (*schema.field_names, *(schema.untyped or ()))}
    both = [name for name in fields if name in constants.parameters]
    scope = constants.scope(Mistake.UNKNOWN_FILTER_NAME)
    if schema.is_open:
        scope = replace(scope, is_whole=False)  # any name may be a field
    values = scope.with_names({name: field for name, field in fields.items() if name not in both})
    values = replace(values, actions={item.name: item for item in schema.actions}, owner=EventOf(schema.type, 0))
    return values, values.forbidding(both, Mistake.FILTER_BOTH)


@dataclass(frozen=True, slots=True)
class _Filters:
    schema: EventSchema
    constants: Constants
    values: Scope
    expressions: Scope

    def is_condition(self, node: ast.Expression) -> bool:
        """Whether it says something of the event; else it is a value of the field in its place."""
        if isinstance(node, ast.Binary) and node.operator not in ARITHMETIC:
            return True
        if isinstance(node, ast.Unary) and node.operator != "-":
            return True
        return any(map(self._is_of_event, _all_parts(node)))

    def _is_of_event(self, node: ast.Expression) -> bool:
        match node:
            case ast.NameUse(name=name):
                known = name.text in self.values.names and name.text not in self.constants.parameters
                return known or (self.schema.is_open and name.text not in self.constants.parameters)
            case ast.Call(receiver=None, name=name):
                return name.text in self.values.actions
            case ast.Call(receiver=ast.NameUse(name=name)) | ast.Index(receiver=ast.NameUse(name=name)):
                return name.text in self.constants.namespace.types.tables and not self.values.has(name.text)
        return False

    def condition(self, node: ast.Expression) -> list[Expression]:
        """The parts between the `and`s of a condition."""
        return Inference(self.expressions, self.constants.namespace).conditions(node)

    def field(self, item: ast.Filter, position: int) -> str | None:
        """The name of the filtered field; None if there is no such field."""
        names = self.schema.field_names
        if item.field is None and self.schema.is_open:
            return None
        if item.field is None:
            if position < len(names):
                return names[position]
            self.report(
                Mistake.FILTER_COUNT, item, event=self.schema.name, count=counted(len(names), "field", zero="no")
            )
            return None
        if item.field.text not in names and not self.schema.may_have(item.field.text):
            self.constants.diagnostics.add(no_field(self.schema, item.field))
            return None
        return item.field.text

    def conditions(self, item: ast.Filter, name: str) -> list[Expression]:
        """The conditions of one filter."""
        match item.test:
            case ast.Anything():
                return []
            case ast.Compared(operator="in" | "not in"):
                assert item.field is not None, "the grammar has it by name only"
                node = ast.Binary(item.span, item.test.operator, ast.NameUse(item.field), item.test.value)
                scope = self.values.with_names({name: event_field(self.schema, name)})
                return Inference(scope, self.constants.namespace).conditions(node)
            case ast.Compared(operator=operator, value=value):
                right = self._right(name, operator, value, item)
                return [] if right is None else [self._compared(name, operator, right)]
            case ast.Condition(expression=value):
                right = self._right(name, "=", value, item)
                return [] if right is None else [self._compared(name, "=", right)]
            case ast.Range():
                return self._range(item, item.test, name)
        assert_never(item.test)

    def check_untyped(self, test: ast.Anything | ast.Compared | ast.Range | ast.Condition) -> None:
        """Report the mistakes in a filter whose field is not known."""
        match test:
            case ast.Compared(value=value) | ast.Condition(expression=value):
                self._inference.value(value)
            case ast.Range(low=low, high=high):
                self._inference.value(low)
                self._inference.value(high)
            case ast.Anything():
                pass

    def report(self, mistake: Mistake, item: ast.Filter, **facts: str) -> None:
        """Report a mistake in a filter."""
        self.constants.diagnostics.report(mistake, item.span, **facts)

    @property
    def _inference(self) -> Inference:
        return Inference(self.values, self.constants.namespace)

    def _right(self, name: str, operator: str, value: ast.Expression, item: ast.Filter) -> Expression | None:
        """The value that the field is compared with."""
        type_ = self.schema.type_of(name)
        if type_ is None:
            self._inference.value(value)
            return None
        typed = self._inference.value_beside(value, type_, f"what '{name}' is compared with")
        if typed is not None and binary_result(operator, type_, type_) is None:
            self.report(Mistake.OPERATOR_TYPES, item, operator=operator, left=str(type_), right=str(type_))
            return None
        return typed

    def _compared(self, name: str, operator: str, right: Expression) -> Expression:
        type_ = self.schema.type_of(name)
        assert type_ is not None, "what it is compared with has a type"
        return Binary(Type.BOOLEAN, operator, *alike(FieldOf(type_, 0, name), right))

    def _range(self, item: ast.Filter, test: ast.Range, name: str) -> list[Expression]:
        """Both ends of a range.

        With parameters either end may be the greater one (Apama 10.15 help).
        """
        above, below = ">=" if test.includes_low else ">", "<=" if test.includes_high else "<"
        low, high = (self._right(name, above, end, item) for end in (test.low, test.high))
        if low is None or high is None:
            return []
        ordered = [self._compared(name, above, low), self._compared(name, below, high)]
        if is_constant(low) and is_constant(high):
            if _is_greater(low, high):
                self.report(Mistake.RANGE_REVERSED, item)
            return ordered
        reversed_ = [self._compared(name, above, high), self._compared(name, below, low)]
        either = _both(Binary(Type.BOOLEAN, "<=", *alike(low, high)), reduce(_both, ordered))
        other = _both(Binary(Type.BOOLEAN, ">", *alike(low, high)), reduce(_both, reversed_))
        return [Binary(Type.BOOLEAN, "or", either, other)]


def _all_parts(node: ast.Expression) -> Iterator[ast.Expression]:
    """An expression and all parts of it."""
    waiting = [node]
    while waiting:
        part = waiting.pop()
        yield part
        waiting += parts_of(part)


def _both(left: Expression, right: Expression) -> Expression:
    return Binary(Type.BOOLEAN, "and", left, right)


def _is_greater(low: Expression, high: Expression) -> bool:
    try:
        return bool(value_of(Binary(Type.BOOLEAN, ">", *alike(low, high))))
    except NoValueError:
        return False


# Expressions over the event: a field, or the result of an action.

_THIS = ""
"""The event's name in its own expressions; users cannot write it."""


def event_field(schema: EventSchema, name: str) -> Expression | None:
    """A field of the event; None if there is no such field."""
    return schema.field_of(name)


def event_value(
    schema: EventSchema, name: ast.Name, arguments: tuple[ast.Expression, ...], constants: Constants
) -> Expression | None:
    """The result of an action or method of the event, called with constants and parameters."""
    scope = constants.scope(Mistake.NOT_CONSTANT).with_names({_THIS: EventOf(schema.type, 0)})
    receiver = ast.NameUse(ast.Name(_THIS, name.span))
    return Inference(scope, constants.namespace).value(ast.Call(name.span, receiver, name, arguments))


def event_member(schema: EventSchema, key: ast.Key, constants: Constants) -> Expression | None:
    """A member of a field of the event: `src.ip`."""
    scope = constants.scope(Mistake.NOT_CONSTANT).with_names({key.source.text: event_field(schema, key.source.text)})
    node: ast.Expression = ast.NameUse(key.source)
    for name in key.members:
        node = ast.Member(key.source.span.until(name.span), node, name)
    return Inference(scope, constants.namespace).value(node)


# Where the source time comes from, and the heartbeat.


@dataclass(frozen=True, slots=True)
class Clock:
    """Source time and heartbeat of one input."""

    node: ast.InputDefinition
    schema: EventSchema
    constants: Constants

    def time_from(self) -> Expression | None:
        """The expression of the source time; None: the source's own column."""
        if self._written is not None:
            return source_time(self.schema, self._written, self.constants.namespace)
        return self._time_of(self.schema, self.node.event)

    def heartbeat(self, keys: tuple[Expression | None, ...]) -> Heartbeat | None:
        """The named heartbeat, or that of the annotation if `@TimeFrom` is used."""
        name = self.node.clocking.heartbeat if self.node.clocking is not None else None
        if name is None and self._written is not None:
            self._report(Mistake.HEARTBEAT_MISSING, self._written)
            return None
        if name is None and self.schema.heartbeat is not None:
            if self.schema.time_from is None:
                self.constants.diagnostics.warn(Mistake.IDLE_HEARTBEAT, self.node.event.span)
                return None
            name = ast.Name(self.schema.heartbeat, self.node.event.span)
        schema = None if name is None else self.constants.namespace.find(name)
        return None if schema is None or name is None else self._checked(name, schema, keys)

    @property
    def _written(self) -> ast.Name | None:
        return self.node.clocking.time_from if self.node.clocking is not None else None

    def _checked(self, name: ast.Name, schema: EventSchema, keys: tuple[Expression | None, ...]) -> Heartbeat:
        if schema.out_of_order:
            self._report(Mistake.HEARTBEAT_OUT_OF_ORDER, name, event=schema.name)
        values = [self._key_value(node, schema) for node in self.node.keys]
        missing = [node.written for node, value in zip(self.node.keys, values, strict=True) if value is None]
        if missing and len(missing) < len(values) and not schema.is_open:
            self._report(Mistake.HEARTBEAT_KEYS, name, event=schema.name, name=missing[0])
        for node, value, key in zip(self.node.keys, values, keys, strict=False):
            if value is not None and key is not None and type_of(value).required != type_of(key).required:
                types = {"type": str(value.type), "expected": str(key.type)}
                facts = {"name": node.written, "event": schema.name, "input": self.schema.name, **types}
                self._report(Mistake.HEARTBEAT_KEY_TYPE, name, **facts)
        found = () if missing else tuple(value for value in values if value is not None)
        return Heartbeat(schema.name, found, self._time_of(schema, name))

    def _key_value(self, key: ast.Key, schema: EventSchema) -> Expression | None:
        """The heartbeat's field or action for a key of the input, which has the same name."""
        if key.members and event_field(schema, key.source.text) is not None:
            silent = replace(self.constants.namespace, diagnostics=Diagnostics())
            return event_member(schema, key, replace(self.constants, namespace=silent))
        if key.arguments is None:
            return event_field(schema, key.source.text)
        signature = schema.action(key.source.text)
        return None if signature is None else event_value(schema, key.source, key.arguments, self.constants)

    def _time_of(self, schema: EventSchema, place: ast.Name) -> Expression | None:
        """The time of a type's events: by the input's name for it, else by their `@TimeFrom`."""
        written = self._written.text if self._written is not None else self.schema.time_from
        for name in (written, schema.time_from):
            if name is not None and (schema.action(name) is not None or schema.type_of(name) is not None):
                # A wrong name in an annotation is reported at the annotation.
                diagnostics = Diagnostics() if name == schema.time_from else self.constants.diagnostics
                namespace = replace(self.constants.namespace, diagnostics=diagnostics)
                return source_time(schema, ast.Name(name, place.span), namespace)
        return None

    def _report(self, mistake: Mistake, place: ast.Name, **facts: str) -> None:
        self.constants.diagnostics.report(mistake, place.span, **facts)
