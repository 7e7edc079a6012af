"""Check the inputs of a query: types, windows, keys; and find the input of an event type."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from querylang.checker.checked import Diagnostics
from querylang.checker.expressions.members import no_field
from querylang.checker.namespaces import EventSchema, Namespace
from querylang.checker.query.durations import Constants
from querylang.checker.query.input_events import Clock, check_filters, event_field, event_member, event_value
from querylang.checker.scope import type_of
from querylang.dataclass import dataclass, field
from querylang.errors import Mistake, QueryError, counted, listed, nearest
from querylang.plan.expression import SIMPLE, Call, Expression, KeyOf, Kind, Type, walk
from querylang.plan.model import Input, Key, NewBy
from querylang.syntax import ast

MOST_HEARTBEATS = 60
"""The bits of one word say for which inputs a record is a heartbeat."""


@dataclass(frozen=True, slots=True)
class CheckedKey:
    """A key of an input under the query's name for it.

    `value` None: its type is open, or its mistake was reported. `may_miss`: it has a `?`.
    """

    name: str
    value: Expression | None
    may_miss: bool = False

    @property
    def type(self) -> Type | None:
        """The type, if it is known, of a value that is there."""
        return None if self.value is None or self.value.type is None else self.value.type.required


@dataclass(frozen=True, slots=True)
class CheckedInput:
    """An input with its type's schema."""

    node: ast.InputDefinition
    input: Input
    schema: EventSchema
    keys: tuple[CheckedKey, ...]


@dataclass(frozen=True)
class CheckedInputs:
    """The inputs that have a known type, in order.

    - `is_whole`: each input could be parsed.
    - `unknown`: written event types that do not exist, which is reported.
    - `broken`: roles of inputs with a mistake, which is reported.
    """

    namespace: Namespace
    items: tuple[CheckedInput, ...] = ()
    is_whole: bool = False
    unknown: frozenset[str] = frozenset()
    broken: frozenset[str] = frozenset()
    _found: dict[str, int | None] = field(default_factory=dict)

    @cached_property
    def keys(self) -> tuple[Key, ...]:
        """The query's keys."""
        return tuple(Key(key.name, key.type) for key in self._keys if key.type is not None)

    @cached_property
    def plan_inputs(self) -> tuple[Input, ...]:
        """The inputs for the plan."""
        return tuple(item.input for item in self.items)

    @cached_property
    def key_names(self) -> dict[str, Expression | None]:
        """What the names of keys mean."""
        return {key.name: None if key.type is None else KeyOf(key.type, index) for index, key in enumerate(self._keys)}

    @cached_property
    def key_names_in_statements(self) -> dict[str, Expression | None]:
        """The same in blocks and actions: a key that may be missing is an optional."""
        names = self.key_names
        may_miss = {key.name for item in self.items for key in item.keys if key.may_miss}
        return {
            name: KeyOf(Type.optional(key.type), key.index) if isinstance(key, KeyOf) and name in may_miss else key
            for name, key in names.items()
        }

    @cached_property
    def _keys(self) -> tuple[CheckedKey, ...]:
        return self.items[0].keys if self.items else ()

    def find(self, name: ast.Name) -> tuple[int | None, EventSchema | None]:
        """The index and schema of the input of that role or type; None: not an input, which is
        reported.
        """
        if name.text not in self._found:
            self._found[name.text] = self._index(name.text)
        index = self._found[name.text]
        if index is not None:
            return index, self.items[index].schema
        is_meant = name.text in self.unknown or nearest(name.text, self.unknown) is not None
        if self.is_whole and not is_meant and name.text not in self.broken:
            roles = [item.input.name for item in self.items if item.schema.name in self._types(name.text)]
            if roles:
                facts = {"event": name.text, "roles": listed([f"`{role}`" for role in roles], "or")}
                self.namespace.diagnostics.report(Mistake.HAS_ROLE, name.span, **facts)
            else:
                mistake = QueryError.of(Mistake.NOT_AN_INPUT, name.span, event=name.text)
                near = [item.input.name for item in self.items]
                self.namespace.diagnostics.add(mistake.suggesting(name.text, near))
        return None, None

    def _types(self, text: str) -> set[str]:
        """The event types that a name may mean."""
        return {self.namespace.types.plan_names[name] for name in self.namespace.candidates(text)}

    def _index(self, text: str) -> int | None:
        for index, item in enumerate(self.items):
            if item.input.role == text:
                return index
        types = self._types(text)
        found = (
            index for index, item in enumerate(self.items) if item.input.role is None and item.schema.name in types
        )
        return next(found, None)


