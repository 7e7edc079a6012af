"""The inputs of a query checked: filters, keys, windows, clocks, heartbeats.

Takes the `inputs` of a query; gives inputs of the plan with the schema of each, and tells mistakes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import Protocol

from querylang import ast
from querylang.catalogue import wrong_time
from querylang.durations import Constants
from querylang.errors import Mistake, QueryError, counted
from querylang.expression import Binary, Expression, FieldOf, Literal, Type
from querylang.inference import Inference, Scope, no_field
from querylang.plan import Heartbeat, Input
from querylang.types import BINARY, EventSchema


class Checking(Protocol):
    """What the checker of a query lends: its mistakes and warnings, its way to event types.

    `silent`: names of refused parts, about whose use nothing is said.
    """

    mistakes: list[QueryError]
    warnings: list[QueryError]
    silent: frozenset[str]

    def find_event(self, name: ast.Name) -> EventSchema | None:
        """The event type of that name; None if there is none, which is told."""


@dataclass(frozen=True, slots=True)
class CheckedInput:
    """An input with its type's schema. `spellings`: what patterns may call the type; `key_names`: the query's names."""

    input: Input
    schema: EventSchema
    spellings: tuple[str, ...]
    key_names: tuple[str, ...]


def check_inputs(inputs: ast.Inputs, checking: Checking) -> tuple[CheckedInput, ...]:
    """The inputs that have a known type, in order."""
    checked: list[CheckedInput] = []
    for node in inputs.items:
        schema = checking.find_event(node.event)
        if schema is None:
            continue
        if any(item.schema.name == schema.name for item in checked):
            checking.mistakes.append(QueryError.of(Mistake.DUPLICATE_INPUT, node.event.span, event=schema.name))
            continue
        item = _checked(node, schema, checking)
        if checked:
            _compare_keys(node, item, checked[0], checking)
        checked.append(item)
    names = {item.schema.name for item in checked}
    for node in inputs.items:
        heartbeat = node.clocking.heartbeat if node.clocking is not None else None
        if heartbeat is not None and heartbeat.text in names:
            mistake = QueryError.of(Mistake.HEARTBEAT_IS_INPUT, heartbeat.span, event=heartbeat.text)
            checking.mistakes.append(mistake)
    return tuple(checked)


def _checked(node: ast.InputDefinition, schema: EventSchema, checking: Checking) -> CheckedInput:
    mistakes = checking.mistakes
    constants = Constants(mistakes, checking.silent)
    filter_ = _Filters(schema, mistakes, checking.silent).check(node.filters)
    keys = _keys(node, schema, mistakes)
    within = None if node.within is None else constants.microseconds(node.within, "`within`")
    retain = None if node.retain is None else constants.count(node.retain, "`retain`")
    if node.within is None and node.retain is None:
        mistakes.append(QueryError.of(Mistake.NO_WINDOW, node.event.span))
    if node.unique is not None:
        mistakes.append(QueryError.of(Mistake.NOT_SUPPORTED, node.unique.span, what=node.unique.what))
    fields = tuple(field_name for _name, field_name in keys)
    clock = _Clock(node, schema, fields, checking)
    clocking = node.clocking
    has_wait = clocking is not None and clocking.wait is not None
    item = Input(
        event=schema.name,
        keys=fields,
        filter=filter_,
        within=within,
        retain=retain,
        wait=constants.microseconds(clocking.wait, "`wait`") if clocking and clocking.wait else None,
        time_from=clock.time_from(),
        out_of_order=schema.out_of_order,
        heartbeat=clock.heartbeat() if has_wait else None,
    )
    spellings = tuple(dict.fromkeys((schema.name, node.event.text)))
    return CheckedInput(item, schema, spellings, tuple(name for name, _field in keys))


def _keys(node: ast.InputDefinition, schema: EventSchema, mistakes: list[QueryError]) -> list[tuple[str, str]]:
    """Each key's name in the query and its field."""
    keys: dict[str, str] = {}
    for item in node.keys:
        name = item.name or item.field
        if item.is_action:
            if item.name is None:
                mistakes.append(QueryError.of(Mistake.KEY_NEEDS_NAME, item.span, name=item.field.text))
            else:
                mistakes.append(QueryError.of(Mistake.NOT_SUPPORTED, item.span, what="an action as a key"))
            continue
        if schema.type_of(item.field.text) is None and not schema.is_open:
            mistakes.append(no_field(schema, item.field))
        if name.text in keys:
            mistakes.append(QueryError.of(Mistake.DUPLICATE_KEY, name.span, name=name.text))
        keys.setdefault(name.text, item.field.text)
    return list(keys.items())


