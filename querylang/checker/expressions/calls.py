"""Check calls: methods, actions, constructors, methods of types.

`querylang.plan.library` lists the methods. `is_statement`: the result is not used, so there may be
none.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from querylang.checker.expressions import members
from querylang.checker.namespaces import ActionSignature, EventSchema, path_of
from querylang.checker.scope import Inferring, arguments_of, check_untyped, type_of, wrong_count
from querylang.errors import Mistake, QueryError, listed
from querylang.foreign_words import FUNCTIONS, METHODS, hint_of
from querylang.plan import library
from querylang.plan.expression import (
    Aggregate,
    Call,
    EventOf,
    Expression,
    FieldOf,
    Invoke,
    Items,
    Kind,
    Literal,
    LocalOf,
    MemberOf,
    New,
    Type,
    rewritten,
    walk,
)
from querylang.plan.model import Action, Return
from querylang.plan.text_forms import NotANetworkError, TimePatternError, network_of, pieces_of, zone_of
from querylang.syntax import ast

_CONVERSIONS = ("toString", "toInteger", "toFloat", "toDecimal")


def call(inferring: Inferring, node: ast.Call, *, is_statement: bool = False) -> Expression | None:
    """Check `receiver.name(arguments)` or `name(arguments)`.

    The receiver may be the start of a qualified name.
    """
    if node.receiver is None:
        return _function(inferring, node, is_statement=is_statement)
    if isinstance(node.receiver, ast.Call) and members.is_prev(inferring, node.receiver):
        return members.prev_member(inferring, node.receiver, node.name, is_called=True)
    table = members.table_of(inferring, node.receiver)
    if table is not None:
        return members.called(inferring, node, table)
    whole = ast.Member(node.span, node.receiver, node.name)
    path = members.type_path(inferring, whole)
    if path is not None:
        return _made(inferring, path, node.arguments)
    if is_aggregate(inferring, node):
        return aggregate(inferring, node)
    type_name = members.type_path(inferring, node.receiver)
    if type_name is not None and inferring.namespace.is_time_format(type_name.text):
        return time_format_call(inferring, node.name, node.arguments)
    if type_name is not None:
        schema = inferring.namespace.find(type_name)
        return None if schema is None else _of_type(inferring, schema.type, node.name, node.arguments)
    unknown = members.unknown_type(inferring, whole) or members.unknown_type(inferring, node.receiver)
    if unknown is not None:
        return inferring.report(unknown)
    receiver = members.receiver_of(inferring, node.receiver)
    if receiver is None:
        return None
    return _of_value(inferring, node, receiver, is_statement=is_statement)


def type_call(inferring: Inferring, node: ast.TypeCall) -> Expression | None:
    """Check `integer.parse(text)`, `location(0.0, 0.0, 1.0, 1.0)`, `sequence<float>()`."""
    type_ = inferring.namespace.type_of(node.type)
    if type_ is None:
        return None
    if node.name is not None:
        return _of_type(inferring, type_, node.name, node.arguments)
    name = ast.Name(str(type_), node.type.span)
    match type_.kind:
        case Kind.LOCATION:
            parts = [(f"'{field}' of a location", Type.FLOAT) for field in library.LOCATION_FIELDS]
            arguments = arguments_of(inferring, name, node.arguments, parts)
            return None if arguments is None else New(type_, arguments)
        case Kind.OPTIONAL:
            arguments = arguments_of(inferring, name, node.arguments, [("what it holds", type_.of[0])], required=0)
            return None if arguments is None else New(type_, arguments)
        case Kind.SEQUENCE | Kind.DICTIONARY:
            arguments = arguments_of(inferring, name, node.arguments, ())
            return None if arguments is None else Items(type_, ())
        case Kind.EVENT:
            return constructed(inferring, name, inferring.namespace.of(type_), node.arguments)
        case _:
            mistake = QueryError.of(Mistake.NO_CONSTRUCTOR, node.type.span, type=str(type_))
            method = f"to{str(type_).capitalize()}"
            return inferring.report(mistake.with_hint(f"write `.{method}()`" if method in _CONVERSIONS else None))


def constructed(
    inferring: Inferring, name: ast.Name, schema: EventSchema, nodes: Sequence[ast.Expression]
) -> Expression | None:
    """Check the construction of an event, with one argument per field."""
    if schema.is_unseen and not schema.is_open and nodes:
        return inferring.report(QueryError.of(Mistake.UNSEEN_CONSTRUCTOR, name.span, name=name.text))
    if schema.is_open:
        for node in nodes:
            check_untyped(inferring, node)
        return None
    parts = [(f"'{item.name}' of '{schema.name}'", item.type) for item in schema.fields]
    arguments = arguments_of(inferring, ast.Name(schema.name, name.span), nodes, parts)
    return None if arguments is None else New(schema.type, arguments)


def invoked(
    inferring: Inferring,
    node: ast.Call,
    signature: ActionSignature,
    receiver: Expression | None,
    *,
    is_statement: bool,
) -> Expression | None:
    """Check a call of an action that a text defines, or inline it."""
    parameters = [(f"'{name}' of '{signature.name}'", type_) for name, type_ in signature.parameters]
    arguments = arguments_of(inferring, node.name, node.arguments, parameters)
    for problem in signature.problems:
        inferring.report(problem)
    if arguments is None or signature.is_open:
        return None
    if signature.returns is None and not is_statement:
        return inferring.report(QueryError.of(Mistake.NO_RESULT, node.name.span, name=signature.name))
    if signature.inline is not None and isinstance(receiver, EventOf):
        return applied(signature.inline, receiver.term)
    return Invoke(signature.returns, signature.name, receiver, arguments)


def _function(inferring: Inferring, node: ast.Call, *, is_statement: bool) -> Expression | None:
    """Check `name(...)`: an action, an aggregate, or an event's constructor."""
    name, scope = node.name, inferring.scope
    if name.text in scope.actions:
        signature = scope.actions[name.text]
        return invoked(inferring, node, signature, scope.owner, is_statement=is_statement)
    if members.is_fold(inferring, node):
        return members.fold(inferring, node)
    if members.is_prev(inferring, node):
        return inferring.report(QueryError.of(Mistake.PREV_ALONE, node.span))
    if is_aggregate(inferring, node):
        return aggregate(inferring, node)
    is_type = bool(inferring.namespace.candidates(name.text))
    is_unseen = not inferring.namespace.is_strict and name.text.rpartition(".")[2][:1].isupper()
    if is_type or is_unseen:
        return _made(inferring, name, node.arguments)
    if name.text in scope.ignored or not scope.is_whole or _is_unread(inferring, name):
        return None
    near = [*scope.actions, *library.AGGREGATES, *inferring.namespace.types.names]
    mistake = QueryError.of(Mistake.UNKNOWN_CONSTRUCTOR, name.span, name=name.text)
    hint = hint_of(FUNCTIONS, name.text)
    return inferring.report(mistake.suggesting(name.text, near) if hint is None else mistake.with_hint(hint))


