"""Parse a text: run ply's LALR tables over the grammar's rules, and continue after mistakes.

The result is an `ast.File` with all that could be parsed, and the mistakes. The tables are run here
and not by ply, whose recovery can only discard tokens: `querylang.syntax.mistakes` says which sign
is inserted or which part is given up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache, lru_cache
from typing import Any

from querylang.dataclass import dataclass
from querylang.errors import Mistake, QueryError
from querylang.source import Source, Span
from querylang.syntax import ast
from querylang.syntax.folded_tokens import folded, with_repeats
from querylang.syntax.grammar import Grammar, QueryParts, Section, rules
from querylang.syntax.grammar.expressions import Parts
from querylang.syntax.grammar.statements import offsets
from querylang.syntax.lexer import Place, Token, tokenize
from querylang.syntax.mistakes import (
    FORGOTTEN,
    PAIRS,
    PARTS,
    TextPart,
    end_of,
    is_meant_as_name,
    may_be_forgotten,
    paired,
    unexpected,
)

MOST_MISTAKES = 1000
"""Syntax mistakes per text; parsing stops after that many."""


def parse(
    source: Source, left_out: Sequence[Place] = (), only: Place | None = None
) -> tuple[ast.File, list[QueryError]]:
    """The tree of a query text, and all its lexical and syntax mistakes.

    left_out, only: as of `tokenize`
    """
    lexed = tokenize(source, left_out, only)
    return parse_tokens(source, lexed.tokens, lexed.mistakes, lexed.comments, is_part=bool(left_out))


@lru_cache(maxsize=256)
def parsed(source: Source, left_out: Sequence[Place] = ()) -> tuple[ast.File, tuple[QueryError, ...]]:
    """As `parse`, of texts that are checked again: first by themselves, then for the data."""
    file, mistakes = parse(source, left_out)
    return file, tuple(mistakes)


def parse_tokens(
    source: Source,
    tokens: Iterable[Token],
    mistakes: list[QueryError],
    comments: Iterable[ast.Comment] = (),
    *,
    is_part: bool = False,
) -> tuple[ast.File, list[QueryError]]:
    """The tree of these tokens of a text; its mistakes are added to those of the lexer.

    is_part: the text has queries beside them
    """
    parser = Parser(source, with_repeats(folded(list(tokens))), mistakes)
    parser.run()
    items = _items(parser)
    if not parser.items and not parser.mistakes and not is_part:
        parser.report(Mistake.NO_QUERY, source.span(0, 0))
    file = ast.File(source, parser.package, tuple(parser.usings), items, tuple(comments))
    return file, parser.mistakes


class Parser(Grammar):
    """One parse: the tokens, ply's stack of states, the values of the grammar's symbols."""

    def __init__(self, source: Source, tokens: list[Token], mistakes: list[QueryError]) -> None:
        super().__init__(source, mistakes)
        self.tables = load()
        self.tokens = tokens
        self.position = 0
        self.states = [0]
        self.values: list[Any] = []
        self._syntax_mistakes = 0
        self._open_strings = {error.span.start for error in mistakes if error.code == Mistake.OPEN_STRING.code}
        self._of_lexer = [error for error in mistakes if error.code == Mistake.BAD_CHARACTER.code]
        self._inserted: list[Token] = []
        self._partners: dict[int, int] | None = None
        self._reported_at = -1

    def run(self) -> None:
        """Parse all tokens; the rules store their results in the grammar's fields."""
        actions, gotos, productions = self.tables.actions, self.tables.gotos, self.tables.productions
        states, values, tokens, count = self.states, self.values, self.tokens, len(self.tokens)
        while True:
            if self._inserted:
                token: Token | None = self._inserted[-1]
            else:
                token = tokens[self.position] if self.position < count else None
            kind = "$end" if token is None else token.type
            action = actions[states[-1]].get(kind)
            while action is not None and action < 0:
                symbol, length, rule = productions[-action]
                if rule is not None:
                    parts = [None, *values[len(values) - length :]] if length else [None]
                    if length:
                        del values[-length:]
                        del states[-length:]
                    rule(self, parts)
                    values.append(parts[0])
                else:
                    states.pop()
                states.append(gotos[states[-1]][symbol])
                action = actions[states[-1]].get(kind)
            if action is None:
                if not self._recover(token):
                    return
            elif action == 0:
                return
            else:
                states.append(action)
                values.append(token)
                if self._inserted:
                    self._inserted.pop()
                else:
                    self.position += 1

    @property
    def has_syntax_mistake(self) -> bool:
        """Whether a part could not be parsed; missing sections may be in it."""
        return self._syntax_mistakes > 0

    def expression_in(self, text: Token) -> ast.Expression:
        """The expression in a string, with places in the string. An unfinished string is Broken."""
        places = offsets(text)
        if text.start in self._open_strings or len(places) <= len(text.content):
            return ast.Broken(text.span)
        lexed = tokenize(Source(self.source.path, text.content))

        def end(span: Span) -> int:
            return max(places[span.end], places[span.start] + 1)

        tokens = [
            Token(token.type, token.content, self.source, places[token.start], end(token.span))
            for token in lexed.tokens
        ]
        mistakes = [
            QueryError(error.code, self.source.span(places[error.span.start], end(error.span)), error.message)
            for error in lexed.mistakes
        ]
        first = Token("ONLY_EXPRESSION", "", self.source, text.start, text.end)
        parser = Parser(self.source, [first, *folded(tokens)], mistakes)
        parser.run()
        self.mistakes += parser.mistakes
        self._syntax_mistakes += parser._syntax_mistakes
        return ast.Broken(text.span) if parser.value is None else parser.value

    def _recover(self, token: Token | None) -> bool:
        """Report the mistake and prepare to continue; False: nothing is left to parse."""
        if self._syntax_mistakes >= MOST_MISTAKES:
            self.report(Mistake.TOO_MANY_MISTAKES, self.source.span(*self._place()), limit=MOST_MISTAKES)
            return False
        if self.position > self._reported_at:
            self._reject(token)
            self._reported_at = self.position
        if token is not None and self._turn_into_name(token):
            return True
        can_continue = self._insert_forgotten(token) or self._give_up_part()
        if not can_continue and self.position >= len(self.tokens):
            return False
        self.position += not can_continue
        return True

    def _reject(self, token: Token | None) -> None:
        """Report a token that no rule accepts, unless it only follows from another mistake.

        That is so for an extra brace after any other mistake, for the text after an unfinished
        string on its line, and for what is missing at the end of a text with such a string.
        """
        before = self.tokens[max(0, self.position - 3) : self.position]
        is_brace = token is not None and token.type == "RBRACE"
        is_extra_brace = is_brace and self._syntax_mistakes > 0 and not self._is_in_brackets()
        is_in_open_string = (
            bool(self._open_strings) if token is None else before and before[-1].start in self._open_strings
        )
        if not is_extra_brace and not is_in_open_string and not self._is_told_by_lexer(token, before):
            is_name = token is not None and self._is_meant_as_name(token)
            self.mistakes.append(unexpected(self.source, token, self._acceptable(), before, is_name=is_name))
        self._syntax_mistakes += 1

    def _is_told_by_lexer(self, token: Token | None, before: Sequence[Token]) -> bool:
        """Whether the lexer has refused a character directly before this token: one mistake.

        Of an operator of another language that no rule accepts, only the parser's mistake is kept:
        the operator's own would say to write what is not possible here either.
        """
        if token is None:
            return False
        start = before[-1].end if before else 0
        for mistake in self._of_lexer:
            if start <= mistake.span.start < token.start:
                return True
            if mistake.span.start == token.start and token.type == "NOT" and mistake in self.mistakes:
                self.mistakes.remove(mistake)
        return False

    def _acceptable(self) -> list[str]:
        """The kinds of tokens that are accepted now."""
        return [kind for kind in self.tables.actions[self.states[-1]] if self._accepts(len(self.states), (), (kind,))]

    def _accepts(self, depth: int, states: Sequence[int], kinds: Sequence[str]) -> bool:
        """Whether tokens of these kinds would be accepted one after the other.

        The stack: the first `depth` of the parser's states, then `states`.
        """
        actions, gotos, productions = self.tables.actions, self.tables.gotos, self.tables.productions
        kept, pushed = depth, list(states)
        for kind in kinds:
            while True:
                top = pushed[-1] if pushed else self.states[kept - 1]
                action = actions[top].get(kind)
                if action is None:
                    return False
                if action >= 0:
                    pushed.append(action)
                    break
                symbol, length, _rule = productions[-action]
                shared = min(length, len(pushed))
                del pushed[len(pushed) - shared :]
                kept -= length - shared
                pushed.append(gotos[pushed[-1] if pushed else self.states[kept - 1]][symbol])
        return True

    def _turn_into_name(self, token: Token) -> bool:
        """Turn a keyword into a name if it was meant as one."""
        is_name = self._is_meant_as_name(token)
        if is_name:
            self.tokens[self.position] = token.replaced("NAME", token.content, token.end)
        return is_name

    def _is_meant_as_name(self, token: Token) -> bool:
        """Whether a keyword was meant as a name: a name and the next token are accepted here."""
        before = self.tokens[max(0, self.position - 3) : self.position]
        after = [item.type for item in self.tokens[self.position + 1 : self.position + 2]]
        return self._accepts(len(self.states), (), ("NAME", *after)) and is_meant_as_name(token, before)

    def _insert_forgotten(self, token: Token | None) -> bool:
        """Insert closing signs, if the next token is accepted after them."""
        kind = "$end" if token is None else token.type
        place = self.tokens[self.position - 1].end if self.position else 0
        for signs in FORGOTTEN:
            if may_be_forgotten(signs, self.tokens, self.position) and self._accepts(
                len(self.states), (), (*signs, kind)
            ):
                self._inserted = [Token(sign, "", self.source, place, place) for sign in reversed(signs)]
                return True
        return False

    def _give_up_part(self) -> bool:
        """Give up the smallest part around the mistake, on the stack and in the next tokens."""
        self._enter_list()
        if self._partners is None:
            self._partners = paired(self.tokens)
        start = self._search_start(self._partners)
        ends: dict[str, int | None] = {}
        closed = 0
        for depth in range(len(self.states), 0, -1):
            closed += self._closed_by(depth)
            if closed > 0:
                continue  # its bracket is closed, so this part was parsed
            for part, state in self.tables.parts[self.states[depth - 1]]:
                if part.symbol not in ends:
                    ends[part.symbol] = end_of(part, self.tokens, self._partners, start)
                end = ends[part.symbol]
                if end is None or (end == self.position and depth == len(self.states)):
                    continue
                following = self.tokens[end].type if end < len(self.tokens) else "$end"
                is_whole = end > self.position and self.tokens[end - 1].type in part.through
                if is_whole or self._accepts(depth, (state,), (following,)):
                    self._replace_by_part(part, depth, state, end)
                    return True
        return False

    def _closed_by(self, depth: int) -> int:
        """1 if the symbol at this depth is a closing bracket, -1 if an opening one, else 0."""
        value = self.values[depth - 1] if depth <= len(self.values) else None
        kind = value.type if isinstance(value, Token) else ""
        return (kind in PAIRS.values()) - (kind in PAIRS)

    def _is_in_brackets(self) -> bool:
        """Whether a bracket is open."""
        return sum(map(self._closed_by, range(1, len(self.states)))) < 0

    def _enter_list(self) -> None:
        """Begin a list of parts if one may begin here: its first part contains the mistake."""
        actions = self.tables.actions[self.states[-1]]
        for number in sorted({-action for action in actions.values() if action < 0}):
            symbol, length, rule = self.tables.productions[number]
            state = self.tables.gotos[self.states[-1]].get(symbol) if length == 0 else None
            if state is not None and self.tables.parts[state]:
                parts: list[Any] = [None]
                if rule is not None:
                    rule(self, parts)
                self.states.append(state)
                self.values.append(parts[0])
                return

    def _search_start(self, partners: dict[int, int]) -> int:
        """Where to search for the end of a part.

        That is after the braces if the mistake is the first token in them. `while { print "x"; }`:
        the brace was taken for a dictionary's.
        """
        last = self.position - 1
        is_first = bool(self.values) and last >= 0 and self.values[-1] is self.tokens[last]
        return last if is_first and self.tokens[last].type == "LBRACE" and last in partners else self.position

    def _replace_by_part(self, part: TextPart, depth: int, state: int, end: int) -> None:
        """Put the part on the stack as parsed, at this depth; parsing continues at `end`."""
        self.states[depth:] = [state]
        self.values[depth - 1 :] = [part.made(self.source.span(*self._place()))]
        self._inserted = []
        self.position = end

    def _place(self) -> tuple[int, int]:
        """The place of the next token; at the end, of the last one."""
        token = self.tokens[min(self.position, len(self.tokens) - 1)]
        return token.start, token.end