def check_inputs(inputs: ast.Inputs, constants: Constants) -> CheckedInputs:
    """The inputs in order."""
    checked: list[CheckedInput] = []
    first: dict[str, CheckedInput] = {}
    unknown: set[str] = set()
    roles, broken = _Roles(constants), set[str]()
    nodes = [node for node in inputs.items if not isinstance(node, ast.Broken)]
    if not inputs.items:
        constants.diagnostics.report(Mistake.NO_INPUT, inputs.span)
    for node in nodes:
        schema = constants.namespace.find(node.event)
        if schema is None:
            unknown.add(node.event.text)
        elif schema.name in first and (node.role is None or first[schema.name].node.role is None):
            constants.diagnostics.add(_duplicate(node, schema, first[schema.name].node))
        elif roles.take(node, schema):
            item = _checked(node, schema, constants)
            if checked:
                _compare_keys(item, checked[0], constants.diagnostics)
            _compare_times(item, first.setdefault(schema.name, item), constants.diagnostics)
            checked.append(item)
            continue
        if node.role is not None:
            broken.add(node.role.text)
    roles.refuse_types(nodes)
    for item in checked[MOST_HEARTBEATS:]:
        if item.input.heartbeat is not None:
            span = item.node.event.span
            constants.diagnostics.report(Mistake.TOO_MANY_HEARTBEATS, span, limit=MOST_HEARTBEATS)
    _refuse_heartbeats(checked, constants.diagnostics)
    is_whole = bool(nodes) and len(nodes) == len(inputs.items)
    return CheckedInputs(constants.namespace, tuple(checked), is_whole, frozenset(unknown), frozenset(broken))


def _duplicate(node: ast.InputDefinition, schema: EventSchema, first: ast.InputDefinition) -> QueryError:
    """The mistake of a type that is an input twice, and not each time with a role."""
    example = " and ".join(f"`{schema.name}(...) as {role}`" for role in _example_roles(node, first))
    return QueryError.of(Mistake.DUPLICATE_INPUT, node.event.span, event=schema.name, example=example)


def _example_roles(node: ast.InputDefinition, first: ast.InputDefinition) -> tuple[str, str]:
    one = "one" if first.role is None else first.role.text
    return one, "other" if node.role is None or node.role.text == one else node.role.text


@dataclass(frozen=True, slots=True)
class _Roles:
    """The roles of the inputs so far, each with its type."""

    constants: Constants
    taken: dict[str, str] = field(default_factory=dict)

    def take(self, node: ast.InputDefinition, schema: EventSchema) -> bool:
        """Whether the role of an input, if it has one, is not another's; else it is reported."""
        if node.role is None:
            return True
        name = node.role.text
        if name in self.taken:
            self._report(Mistake.DUPLICATE_ROLE, node.role, name=name, event=self.taken[name])
            return False
        self.taken[name] = schema.name
        if name in self.constants.parameters:
            self._report(Mistake.ROLE_NAME, node.role, name=name, what="a parameter of this query")
        elif name in self.constants.pattern_names:
            self._report(Mistake.ROLE_NAME, node.role, name=name, what="a name of the pattern")
        return True

    def refuse_types(self, nodes: Sequence[ast.InputDefinition]) -> None:
        """Report the roles that are event types, or keys of an input."""
        keys = {key.written if key.name is None else key.name.text for node in nodes for key in node.keys}
        for node in nodes:
            if node.role is None or self.taken.get(node.role.text) is None:
                continue
            if self.constants.namespace.candidates(node.role.text):
                self._report(Mistake.ROLE_NAME, node.role, name=node.role.text, what="an event type")
            elif node.role.text in keys:
                self._report(Mistake.ROLE_NAME, node.role, name=node.role.text, what="a key of this query")

    def _report(self, mistake: Mistake, place: ast.Name, **facts: str) -> None:
        self.constants.diagnostics.report(mistake, place.span, **facts)


