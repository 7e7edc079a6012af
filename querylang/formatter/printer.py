"""Print a syntax tree in the canonical layout, without comments.

The tree of the printed text equals the given one. Blocks are indented by four spaces, clauses come
under their `find`, `as` precedes names, and brackets that change nothing are left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import fields, is_dataclass
from typing import assert_never

from querylang.errors import Mistake, QueryError, QueryErrors
from querylang.formatter.expression_text import (
    INDENT,
    MARK,
    POSTFIX,
    SUM,
    argument_list,
    comma_separated,
    duration,
    expression,
    name,
    qualified,
    quoted,
    type_name,
    wrapped,
)
from querylang.plan.text import repeat_text
from querylang.syntax import ast
from querylang.system_limits import room_for

_FRAMES = 2_500
"""Enough for all that the checker allows: 200 levels of calls in 50 of statements."""


def printed(file: ast.File) -> str:
    """The text of the tree; ends with one newline unless it is empty.

    Raises QueryErrors if it is nested too deeply.
    """
    lines = [f"package {qualified(file.package.name)};"] if file.package is not None else []
    lines += [f"using {qualified(using.name)}{'.*' if using.is_all else ''};" for using in file.usings]
    for item in file.items:
        lines += [""] if lines else []
        try:
            with room_for(_FRAMES):
                item_lines = list(_item(item))
        except RecursionError:
            raise QueryErrors([QueryError.of(Mistake.LAYOUT_TOO_DEEP, item.span)]) from None
        lines += [part for line in item_lines for part in wrapped(line)]
    return "\n".join(lines) + "\n" if lines else ""


def refusals(file: ast.File) -> list[QueryError]:
    """The constructs of a larger language in the text: they have no canonical layout."""
    found: list[QueryError] = []
    stack: list[object] = [file.items]
    while stack:
        match stack.pop():
            case ast.Refused(span, what, reason):
                found.append(QueryError.of(Mistake.NOT_IN_QUERIES, span, what=what, reason=reason))
            case tuple() as items:
                stack += items
            case node if is_dataclass(node):
                stack += [getattr(node, item.name) for item in fields(node) if item.compare]
            case _:
                pass
    return sorted(found, key=lambda error: error.span.start)


def _item(item: ast.EventDefinition | ast.TableDefinition | ast.Query) -> Iterator[str]:
    match item:
        case ast.EventDefinition():
            return _event_type(item)
        case ast.TableDefinition():
            return _table(item)
        case ast.Query():
            return _query(item)
    assert_never(item)


# Event types and tables


def _table(table: ast.TableDefinition) -> Iterator[str]:
    yield f"table {name(table.name)} {{"
    for column in table.columns:
        assert isinstance(column, ast.Column), "a text with mistakes has no canonical layout"
        kind = "network" if column.type is None else type_name(column.type)
        yield f"{INDENT}{'key ' * column.is_key}{kind} {name(column.name)};"
    yield "}"


def _event_type(event: ast.EventDefinition) -> Iterator[str]:
    for annotation in event.annotations:
        arguments = "" if annotation.arguments is None else f"({argument_list(annotation.arguments)})"
        yield f"@{qualified(annotation.name)}{arguments}"
    yield f"event {name(event.name)} {{"
    for member in event.members:
        match member:
            case ast.FieldDefinition():
                yield f"{INDENT}{type_name(member.type)} {name(member.name)};"
            case ast.ConstantDefinition():
                value = expression(member.value)
                yield f"{INDENT}constant {type_name(member.type)} {name(member.name)} := {value};"
            case ast.ActionDefinition():
                yield from _inside(_action(member))
            case ast.Refused() | ast.Broken():
                raise AssertionError("a text with mistakes has no canonical layout")
            case _:
                assert_never(member)
    yield "}"


def _action(action: ast.ActionDefinition) -> Iterator[str]:
    parameters = comma_separated(f"{type_name(item.type)} {name(item.name)}" for item in action.parameters)
    returns = "" if action.returns is None else f" returns {type_name(action.returns)}"
    yield from _with_block(f"action {name(action.name)}({parameters}){returns}", action.body)


# Queries


def _query(query: ast.Query) -> Iterator[str]:
    body = [line for part in _sections(query) for line in part]
    if query.name is None:
        yield from body
    else:
        yield f"query {name(query.name)} {{"
        yield from _inside(body)
        yield "}"


def _sections(query: ast.Query) -> Iterator[Iterable[str]]:
    if isinstance(query.metadata, ast.Metadata):
        items = [f"{quoted(key)}: {quoted(value)}" for key, value in query.metadata.items]
        yield _braced("metadata", [*(f"{item}," for item in items[:-1]), *items[-1:]])
    if isinstance(query.parameters, ast.Parameters):
        yield _braced("parameters", [_parameter(item) for item in query.parameters.items])
    if isinstance(query.inputs, ast.Inputs):
        yield _braced("inputs", map(_input, query.inputs.items))
    if isinstance(query.find, ast.Find):
        yield _find(query.find)
    for action in query.actions:
        yield _action(action)


def _braced(word: str, lines: Iterable[str]) -> list[str]:
    return [f"{word} {{", *_inside(lines), "}"]


def _parameter(item: ast.ParameterDefinition | ast.Broken) -> str:
    assert isinstance(item, ast.ParameterDefinition), "a text with mistakes has no canonical layout"
    value = "" if item.value is None else f" := {expression(item.value)}"
    return f"{type_name(item.type)} {name(item.name)}{value};"


def _input(item: ast.InputDefinition | ast.Broken) -> str:
    assert isinstance(item, ast.InputDefinition), "a text with mistakes has no canonical layout"
    parts = [f"{qualified(item.event)}({comma_separated(map(_filter, item.filters))})"]
    if item.role is not None:
        parts.append(f"as {name(item.role)}")
    if item.keys:
        parts.append(f"key {comma_separated(map(_key, item.keys))}")
    if item.within is not None:
        parts.append(f"within {duration(item.within)}")
    if item.retain is not None:
        parts.append(f"retain {expression(item.retain, SUM)}")
    if item.unique:
        parts.append(f"with unique {comma_separated(map(_key, item.unique))}")
    if item.new is not None:
        parts.append(f"new by {comma_separated(map(_key, item.new.values))} within {duration(item.new.within)}")
    if item.clocking is not None:
        parts.append(_clocking(item.clocking))
    return f"{MARK.join(parts)};"


def _filter(item: ast.Filter) -> str:
    field = "" if item.field is None else f"{name(item.field)} "
    match item.test:
        case ast.Anything():
            return f"{field}= *" if field else "*"
        case ast.Condition(expression=condition):
            return expression(condition)
        case ast.Compared(operator=operator, value=value):
            return f"{field}{operator} {expression(value, SUM)}"
        case ast.Range() as range_:
            opening, closing = "[" if range_.includes_low else "(", "]" if range_.includes_high else ")"
            word = "in " if field else ""
            return f"{field}{word}{opening}{expression(range_.low)} : {expression(range_.high)}{closing}"
        case _:
            assert_never(item.test)


def _key(key: ast.Key) -> str:
    arguments = "" if key.arguments is None else f"({argument_list(key.arguments)})"
    source = ".".join(map(name, (key.source, *key.members)))
    sign = "?" if key.may_miss else ""
    return f"{source}{arguments}{sign}" + ("" if key.name is None else f" as {name(key.name)}")


def _clocking(clocking: ast.Clocking) -> str:
    assert clocking.wait is not None, "a text with mistakes has no canonical layout"
    source = "" if clocking.time_from is None else f"time from {name(clocking.time_from)} "
    heartbeat = "" if clocking.heartbeat is None else f" or {qualified(clocking.heartbeat)}"
    return f"{source}wait {duration(clocking.wait)}{heartbeat}"


# Find


_TIGHTNESS = {"->": 0, "or": 1, "and": 2}


def _find(find: ast.Find) -> list[str]:
    assert not isinstance(find.pattern, ast.Broken), "a text with mistakes has no canonical layout"
    word = "find every" if find.is_every else "find all" if find.is_all else "find"
    pattern = _pattern(find.pattern, 0)
    if find.is_all and pattern.startswith("."):
        pattern = f"({pattern})"  # `all.Name` is an event type
    lines = [f"{word} {pattern}"]
    lines += [f"{INDENT}{_clause(clause)}" for clause in find.clauses]
    if find.block is None:
        return lines
    if len(lines) == 1:
        return list(_with_block(lines[0], find.block))
    return [*lines, "{", *_inside(_statements(find.block.statements)), "}"]


def _pattern(pattern: ast.Pattern, tightness: int) -> str:
    """The pattern, in brackets if it binds more loosely than its place allows."""
    match pattern:
        case ast.PatternTerm():
            return f"{qualified(pattern.event)} as {name(pattern.name)}"
        case ast.PatternWait():
            coassigned = "" if pattern.name is None else f" as {name(pattern.name)}"
            repeat = "" if pattern.most == 1 else f" {{1,{pattern.most}}}"
            return f"wait({duration(pattern.duration)}){coassigned}{repeat}"
        case ast.PatternJoin():
            inner = _TIGHTNESS[pattern.operator]
            first, *others = (_pattern(part, inner + 1) for part in pattern.parts)
            text = first + "".join(f"{MARK}{link} {part}" for link, part in zip(pattern.links, others, strict=True))
            return f"({text})" if inner < tightness else text
        case ast.PatternRepeat(inside=inside):
            is_group = isinstance(inside, ast.PatternJoin | ast.PatternRepeat)
            text = f"({_pattern(inside, 0)})" if is_group else _pattern(inside, 0)
            behind = repeat_text(pattern.least, pattern.most, pattern.sign, is_consecutive=pattern.is_consecutive)
            return text + behind
        case _:
            assert_never(pattern)


def _clause(clause: ast.Clause) -> str:
    match clause:
        case ast.Where():
            return f"where {expression(clause.condition)}"
        case ast.Within():
            return f"within {duration(clause.duration)}{_between(clause.between)}"
        case ast.Without():
            where = "" if clause.where is None else f"{MARK}where {expression(clause.where.condition)}"
            return f"without {qualified(clause.event)} as {name(clause.name)}{where}{_between(clause.between)}"
        case ast.Select():
            return f"select {expression(clause.value)} as {name(clause.name)}"
        case ast.Having():
            return f"having {expression(clause.condition)}"
        case ast.Skip():
            target = "past last event" if clause.name is None else f"to {clause.to} {name(clause.name)}"
            return f"after match skip {target}"
        case ast.MatchLimit():
            by = f"{MARK}by {comma_separated(map(expression, clause.values))}" if clause.values else ""
            return f"at most {expression(clause.count, SUM)} per {duration(clause.duration)}{by}"
        case ast.Broken():
            raise AssertionError("a text with mistakes has no canonical layout")
        case _:
            assert_never(clause)


def _between(between: ast.Between | None) -> str:
    return "" if between is None else f"{MARK}between ({' '.join(map(_between_name, between.names))})"


def _between_name(node: ast.Name | ast.Previous) -> str:
    return f"{name(node.word)}({name(node.name)})" if isinstance(node, ast.Previous) else name(node)


# Statements


def _statements(statements: Iterable[ast.Statement]) -> Iterator[str]:
    for statement in statements:
        yield from _statement(statement)


def _statement(statement: ast.Statement) -> Iterable[str]:
    match statement:
        case ast.Print():
            return [f"print {expression(statement.text)};"]
        case ast.Log():
            level = "" if statement.level is None else f"{MARK}at {name(statement.level)}"
            return [f"log {expression(statement.text)}{level};"]
        case ast.Send():
            return [f"send {expression(statement.event)}{MARK}to {expression(statement.channel)};"]
        case ast.Emit():
            channel = "" if statement.channel is None else f"{MARK}to {expression(statement.channel)}"
            return [f"emit {expression(statement.event)}{channel};"]
        case ast.Route():
            return [f"route {expression(statement.event)};"]
        case ast.VendorSend():
            return [_vendor_send(statement)]
        case ast.VendorCustom():
            items = comma_separated(f"{quoted(key)}: {quoted(value)}" for key, value in statement.items)
            return _with_block(f"%custom({items})", statement.body)
        case ast.Declaration():
            value = "" if statement.value is None else f" := {expression(statement.value)}"
            return [f"{type_name(statement.type)} {name(statement.name)}{value};"]
        case ast.Assignment():
            return [f"{expression(statement.target)} := {expression(statement.value)};"]
        case ast.Evaluation():
            return [f"{expression(statement.value, POSTFIX)};"]
        case ast.If():
            return _if(statement)
        case ast.IfPresent():
            return _with_else(
                f"ifpresent {comma_separated(map(_binding, statement.bindings))}", statement.then, statement.otherwise
            )
        case ast.While():
            return _with_block(f"while {expression(statement.condition)}", statement.body)
        case ast.For():
            return _with_block(f"for {name(statement.name)} in {expression(statement.sequence)}", statement.body)
        case ast.Break():
            return ["break;"]
        case ast.Continue():
            return ["continue;"]
        case ast.Return():
            return ["return;" if statement.value is None else f"return {expression(statement.value)};"]
        case ast.Block():
            return _with_block("", statement)
        case ast.Refused() | ast.Broken():
            raise AssertionError("a text with mistakes has no canonical layout")
        case _:
            assert_never(statement)


def _if(statement: ast.If) -> list[str]:
    """`if ... else if ... else ...`, however long."""
    lines: list[str] = []
    before = ""
    node: ast.If | None = statement
    otherwise: ast.Block | None = None
    while node is not None:
        head = f"{before}if {expression(node.condition)}"
        block = list(_with_block(head, node.then, can_stay=node.otherwise is None))
        lines[-1:] = block
        before, otherwise = f"{block[-1]} else ", node.otherwise
        follows = None if otherwise is None else _else_if(otherwise)
        lines = lines if follows is not None or otherwise is None else lines[:-1]
        node = follows
    return lines if otherwise is None else [*lines, *_with_block(f"{before.rstrip()}", otherwise)]


def _else_if(otherwise: ast.Block) -> ast.If | None:
    """The `if` of an `else if`: a block without own braces, which begins at the same place."""
    match otherwise.statements:
        case (ast.If() as inner,) if inner.span.start == otherwise.span.start:
            return inner
        case _:
            return None


def _binding(binding: tuple[ast.Expression, ast.Name]) -> str:
    value, bound_name = binding
    is_same = isinstance(value, ast.NameUse) and value.name == bound_name
    return expression(value) if is_same else f"{expression(value)} as {name(bound_name)}"


def _with_else(head: str, then: ast.Block, otherwise: ast.Block | None) -> list[str]:
    lines = list(_with_block(head, then, can_stay=otherwise is None))
    return lines if otherwise is None else [*lines[:-1], *_with_block(f"{lines[-1]} else", otherwise)]


def _with_block(head: str, block: ast.Block, *, can_stay: bool = True) -> Iterator[str]:
    """The head with its block; an empty block stays on the line unless an `else` follows."""
    opening = f"{head} {{" if head else "{"
    if can_stay and not block.statements:
        yield f"{opening} }}"
        return
    yield opening
    yield from _inside(_statements(block.statements))
    yield "}"


def _vendor_send(statement: ast.VendorSend) -> str:
    items = [f'"eventType": {quoted(statement.event.text)}']
    items += [f"{quoted(key)}: {quoted(value)}" for key, value in statement.extra]
    if statement.channel is not None:
        items.append(f'"channel": {_in_string(statement.channel)}')
    if statement.fields:
        fields = (f"{quoted(field.text)}: {_in_string(value)}" for field, value in statement.fields)
        items.append(f'"fields": {{{comma_separated(fields)}}}')
    return f"%send({comma_separated(items)});"


def _in_string(node: ast.Expression) -> str:
    """An expression as a string: it stays on one line."""
    return quoted(expression(node).replace(MARK, " "))


def _inside(lines: Iterable[str]) -> Iterator[str]:
    return (f"{INDENT}{line}" for line in lines)
