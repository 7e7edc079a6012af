"""Blocks that only put something out, for all matches at once, in columns.

Most blocks are a few `print`, `log`, `send` and `route` of fields, keys and what is made of them.
Such a block needs no copy of the events and no interpreter. A match of which a part is null, fails
or is very long is left to the interpreter, which knows what to say of it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from querylang.dataclass import dataclass, replace
from querylang.plan.expression import (
    Binary,
    Call,
    EventOf,
    Expression,
    FieldOf,
    KeyOf,
    Kind,
    Literal,
    New,
    SelectOf,
    Type,
    Unary,
    type_of,
    walk,
)
from querylang.plan.model import Emit, EventType, Log, Plan, Print, QueryPlan, Route, Send, Statement
from querylang.plan.routing import QUERIES_CHANNEL
from runtime.columns.expressions import over_columns
from runtime.interpreter import floating_text, inner_text

_SCALARS = (Type.BOOLEAN, Type.INTEGER, Type.FLOAT, Type.STRING)

_LONG = 10_000
"""Characters: a match with a longer text may reach a limit of blocks."""

_MOST_STATEMENTS = 50
"""Of a block: more of them may reach a limit, too."""


@dataclass(frozen=True, slots=True)
class Sent:
    """What a statement puts out.

    parts: the values of the event's fields; or the pieces of a text
    """

    kind: str
    channel: str | None
    event: EventType | None
    parts: tuple[Expression, ...]

    @property
    def is_routed(self) -> bool:
        """Whether it goes to queries."""
        return self.kind == "route" or (self.kind == "send" and self.channel == QUERIES_CHANNEL)

    @property
    def event_name(self) -> str:
        """The type of the event; empty = there is none."""
        return "" if self.event is None else self.event.name


@dataclass(frozen=True, slots=True)
class Put:
    """What a statement has put out in the chosen matches.

    texts, events: as in `OUTPUT_SCHEMA`; without an event no events
    values: by part, its values in these matches
    """

    sent: Sent
    texts: list[str]
    events: list[str] | None
    values: list[pa.Array]

    def only(self, chosen: NDArray[np.bool_]) -> Put:
        """The same in some of these matches."""
        rows = np.flatnonzero(chosen).tolist()
        texts, events = self.texts, self.events
        return replace(
            self,
            texts=[texts[row] for row in rows],
            events=None if events is None else [events[row] for row in rows],
            values=[column.filter(pa.array(chosen)) for column in self.values],
        )


def plain_block(plan: Plan, query: QueryPlan) -> tuple[Sent, ...] | None:
    """What a block puts out, statement by statement; None = it does more."""
    if query.tables or len(query.block) > _MOST_STATEMENTS:
        return None
    found = [_sent(statement, plan, query) for statement in query.block]
    sent = tuple(item for item in found if item is not None)
    return sent if len(sent) == len(found) else None


def _sent(statement: Statement, plan: Plan, query: QueryPlan) -> Sent | None:
    match statement:
        case Print(text=text) if (pieces := _pieces(text, query)) is not None:
            return Sent("print", None, None, pieces)
        case Log(text=text, level=level) if (pieces := _pieces(text, query)) is not None:
            return Sent("log", level, None, pieces)
        case Route(event=event):
            return _event("route", event, None, plan, query)
        case Send(event=event, channel=Literal(value=str(to))):
            return _event("send", event, to, plan, query)
        case Emit(event=event, channel=None):
            return _event("emit", event, None, plan, query)
        case Emit(event=event, channel=Literal(value=str(to))):
            return _event("emit", event, to, plan, query)
    return None


def _event(kind: str, event: Expression, channel: str | None, plan: Plan, query: QueryPlan) -> Sent | None:
    match event:
        case New(type=type_, arguments=parts) if type_.kind is Kind.EVENT and parts:
            sent = Sent(kind, channel, plan.event(type_.name), parts)
        case EventOf(term=term):
            own = plan.event(query.inputs[query.terms[term].input].event)
            sent = Sent(kind, channel, own, tuple(FieldOf(item.type, term, item.name) for item in own.fields))
        case _:
            return None
    return sent if all(_is_plain(part, query) for part in sent.parts) else None


def _pieces(text: Expression, query: QueryPlan) -> tuple[Expression, ...] | None:
    """The values whose texts, one after the other, are a text."""
    match text:
        case Binary(operator="+", left=left, right=right):
            one, other = _pieces(left, query), _pieces(right, query)
            return None if one is None or other is None else one + other
        case Call(method="toString", receiver=value, arguments=()):
            pass
        case value:
            pass
    return (value,) if _is_plain(value, query) else None


def _is_plain(value: Expression, query: QueryPlan) -> bool:
    return all(_is_plain_node(node, query) for node in walk(value))


def _is_plain_node(node: Expression, query: QueryPlan) -> bool:
    if type_of(node) not in _SCALARS:
        return False
    match node:
        case Literal() | KeyOf():
            return True
        case FieldOf(term=term):
            return query.every is None and query.terms[term].group is None
        case SelectOf(index=index):
            return query.selected[index].name not in query.selected_events
        case Unary(operator=operator):
            return operator != "is null"
        case Binary(operator=operator):
            return operator not in ("and", "or")
    return False


def put_out(
    sent: Sequence[Sent], plan: Plan, query: QueryPlan, matches: pa.Table
) -> tuple[NDArray[np.bool_], NDArray[np.bool_], list[Put]]:
    """By match whether all of it is known, and whether a text of it is long; and what is put out in
    those of which all is known, and nothing is long."""
    count = len(matches)
    values = {part: _values(part, plan, query, matches) for item in sent for part in item.parts}
    is_known, is_long = np.ones(count, np.bool_), np.zeros(count, np.bool_)
    for column in values.values():
        if column.null_count:
            is_known &= column.is_valid().to_numpy(zero_copy_only=False)
        if pa.types.is_string(column.type):
            is_long |= pc.greater(pc.utf8_length(column), _LONG).fill_null(False).to_numpy(zero_copy_only=False)
    chosen = is_known & ~is_long
    if not chosen.all():
        values = {part: column.filter(pa.array(chosen)) for part, column in values.items()}
    lists = {part: column.to_pylist() for part, column in values.items()}
    return (
        is_known,
        is_long,
        [_put(item, [lists[part] for part in item.parts], [values[part] for part in item.parts]) for item in sent],
    )


def _put(sent: Sent, values: list[list[Any]], columns: list[pa.Array]) -> Put:
    types = [type_of(part) for part in sent.parts]
    if sent.event is None:
        pieces = [_texts(own, type_) for own, type_ in zip(values, types, strict=True)]
        return Put(sent, ["".join(row) for row in zip(*pieces, strict=True)], None, columns)
    name, fields = sent.event.name, sent.event.fields
    inner = [
        list(map(inner_text, own)) if type_ == Type.STRING else _texts(own, type_)
        for own, type_ in zip(values, types, strict=True)
    ]
    cells = [
        [f"{label}{cell}" for cell in _cells(own, type_)]
        for label, own, type_ in zip((f"{json.dumps(item.name)}: " for item in fields), values, types, strict=True)
    ]
    texts = [f"{name}({','.join(row)})" for row in zip(*inner, strict=True)]
    head = f'{{"type": {json.dumps(name)}, "fields": {{'
    return Put(sent, texts, [f"{head}{', '.join(row)}}}}}" for row in zip(*cells, strict=True)], columns)


def _texts(values: list[Any], type_: Type) -> list[str]:
    """By value its `toString()`."""
    match type_.kind:
        case Kind.STRING:
            return values
        case Kind.INTEGER:
            return list(map(str, values))
        case Kind.BOOLEAN:
            return ["true" if value else "false" for value in values]
        case _:
            # In this range the texts of Python are the same.
            return [repr(value) if 1e-4 <= abs(value) < 1e15 else floating_text(value) for value in values]


def _cells(values: list[Any], type_: Type) -> list[str]:
    """By value its JSON, as of `runtime.results.for_users.plain_value`."""
    match type_.kind:
        case Kind.STRING:
            return [_ENCODED(value) for value in values]
        case Kind.FLOAT:
            return [repr(value) if math.isfinite(value) else f'"{floating_text(value)}"' for value in values]
        case _:
            return _texts(values, type_)


_ENCODED = json.encoder.encode_basestring_ascii


def _values(part: Expression, plan: Plan, query: QueryPlan, matches: pa.Table) -> pa.Array:
    """The values of a part in each match; null = it has none, for whatever reason."""
    members = matches.column("members").combine_chunks() if query.every is None else None
    keys = matches.column("key").combine_chunks()
    known: dict[Expression, pa.Array] = {}
    for node in walk(part):
        match node:
            case FieldOf(term=term, field=field):
                assert members is not None, "a `find every` binds no name"
                own = members.field(query.terms[term].name)
                known[node] = pc.struct_field(own, ["fields", field])
            case SelectOf(index=index):
                known[node] = pc.struct_field(matches.column("selected").combine_chunks(), [query.selected[index].name])
    own_keys = [keys.field(key.name) for key in query.keys]
    return over_columns(part, known, plan, query, own_keys, len(matches))