def _is_unread(inferring: Inferring, name: ast.Name) -> bool:
    """Whether the text defines an action of that name in a part that could not be parsed."""
    source = name.span.source
    has_syntax_mistake = any(
        mistake.code == Mistake.UNEXPECTED.code and mistake.span.source is source
        for mistake in inferring.namespace.diagnostics.mistakes
    )
    return has_syntax_mistake and bool(re.search(rf"\baction\s+{re.escape(name.text)}\b", source.text))


def _made(inferring: Inferring, name: ast.Name, nodes: Sequence[ast.Expression]) -> Expression | None:
    schema = inferring.namespace.find(name)
    return None if schema is None else constructed(inferring, name, schema, nodes)


def _of_type(inferring: Inferring, type_: Type, name: ast.Name, nodes: Sequence[ast.Expression]) -> Expression | None:
    """Check a method of a type itself; in the plan its first argument is the receiver."""
    signature = library.static_method_of(type_, name.text)
    if signature is None:
        mistake = QueryError.of(Mistake.UNKNOWN_METHOD, name.span, type=f"the type '{type_}'", name=name.text)
        is_action = type_.kind is Kind.EVENT and inferring.namespace.of(type_).action(name.text) is not None
        if is_action or library.method_of(type_, name.text) is not None:
            return inferring.report(mistake.with_hint("it is called on a value"))
        return inferring.report(mistake.suggesting(name.text, library.static_methods_of(type_)))
    arguments = _built_in_arguments(inferring, name, nodes, signature)
    if not arguments:
        return None
    assert signature.result is not None, "methods of types return a value"
    return Call(signature.result, f"{type_}.{name.text}", arguments[0], arguments[1:])


