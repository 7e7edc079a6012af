"""Check the parameters and the metadata of a query."""

from __future__ import annotations

import re

from querylang.checker.diagnostics import Diagnostics
from querylang.checker.expressions.inference import Inference
from querylang.checker.names.namespaces import Namespace
from querylang.checker.names.scope import Scope
from querylang.errors import Mistake, QueryError
from querylang.plan.expression import NUMBERS, Expression, Literal, ParameterOf, Type
from querylang.plan.model import Parameter
from querylang.plan.text import literal_text
from querylang.source import Span
from querylang.syntax import ast

PARAMETER_TYPES = (*NUMBERS, Type.STRING, Type.BOOLEAN)

_STRINGS = re.compile(r'//[^\n]*|/\*.*?\*/|("(?:\\.|[^"\\])*")', re.DOTALL)


def check_parameters(
    section: ast.Parameters, namespace: Namespace
) -> tuple[tuple[Parameter, ...], dict[str, Expression | None]]:
    """The parameters, and what each name means; None: its mistake was reported."""
    checked: list[Parameter] = []
    names: dict[str, Expression | None] = {}
    for node in section.items:
        if isinstance(node, ast.Broken):
            continue
        name = node.name.text
        if name in names:
            namespace.diagnostics.report(Mistake.DUPLICATE_PARAMETER, node.name.span, name=name)
            continue
        type_ = namespace.type_of(node.type)
        if type_ is not None and type_ not in PARAMETER_TYPES:
            namespace.diagnostics.report(Mistake.PARAMETER_TYPE, node.type.span, type=str(type_))
            type_ = None
        names[name] = None if type_ is None else ParameterOf(type_, name)
        if type_ is not None:
            checked.append(Parameter(name, type_, _default(node, type_, namespace)))
    return tuple(checked), names


def _default(node: ast.ParameterDefinition, type_: Type, namespace: Namespace) -> Literal | None:
    """The default value; the grammar allows only a literal."""
    if node.value is None:
        return None
    found = Inference(Scope({}), namespace).value(node.value)
    if not isinstance(found, Literal):
        return None
    if found.type != type_:
        facts = {"what": f"the value of '{node.name.text}'", "expected": str(type_), "found": str(found.type)}
        mistake = QueryError.of(Mistake.EXPECTED_TYPE, node.value.span, **facts)
        namespace.diagnostics.add(mistake.with_hint(_written_as(found, type_)))
        return None
    return found


def _written_as(found: Literal, wanted: Type) -> str | None:
    """How to write the same number as a literal of the wanted type."""
    if found.type not in NUMBERS or wanted not in (Type.FLOAT, Type.DECIMAL) or found.type == Type.DECIMAL:
        return None
    text = literal_text(found.value)
    text += "" if found.type == Type.FLOAT else ".0"
    return f"write `{text}{'d' if wanted == Type.DECIMAL else ''}`"


def check_metadata(section: ast.Metadata, diagnostics: Diagnostics) -> tuple[tuple[str, str], ...]:
    """The pairs as written."""
    seen: set[str] = set()
    for position, (key, _value) in enumerate(section.items):
        if key in seen:
            diagnostics.report(Mistake.DUPLICATE_METADATA, _key_place(section, position), name=key)
        seen.add(key)
    return section.items


def _key_place(section: ast.Metadata, position: int) -> Span:
    """The place of the key of the pair at this position."""
    source, start = section.span.source, section.span.start
    strings = [found for found in _STRINGS.finditer(section.span.text) if found.group(1)]
    if len(strings) <= 2 * position:
        return section.span
    place = strings[2 * position]
    return source.span(start + place.start(), start + place.end())
