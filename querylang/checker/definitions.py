"""One event definition to a schema: fields, constants, actions, annotations, its source time.

There are two steps: first what other definitions need of this one, then what this one needs of the
others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from querylang.checker.blocks import check_actions, event_scope, refused_lookup, signature
from querylang.checker.checked import Diagnostics
from querylang.checker.expressions.calls import inline_forms
from querylang.checker.expressions.inference import Inference
from querylang.checker.namespaces import ActionSignature, EventSchema, Namespace
from querylang.checker.scope import Scope
from querylang.errors import Mistake, QueryError
from querylang.plan.expression import NUMBERS, EventOf, Expression, FieldOf, Invoke, Kind, Literal, Type
from querylang.plan.library import ANNOTATIONS
from querylang.plan.model import Action, Field
from querylang.syntax import ast

ANNOTATION_PACKAGE = "com.apama.queries"
"""The package of the query annotations in the vendor's language."""

_CONSTANT_TYPES = (Type.BOOLEAN, Type.STRING, *NUMBERS)


def with_members(
    node: ast.EventDefinition, plan_name: str, namespace: Namespace, columns: Mapping[str, Type] | None
) -> EventSchema:
    """The fields, constants and signatures of a definition.

    `columns`: the fields that the data has.
    """
    diagnostics = namespace.diagnostics
    section = diagnostics.section()
    fields: dict[str, Field] = {}
    constants: list[tuple[str, Literal | None]] = []
    actions: list[ActionSignature] = []
    untyped: list[str] = []
    for name in _names_twice(node):
        diagnostics.report(Mistake.DUPLICATE_FIELD, name.span, event=node.name.text, name=name.text)
    for member in node.members:
        match member:
            case ast.FieldDefinition(name=name):
                type_ = namespace.type_of(member.type)
                if type_ is None:
                    untyped.append(name.text)
                elif name.text not in fields:
                    fields[name.text] = Field(name.text, type_)
                    _compare(member, type_, plan_name, columns or {}, diagnostics)
            case ast.ConstantDefinition(name=name):
                constants.append((name.text, _constant(member, namespace)))
            case ast.ActionDefinition():
                actions.append(signature(member, namespace))
            case ast.Refused(span=span, what=what, reason=reason):
                diagnostics.report(Mistake.NOT_IN_QUERIES, span, what=what, reason=reason)
            case ast.Broken():
                pass
    is_whole = not any(isinstance(member, ast.Refused | ast.Broken) for member in node.members)
    return EventSchema(
        name=plan_name,
        fields=tuple(fields.values()),
        constants=tuple(constants),
        actions=tuple({action.name: action for action in reversed(actions)}.values())[::-1],
        is_open=not is_whole or not section.is_clean,
        untyped=tuple(untyped) if is_whole else None,
        package=namespace.package,
        span=node.name.span,
    )


def with_annotations(schema: EventSchema, node: ast.EventDefinition, namespace: Namespace) -> EventSchema:
    """The schema with its annotations."""
    for annotation in node.annotations:
        name = _annotation_name(annotation, namespace)
        match name:
            case "TimeFrom":
                text = _text_argument(annotation, name, namespace)
                if text is not None and annotation.arguments:
                    source_time(schema, ast.Name(text, annotation.arguments[0].span), namespace)
                schema = replace(schema, time_from=text)
            case "Heartbeat":
                text = _text_argument(annotation, name, namespace)
                candidates = [] if text is None else namespace.candidates(text)
                schema = replace(schema, heartbeat=candidates[0] if len(candidates) == 1 else text)
            case "OutOfOrder":
                if annotation.arguments:
                    namespace.diagnostics.add(_wrong_argument(annotation, name, "no argument"))
                schema = replace(schema, out_of_order=True)
            case "DefaultWait":
                _text_argument(annotation, name, namespace)
            case _:
                pass
    return schema


def with_actions(schema: EventSchema, node: ast.EventDefinition, namespace: Namespace) -> EventSchema:
    """The schema with the bodies of its actions.

    Mistakes in a body are kept with the action's signature. Those of a query text are reported at
    once, those of a definition file when the action is called.
    """
    scope = event_scope(schema)
    bodies: dict[str, Action] = {}
    problems: dict[str, tuple[QueryError, ...]] = {}
    for member in node.members:
        if isinstance(member, ast.ActionDefinition) and member.name.text not in bodies:
            inside = replace(namespace, diagnostics=Diagnostics())
            name = member.name.text
            (bodies[name],) = check_actions([member], scope.actions, scope, inside, schema.type)
            problems[name] = tuple(inside.diagnostics.mistakes)
    forms = inline_forms(bodies)
    for member in node.members:
        if isinstance(member, ast.ActionDefinition) and (found := refused_lookup(bodies, member.name, forms)):
            problems[member.name.text] = (*problems[member.name.text], found)
    actions = tuple(
        replace(action, inline=forms.get(action.name), problems=problems[action.name]) for action in schema.actions
    )
    return replace(schema, actions=actions, bodies=tuple(bodies.values()))