def _of_value(inferring: Inferring, node: ast.Call, receiver: Expression, *, is_statement: bool) -> Expression | None:
    """Check a method of a value; an action of its event type has precedence."""
    type_, name = type_of(receiver), node.name.text
    if type_.name == library.TIME_FORMAT:
        return time_format_call(inferring, node.name, node.arguments)
    schema = inferring.namespace.of(type_) if type_.kind is Kind.EVENT else None
    action = None if schema is None else schema.action(name)
    if action is not None:
        return invoked(inferring, node, action, receiver, is_statement=is_statement)
    signature = library.method_of(type_, name)
    if schema is not None and schema.may_have(name) and name != "toString":
        for argument in node.arguments:
            check_untyped(inferring, argument)
        return None
    if signature is None:
        return inferring.report(_no_method(type_, schema, node.name).with_hint(_hint_of_run(inferring, node, receiver)))
    arguments = _built_in_arguments(inferring, node.name, node.arguments, signature)
    if arguments is None:
        return None
    if signature.result is None:
        if not is_statement:
            return inferring.report(QueryError.of(Mistake.NO_RESULT, node.name.span, name=name))
        return Call(type_, name, receiver, arguments)
    if name == "split" and isinstance(arguments[0], Literal) and not isinstance(receiver, Literal):
        separator = f'"{arguments[0].value}"'
        warning = QueryError.of(Mistake.SPLIT_TURNED, node.name.span, separator=separator)
        inferring.namespace.diagnostics.warnings.append(warning)
    if name == "inNetwork" and not _is_network(inferring, arguments[0], node.arguments[0]):
        return None
    is_already = name in _CONVERSIONS and signature.result == type_
    return receiver if is_already else Call(signature.result, name, receiver, arguments)


def _is_network(inferring: Inferring, argument: Expression, node: ast.Expression) -> bool:
    """Whether a text may name a network: a constant must."""
    if isinstance(argument, Literal):
        try:
            network_of(str(argument.value))
        except NotANetworkError as error:
            mistake = QueryError.of(Mistake.NETWORK, node.span, problem=str(error))
            inferring.report(mistake.with_hint(error.instead and f'write "{error.instead}"'))
            return False
    return True


def _built_in_arguments(
    inferring: Inferring, name: ast.Name, nodes: Sequence[ast.Expression], signature: library.Signature
) -> tuple[Expression, ...] | None:
    what = "the argument" if len(signature.parameters) == 1 else "an argument"
    parameters = [(f"{what} of '{name.text}'", type_) for type_ in signature.parameters]
    return arguments_of(inferring, name, nodes, parameters, signature.required)


def _hint_of_run(inferring: Inferring, node: ast.Call, receiver: Expression) -> str | None:
    """In a condition a repeated name means each of its events."""
    repeats = inferring.scope.repeats
    run = repeats.run_of(receiver.term) if repeats is not None and isinstance(receiver, EventOf) else None
    is_size = run is not None and node.name.text in ("size", "length", "count")
    return f"in a condition `{run.name}` is each of its events; write `count({run.name})`" if run and is_size else None