SECTIONS = ("metadata", "parameters", "inputs", "find", "action")


def _items(parser: Parser) -> tuple[ast.EventDefinition | ast.TableDefinition | ast.Query, ...]:
    """The event types, tables and queries of a file; sections outside of any query are a bare body.

    A bare body ends after its `find` and actions.
    """
    items: list[ast.EventDefinition | ast.TableDefinition | ast.Query] = []
    body: list[Section] = []
    for item in [*parser.items, None]:
        has_find = any(section.keyword == "find" for section in body)
        if body and not (isinstance(item, Section) and (item.keyword == "action" or not has_find)):
            items.append(_query(parser, QueryParts(body[0].span.until(body[-1].span), None, tuple(body))))
            body = []
        if isinstance(item, Section):
            body.append(item)
        elif isinstance(item, QueryParts):
            items.append(_query(parser, item))
        elif item is not None:
            items.append(item)
    return tuple(items)


def _query(parser: Parser, parts: QueryParts) -> ast.Query:
    """A query with its sections.

    Reports sections that are missing, duplicate or in the wrong order.
    """
    sections: dict[str, Section] = {}
    for section in (item for item in parts.sections if item.keyword):
        after = [word for word in sections if SECTIONS.index(word) > SECTIONS.index(section.keyword)]
        if section.keyword in sections and section.keyword != "action":
            parser.report(Mistake.SECTION_TWICE, section.span, section=section.keyword)
        elif after:
            parser.report(Mistake.SECTION_ORDER, section.span, section=section.keyword, other=after[0])
        sections.setdefault(section.keyword, section)
    for keyword in ("inputs", "find"):
        if keyword not in sections and not parser.has_syntax_mistake:
            place = parts.name.span if parts.name is not None else parts.span
            parser.report(Mistake.NO_SECTION, place, section=keyword)
    nodes = {keyword: section.node for keyword, section in sections.items()}
    return ast.Query(
        span=parts.span,
        name=parts.name,
        metadata=nodes.get("metadata"),
        parameters=nodes.get("parameters"),
        inputs=nodes.get("inputs"),
        find=nodes.get("find"),
        actions=tuple(item.node for item in parts.sections if item.keyword == "action"),
    )


