"""Check where the source time of an input's events comes from, and its heartbeat."""

from __future__ import annotations

from dataclasses import dataclass, replace

from querylang.checker.diagnostics import Diagnostics
from querylang.checker.event_types.time_field import source_time
from querylang.checker.names.schema import EventSchema
from querylang.checker.query.durations import Constants
from querylang.checker.query.input_expressions import event_field, event_value
from querylang.errors import Mistake
from querylang.plan.expression import Expression
from querylang.plan.model import Heartbeat
from querylang.syntax import ast


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
        missing = [node.source.text for node, value in zip(self.node.keys, values, strict=True) if value is None]
        if missing and len(missing) < len(values) and not schema.is_open:
            self._report(Mistake.HEARTBEAT_KEYS, name, event=schema.name, name=missing[0])
        for node, value, key in zip(self.node.keys, values, keys, strict=False):
            if value is not None and key is not None and value.type != key.type:
                types = {"type": str(value.type), "expected": str(key.type)}
                facts = {"name": node.source.text, "event": schema.name, "input": self.schema.name, **types}
                self._report(Mistake.HEARTBEAT_KEY_TYPE, name, **facts)
        found = () if missing else tuple(value for value in values if value is not None)
        return Heartbeat(schema.name, found, self._time_of(schema, name))

    def _key_value(self, key: ast.Key, schema: EventSchema) -> Expression | None:
        """The heartbeat's field or action for a key of the input, which has the same name."""
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