def _compare_times(item: CheckedInput, first: CheckedInput, diagnostics: Diagnostics) -> None:
    """Report where two inputs of one type disagree about the times of its events."""
    one, other = first.input, item.input
    differ = None
    if (one.wait is None) != (other.wait is None):
        differ = "in whether there is a `wait`"
    elif one.time_from != other.time_from:
        differ = "in `time from`"
    elif one.heartbeat != other.heartbeat:
        differ = "in the heartbeat, or in where it has the key"
    if differ is not None:
        clocking = item.node.clocking
        span = item.node.event.span if clocking is None else clocking.span
        diagnostics.report(Mistake.ROLE_TIME, span, event=item.schema.name, first=one.name, differ=differ)


def _checked(node: ast.InputDefinition, schema: EventSchema, constants: Constants) -> CheckedInput:
    filter_ = check_filters(node.filters, schema, constants)
    keys = _keys(node, schema, constants)
    within = None if node.within is None else constants.duration(node.within, "`within`")
    retain = None if node.retain is None else constants.count(node.retain, "`retain`")
    if node.within is None and node.retain is None:
        constants.diagnostics.report(Mistake.NO_WINDOW, node.event.span)
    unique = _compared(node.unique, "`with unique`", schema, constants)
    clocking = node.clocking
    clock = Clock(node, schema, constants)
    has_wait = clocking is not None and clocking.wait is not None
    item = Input(
        event=schema.name,
        keys=tuple(key.value for key in keys if key.value is not None),
        filter=filter_,
        within=within,
        retain=retain,
        unique=unique,
        wait=constants.duration(clocking.wait, "`wait`") if clocking and clocking.wait else None,
        time_from=clock.time_from(),
        out_of_order=schema.out_of_order,
        heartbeat=clock.heartbeat(tuple(key.value for key in keys)) if has_wait else None,
        new=None if node.new is None else _new(node.new, schema, constants),
        optional_keys=tuple(place for place, key in enumerate(keys) if key.may_miss),
        role=None if node.role is None else node.role.text,
    )
    return CheckedInput(node, item, schema, keys)


def _keys(node: ast.InputDefinition, schema: EventSchema, constants: Constants) -> tuple[CheckedKey, ...]:
    """The keys by name; an action needs a name."""
    keys: dict[str, CheckedKey] = {}
    for item in node.keys:
        value = _value(item, schema, constants, "a key", is_key=True)
        if value is not None and any(isinstance(part, Call) and part.method == "getTime" for part in walk(value)):
            constants.diagnostics.report(Mistake.KEY_TIME, item.source.span)
        name = item.name if item.name is not None else item.source
        if item.name is None and item.arguments is not None:
            constants.diagnostics.report(Mistake.KEY_NEEDS_NAME, item.span, name=item.source.text)
        elif item.name is None and item.members:
            constants.diagnostics.report(Mistake.KEY_MEMBER_NAME, item.span, name=item.written)
        elif name.text in keys:
            constants.diagnostics.report(Mistake.DUPLICATE_KEY, name.span, name=name.text)
        elif name.text in constants.parameters:
            facts = {"name": name.text, "what": "the key"}
            mistake = QueryError.of(Mistake.NAME_IS_PARAMETER, name.span, **facts)
            constants.diagnostics.add(mistake.with_hint(f"`{item.written} as ...` renames it"))
        keys.setdefault(name.text, CheckedKey(name.text, value, item.may_miss))
    return tuple(keys.values())


def _new(node: ast.NewBy, schema: EventSchema, constants: Constants) -> NewBy | None:
    """Which events are new; None: it has a mistake, which is reported."""
    values = _compared(node.values, "`new by`", schema, constants)
    within = constants.duration(node.within, "the `within` of `new by`")
    return None if within is None else NewBy(values, within)


