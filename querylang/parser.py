"""Tokens to the tree: drives ply over the grammar.

Takes a text; gives an `ast.File` with what could be read, and the mistakes of its characters and its syntax, of a
query's missing or misplaced sections too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from ply import yacc

from querylang import ast, parse_tables
from querylang.errors import Mistake, QueryError
from querylang.expectations import unexpected
from querylang.grammar import QueryParts, Section
from querylang.lexer import tokenize
from querylang.source import Source, Span
from querylang.tokens import Token


def parse(source: Source) -> tuple[ast.File, list[QueryError]]:
    """The tree of a query text, and all mistakes of its characters and its syntax."""
    tokens, mistakes = tokenize(source)
    return parse_tokens(source, tokens, mistakes)


def parse_tokens(
    source: Source, tokens: Iterable[Token], mistakes: list[QueryError]
) -> tuple[ast.File, list[QueryError]]:
    """The tree of these tokens of a text; its mistakes are added to those of the lexer."""
    stream = TokenStream(source, iter(tokens), mistakes)
    tables = parse_tables.load()
    parser: Any = yacc.LRParser(tables, lambda token: stream.reject(token, _acceptable(parser)))
    parser.disable_defaulted_states()
    parser.parse(lexer=stream)
    events = tuple(item for item in stream.items if isinstance(item, ast.EventDefinition))
    queries = _queries(stream)
    if not stream.items and not stream.mistakes:
        stream.report(Mistake.NO_QUERY, source.span(0, 0))
    return ast.File(source, events, queries), stream.mistakes


@dataclass(slots=True)
class TokenStream:
    """What ply reads from, and what the rules may ask for: the state of one parse."""

    source: Source
    tokens: Iterator[Token]
    mistakes: list[QueryError]
    package: str | None = None
    items: list[Any] = field(default_factory=list)
    has_syntax_mistake: bool = False
    before: list[Token] = field(default_factory=list)

    def token(self) -> Token | None:
        """The next token; None at the end, as ply wants it."""
        token = next(self.tokens, None)
        self.before = [*self.before[-2:], *([] if token is None else [token])]
        return token

    @property
    def last(self) -> Span:
        """The place of the token read last."""
        return self.before[-1].span

    def report(self, mistake: Mistake, span: Span, **facts: str) -> None:
        """Notes a mistake that a rule has seen."""
        self.mistakes.append(QueryError.of(mistake, span, **facts))

    def reject(self, token: Token | None, expected: Iterable[str]) -> None:
        """Notes a token that no rule can take, unless that only follows from another mistake.

        So do a brace too many after any other, and what stands behind a string that has swallowed its line.
        """
        before = self.before if token is None else self.before[:-1]
        is_extra_brace = self.has_syntax_mistake and token is not None and token.type == "RBRACE"
        places = {error.span for error in self.mistakes if error.code == Mistake.OPEN_STRING.code}
        if not is_extra_brace and not (before and before[-1].span in places):
            self.mistakes.append(unexpected(self.source, token, expected, before))
        self.has_syntax_mistake = True


def _acceptable(parser: Any) -> list[str]:
    """The kinds of tokens that could have come now: those that are shifted after any reductions."""
    return [kind for kind in parser.action[parser.state] if _is_acceptable(parser, kind)]


def _is_acceptable(parser: Any, kind: str) -> bool:
    states = list(parser.statestack)
    while (action := parser.action[states[-1]].get(kind)) is not None:
        if action >= 0:
            return True
        production = parser.productions[-action]
        del states[len(states) - production.len :]
        states.append(parser.goto[states[-1]][production.name])
    return False


SECTIONS = ("metadata", "parameters", "inputs", "find", "action")


def _queries(stream: TokenStream) -> tuple[ast.Query, ...]:
    """The queries of a file; sections outside of any are a bare body, which ends behind its `find` and actions."""
    queries: list[QueryParts] = []
    body: list[Section] = []
    for item in [*stream.items, None]:
        has_find = any(section.keyword == "find" for section in body)
        if body and not (isinstance(item, Section) and (item.keyword == "action" or not has_find)):
            queries.append(QueryParts(body[0].span.until(body[-1].span), None, tuple(body)))
            body = []
        if isinstance(item, Section):
            body.append(item)
        elif isinstance(item, QueryParts):
            queries.append(item)
    return tuple(_query(stream, parts) for parts in queries)


def _query(stream: TokenStream, parts: QueryParts) -> ast.Query:
    """A query of its sections; reports those that miss, stand twice or in the wrong order."""
    found: dict[str, Section] = {}
    for section in (item for item in parts.sections if item.keyword):
        after = [word for word in found if SECTIONS.index(word) > SECTIONS.index(section.keyword)]
        if section.keyword in found and section.keyword != "action":
            stream.report(Mistake.SECTION_TWICE, section.span, section=section.keyword)
        elif after:
            stream.report(Mistake.SECTION_ORDER, section.span, section=section.keyword, other=after[0])
        found.setdefault(section.keyword, section)
    for keyword in ("inputs", "find"):
        if keyword not in found and not stream.has_syntax_mistake:
            place = parts.name.span if parts.name is not None else parts.span
            stream.report(Mistake.NO_SECTION, place, section=keyword)
    nodes = {keyword: section.node for keyword, section in found.items()}
    return ast.Query(
        span=parts.span,
        name=parts.name,
        inputs=nodes.get("inputs"),
        find=nodes.get("find"),
        unsupported=tuple(item.node for item in parts.sections if isinstance(item.node, ast.Unsupported)),
    )
