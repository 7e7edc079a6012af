"""Which event types there are: definitions of texts, schemas of data, types that nothing defines.

Takes event definitions and schemas; gives `EventSchema`s by name and the mistakes in definitions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from querylang import ast
from querylang.errors import Mistake, QueryError, nearest
from querylang.expression import Type
from querylang.plan import EventType, Field
from querylang.source import Span
from querylang.types import ANNOTATIONS, LATER_TYPES, EventSchema

_WORDS = {str(type_): type_ for type_ in Type}


@dataclass(slots=True)
class Catalogue:
    """The event types of a set of texts.

    `schemas`: the fields of types that come with data. `is_final`: what nothing defines has no fields; else its fields
    stay open.
    """

    schemas: Mapping[str, Mapping[str, Type]]
    is_final: bool
    defined: dict[str, EventSchema] = field(default_factory=dict)
    used: dict[str, EventSchema] = field(default_factory=dict)
    _told: set[str] = field(default_factory=set)

    def define(self, definitions: Iterable[ast.EventDefinition]) -> list[QueryError]:
        """Takes the definitions of a query text in; gives their mistakes."""
        return self._define(definitions, None)

    def define_beside(
        self, definitions: Iterable[ast.EventDefinition], found: Iterable[QueryError]
    ) -> list[QueryError]:
        """Takes definitions of another file in: mistakes in them, those `found` too, are told if a query uses them."""
        return self._define(definitions, list(found))

    def _define(self, definitions: Iterable[ast.EventDefinition], beside: list[QueryError] | None) -> list[QueryError]:
        definitions = list(definitions)
        names = {definition.name.text for definition in definitions} | set(self.defined)
        mistakes: list[QueryError] = []
        for definition in definitions:
            schema, problems = _schema(definition, names)
            if beside is None:
                mistakes += problems
            else:
                inside = [error for error in beside if definition.span.start <= error.span.start < definition.span.end]
                schema = replace(schema, problems=(*inside, *problems))
            known = self.defined.setdefault(schema.name, schema)
            if known != schema and not (known.is_open or schema.is_open):
                mistakes.append(_defined_twice(definition.name, known))
        return mistakes

    def find(
        self, name: ast.Name, *, is_strict: bool, mistakes: list[QueryError], warnings: list[QueryError]
    ) -> EventSchema | None:
        """The event type of that name, with or without its package; None if that is a mistake.

        `is_strict`: the text has definitions, so a type that nothing knows is a mistake.
        """
        schema = self._known(name.text)
        if schema is None and is_strict:
            mistakes.append(
                QueryError.of(Mistake.UNKNOWN_EVENT, name.span, name=name.text).suggesting(name.text, self.names)
            )
            return None
        if schema is None:
            schema = EventSchema(name.text, (), is_open=not self.is_final, is_unseen=True)
            if nearest(name.text, self.names) is not None and name.text not in self.used:
                warnings.append(
                    QueryError.of(Mistake.UNSEEN_EVENT, name.span, name=name.text).suggesting(name.text, self.names)
                )
        self.used[schema.name] = schema
        if schema.problems and schema.name not in self._told:
            mistakes.extend(schema.problems)
        self._told.add(schema.name)
        return schema

    @property
    def names(self) -> list[str]:
        """All names that definitions and schemas give."""
        return [*self.defined, *(name for name in self.schemas if name not in self.defined)]

    def event_types(self) -> tuple[EventType, ...]:
        """All defined types in the order of their definitions, then the others that queries use."""
        schemas = {**self.defined, **{name: used for name, used in self.used.items() if name not in self.defined}}
        return tuple(EventType(schema.name, schema.fields) for schema in schemas.values())

    def _known(self, name: str) -> EventSchema | None:
        if name in self.defined:
            return self.defined[name]
        if name in self.schemas:
            return EventSchema(name, tuple(Field(item, type_) for item, type_ in self.schemas[name].items()))
        package, _, last = name.rpartition(".")
        schema = self.defined.get(last)
        return schema if schema is not None and schema.package == package else None


def _schema(definition: ast.EventDefinition, event_names: set[str]) -> tuple[EventSchema, list[QueryError]]:
    mistakes = [QueryError.of(Mistake.NOT_SUPPORTED, item.span, what=item.what) for item in definition.unsupported]
    event = definition.name.text
    fields: list[Field] = []
    for item in definition.fields:
        type_ = _WORDS.get(item.type.text)
        if type_ is None:
            mistakes.append(_wrong_type(item.type, event_names))
        else:
            fields.append(Field(item.name.text, type_))
    types = {item.name: item.type for item in fields}
    actions: list[tuple[str, str]] = []
    for action in definition.actions:
        mistake = _wrong_action(action, definition, types)
        if mistake is not None:
            mistakes.append(mistake)
        elif action.returned is not None:
            actions.append((action.name.text, action.returned.text))
    mistakes += _names_twice(definition)
    is_open = definition.is_broken or bool(mistakes)
    schema = EventSchema(
        name=event,
        fields=tuple(fields),
        actions=tuple(actions),
        is_open=is_open,
        package=definition.package,
        span=definition.name.span,
    )
    return _annotated(schema, definition, mistakes), mistakes


def _wrong_type(type_: ast.TypeName, event_names: set[str]) -> QueryError:
    word = type_.text.partition("<")[0]
    if word in LATER_TYPES:
        return QueryError.of(Mistake.NOT_SUPPORTED, type_.span, what=f"a field of type `{word}`")
    if word.rpartition(".")[2] in event_names:
        return QueryError.of(Mistake.NOT_SUPPORTED, type_.span, what=f"a field of the event type '{word}'")
    mistake = QueryError.of(Mistake.UNKNOWN_TYPE, type_.span, name=word)
    return mistake.suggesting(word, [*_WORDS, *LATER_TYPES, *event_names])


def _wrong_action(
    action: ast.ActionDefinition, definition: ast.EventDefinition, types: Mapping[str, Type]
) -> QueryError | None:
    if action.has_parameters or action.returned is None or action.returns is None:
        what = "an action that is more than `action name() returns type { return field; }`"
        return QueryError.of(Mistake.NOT_SUPPORTED, action.span, what=what)
    field_name = action.returned.text
    if field_name not in types:
        if definition.is_broken or any(item.name.text == field_name for item in definition.fields):
            return None
        event = definition.name.text
        mistake = QueryError.of(Mistake.UNKNOWN_FIELD, action.returned.span, event=event, name=field_name)
        return mistake.suggesting(field_name, types)
    if action.returns.text != types[field_name]:
        what, found = f"what '{action.name.text}' returns", str(types[field_name])
        return QueryError.of(
            Mistake.EXPECTED_TYPE, action.returned.span, what=what, expected=action.returns.text, found=found
        )
    return None


def _names_twice(definition: ast.EventDefinition) -> list[QueryError]:
    members = [item.name for item in definition.fields] + [item.name for item in definition.actions]
    seen: Counter[str] = Counter()
    mistakes = []
    for name in members:
        if seen[name.text]:
            event = definition.name.text
            mistakes.append(QueryError.of(Mistake.DUPLICATE_FIELD, name.span, event=event, name=name.text))
        seen[name.text] += 1
    return mistakes


def _annotated(schema: EventSchema, definition: ast.EventDefinition, mistakes: list[QueryError]) -> EventSchema:
    for annotation in definition.annotations:
        name = annotation.name.text.rpartition(".")[2]
        match name:
            case "TimeFrom":
                time_from = _text_argument(annotation, name, mistakes)
                if time_from is not None and not schema.is_open:
                    mistakes += wrong_time(schema, time_from, annotation.arguments[0].span)
                schema = replace(schema, time_from=time_from)
            case "Heartbeat":
                schema = replace(schema, heartbeat=_text_argument(annotation, name, mistakes))
            case "OutOfOrder":
                if annotation.arguments:
                    mistakes.append(_wrong_argument(annotation, name, "no argument"))
                schema = replace(schema, out_of_order=True)
            case "DefaultWait":
                _text_argument(annotation, name, mistakes)
            case _:
                span = annotation.name.span
                mistakes.append(
                    QueryError.of(Mistake.UNKNOWN_ANNOTATION, span, name=name).suggesting(name, ANNOTATIONS)
                )
    return schema


def _text_argument(annotation: ast.Annotation, name: str, mistakes: list[QueryError]) -> str | None:
    match annotation.arguments:
        case (ast.Constant(type=Type.STRING, value=str(text)),):
            return text
        case _:
            mistakes.append(_wrong_argument(annotation, name, "one string"))
            return None


def _wrong_argument(annotation: ast.Annotation, name: str, expected: str) -> QueryError:
    return QueryError.of(Mistake.ANNOTATION_ARGUMENT, annotation.span, name=name, expected=expected)


def wrong_time(schema: EventSchema, name: str, span: Span) -> list[QueryError]:
    """What is wrong with a `time from` name of this type: that there is no such member, or its type."""
    field_name = schema.time_field(name)
    if field_name is None:
        if schema.is_open:
            return []
        near = [*schema.field_names, *dict(schema.actions)]
        return [QueryError.of(Mistake.UNKNOWN_TIME, span, event=schema.name, name=name).suggesting(name, near)]
    type_ = schema.type_of(field_name)
    if type_ in {Type.FLOAT, Type.INTEGER}:
        return []
    return [QueryError.of(Mistake.TIME_TYPE, span, name=name, type=str(type_))]


def _defined_twice(name: ast.Name, known: EventSchema) -> QueryError:
    span = known.span
    assert span is not None, "a defined type has a place"
    place = f"{span.source.path}:{span.line}"
    return QueryError.of(Mistake.DUPLICATE_EVENT, name.span, name=name.text, place=place)
