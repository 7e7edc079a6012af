"""Check tables beside the stream: their definitions, and what is looked up in them."""

from __future__ import annotations

from collections.abc import Iterable

from querylang.checker.checked import Diagnostics
from querylang.checker.namespaces import EventTypes, Namespace
from querylang.checker.scope import Inferring, arguments_of
from querylang.errors import Mistake, QueryError
from querylang.plan.expression import SCALARS, Expression, Lookup, Type
from querylang.plan.model import Field, Table
from querylang.plan.text import VALID, written_name
from querylang.syntax import ast

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