def _no_method(type_: Type, schema: EventSchema | None, name: ast.Name) -> QueryError:
    shown = f"'{type_}'" if schema is not None else str(type_)
    if type_.kind is Kind.OPTIONAL and (type_.of[0].kind is Kind.EVENT or library.method_of(type_.of[0], name.text)):
        return QueryError.of(Mistake.UNSET_MEMBER, name.span, name=name.text)
    if schema is not None and schema.type_of(name.text) is not None:
        return QueryError.of(Mistake.METHOD_IS_FIELD, name.span, type=shown, name=name.text)
    actions = [] if schema is None else [action.name for action in schema.actions]
    mistake = QueryError.of(Mistake.UNKNOWN_METHOD, name.span, type=shown, name=name.text)
    if type_ == Type.INTEGER and library.method_of(Type.FLOAT, name.text) is not None:
        return mistake.with_hint("convert the integer with `.toFloat()`")
    hint = hint_of(METHODS, name.text)
    return (
        mistake.suggesting(name.text, [*actions, *library.methods_of(type_)])
        if hint is None
        else mistake.with_hint(hint)
    )


# Aggregates: `avg(a.x)` in `select` and `having`. The scope says where one may be used and what
# its arguments see.

PACKAGE = "com.apama.aggregates"
"""The package of aggregates in the vendor's language; here they are known without `using`."""


def is_aggregate(inferring: Inferring, node: ast.Call) -> bool:
    """Whether a call is one of an aggregate, with or without its package."""
    text = node.name.text
    if node.receiver is not None:
        path = path_of(node.receiver)
        return (
            path is not None and path.text == PACKAGE and text in library.AGGREGATES and not inferring.scope.has("com")
        )
    return text.removeprefix(f"{PACKAGE}.") in library.AGGREGATES


def aggregate(inferring: Inferring, node: ast.Call) -> Expression | None:
    """Check an aggregate and its arguments, which have their own scope."""
    name = ast.Name(node.name.text.rpartition(".")[2], node.name.span)
    scope = inferring.scope.aggregates
    if isinstance(scope, Mistake):
        is_of_two = name.text in ("min", "max") and len(node.arguments) > 1
        hint = f"of two values: `a.v.{name.text}(b.v)`" if is_of_two else None
        return inferring.report(QueryError.of(scope, name.span, name=name.text).with_hint(hint))
    rule = library.AGGREGATES[name.text]
    count = len(node.arguments)
    inside = inferring.within(scope)
    arguments = [inside.typed(argument) for argument in node.arguments]
    if not rule.required <= count <= len(rule.takes):
        return inferring.report(wrong_count(name.span, name.text, rule.required, len(rule.takes), count))
    values = tuple(value for value in arguments if value is not None)
    if len(values) < count:
        return None
    types = [type_of(value) for value in values]
    result = library.aggregate_result(name.text, types)
    if result is None:
        found = listed(map(str, types))
        return inferring.report(QueryError.of(Mistake.AGGREGATE_TYPES, node.span, name=name.text, found=found))
    return Aggregate(result, name.text, values)


# TimeFormat, with its patterns and zones if these are written in the text.

_ROWS = {row.name: row for row in library.TIME_FORMAT_METHODS}
_CLOCK = "the clock gives another result each time; `getTime()` of an event gives its time"
_COMPILED = "patterns are compiled by themselves; call `TimeFormat.parseTime(pattern, text)`"
_REFUSED = {
    **dict.fromkeys(("getSystemTime", "getMicroTime"), _CLOCK),
    **dict.fromkeys(("compilePattern", "compilePatternUTC", "compilePatternWithTimeZone"), _COMPILED),
}