def _constant(node: ast.ConstantDefinition, namespace: Namespace) -> Literal | None:
    type_ = namespace.type_of(node.type)
    if type_ is None:
        return None
    if type_ not in _CONSTANT_TYPES:
        namespace.diagnostics.report(Mistake.CONSTANT_TYPE, node.type.span, found=str(type_))
        return None
    value = Inference(Scope({}), namespace).value_of_type(node.value, type_, f"'{node.name.text}'")
    return value if isinstance(value, Literal) else None


def _compare(
    node: ast.FieldDefinition, type_: Type, event: str, columns: Mapping[str, Type], diagnostics: Diagnostics
) -> None:
    """Report a field that no reading of its column could give."""
    found = columns.get(node.name.text)
    if found is not None and not _agree(type_, found):
        facts = {"name": node.name.text, "type": str(type_), "event": event, "found": str(found)}
        diagnostics.report(Mistake.SCHEMA_DIFFERS, node.type.span, **facts)


def _agree(defined: Type, found: Type) -> bool:
    """Whether a column of the type `found` may be the field.

    The type may have been inferred from text. Text may hold anything, whole numbers may be
    booleans, and any one-word value is text.
    """
    if Kind.OPTIONAL in (defined.kind, found.kind):
        return _agree(_inside(defined), _inside(found))
    if found in (Type.STRING, defined):
        return True
    if defined == Type.STRING:
        return found in (*NUMBERS, Type.BOOLEAN)
    if found in (*NUMBERS, Type.BOOLEAN):
        return (defined in NUMBERS and found in NUMBERS) or (defined == Type.BOOLEAN and found == Type.INTEGER)
    if defined.kind is not found.kind:
        return False
    return all(_agree(one, other) for one, other in zip(defined.of, found.of, strict=True))


def _inside(type_: Type) -> Type:
    """The type inside an optional; any other type is returned as it is."""
    return type_.of[0] if type_.kind is Kind.OPTIONAL else type_


def _names_twice(node: ast.EventDefinition) -> Iterator[ast.Name]:
    seen: set[str] = set()
    for member in node.members:
        if isinstance(member, ast.FieldDefinition | ast.ConstantDefinition | ast.ActionDefinition):
            if member.name.text in seen:
                yield member.name
            seen.add(member.name.text)


def _annotation_name(annotation: ast.Annotation, namespace: Namespace) -> str | None:
    """The name of a query annotation; None for others, and for unknown ones, which are reported."""
    package, _, name = annotation.name.text.rpartition(".")
    if package not in ("", ANNOTATION_PACKAGE):
        return None
    if name not in ANNOTATIONS:
        if not package and _may_be_another(name, namespace):
            return None
        mistake = QueryError.of(Mistake.UNKNOWN_ANNOTATION, annotation.name.span, name=name)
        namespace.diagnostics.add(mistake.suggesting(name, ANNOTATIONS))
        return None
    return name


def _may_be_another(name: str, namespace: Namespace) -> bool:
    """Whether a `using` imports an annotation of that name from another package."""
    return any(
        using.name.text != ANNOTATION_PACKAGE if using.is_all else using.name.text.rpartition(".")[2] == name
        for using in namespace.usings
    )


def _text_argument(annotation: ast.Annotation, name: str, namespace: Namespace) -> str | None:
    match annotation.arguments:
        case (ast.Constant(value=str(text)),):
            return text
        case (ast.Broken(),):
            return None
        case _:
            namespace.diagnostics.add(_wrong_argument(annotation, name, "one string"))
            return None


def _wrong_argument(annotation: ast.Annotation, name: str, expected: str) -> QueryError:
    return QueryError.of(Mistake.ANNOTATION_ARGUMENT, annotation.span, name=name, expected=expected)


# `time from`: the action or field with the source time, in seconds since 1970 UTC.

_SECONDS = (Type.FLOAT, Type.INTEGER)


def source_time(schema: EventSchema, name: ast.Name, namespace: Namespace) -> Expression | None:
    """The source time of an event in seconds: an action without arguments, or a field.

    None if it is neither, which is reported, or if its type is open.
    """
    action, type_ = schema.action(name.text), schema.type_of(name.text)
    if action is not None:
        return _of_action(schema, action, name, namespace)
    if type_ is not None:
        return FieldOf(type_, 0, name.text) if _is_time(type_, name, namespace) else None
    if not schema.may_have(name.text):
        near = [*schema.field_names, *(item.name for item in schema.actions)]
        mistake = QueryError.of(Mistake.UNKNOWN_TIME, name.span, event=schema.name, name=name.text)
        namespace.diagnostics.add(mistake.suggesting(name.text, near))
    return None


def _of_action(schema: EventSchema, action: ActionSignature, name: ast.Name, namespace: Namespace) -> Expression | None:
    namespace.diagnostics.extend(action.problems)
    if action.is_open:
        return None
    if action.parameters:
        namespace.diagnostics.report(Mistake.TIME_ARGUMENTS, name.span, name=name.text)
        return None
    if not _is_time(action.returns, name, namespace):
        return None
    return action.inline or Invoke(action.returns, action.name, EventOf(schema.type, 0), ())


def _is_time(type_: Type | None, name: ast.Name, namespace: Namespace) -> bool:
    if type_ in _SECONDS:
        return True
    shown = "nothing" if type_ is None else str(type_)
    namespace.diagnostics.report(Mistake.TIME_TYPE, name.span, name=name.text, type=shown)
    return False
