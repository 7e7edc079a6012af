"""Queries checked: every name resolved, every type known, all mistakes told.

Takes trees and the catalogue of event types; gives checked queries. A part with a mistake is left out and the rest is
checked on, without mistakes that only follow from the first.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from querylang import ast
from querylang.catalogue import Catalogue
from querylang.checked import CheckedQuery
from querylang.durations import Constants
from querylang.errors import Mistake, QueryError
from querylang.expression import Expression, FieldOf, Type
from querylang.inference import BoundEvent, Inference, Scope
from querylang.inputs import CheckedInput, check_inputs
from querylang.plan import Print, Send, Statement, Term
from querylang.source import Span
from querylang.types import EventSchema


@dataclass(slots=True)
class QueryChecker:
    """Checks the queries of one text. `is_strict`: the text has definitions of event types."""

    catalogue: Catalogue
    is_strict: bool
    mistakes: list[QueryError] = field(default_factory=list)
    warnings: list[QueryError] = field(default_factory=list)
    silent: frozenset[str] = frozenset()

    def check(self, query: ast.Query, name: str) -> CheckedQuery:
        """One query under its name."""
        self.silent = frozenset(_refused_names(query))
        for item in query.unsupported:
            self._tell(Mistake.NOT_SUPPORTED, item, what=item.what)
        inputs = check_inputs(query.inputs, self) if query.inputs is not None else ()
        find = query.find
        terms = self._terms(find.pattern, inputs, query.inputs) if find is not None else []
        inference = Inference(self._scope(query, terms, inputs), self.mistakes)
        if find is not None and find.every is not None:
            self.mistakes.append(QueryError.of(Mistake.NOT_SUPPORTED, find.every, what="`find every`"))
        conditions, within = self._clauses(find.clauses if find is not None else (), inference)
        return CheckedQuery(
            name=name,
            keys=inputs[0].key_names if inputs else (),
            inputs=tuple(item.input for item in inputs),
            terms=tuple(Term(term.name.text, term.index) for term in terms if term.index is not None),
            conditions=tuple(conditions),
            within=within,
            block=tuple(self._block(find.block if find is not None else (), inference)),
        )

    def find_event(self, name: ast.Name) -> EventSchema | None:
        """The event type of that name; None if there is none, which is told."""
        return self.catalogue.find(name, is_strict=self.is_strict, mistakes=self.mistakes, warnings=self.warnings)

    def _tell(self, mistake: Mistake, node: ast.Unsupported | ast.Name, **facts: str | int) -> None:
        self.mistakes.append(QueryError.of(mistake, node.span, **facts))

    def _scope(self, query: ast.Query, terms: list[_NamedTerm], inputs: tuple[CheckedInput, ...]) -> Scope:
        """What conditions and blocks see: the pattern's names, then the keys."""
        is_whole = (
            query.inputs is not None
            and not query.inputs.is_broken
            and query.find is not None
            and not isinstance(query.find.pattern, ast.Broken)
        )
        events: dict[str, BoundEvent] = {}
        for position, term in enumerate(terms):
            schema = term.schema or EventSchema("", (), is_open=True)
            events.setdefault(term.name.text, BoundEvent(position, schema))
        values = _keys(terms, inputs)

        def missing(name: ast.Name) -> QueryError | None:
            if not is_whole or name.text in self.silent:
                return None
            if name.text == "self":
                reason = "it is no event; the pattern's names and the keys are what there is"
                return QueryError.of(Mistake.NOT_IN_QUERIES, name.span, what="`self`", reason=reason)
            mistake = QueryError.of(Mistake.UNKNOWN_NAME, name.span, name=name.text)
            return mistake.suggesting(name.text, [*events, *values])

        return Scope(missing, events, values)

    def _terms(
        self, pattern: ast.Pattern | ast.Broken, inputs: tuple[CheckedInput, ...], written: ast.Inputs | None
    ) -> list[_NamedTerm]:
        """The terms of the pattern in text order; one whose input is unknown keeps its name."""
        keys = inputs[0].key_names if inputs else ()
        is_known = written is not None and not written.is_broken
        refused = {item.event.text for item in written.items} if written is not None else set()
        seen: set[str] = set()
        terms = []
        for part in self._named(pattern):
            term = _term(part, inputs)
            if term.index is None and is_known and part.event.text not in refused:
                near = [item.schema.name for item in inputs]
                mistake = QueryError.of(Mistake.NOT_AN_INPUT, part.event.span, event=part.event.text)
                self.mistakes.append(mistake.suggesting(part.event.text, near))
            name = part.name
            if name.text in seen:
                self._tell(Mistake.DUPLICATE_NAME, name, name=name.text)
            elif name.text in keys:
                self._tell(Mistake.NAME_IS_KEY, name, name=name.text)
            seen.add(name.text)
            terms.append(term)
        return terms

    def _named(self, pattern: ast.Pattern | ast.Broken) -> list[ast.PatternTerm]:
        """All named events of a pattern, however deep; refuses what is no plain sequence."""
        terms: list[ast.PatternTerm] = []
        for part in _pattern_parts(pattern):
            match part:
                case ast.PatternTerm():
                    terms.append(part)
                case ast.PatternWait(span=span):
                    self.mistakes.append(QueryError.of(Mistake.NOT_SUPPORTED, span, what="`wait` in a pattern"))
                case ast.PatternJoin(operator=operator, parts=parts) if operator != "->":
                    between = parts[1].span.source.span(parts[0].span.end, parts[1].span.start)
                    what = f"`{operator}` in a pattern"
                    self.mistakes.append(QueryError.of(Mistake.NOT_SUPPORTED, _word(between, operator), what=what))
                case ast.PatternJoin():
                    pass
        return terms

    def _clauses(self, clauses: tuple[ast.Clause, ...], inference: Inference) -> tuple[list[Expression], int | None]:
        conditions: list[Expression] = []
        within: int | None = None
        seen = 0
        for clause in clauses:
            match clause:
                case ast.Where(condition=condition):
                    conditions += inference.conditions(condition)
                case ast.Within(span=span, duration=duration):
                    length = Constants(self.mistakes, self.silent).microseconds(duration, "`within`")
                    if seen:
                        self.mistakes.append(QueryError.of(Mistake.TWO_WITHIN, span))
                    within = within or length
                    seen += 1
                case ast.Unsupported():
                    self._tell(Mistake.NOT_SUPPORTED, clause, what=clause.what)
                case ast.Broken():
                    pass
        return conditions, within

    def _block(self, statements: tuple[ast.Statement, ...], inference: Inference) -> list[Statement]:
        checked = [self._statement(statement, inference) for statement in statements]
        return [statement for statement in checked if statement is not None]

    def _statement(self, statement: ast.Statement, inference: Inference) -> Statement | None:
        match statement:
            case ast.Print(text=text):
                typed = self._text(text, "the text of `print`", inference)
                return None if typed is None else Print(typed)
            case ast.Send():
                return self._send(statement, inference)
            case ast.Return(span=span):
                self.mistakes.append(QueryError.of(Mistake.NOT_SUPPORTED, span, what="`return`"))
            case ast.Unsupported(what=what):
                self._tell(Mistake.NOT_SUPPORTED, statement, what=what)
            case ast.Broken():
                pass
        return None

    def _text(self, node: ast.Expression, what: str, inference: Inference) -> Expression | None:
        return inference.value_of_type(node, Type.STRING, what)

    def _send(self, statement: ast.Send, inference: Inference) -> Send | None:
        event = self._sent(statement.event, inference)
        channel = self._text(statement.channel, "a channel", inference)
        return None if event is None or channel is None else Send(event[0], event[1], channel)

    def _sent(self, node: ast.Expression, inference: Inference) -> tuple[str, tuple[Expression, ...]] | None:
        """The event type and its arguments: of a bound event all its fields."""
        bound = inference.event(node)
        if bound is not None:
            fields = bound.schema.fields
            return bound.schema.name, tuple(FieldOf(item.type, bound.term, item.name) for item in fields)
        constructor = _path(node.receiver, node.name) if isinstance(node, ast.Call) else None
        if isinstance(node, ast.Call) and constructor is not None and not _is_known(constructor, inference):
            schema = self.find_event(constructor)
            arguments = None if schema is None else inference.arguments(constructor, node.arguments, schema)
            return None if schema is None or arguments is None else (schema.name, arguments)
        known = len(self.mistakes)
        if inference.value(node) is not None and len(self.mistakes) == known:
            self.mistakes.append(QueryError.of(Mistake.NOT_AN_EVENT, node.span))
        return None


