"""All event types: those that texts define, those of data, those that nothing defines.

All files are added before a name is resolved, so types may name each other in any order.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from querylang.checker.checked import Diagnostics
from querylang.checker.definitions import with_actions, with_annotations, with_members
from querylang.checker.expressions.calls import inline_forms
from querylang.checker.expressions.members import check_tables
from querylang.checker.namespaces import ActionSignature, EventSchema, EventTypes, Namespace
from querylang.dataclass import dataclass, field, replace
from querylang.errors import Mistake, QueryError
from querylang.plan.expression import Invoke, Kind, Type
from querylang.plan.model import Action, EventType, Table
from querylang.syntax import ast

Data = Mapping[str, Mapping[str, Type]]
"""Event type to its fields in order, for types that come with data."""


@dataclass(slots=True)
class _Definition:
    """One definition.

    `namespace`: resolves its names and collects its mistakes. `is_separate`: it comes from a
    definition file, not from a query text.
    """

    node: ast.EventDefinition
    namespace: Namespace
    is_separate: bool
    plan_name: str = ""

    @property
    def qualified_name(self) -> str:
        package = self.namespace.package
        return f"{package}.{self.node.name.text}" if package else self.node.name.text


@dataclass(slots=True)
class Catalogue:
    """The event types of a set of texts.

    - `data`: the fields of types that come with data.
    - `is_final`: types that nothing defines have no fields; otherwise their fields are open.
    - `known`: types of `data` that earlier texts have defined.
    - `known_tables`: tables that they have defined.
    """

    data: Data
    is_final: bool
    known: Sequence[EventType] = ()
    known_tables: Sequence[Table] = ()
    types: EventTypes = field(init=False)
    _definitions: list[_Definition] = field(default_factory=list)
    _tables: list[tuple[ast.TableDefinition, Namespace]] = field(default_factory=list)
    _namespaces: list[Namespace] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Start with the types of the data."""
        self.types = EventTypes(self.data, self.is_final, tables={table.name: table for table in self.known_tables})
        self.types.schemas.update({event.name: schema_of_known(event) for event in self.known})

    def add(self, file: ast.File) -> None:
        """Add the definitions of a query text."""
        self._add(file, None)

    def add_definitions(self, file: ast.File, found: Iterable[QueryError]) -> None:
        """Add a definition file.

        Mistakes in it, `found` too, are reported only if a query uses the type.
        """
        self._add(file, list(found))

    def complete(self) -> list[QueryError]:
        """Resolve all definitions; return the mistakes of those in query texts."""
        definitions, of_tables = self._distinct(), Diagnostics()
        self._give_names(definitions)
        schemas = self.types.schemas
        nodes = {item.plan_name: item for item in definitions}
        for name, item in nodes.items():
            schemas[name] = EventSchema(name, package=item.namespace.package, is_open=True)
        tables = [(node, replace(namespace, diagnostics=of_tables)) for node, namespace in self._tables]
        check_tables(tables, self.types, of_tables)
        for name, item in nodes.items():
            schemas[name] = with_members(item.node, name, item.namespace, self.data.get(name))
        for name, mistakes in nesting_mistakes(schemas, {name: item.node for name, item in nodes.items()}).items():
            nodes[name].namespace.diagnostics.extend(mistakes)
            schemas[name] = replace(schemas[name], is_open=True)
        for name, item in nodes.items():
            schemas[name] = with_actions(schemas[name], item.node, item.namespace)
        schemas.update(with_problems_of_callees({name: schemas[name] for name in nodes}))
        for name, item in nodes.items():
            schemas[name] = self._with_reported_mistakes(
                with_annotations(schemas[name], item.node, item.namespace), item
            )
        of_types = [
            mistake
            for item in self._definitions
            if not item.is_separate
            for mistake in item.namespace.diagnostics.mistakes
        ]
        return [*of_tables.mistakes, *of_types]

    def namespace(self, file: ast.File, diagnostics: Diagnostics, *, is_strict: bool) -> Namespace:
        """The namespace of a file's queries. `is_strict`: an unknown type is a mistake."""
        package = "" if file.package is None else file.package.name.text
        namespace = Namespace(self.types, package, file.usings, is_strict, diagnostics)
        self._namespaces.append(namespace)
        return namespace

    def problems(self, *, of_all: bool = False) -> list[QueryError]:
        """The mistakes in definition files: of the types that queries use, or `of_all`."""
        used = self._used()
        return [
            mistake
            for item in self._definitions
            if item.is_separate and (of_all or item.plan_name in used)
            for mistake in item.namespace.diagnostics.mistakes
        ]

    def event_types(self) -> tuple[EventType, ...]:
        """All defined types in the order of their definitions, then the others that queries use.

        Unused types of definition files are left out if they, or types that they use, have
        mistakes.
        """
        used, unusable = self._used(), self._unusable()
        defined = dict.fromkeys(item.plan_name for item in self._definitions)
        names = [*(name for name in defined if name in used or name not in unusable), *used]
        return tuple(self._event_type(name) for name in dict.fromkeys(names))

    def _event_type(self, name: str) -> EventType:
        """The event type for the plan, whose heartbeat has its name there, too."""
        event = self.types.schemas[name].event_type
        heartbeat = None if event.heartbeat is None else self.types.plan_names.get(event.heartbeat, event.heartbeat)
        return replace(event, heartbeat=heartbeat)

    def _add(self, file: ast.File, beside: list[QueryError] | None) -> None:
        package = "" if file.package is None else file.package.name.text
        for event in file.events:
            node = event if beside is None else _without_foreign_members(event)
            inside = [error for error in beside or () if node.span.start <= error.span.start < node.span.end]
            namespace = Namespace(self.types, package, file.usings, True, Diagnostics(inside))
            self._definitions.append(_Definition(node, namespace, beside is not None))
        for table in file.tables:
            self._tables.append((table, Namespace(self.types, package, file.usings, True, Diagnostics())))

    def _distinct(self) -> list[_Definition]:
        """The definitions without repetitions; of two different ones the later is a mistake."""
        known: dict[str, _Definition] = {}
        for item in self._definitions:
            first = known.setdefault(item.qualified_name, item)
            if first.node != item.node and not _is_broken(first.node) and not _is_broken(item.node):
                span = first.node.name.span
                facts = {"name": item.node.name.text, "place": f"{span.source.path}:{span.line}"}
                item.namespace.diagnostics.report(Mistake.DUPLICATE_EVENT, item.node.name.span, **facts)
        return list(known.values())

    def _give_names(self, definitions: list[_Definition]) -> None:
        """Give plan names: with the package if types of two packages share the short name."""
        qualified: dict[str, list[str]] = {}
        for name in (*self.data, *(item.qualified_name for item in definitions)):
            names = qualified.setdefault(name.rpartition(".")[2], [])
            if name not in names:
                names.append(name)
        for item in definitions:
            short, name = item.node.name.text, item.qualified_name
            is_alone = set(qualified[short]) <= {short, name} and name not in self.data
            item.plan_name = short if is_alone else name
            self.types.name(name, item.plan_name)
        plan_names = {item.qualified_name: item.plan_name for item in definitions}
        for item in self._definitions:
            item.plan_name = plan_names[item.qualified_name]

    def _with_reported_mistakes(self, schema: EventSchema, item: _Definition) -> EventSchema:
        """Report mistakes in actions of a query text; keep those of a definition file."""
        if item.is_separate:
            usable = {action.name for action in schema.actions if not action.problems}
            return replace(schema, bodies=tuple(body for body in schema.bodies if body.name in usable))
        item.namespace.diagnostics.extend(problem for action in schema.actions for problem in action.problems)
        return replace(schema, actions=tuple(replace(action, problems=()) for action in schema.actions))

    def _used(self) -> dict[str, None]:
        """The plan's names of the types that queries use, directly or through other types."""
        spoken_of: dict[str, Iterable[str]] = {
            name: [event for type_ in fields.values() for event in _events_in(type_)]
            for name, fields in self.data.items()
        }
        spoken_of |= {item.plan_name: item.namespace.used for item in reversed(self._definitions)}
        return _reached((name for namespace in self._namespaces for name in namespace.used), spoken_of)

    def _unusable(self) -> dict[str, None]:
        """The plan's names of the types that have mistakes, and of those that use them."""
        speakers: dict[str, list[str]] = {}
        for item in self._definitions:
            for name in item.namespace.used:
                speakers.setdefault(name, []).append(item.plan_name)
        return _reached((item.plan_name for item in self._definitions if item.namespace.diagnostics.mistakes), speakers)