def _compare_keys(node: ast.InputDefinition, item: CheckedInput, first: CheckedInput, checking: Checking) -> None:
    """Tells where an input's keys differ from those of the first: number, names in order, types."""
    if any(key.is_action for key in node.keys):
        return
    if len(item.key_names) != len(first.key_names):
        facts = {
            "count": counted(len(item.key_names), "key"),
            "first": first.schema.name,
            "expected": counted(len(first.key_names), "key"),
        }
        span = node.keys[0].span.until(node.keys[-1].span) if node.keys else node.event.span
        checking.mistakes.append(QueryError.of(Mistake.KEY_COUNT, span, **facts))
        return
    for position, key in enumerate(node.keys):
        name, expected = item.key_names[position], first.key_names[position]
        type_ = item.schema.type_of(item.input.keys[position])
        expected_type = first.schema.type_of(first.input.keys[position])
        if name != expected:
            facts = {"name": name, "expected": expected, "first": first.schema.name}
            checking.mistakes.append(QueryError.of(Mistake.KEY_NAME, key.span, **facts))
        elif type_ is not None and expected_type is not None and type_ is not expected_type:
            facts = {"name": name, "type": str(type_), "expected": str(expected_type), "first": first.schema.name}
            checking.mistakes.append(QueryError.of(Mistake.KEY_TYPE, key.span, **facts))


@dataclass(frozen=True, slots=True)
class _Clock:
    """Where the time of an input's events comes from."""

    node: ast.InputDefinition
    schema: EventSchema
    keys: tuple[str, ...]
    checking: Checking

    def time_from(self) -> str | None:
        """The field that holds the source time; None: the source's own column."""
        written = self._written
        if written is None:
            return None if self.schema.time_from is None else self.schema.time_field(self.schema.time_from)
        self.checking.mistakes.extend(wrong_time(self.schema, written.text, written.span))
        return self.schema.time_field(written.text)

    def heartbeat(self) -> Heartbeat | None:
        """The heartbeat that is named, or the annotation's where `@TimeFrom` is relied on."""
        name = self.node.clocking.heartbeat if self.node.clocking is not None else None
        if name is None and self._written is not None:
            self.checking.mistakes.append(QueryError.of(Mistake.HEARTBEAT_MISSING, self._written.span))
            return None
        if name is None and self.schema.heartbeat is not None:
            if self.schema.time_from is None:
                self.checking.warnings.append(QueryError.of(Mistake.IDLE_HEARTBEAT, self.node.event.span))
                return None
            name = ast.Name(self.schema.heartbeat, self.node.event.span)
        if name is None:
            return None
        schema = self.checking.find_event(name)
        return None if schema is None else self._checked(name, schema)

    @property
    def _written(self) -> ast.Name | None:
        return self.node.clocking.time_from if self.node.clocking is not None else None

    def _checked(self, name: ast.Name, schema: EventSchema) -> Heartbeat:
        if schema.out_of_order:
            self._tell(Mistake.HEARTBEAT_OUT_OF_ORDER, name, event=schema.name)
        missing = [key for key in self.keys if schema.type_of(key) is None]
        if missing and len(missing) < len(self.keys) and not schema.is_open:
            self._tell(Mistake.HEARTBEAT_KEYS, name, event=schema.name, name=missing[0])
        for key in self.keys:
            found, expected = schema.type_of(key), self.schema.type_of(key)
            if found is not None and expected is not None and found is not expected:
                facts = {"name": key, "type": str(found), "expected": str(expected), "event": schema.name}
                self._tell(Mistake.HEARTBEAT_KEY_TYPE, name, input=self.schema.name, **facts)
        keys = () if missing else self.keys
        return Heartbeat(schema.name, keys, self._time_from(schema))

    def _time_from(self, schema: EventSchema) -> str | None:
        """The heartbeat's own field for the input's name of the time, else by its `@TimeFrom`."""
        names = [self._written.text if self._written is not None else self.schema.time_from, schema.time_from]
        fields = [schema.time_field(name) for name in names if name is not None]
        return next((item for item in fields if item is not None), None)

    def _tell(self, mistake: Mistake, place: ast.Name, **facts: str) -> None:
        self.checking.mistakes.append(QueryError.of(mistake, place.span, **facts))