@dataclass(frozen=True, slots=True)
class _NamedTerm:
    """A name of the pattern; `index` of its input, None where that is unknown."""

    name: ast.Name
    index: int | None
    schema: EventSchema | None


def _term(part: ast.PatternTerm, inputs: tuple[CheckedInput, ...]) -> _NamedTerm:
    for index, item in enumerate(inputs):
        if part.event.text in item.spellings:
            return _NamedTerm(part.name, index, item.schema)
    return _NamedTerm(part.name, None, None)


def _keys(terms: list[_NamedTerm], inputs: tuple[CheckedInput, ...]) -> dict[str, Expression | None]:
    """The keys by name. A key has one value in the whole candidate; it is read from the last term, bound first."""
    if not inputs or not terms:
        return {}
    index = terms[-1].index
    source = inputs[index if index is not None else 0]
    values: dict[str, Expression | None] = {}
    for name, field_name in zip(inputs[0].key_names, source.input.keys, strict=False):
        type_ = source.schema.type_of(field_name)
        values[name] = None if type_ is None else FieldOf(type_, len(terms) - 1, field_name)
    return values


def _refused_names(query: ast.Query) -> Iterator[str]:
    """Names that parts of the query would bring that are refused."""
    find = query.find
    parts = [*query.unsupported, *(find.clauses if find is not None else ()), *(find.block if find is not None else ())]
    for part in parts:
        if isinstance(part, ast.Unsupported):
            yield from (name.text for name in part.names)
    for node in _pattern_parts(find.pattern) if find is not None else []:
        if isinstance(node, ast.PatternWait) and node.name is not None:
            yield node.name.text