def _compared(
    nodes: tuple[ast.Key, ...], clause: str, schema: EventSchema, constants: Constants
) -> tuple[Expression, ...]:
    """What `with unique` or `new by` compares."""
    values: list[Expression] = []
    for position, item in enumerate(nodes):
        value = _value(item, schema, constants, f"what {clause} compares")
        if item in nodes[:position]:
            constants.diagnostics.report(Mistake.COMPARED_TWICE, item.span, name=item.written, clause=clause)
        elif value is not None and value not in values:  # a field, and an action that returns it
            values.append(value)
    return tuple(values)


def _value(
    item: ast.Key, schema: EventSchema, constants: Constants, what: str, *, is_key: bool = False
) -> Expression | None:
    """A field, a member of one, or the result of an action, of a type that can be a key."""
    diagnostics = constants.diagnostics
    if item.arguments is not None:
        value = event_value(schema, item.source, item.arguments, constants)
    elif item.members and event_field(schema, item.source.text) is not None:
        value = event_member(schema, item, constants)
    else:
        value = event_field(schema, item.source.text)
        if value is None and item.source.text in dict(schema.constants):
            facts = {"name": item.source.text, "found": "a constant", "event": schema.name}
            diagnostics.report(Mistake.KEY_NOT_FIELD, item.source.span, **facts)
        elif value is None and not schema.may_have(item.source.text):
            diagnostics.add(no_field(schema, item.source))
    if value is not None and is_key and value.type is not None and value.type.required in SIMPLE:
        if value.type.required != value.type and not item.may_miss:
            facts = {"name": item.written + "()" * (item.arguments is not None), "type": str(value.type)}
            diagnostics.report(Mistake.KEY_MAY_MISS, item.span, **facts)
            return None
        return value
    if value is not None and value.type not in SIMPLE:
        facts = {"what": what, "name": item.written, "type": str(value.type)}
        mistake = QueryError.of(Mistake.KEY_KIND, item.source.span, **facts)
        diagnostics.add(mistake.with_hint(_way_into(item.written, type_of(value), constants)))
        return None
    return value


def _way_into(name: str, type_: Type, constants: Constants) -> str | None:
    """How a query gets at a simple value of an event in a field; None: it is not an event."""
    fields = constants.namespace.of(type_).fields if type_.kind is Kind.EVENT else ()
    for item in fields:
        if item.type in SIMPLE:
            return f"take a value out of it: `{name}.{item.name}`, of a key `{name}.{item.name} as ...`"
    return None


def _compare_keys(item: CheckedInput, first: CheckedInput, diagnostics: Diagnostics) -> None:
    """Report where an input's keys differ from the first's: number, names in order, types."""
    nodes = item.node.keys
    if len(item.keys) != len(first.keys):
        facts = {
            "count": counted(len(item.keys), "key", zero="no"),
            "first": first.input.name,
            "expected": counted(len(first.keys), "key", zero="no"),
        }
        span = nodes[0].span.until(nodes[-1].span) if nodes else item.node.event.span
        diagnostics.report(Mistake.KEY_COUNT, span, **facts)
        return
    for node, key, expected in zip(nodes, item.keys, first.keys, strict=False):
        if key.name != expected.name:
            facts = {"name": key.name, "expected": expected.name, "first": first.input.name}
            diagnostics.report(Mistake.KEY_NAME, node.span, **facts)
        elif key.type is not None and expected.type is not None and key.type != expected.type:
            types = {"type": str(key.type), "expected": str(expected.type)}
            facts = {"name": key.name, "first": first.input.name, **types}
            diagnostics.report(Mistake.KEY_TYPE, node.span, **facts)


def _refuse_heartbeats(checked: list[CheckedInput], diagnostics: Diagnostics) -> None:
    """Report heartbeats that are inputs too."""
    events = {item.schema.name for item in checked}
    for item in checked:
        heartbeat = item.input.heartbeat
        if heartbeat is not None and heartbeat.event in events:
            clocking = item.node.clocking
            written = clocking.heartbeat if clocking is not None else None
            span = written.span if written is not None else item.node.event.span
            diagnostics.report(Mistake.HEARTBEAT_IS_INPUT, span, event=heartbeat.event)