@dataclass(frozen=True, slots=True)
class _Filters:
    """Filters of an input to one condition over its event, which is term 0."""

    schema: EventSchema
    mistakes: list[QueryError]
    silent: frozenset[str]

    def check(self, filters: tuple[ast.Filter, ...]) -> Expression | None:
        """The conditions of all filters and-ed; None: everything passes."""
        seen: set[str] = set()
        conditions: list[Expression] = []
        is_named = False
        for position, item in enumerate(filters):
            is_named = is_named or item.field is not None
            if item.field is None and is_named:
                self._tell(Mistake.FILTER_ORDER, item)
                continue
            name = self._field(item, position)
            if name is None:
                continue
            if name in seen:
                self._tell(Mistake.FILTER_TWICE, item, name=name)
            seen.add(name)
            conditions += self._conditions(item, name)
        return reduce(_both, conditions) if conditions else None

    def _field(self, item: ast.Filter, position: int) -> str | None:
        names = self.schema.field_names
        if item.field is None:
            if position < len(names):
                return names[position]
            if not self.schema.is_open:
                self._tell(Mistake.FILTER_COUNT, item, event=self.schema.name, count=counted(len(names), "field"))
            return None
        if item.field.text not in names and not self.schema.is_open:
            self.mistakes.append(no_field(self.schema, item.field))
            return None
        return item.field.text

    def _conditions(self, item: ast.Filter, name: str) -> list[Expression]:
        match item.test:
            case ast.Anything():
                return []
            case ast.Compared(operator=operator, value=value):
                return self._compared(name, operator, value, item)
            case ast.Range(low=low, high=high, includes_low=includes_low, includes_high=includes_high):
                conditions = [
                    *self._compared(name, ">=" if includes_low else ">", low, item),
                    *self._compared(name, "<=" if includes_high else "<", high, item),
                ]
                if _is_reversed(conditions):
                    self._tell(Mistake.RANGE_REVERSED, item)
                return conditions

    def _compared(self, name: str, operator: str, value: ast.Expression, item: ast.Filter) -> list[Expression]:
        right = Inference(Scope(self._missing), self.mistakes)
        type_ = self.schema.type_of(name)
        if type_ is None:
            right.value(value)
            return []
        typed = right.value_of_type(value, type_, f"what '{name}' is compared with")
        if typed is None:
            return []
        if type_ not in BINARY[operator]:
            facts = {"operator": operator, "left": str(type_), "right": str(typed.type)}
            self._tell(Mistake.OPERATOR_TYPES, item, **facts)
            return []
        return [Binary(Type.BOOLEAN, operator, FieldOf(type_, 0, name), typed)]

    def _missing(self, name: ast.Name) -> QueryError | None:
        if name.text in self.schema.field_names:
            return QueryError.of(Mistake.FILTER_OWN_FIELD, name.span, name=name.text)
        if name.text in self.silent:
            return None
        return QueryError.of(Mistake.UNKNOWN_FILTER_NAME, name.span, name=name.text)

    def _tell(self, mistake: Mistake, item: ast.Filter, **facts: str) -> None:
        self.mistakes.append(QueryError.of(mistake, item.span, **facts))


def _both(left: Expression, right: Expression) -> Expression:
    return Binary(Type.BOOLEAN, "and", left, right)


def _is_reversed(conditions: list[Expression]) -> bool:
    """Whether both ends are literals and the first is the greater one."""
    match conditions:
        case [Binary(right=Literal(value=low)), Binary(right=Literal(value=high))]:
            return low > high  # type: ignore[operator]  # both are of the field's type
        case _:
            return False
