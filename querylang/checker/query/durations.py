"""Check durations and counts after `within`, `wait` and `retain`.

A constant becomes a number; what uses parameters stays an expression until an instance is made.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from querylang.checker.checked import Diagnostics
from querylang.checker.expressions.inference import Inference
from querylang.checker.namespaces import Namespace
from querylang.checker.scope import Scope
from querylang.dataclass import dataclass
from querylang.errors import Mistake, QueryError
from querylang.foreign_words import UNIT_NAMES
from querylang.plan.constants import LONGEST, SECOND, NoValueError, is_calculable, is_constant, number_of, of_seconds
from querylang.plan.expression import Expression, Type
from querylang.plan.library import UNITS
from querylang.plan.model import Count, Duration
from querylang.source import Span
from querylang.syntax import ast


@dataclass(frozen=True, slots=True)
class Constants:
    """Checks durations and counts.

    - `parameters`: what their names mean. `is_whole`: all of them could be parsed.
    - `pattern_names`: names that can be used only elsewhere.
    """

    namespace: Namespace
    parameters: Mapping[str, Expression | None]
    is_whole: bool = True
    pattern_names: frozenset[str] = frozenset()

    @property
    def diagnostics(self) -> Diagnostics:
        """Where mistakes are reported."""
        return self.namespace.diagnostics

    def scope(self, mistake: Mistake) -> Scope:
        """The scope of constants and parameters; `mistake` is reported for any other name."""
        forbidden = dict.fromkeys(sorted(self.pattern_names), mistake)
        return Scope(self.parameters, forbidden, unknown=mistake, is_whole=self.is_whole)

    def duration(self, node: ast.Duration, what: str) -> Duration | None:
        """A duration greater than 0; a number without a unit is in seconds.

        `what`: how messages call it.
        """
        if isinstance(node, ast.TimeLiteral):
            length = self._of_units(node)
            return None if length is None else self._positive(length, what, node.span)
        typed = self._typed(node, (Type.FLOAT, Type.INTEGER), "float or integer seconds", what)
        if typed is None or not is_constant(typed):
            return typed
        seconds = self._value(typed, what, node.span)
        return None if seconds is None else self._positive(of_seconds(seconds), what, node.span)

    def count(self, node: ast.Expression, what: str) -> Count | None:
        """A whole number greater than 0."""
        typed = self._typed(node, (Type.INTEGER,), "integer", what)
        if typed is None or not is_constant(typed):
            return typed
        number = self._value(typed, what, node.span)
        if number is not None and number <= 0:
            self.diagnostics.report(Mistake.NOT_POSITIVE, node.span, what=what)
            return None
        return None if number is None else int(number)

    def _typed(self, node: ast.Expression, types: tuple[Type, ...], expected: str, what: str) -> Expression | None:
        """An expression over parameters, of one of these types."""
        scope = self.scope(Mistake.NOT_CONSTANT)
        typed = Inference(scope, self.namespace).value(node)
        if typed is None:
            return None
        if not is_calculable(typed):
            self.diagnostics.report(Mistake.NOT_CALCULABLE, node.span)
            return None
        if typed.type in types:
            return typed
        facts = {"what": what, "expected": expected, "found": str(typed.type)}
        self.diagnostics.report(Mistake.EXPECTED_TYPE, node.span, **facts)
        return None

    def _value(self, typed: Expression, what: str, span: Span) -> int | float | None:
        try:
            return number_of(typed)
        except NoValueError as error:
            self.diagnostics.report(Mistake.NO_VALUE, span, what=what, reason=str(error))
            return None

    def _positive(self, length: Fraction, what: str, span: Span) -> int | None:
        if abs(length) > LONGEST:
            self.diagnostics.report(Mistake.DURATION_RANGE, span)
            return None
        if round(length) > 0:
            return round(length)
        self.diagnostics.report(Mistake.NOT_POSITIVE, span, what=what)
        return None

    def _of_units(self, node: ast.TimeLiteral) -> Fraction | None:
        """The sum of a time literal's parts; None if a unit is wrong, which is reported."""
        total = Fraction(0)
        before: ast.Name | None = None
        is_right = True
        for number, unit in node.parts:
            mistake = _wrong_unit(unit, before)
            if mistake is not None:
                self.diagnostics.add(mistake)
                is_right = False
                continue
            before = unit
            assert isinstance(number.value, int | float), "the grammar allows numbers only"
            total += of_seconds(number.value) * UNITS[unit.text] / SECOND
        return total if is_right else None


def _wrong_unit(unit: ast.Name, before: ast.Name | None) -> QueryError | None:
    length = UNITS.get(unit.text)
    if length is None:
        meant = UNIT_NAMES.get(unit.text.casefold())
        mistake = QueryError.of(Mistake.UNKNOWN_UNIT, unit.span, name=unit.text)
        return mistake.suggesting(unit.text, UNITS) if meant is None else mistake.with_hint(f"did you mean '{meant}'?")
    if before is not None and length == UNITS[before.text]:
        return QueryError.of(Mistake.UNIT_TWICE, unit.span, unit=unit.text)
    if before is not None and length > UNITS[before.text]:
        return QueryError.of(Mistake.UNIT_ORDER, unit.span, unit=unit.text, before=before.text)
    return None
