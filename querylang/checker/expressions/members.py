"""Check names, members and indexes, and what is looked up in tables beside the stream."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from querylang.checker.checked import Diagnostics
from querylang.checker.namespaces import EventSchema, EventTypes, Namespace, path_of
from querylang.checker.scope import ENDS, FOLDS, PREV, Inferring, Repeats, Run, arguments_of, type_of, wrong_count
from querylang.errors import Mistake, QueryError, listed
from querylang.plan.expression import (
    SCALARS,
    EndOf,
    EventOf,
    Expression,
    FieldOf,
    Fold,
    IndexOf,
    Kind,
    Literal,
    Lookup,
    MemberOf,
    PrevOf,
    Type,
    terms_of,
)
from querylang.plan.library import LOCATION_FIELDS, aggregate_result, method_of
from querylang.plan.model import Field, Table
from querylang.plan.text import VALID, written_name
from querylang.syntax import ast

# Check tables beside the stream: their definitions, and what is looked up in them.

HAS_KEY, OR_DEFAULT = "hasKey", "getOrDefault"

KEY_TYPES = (Type.BOOLEAN, Type.INTEGER, Type.STRING)


def check_table(node: ast.TableDefinition, namespace: Namespace) -> Table | None:
    """A table beside the stream; None if it has a mistake, which is reported."""
    diagnostics, section = namespace.diagnostics, namespace.diagnostics.section()
    keys, fields, seen = list[Field](), list[Field](), set[str]()
    networks: list[int] = []
    for column in node.columns:
        if isinstance(column, ast.Broken):
            return None
        name = column.name.text
        if name in seen:
            diagnostics.report(Mistake.DUPLICATE_COLUMN, column.name.span, table=node.name.text, name=name)
        elif name in VALID:
            diagnostics.report(Mistake.TABLE_TIMES, column.name.span, name=name)
        seen.add(name)
        if column.type is None:
            networks.append(len(keys))
            if len(networks) > 1:
                diagnostics.report(Mistake.TABLE_NETWORKS, column.span)
        type_ = Type.STRING if column.type is None else _column_type(column, column.type, namespace)
        if type_ is not None:
            (keys if column.is_key else fields).append(Field(name, type_))
    if not any(isinstance(column, ast.Column) and column.is_key for column in node.columns):
        diagnostics.report(Mistake.TABLE_NO_KEY, node.name.span, name=node.name.text)
    if not section.is_clean:
        return None
    return Table(node.name.text, tuple(keys), networks[0] if networks else None, tuple(fields))


def _column_type(column: ast.Column, written: ast.TypeName, namespace: Namespace) -> Type | None:
    type_ = namespace.type_of(written)
    allowed, mistake = (KEY_TYPES, Mistake.TABLE_KEY_TYPE) if column.is_key else (SCALARS, Mistake.TABLE_FIELD_TYPE)
    if type_ is None or type_ in allowed:
        return type_
    namespace.diagnostics.report(mistake, written.span, found=str(type_))
    return None


def table_of(inferring: Inferring, node: ast.Expression | None) -> Table | None:
    """The table that an expression names; None: it is something else."""
    if not isinstance(node, ast.NameUse) or inferring.scope.has(node.name.text):
        return None
    return inferring.namespace.types.tables.get(node.name.text)


def examples(table: Table, *, of_row: bool = False) -> str:
    """How something is looked up in a table, for people."""
    name = written_name((table.fields or table.keys)[0].name)
    keys = ", ".join(key.name for key in table.keys)
    rows = f"`{table.name}[{keys}].{name}` or `{table.name}.{OR_DEFAULT}({keys}).{name}`"
    return rows if of_row else f"`{table.name}.{HAS_KEY}({keys})`, {rows}"


def is_lookup(inferring: Inferring, node: ast.Expression) -> bool:
    """Whether an expression gives something of a table, or a row."""
    return isinstance(node, ast.Call | ast.Index) and table_of(inferring, node.receiver) is not None


def called(inferring: Inferring, node: ast.Call, table: Table) -> Expression | None:
    """Check `Table.method(keys)` where it is a value."""
    if node.name.text == HAS_KEY:
        keys = _keys(inferring, table, node.name, node.arguments)
        return None if keys is None else Lookup(Type.BOOLEAN, table.name, "", keys)
    if node.name.text == OR_DEFAULT:
        return inferring.report(QueryError.of(Mistake.TABLE_ROW, node.span, examples=examples(table, of_row=True)))
    facts = {"method": node.name.text, "examples": examples(table)}
    return inferring.report(QueryError.of(Mistake.TABLE_METHOD, node.name.span, **facts))


def of_row(inferring: Inferring, node: ast.Call | ast.Index, field: ast.Name) -> Expression | None:
    """Check `Table[keys].field` and `Table.getOrDefault(keys).field`."""
    table = table_of(inferring, node.receiver)
    assert table is not None, "who asks has seen that it is a table"
    has_default = isinstance(node, ast.Call)
    if isinstance(node, ast.Call):
        if node.name.text != OR_DEFAULT:
            return called(inferring, node, table)
        keys = _keys(inferring, table, node.name, node.arguments)
    else:
        place = ast.Name(f"{table.name}[...]", node.span)
        keys = _keys(inferring, table, place, (node.index, *node.more))
    type_ = next((item.type for item in (*table.fields, *table.keys) if item.name == field.text), None)
    if type_ is None:
        mistake = QueryError.of(Mistake.UNKNOWN_FIELD, field.span, event=table.name, name=field.text)
        return inferring.report(mistake.suggesting(field.text, [item.name for item in (*table.fields, *table.keys)]))
    return None if keys is None else Lookup(type_, table.name, field.text, keys, has_default)


def _keys(
    inferring: Inferring, table: Table, name: ast.Name, nodes: tuple[ast.Expression, ...]
) -> tuple[Expression, ...] | None:
    parameters = [(f"the key '{key.name}' of '{table.name}'", key.type) for key in table.keys]
    return arguments_of(inferring, name, nodes, parameters)


def check_tables(
    definitions: Iterable[tuple[ast.TableDefinition, Namespace]], types: EventTypes, diagnostics: Diagnostics
) -> None:
    """Add the tables of all texts; several may have the same definition."""
    places: dict[str, str] = {}
    tables = types.tables
    for node, namespace in definitions:
        name, section = node.name.text, diagnostics.section()
        found = check_table(node, namespace)
        if namespace.candidates(name):
            diagnostics.report(Mistake.TABLE_IS_EVENT, node.name.span, name=name)
        if found is None or not section.is_clean:
            types.broken_tables.add(name)
            continue
        if tables.setdefault(name, found) != found:
            place = places.get(name, "a text that runs")
            diagnostics.report(Mistake.DUPLICATE_TABLE, node.name.span, name=name, place=place)
        places.setdefault(name, f"{node.name.span.source.path}:{node.name.span.line}")


# Check names, members and indexes.
#
# A path that does not begin with a name of the scope may begin with an event type:
# `com.example.A.MAX`.


def name(inferring: Inferring, node: ast.Name, near: Iterable[str] = ()) -> Expression | None:
    """Check a name; `near`: further names to suggest for an unknown one."""
    scope, text = inferring.scope, node.text
    if text in scope.names:
        return scope.names[text]
    if text == "infinity":
        return Literal(Type.FLOAT, float("inf"))
    if text in inferring.namespace.types.broken_tables:
        return None
    table = None if text in scope.forbidden else inferring.namespace.types.tables.get(text)
    if table is not None:
        return inferring.report(QueryError.of(Mistake.TABLE_AS_VALUE, node.span, name=text, examples=examples(table)))
    if text in scope.actions and text not in scope.forbidden:
        return inferring.report(QueryError.of(Mistake.ACTION_AS_VALUE, node.span, name=text))
    if text not in scope.forbidden and inferring.namespace.candidates(text):
        return inferring.report(QueryError.of(Mistake.EVENT_TYPE_AS_VALUE, node.span, name=text))
    missing = scope.missing(node, near)
    return None if missing is None else inferring.report(missing)


def receiver_of(inferring: Inferring, node: ast.Expression) -> Expression | None:
    """Check the receiver before a dot, which must be a value; suggest event types too."""
    if isinstance(node, ast.NameUse) and node.name.text not in inferring.scope.names:
        return name(inferring, node.name, inferring.namespace.types.suggested)
    return inferring.typed(node)


def type_path(inferring: Inferring, node: ast.Expression | None, *, is_plain_type: bool = False) -> ast.Name | None:
    """The event type's name that a dotted expression spells; None if it is something else.

    In a text without definitions, a capital letter after a package marks a type; with
    `is_plain_type` also without a package.
    """
    root = node
    while isinstance(root, ast.Member):
        root = root.receiver
    if not isinstance(root, ast.NameUse) or inferring.scope.has(root.name.text):
        return None
    path = path_of(node)
    if path is None or inferring.namespace.candidates(path.text):
        return path
    package, _, word = path.text.rpartition(".")
    may_be_unseen = not inferring.namespace.is_strict and bool(package or is_plain_type)
    return path if may_be_unseen and word[:1].isupper() else None


def unknown_type(inferring: Inferring, node: ast.Expression) -> QueryError | None:
    """The mistake of a dotted path that can only mean an event type: it ends with a capital."""
    path = path_of(node)
    if path is None or "." not in path.text or inferring.scope.has(path.text.partition(".")[0]):
        return None
    before, _, word = path.text.rpartition(".")
    if inferring.namespace.candidates(before):  # a constant of an event type
        return None
    is_type = inferring.scope.is_whole and word[:1].isupper()
    return inferring.namespace.unknown(path) if is_type else None


def member(inferring: Inferring, node: ast.Member) -> Expression | None:
    """Check `receiver.name`: a field, or a constant of an event type."""
    if isinstance(node.receiver, ast.Call) and is_prev(inferring, node.receiver):
        return prev_member(inferring, node.receiver, node.name, is_called=False)
    if isinstance(node.receiver, ast.Call | ast.Index) and is_lookup(inferring, node.receiver):
        return of_row(inferring, node.receiver, node.name)
    table = table_of(inferring, node.receiver)
    if table is not None:
        facts = {"method": node.name.text, "examples": examples(table)}
        return inferring.report(QueryError.of(Mistake.TABLE_METHOD, node.name.span, **facts))
    path = type_path(inferring, node.receiver, is_plain_type=node.name.text.isupper())
    if path is not None:
        return _type_constant(inferring, path, node.name)
    unknown = unknown_type(inferring, node.receiver)
    if unknown is not None:
        return inferring.report(unknown)
    receiver = receiver_of(inferring, node.receiver)
    if receiver is None:
        return None
    type_ = type_of(receiver)
    if type_.kind is Kind.EVENT:
        return _event_member(inferring, receiver, inferring.namespace.of(type_), node.name)
    if type_ == Type.LOCATION and node.name.text in LOCATION_FIELDS:
        return MemberOf(Type.FLOAT, receiver, node.name.text)
    return inferring.report(_no_member(type_, node.name).with_hint(_hint_of_run(inferring, node, type_)))


def _hint_of_run(inferring: Inferring, node: ast.Member, type_: Type) -> str | None:
    """What `up.price` was meant as, where `up` is a run and no single event."""
    repeats = inferring.scope.repeats
    if repeats is None or not isinstance(node.receiver, ast.NameUse) or node.receiver.name.text not in repeats.runs:
        return None
    run, field = node.receiver.name.text, node.name.text
    if type_.kind is not Kind.SEQUENCE or inferring.namespace.of(type_.of[0]).type_of(field) is None:
        return None
    return f"`{run}` is a run of events; write `last({run}).{field}`, or a fold as `max({run}.{field})`"


def index(inferring: Inferring, node: ast.Index) -> Expression | None:
    """Check `receiver[index]`: an element of a sequence, a value of a dictionary."""
    table = table_of(inferring, node.receiver)
    if table is not None:
        return inferring.report(QueryError.of(Mistake.TABLE_ROW, node.span, examples=examples(table, of_row=True)))
    receiver = inferring.typed(node.receiver)
    if receiver is None:
        inferring.typed(node.index)
        return None
    if node.more:
        return inferring.report(QueryError.of(Mistake.SEVERAL_INDEXES, node.more[0].span))
    type_ = type_of(receiver)
    if type_.kind is Kind.SEQUENCE:
        at, element = inferring.of_type(node.index, Type.INTEGER, "an index"), type_.of[0]
    elif type_.kind is Kind.DICTIONARY:
        at, element = inferring.of_type(node.index, type_.of[0], "a key of this dictionary"), type_.of[1]
    else:
        return inferring.report(QueryError.of(Mistake.NOT_INDEXED, node.receiver.span, found=str(type_)))
    return None if at is None else IndexOf(element, receiver, at)


_COLUMNS_OF_TIME = ("at", "ts", "time", "timestamp", "event_time", "rowtime")
"""Columns of event tables, or of other tools, that are fields only if a definition has them."""


def no_field(schema: EventSchema, node: ast.Name) -> QueryError:
    """The mistake of a name that is not a field of this event type."""
    if schema.is_unseen:
        return QueryError.of(Mistake.UNSEEN_FIELD, node.span, event=schema.name, name=node.text)
    is_called = schema.action(node.text) is not None or method_of(schema.type, node.text) is not None
    if is_called:
        return QueryError.of(Mistake.FIELD_IS_METHOD, node.span, type=f"'{schema.name}'", name=node.text)
    mistake = QueryError.of(Mistake.UNKNOWN_FIELD, node.span, event=schema.name, name=node.text)
    constants = [constant for constant, _value in schema.constants]
    return mistake.suggesting(node.text, [*schema.field_names, *constants])


def _event_member(inferring: Inferring, receiver: Expression, schema: EventSchema, node: ast.Name) -> Expression | None:
    type_ = schema.type_of(node.text)
    if type_ is not None:
        if isinstance(receiver, EventOf):
            return FieldOf(type_, receiver.term, node.text)
        return MemberOf(type_, receiver, node.text)
    constants = dict(schema.constants)
    if node.text in constants:
        return constants[node.text]
    if schema.may_have(node.text):
        return None
    mistake = no_field(schema, node)
    is_time = node.text in _COLUMNS_OF_TIME and not mistake.message.endswith("?")
    return inferring.report(mistake.with_hint("the time of an event is `.getTime()`" if is_time else None))


def _type_constant(inferring: Inferring, path: ast.Name, node: ast.Name) -> Expression | None:
    schema = inferring.namespace.find(path)
    if schema is None:
        return None
    constants = dict(schema.constants)
    if node.text in constants:
        return constants[node.text]
    if schema.may_have(node.text):
        return None
    mistake = QueryError.of(Mistake.UNKNOWN_CONSTANT, node.span, type=f"'{schema.name}'", name=node.text)
    if schema.type_of(node.text) is not None:
        return inferring.report(mistake.with_hint("a field is read from an event, not from its type"))
    return inferring.report(mistake.suggesting(node.text, constants))


def _no_member(type_: Type, node: ast.Name) -> QueryError:
    if type_.kind is Kind.OPTIONAL and method_of(type_, node.text) is None:
        return QueryError.of(Mistake.UNSET_MEMBER, node.span, name=node.text)
    if method_of(type_, node.text) is not None:
        return QueryError.of(Mistake.FIELD_IS_METHOD, node.span, type=str(type_), name=node.text)
    mistake = QueryError.of(Mistake.NO_MEMBERS, node.span, type=str(type_), name=node.text)
    return mistake.suggesting(node.text, LOCATION_FIELDS if type_ == Type.LOCATION else ())


# Folds, `sum(a.v)` over the events of a run, and `prev(a).v`, the event before. Both look like
# calls of actions. An action of the query with such a name has precedence.

_WITHOUT_VALUE = ("avg", "min", "max")
"""Those that have no value over no event."""


def is_fold(inferring: Inferring, node: ast.Call) -> bool:
    """Whether a call is a fold: its name is one, and the pattern has repeated names."""
    repeats = inferring.scope.repeats
    return repeats is not None and bool(repeats.runs) and node.receiver is None and node.name.text in FOLDS


def fold(inferring: Inferring, node: ast.Call) -> Expression | None:
    """Check a fold and its argument, in which a repeated name means one of its events."""
    repeats, name = inferring.scope.repeats, node.name
    assert repeats is not None, "who asks has seen that it is a fold"
    if len(node.arguments) != 1:
        return inferring.report(wrong_count(name.span, name.text, 1, 1, len(node.arguments)))
    argument = node.arguments[0]
    if name.text in ENDS or name.text == "count":
        return _of_run(inferring, repeats, name, argument)
    scope = inferring.scope
    inner = replace(
        scope.with_names(repeats.single),
        repeats=replace(repeats, runs={}, is_prev_usable=False),
        aggregates=Mistake.FOLD_NESTED,
    )
    value = inferring.within(inner).typed(argument)
    if value is None:
        return None
    runs = [run for run in repeats.runs.values() if run.term in terms_of(value)]
    if not runs:
        return inferring.report(QueryError.of(Mistake.FOLD_NO_RUN, node.span, name=name.text))
    if len({run.group for run in runs}) > 1:
        return inferring.report(_two_runs(node, runs))
    type_ = type_of(value)
    result = aggregate_result(name.text, [type_]) if type_ in (Type.INTEGER, Type.FLOAT, Type.DECIMAL) else None
    if result is None:
        return inferring.report(QueryError.of(Mistake.AGGREGATE_TYPES, node.span, name=name.text, found=str(type_)))
    is_optional = repeats.is_block and name.text in _WITHOUT_VALUE and any(run.may_be_empty for run in runs)
    terms = tuple(sorted(run.term for run in runs))
    return Fold(Type.optional(result) if is_optional else result, name.text, value, terms)


def _two_runs(node: ast.Call, runs: list[Run]) -> QueryError:
    names = listed(f"'{run.name}'" for run in runs)
    return QueryError.of(Mistake.FOLD_TWO_RUNS, node.span, name=node.name.text, names=names)


def _of_run(inferring: Inferring, repeats: Repeats, name: ast.Name, argument: ast.Expression) -> Expression | None:
    """Check `count(a)`, `first(a)` and `last(a)`, which take the name of a run."""
    run = repeats.runs.get(argument.name.text) if isinstance(argument, ast.NameUse) else None
    if run is None:
        member = argument.name.text if isinstance(argument, ast.Member) else "field"
        hint = f"write `{name.text}(a).{member}`" if name.text in ENDS else None
        mistake = QueryError.of(Mistake.FOLD_NAME, argument.span, name=name.text)
        return inferring.report(mistake.with_hint(hint))
    event = repeats.single[run.name]
    if event is None:
        return None
    if name.text == "count":
        return Fold(Type.INTEGER, "count", event, (run.term,))
    type_ = type_of(event)
    is_optional = repeats.is_block and run.may_be_empty
    return EndOf(Type.optional(type_) if is_optional else type_, name.text, run.term)


def is_prev(inferring: Inferring, node: ast.Expression | None) -> bool:
    """Whether an expression is `prev(a)`, the event before."""
    if not isinstance(node, ast.Call) or node.receiver is not None or node.name.text != PREV:
        return False
    scope = inferring.scope
    is_other = PREV in scope.actions or bool(inferring.namespace.candidates(PREV))
    return scope.repeats is not None and not is_other


def prev_member(inferring: Inferring, node: ast.Call, member: ast.Name, *, is_called: bool) -> Expression | None:
    """Check `prev(a).v`, or `prev(a).getTime()` if `is_called`."""
    repeats = inferring.scope.repeats
    assert repeats is not None, "who asks has seen that it is `prev`"
    if not repeats.is_prev_usable:
        return inferring.report(QueryError.of(Mistake.PREV_PLACE, node.name.span))
    event = _prev_of(inferring, repeats, node)
    if event is None:
        return None
    if is_called:
        if member.text != "getTime":
            return inferring.report(QueryError.of(Mistake.PREV_ALONE, node.span))
        return PrevOf(Type.FLOAT, event.term, "")
    event_schema = inferring.namespace.of(event.type)
    before = repeats.before(event.term)
    if before is None:
        return None
    names = sorted({name for term in before if (name := repeats.event_names[term]) is not None}) or [event_schema.name]
    schemas = [inferring.namespace.of(Type.event(name)) for name in names]
    types = [schema.type_of(member.text) for schema in schemas]
    known_types = {type_ for type_ in types if type_ is not None}
    if any(type_ is None and schema.may_have(member.text) for type_, schema in zip(types, schemas, strict=True)):
        return None
    if None in types or len(known_types) > 1:
        shown = listed(
            f"'{schema.name}' has {'no such field' if type_ is None else str(type_)}"
            for schema, type_ in zip(schemas, types, strict=True)
        )
        return inferring.report(QueryError.of(Mistake.PREV_TYPES, member.span, name=member.text, found=shown))
    return PrevOf(known_types.pop(), event.term, member.text)


def _prev_of(inferring: Inferring, repeats: Repeats, node: ast.Call) -> EventOf | None:
    """The name of the pattern in `prev(...)`; None: a mistake was reported."""
    if len(node.arguments) != 1:
        inferring.report(wrong_count(node.name.span, PREV, 1, 1, len(node.arguments)))
        return None
    argument = node.arguments[0]
    is_name = isinstance(argument, ast.NameUse) and argument.name.text in repeats.single
    event = inferring.typed(argument)
    if not is_name:
        if event is not None or not isinstance(argument, ast.NameUse):
            inferring.report(QueryError.of(Mistake.PREV_NAME, argument.span))
        return None
    return event if isinstance(event, EventOf) and event.type.kind is Kind.EVENT else None