def _reached(first: Iterable[str], following: Mapping[str, Iterable[str]]) -> dict[str, None]:
    """The names and all that follow from them, in order."""
    found: dict[str, None] = {}
    waiting = deque(first)
    while waiting:
        name = waiting.popleft()
        if name not in found:
            found[name] = None
            waiting.extend(following.get(name, ()))
    return found


def _events_in(type_: Type) -> list[str]:
    """The event types that a type contains."""
    inner = [event for part in type_.of for event in _events_in(part)]
    return [type_.name, *inner] if type_.kind is Kind.EVENT else inner


def _without_foreign_members(node: ast.EventDefinition) -> ast.EventDefinition:
    """Drop the members of a definition file's event that only monitors can use."""
    members = tuple(member for member in node.members if not isinstance(member, ast.Refused))
    return node if len(members) == len(node.members) else replace(node, members=members)


def _is_broken(node: ast.EventDefinition) -> bool:
    return any(isinstance(member, ast.Broken) for member in node.members)


# What earlier texts have defined, as schemas for a text that only uses it.


def schema_of_known(event: EventType) -> EventSchema:
    """The schema of an event type of a plan, with its actions and annotations.

    Its constants are not known: a plan has only their values.
    """
    forms = inline_forms({action.name: action for action in event.actions})
    actions = tuple(
        ActionSignature(
            action.name,
            tuple((f"argument {number}", type_) for number, type_ in enumerate(action.parameters, 1)),
            action.returns,
            inline=forms.get(action.name),
        )
        for action in event.actions
    )
    return EventSchema(
        event.name,
        event.fields,
        actions=actions,
        bodies=event.actions,
        time_from=event.time_from,
        heartbeat=event.heartbeat,
        out_of_order=event.out_of_order,
    )