def time_format_call(inferring: Inferring, name: ast.Name, nodes: Sequence[ast.Expression]) -> Expression | None:
    """Check `TimeFormat.name(arguments)`; in the plan the first argument is the receiver."""
    if name.text in _REFUSED:
        facts = {"what": f"`{name.text}`", "reason": _REFUSED[name.text]}
        return inferring.report(QueryError.of(Mistake.NOT_IN_QUERIES, name.span, **facts))
    row = _ROWS.get(name.text)
    if row is None:
        mistake = QueryError.of(Mistake.UNKNOWN_METHOD, name.span, type="TimeFormat", name=name.text)
        return inferring.report(mistake.suggesting(name.text, _ROWS))
    parameters = [(f"an argument of '{name.text}'", type_) for type_ in row.parameters]
    arguments = arguments_of(inferring, name, nodes, parameters)
    if arguments is None:
        return None
    assert row.result is not None, "the methods of TimeFormat return a value"
    is_right = _are_right(inferring, nodes, arguments, 1 if row.name.startswith("format") else 0)
    return Call(row.result, f"{library.TIME_FORMAT}.{row.name}", arguments[0], arguments[1:]) if is_right else None


def _are_right(
    inferring: Inferring, nodes: Sequence[ast.Expression], arguments: Sequence[Expression], place: int
) -> bool:
    """Whether the pattern, at that place, and the zone after all others can be right."""
    for at, check in ((place, pieces_of), (2, zone_of)):
        value = arguments[at] if at < len(arguments) else None
        if isinstance(value, Literal):
            try:
                check(str(value.value))
            except TimePatternError as error:
                inferring.report(QueryError.of(Mistake.TIME_FORMAT, nodes[at].span, problem=str(error)))
                return False
    return True


# Actions that only return an expression over their event, such as `action getTime() returns float
# { return ts; }`. A call of one on a bound event becomes that expression, which can be evaluated
# over columns. All other actions are called.

LARGEST = 100
"""The most parts of an inlined expression; calls of calls could double it again and again."""


def inline_forms(actions: Mapping[str, Action]) -> dict[str, Expression]:
    """The inlined expressions of an event type's actions, over the event as term 0."""
    forms: dict[str, Expression] = {}
    waiting = {name: action for name, action in actions.items() if _returned(action) is not None}
    has_changed = True
    while has_changed:
        has_changed = False
        for name, action in list(waiting.items()):
            form = _form(action, forms)
            if form is not None:
                forms[name] = form
                del waiting[name]
                has_changed = True
    return forms


def applied(form: Expression, term: int) -> Expression:
    """The inlined expression over the event bound to a term."""

    def moved(node: Expression) -> Expression:
        match node:
            case FieldOf(type=type_, field=field):
                return FieldOf(type_, term, field)
            case EventOf(type=type_):
                return EventOf(type_, term)
            case _:
                return node

    return rewritten(form, moved)


def _returned(action: Action) -> Expression | None:
    match action:
        case Action(parameters=(), body=(Return(value=value),)):
            return value
        case _:
            return None


def _form(action: Action, forms: Mapping[str, Expression]) -> Expression | None:
    """The action's expression over the event as term 0; None if it cannot be inlined (yet)."""

    def over_the_event(node: Expression) -> Expression:
        match node:
            case LocalOf(slot=0):
                return EventOf(node.type, 0)
            case MemberOf(type=type_, receiver=EventOf(), field=field):
                return FieldOf(type_, 0, field)
            case Invoke(action=name, receiver=EventOf(), arguments=()) if name in forms:
                return forms[name]
            case _:
                return node

    value = _returned(action)
    assert value is not None, "only such actions are asked for"
    form = rewritten(value, over_the_event)
    parts = list(walk(form))
    is_plain = len(parts) <= LARGEST and not any(isinstance(part, Invoke) for part in parts)
    return form if is_plain else None