# The LALR tables, which are shipped with the package (`querylang.syntax.parsetab`). Loading them
# takes milliseconds; nothing is built or written at run time.

Rule = Callable[[Grammar, Parts], None]


@dataclass(frozen=True, slots=True)
class Tables:
    """What to do in each state.

    - `actions`: state, then kind of token: above 0 the next state, below 0 the rule to apply, 0 the
      end.
    - `gotos`: state, then symbol, to the next state.
    - `productions`: for each rule its symbol, its number of parts, its method (None: it passes its
      only part on).
    - `parts`: state to what may be given up in it, and the state after that.
    """

    actions: list[dict[str, int]]
    gotos: dict[int, dict[str, int]]
    productions: list[tuple[str, int, Rule | None]]
    parts: list[tuple[tuple[TextPart, int], ...]]


@cache
def load() -> Tables:
    """The tables; one object per process, since they are never changed."""
    from querylang.syntax import parsetab

    kinds = [row.split() for row in parsetab.KINDS]
    actions = [
        dict.fromkeys(kinds[row], action) if isinstance(action, int) else dict(zip(kinds[row], action, strict=True))
        for row, action in parsetab.ACTIONS
    ]
    bound = rules()
    productions = [
        (name, length, None if rule is None or rule.startswith("p_same") else bound[rule])
        for _text, name, length, rule in parsetab.PRODUCTIONS
    ]
    gotos = parsetab.GOTOS
    parts = [
        tuple((part, gotos[state][part.symbol]) for part in PARTS if part.symbol in gotos.get(state, ()))
        for state in range(len(actions))
    ]
    return Tables(actions, gotos, productions, parts)