def other_actions(known: EventType, event: EventType) -> list[str]:
    """The actions that another definition of a known type has with other bodies.

    Not those that each text has inlined: it does not look for them when it runs.
    """
    bodies = {action.name: action for action in known.actions}
    own = {action.name: action for action in event.actions}
    inlined = inline_forms(bodies).keys() & inline_forms(own).keys()
    return [name for name, action in own.items() if bodies.get(name, action) != action and name not in inlined]


# A column has a type of finite depth, so an event type must not contain itself, through
# sequences, dictionaries and optionals neither.

DEEPEST = 20
"""Levels of events in events."""
MOST_PARTS = 1000
"""Parts of the fields of an event type, nested ones included: each of them is a column."""


def nesting_mistakes(
    schemas: Mapping[str, EventSchema], nodes: Mapping[str, ast.EventDefinition]
) -> dict[str, list[QueryError]]:
    """The mistakes of the definitions `nodes`, by plan name; those types should be left open."""
    search = _Search(schemas, nodes)
    for name in nodes:
        search.visit(name)
    return search.mistakes


class _Search:
    """A depth-first search through all types; it has its own stack, because chains may be long."""

    def __init__(self, schemas: Mapping[str, EventSchema], nodes: Mapping[str, ast.EventDefinition]) -> None:
        self._schemas = schemas
        self._nodes = nodes
        self._depths: dict[str, int] = {}
        self._parts: dict[str, int] = {}
        self.mistakes: dict[str, list[QueryError]] = {}

    def visit(self, first: str) -> None:
        """Find the mistakes of a type and of those that it contains."""
        if first in self._depths:
            return
        path = {first: self._held(first)}
        while path:
            name = next(reversed(path))
            field, held = next(path[name], (None, ""))
            if field is None:
                del path[name]
                self._leave(name)
            elif held in path:
                self._report_cycle(name, field, [*path][[*path].index(held) :])
            elif held not in self._depths:
                path[held] = self._held(held)

    def _leave(self, name: str) -> None:
        below = [self._depths.get(held, 0) for _field, held in self._held(name)]
        self._depths[name] = 1 + max(below, default=0)
        if self._depths[name] > DEEPEST:
            self._depths[name] = 0
            span = self._nodes[name].name.span
            self._report(name, QueryError.of(Mistake.EVENT_TOO_DEEP, span, event=name, limit=DEEPEST))
        self._check_size(name)

    def _check_size(self, name: str) -> None:
        """Report a type whose fields have too many parts; in other types it counts as one."""
        fields = self._schemas[name].fields
        parts = sum(self._parts_of(item.type) for item in fields)
        if parts - len(fields) > MOST_PARTS:
            parts = 0
            span = self._nodes[name].name.span
            self._report(name, QueryError.of(Mistake.FIELDS_TOO_LARGE, span, event=name, limit=MOST_PARTS))
        self._parts[name] = 1 + parts

    def _parts_of(self, type_: Type) -> int:
        if type_.kind is Kind.EVENT:
            return self._parts.get(type_.name, 1)
        return 1 + sum(map(self._parts_of, type_.of))

    def _report_cycle(self, name: str, field: str, cycle: list[str]) -> None:
        members = self._nodes[name].members
        span = next(
            item.name.span for item in members if isinstance(item, ast.FieldDefinition) and item.name.text == field
        )
        path = " → ".join([*cycle, cycle[0]])
        self._report(name, QueryError.of(Mistake.EVENT_IN_ITSELF, span, event=name, name=field, path=path))

    def _report(self, name: str, mistake: QueryError) -> None:
        self.mistakes.setdefault(name, []).append(mistake)

    def _held(self, name: str) -> Iterator[tuple[str, str]]:
        """The fields that contain events of defined types, with these types."""
        for item in self._schemas[name].fields:
            for held in events_in(item.type):
                if held in self._nodes:
                    yield item.name, held


