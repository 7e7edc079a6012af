"""Check the filters of an input, and join them to one condition in which the event is term 0."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import assert_never

from querylang.checker.expressions.inference import Inference
from querylang.checker.expressions.inference_context import alike
from querylang.checker.expressions.members import no_field
from querylang.checker.names.schema import EventSchema
from querylang.checker.names.scope import Scope
from querylang.checker.query.durations import Constants
from querylang.errors import Mistake, counted
from querylang.plan.constant_folding import NoValueError, is_constant, value_of
from querylang.plan.expression import Binary, Expression, FieldOf, Type
from querylang.plan.library import binary_result
from querylang.syntax import ast


def check_filters(filters: tuple[ast.Filter, ...], schema: EventSchema, constants: Constants) -> Expression | None:
    """All filters joined to one condition; None: there is no filter."""
    checker = _Filters(schema, constants, _right_side(schema, constants))
    seen: set[str] = set()
    conditions: list[Expression] = []
    is_named = False
    for position, item in enumerate(filters):
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


def _right_side(schema: EventSchema, constants: Constants) -> Scope:
    """The scope of the values to compare with: constants and parameters."""
    scope = constants.scope(Mistake.UNKNOWN_FILTER_NAME)
    fields = [name for name in (*schema.field_names, *(schema.untyped or ())) if name not in constants.parameters]
    return scope.forbidding(fields, Mistake.FILTER_OWN_FIELD)


@dataclass(frozen=True, slots=True)
class _Filters:
    schema: EventSchema
    constants: Constants
    scope: Scope

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
            case ast.Compared(operator=operator, value=value):
                right = self._right(name, operator, value, item)
                return [] if right is None else [self._compared(name, operator, right)]
            case ast.Range():
                return self._range(item, item.test, name)
        assert_never(item.test)

    def check_untyped(self, test: ast.Anything | ast.Compared | ast.Range) -> None:
        """Report the mistakes in a filter whose field is not known."""
        match test:
            case ast.Compared(value=value):
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
        return Inference(self.scope, self.constants.namespace)

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


def _both(left: Expression, right: Expression) -> Expression:
    return Binary(Type.BOOLEAN, "and", left, right)


def _is_greater(low: Expression, high: Expression) -> bool:
    try:
        return bool(value_of(Binary(Type.BOOLEAN, ">", *alike(low, high))))
    except NoValueError:
        return False