def _pattern_parts(pattern: ast.Pattern | ast.Broken) -> Iterator[ast.Pattern]:
    """A pattern and all its parts in text order, however deep."""
    waiting: list[ast.Pattern] = [] if isinstance(pattern, ast.Broken) else [pattern]
    while waiting:
        part = waiting.pop()
        yield part
        if isinstance(part, ast.PatternJoin):
            waiting += reversed(part.parts)


def _path(receiver: ast.Expression | None, name: ast.Name) -> ast.Name | None:
    """The qualified name that points spell: `com.example.Alert`; None if it is something else."""
    words = [name]
    while receiver is not None:
        match receiver:
            case ast.NameUse(name=first):
                words.append(first)
                receiver = None
            case ast.Member(receiver=inner, name=word):
                words.append(word)
                receiver = inner
            case _:
                return None
    words.reverse()
    return ast.Name(".".join(word.text for word in words), words[0].span.until(words[-1].span))


def _is_known(constructor: ast.Name, inference: Inference) -> bool:
    """Whether the path begins with a name of the pattern or a key: then it is a method call."""
    first = constructor.text.partition(".")[0]
    is_name = first in inference.scope.events or first in inference.scope.values
    return is_name and first != constructor.text


def _word(span: Span, word: str) -> Span:
    """The place of a word within what stands there."""
    start = span.start + max(0, span.text.find(word))
    return span.source.span(start, start + len(word))