def events_in(type_: Type) -> list[str]:
    """The event types that occur in a type."""
    return [type_.name] if type_.kind is Kind.EVENT else [name for inner in type_.of for name in events_in(inner)]


# An action cannot be used if one that it calls has mistakes.

_Place = tuple[str, str]
"""An event type and its action."""


def with_problems_of_callees(schemas: Mapping[str, EventSchema]) -> dict[str, EventSchema]:
    """The schemas with actions that call one with mistakes; they get these mistakes too."""
    problems = {
        (schema.name, action.name): dict.fromkeys(action.problems)
        for schema in schemas.values()
        for action in schema.actions
    }
    if not any(problems.values()):
        return {}
    callers = _callers(schemas)
    waiting = [callee for callee, found in problems.items() if found]
    changed: dict[str, EventSchema] = {}
    while waiting:
        callee = waiting.pop()
        for caller in callers.get(callee, []):
            if problems[callee].keys() - problems[caller].keys():
                problems[caller].update(problems[callee])
                waiting.append(caller)
                changed[caller[0]] = schemas[caller[0]]
    return {
        name: dataclasses.replace(
            schema,
            actions=tuple(
                dataclasses.replace(action, problems=tuple(problems[name, action.name])) for action in schema.actions
            ),
        )
        for name, schema in changed.items()
    }


def _callers(schemas: Mapping[str, EventSchema]) -> dict[_Place, list[_Place]]:
    callers: dict[_Place, list[_Place]] = {}
    for schema in schemas.values():
        for body in schema.bodies:
            for called in called_actions(body):
                callers.setdefault(called, []).append((schema.name, body.name))
    return callers


def called_actions(action: Action) -> Iterator[_Place]:
    """The actions of event types that the body calls."""
    for node in _nodes(action.body):
        if isinstance(node, Invoke) and node.receiver is not None:
            type_ = node.receiver.type
            assert isinstance(type_, Type), "a receiver is a value"
            yield type_.name, node.action


def _nodes(value: Any) -> Iterator[Any]:
    """All statements and expressions of a body."""
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, tuple):
            waiting += item
        elif dataclasses.is_dataclass(item) and not isinstance(item, Type):
            yield item
            waiting += [getattr(item, part.name) for part in dataclasses.fields(item)]
