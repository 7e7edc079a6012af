"""What happens at a syntax mistake: what the message says, and where parsing continues."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

from querylang.dataclass import dataclass
from querylang.errors import Mistake, QueryError, listed, nearest
from querylang.foreign_words import hint_at
from querylang.source import Source, Span
from querylang.syntax import ast
from querylang.syntax.folded_tokens import REASONS
from querylang.syntax.grammar import Section
from querylang.syntax.lexer import KEYWORDS, PSEUDO_KINDS, SOFT_KEYWORDS, SPELLING, Token

# Where parsing continues: either a forgotten closing sign is inserted, or the smallest part of the
# text around the mistake (a filter, a statement, a clause ...) is given up and parsing continues
# after it. A table lists these parts and where each of them ends.

_SECTIONS = frozenset({"METADATA", "PARAMETERS", "INPUTS", "FIND", "ACTION"})
_HEADS = _SECTIONS | {"QUERY", "EVENT", "TABLE", "PACKAGE", "USING", "SIGN"}
_CLAUSES = frozenset({"WHERE", "WITHIN", "WITHOUT", "SELECT", "HAVING", "AFTER"})
_STATEMENTS = frozenset(
    {"PRINT", "LOG", "SEND", "EMIT", "ROUTE", "IF", "IFPRESENT", "WHILE", "FOR", "BREAK", "CONTINUE", "RETURN"}
)
_INPUT = frozenset({"KEY", "RETAIN", "WITH", "TIME", "WAIT"})
_ENDS = frozenset({"SEMICOLON", "RBRACE"})
_OUTSIDE = _HEADS | _CLAUSES | _STATEMENTS | _INPUT | _ENDS
PAIRS = {"LPAREN": "RPAREN", "LBRACKET": "RBRACKET", "LBRACE": "RBRACE"}
"""Each opening bracket and its closing one."""
_CLOSING = frozenset(PAIRS.values())


@dataclass(frozen=True, slots=True)
class TextPart:
    """A part of the text that may be given up, and how its end is found.

    Brackets are skipped whole.

    - `before`: kinds of tokens that follow it.
    - `through`: kinds that are its last token (`RBRACE`: of a block).
    - `before_in_line`: as `before`, if the token is the first of its line.
    - `never`: kinds that cannot be in it; if one comes first, the part does not end here.
    - `is_at_end`: it may end with the text.
    """

    symbol: str
    before: frozenset[str] = frozenset()
    through: frozenset[str] = frozenset()
    before_in_line: frozenset[str] = frozenset()
    never: frozenset[str] = frozenset()
    is_at_end: bool = False
    made: Callable[[Span], object] = ast.Broken


PARTS: tuple[TextPart, ...] = (
    TextPart("argument", before=frozenset({"COMMA", "RPAREN", "RBRACKET"}), never=_OUTSIDE | {"LBRACE"}),
    TextPart("group", before=frozenset({"RPAREN"}), never=_OUTSIDE | {"LBRACE", "COMMA", "COLON"}),
    TextPart("annotation_argument", before=frozenset({"COMMA", "RPAREN"}), never=_OUTSIDE | {"LBRACE"}),
    TextPart("filter", before=frozenset({"COMMA", "RPAREN"}), never=_OUTSIDE | {"LBRACE"}),
    TextPart("pattern_part", before=_CLAUSES | _ENDS | {"ARROW", "AND", "OR", "LBRACE"}, never=_HEADS | _STATEMENTS),
    TextPart("metadata_item", before=frozenset({"COMMA", "RBRACE"}), before_in_line=frozenset({"STRING_LITERAL"})),
    TextPart("parameter", before=frozenset({"RBRACE"}), through=frozenset({"SEMICOLON"}), never=_HEADS),
    TextPart("input", before=frozenset({"RBRACE"}), through=frozenset({"SEMICOLON"}), never=_HEADS),
    TextPart(
        "statement",
        before=frozenset({"RBRACE"}),
        through=frozenset({"SEMICOLON", "RBRACE"}),
        before_in_line=_STATEMENTS,
        never=_HEADS,
    ),
    TextPart(
        "member",
        before=frozenset({"RBRACE"}),
        through=frozenset({"SEMICOLON", "RBRACE"}),
        before_in_line=frozenset({"ACTION", "CONSTANT"}),
        never=_HEADS - {"ACTION"},
    ),
    TextPart("column", before=frozenset({"RBRACE"}), through=frozenset({"SEMICOLON"}), never=_HEADS),
    TextPart("clause", before=_CLAUSES | _HEADS | _ENDS | {"LBRACE"}, is_at_end=True),
    TextPart("pattern", before=_CLAUSES | _HEADS | _ENDS | {"LBRACE"}, is_at_end=True),
    TextPart(
        "query_section",
        before=_HEADS | {"RBRACE"},
        is_at_end=True,
        made=lambda span: Section("", span, ast.Broken(span)),
    ),
    TextPart("item", before=_HEADS, through=_ENDS, is_at_end=True, made=lambda _span: None),
)
"""Smaller parts before those that contain them."""

LONGEST = 1000
"""How many tokens are searched for a part's end, unless it may end with the text."""

FORGOTTEN: tuple[tuple[str, ...], ...] = (
    ("SEMICOLON",),
    ("RPAREN",),
    ("RBRACE",),
    ("LBRACE",),
    ("RPAREN", "SEMICOLON"),
    ("SEMICOLON", "RBRACE"),
    ("RBRACE", "RBRACE"),
    ("SEMICOLON", "RBRACE", "RBRACE"),
)
"""Signs to insert where they were forgotten."""


def may_be_forgotten(signs: Sequence[str], tokens: Sequence[Token], position: int) -> bool:
    """Whether these signs were probably forgotten before this token (or at the end of the text)."""
    if position == len(tokens):
        return True
    token = tokens[position]
    is_new = begins_line(tokens, position)
    match signs[0]:
        case "RPAREN":
            return token.type in _CLAUSES | _INPUT | _ENDS | {"LBRACE"} | _HEADS
        case "SEMICOLON":
            return is_new or token.type in _ENDS | _STATEMENTS | _HEADS
        case _:
            return token.type in _HEADS


def begins_line(tokens: Sequence[Token], position: int) -> bool:
    """Whether a token is the first of its line."""
    if position == 0:
        return True
    token = tokens[position]
    return token.source.text.find("\n", tokens[position - 1].end, token.start) >= 0


def end_of(part: TextPart, tokens: Sequence[Token], partners: dict[int, int], position: int) -> int | None:
    """The position after the part that is given up; None if it does not end here.

    `partners`: the result of `paired`.
    """
    start = position
    while position < len(tokens):
        if position > start + LONGEST and not part.is_at_end:
            return None
        kind = tokens[position].type
        if kind in part.before or (kind in part.before_in_line and position > start and begins_line(tokens, position)):
            return position
        if kind in part.never:
            return None
        last = partners.get(position, position)
        position = last + 1
        has_else = tokens[last].type == "RBRACE" and position < len(tokens) and tokens[position].type == "ELSE"
        if tokens[last].type in part.through and not has_else:
            return position
    return position if part.is_at_end else None


def paired(tokens: Sequence[Token]) -> dict[int, int]:
    """The position of each opening bracket and that of its closing one, if it has one."""
    partners: dict[int, int] = {}
    awaited: list[tuple[str, int]] = []
    braces = 0
    for position, token in enumerate(tokens):
        if token.type in PAIRS:
            awaited.append((PAIRS[token.type], position))
            braces += token.type == "LBRACE"
        elif token.type in _CLOSING and (braces if token.type == "RBRACE" else awaited):
            while token.type == "RBRACE" and awaited[-1][0] != "RBRACE":
                awaited.pop()  # not closed within the braces
            if awaited[-1][0] == token.type:
                partners[awaited.pop()[1]] = position
                braces -= token.type == "RBRACE"
    return partners


# The message about a token that no rule accepts.
#
# Long lists of expected tokens are shortened to what a reader calls them: a name, an expression.

_EXPRESSION = frozenset({"LPAREN", "STRING_LITERAL", "FLOAT_LITERAL", "MINUS"})
_STATEMENT = frozenset({"PRINT", "SEND"})
_TYPE = frozenset({"SEQUENCE", "OPTIONAL", "DICTIONARY", "LOCATION"})
_COMPARISON = frozenset({"EQ", "NE", "LT", "LE", "GT", "GE"})
_ARITHMETIC = frozenset({"PLUS", "MINUS", "STAR", "SLASH", "PERCENT"})
_STRUCTURE = ("QUERY", "INPUTS", "FIND", "EVENT", "SIGN", "PACKAGE", "USING", "METADATA", "PARAMETERS", "ACTION")
_MEMBER = re.compile(r"\s*(\w+)")
_AFTER_INPUT_NAME = frozenset({"WITHIN", "RETAIN", "WAIT"})
"""Keywords that may follow the names in `key`, `with unique` and `time from`."""
_BEFORE_OPERAND = (
    frozenset(
        {
            "KEY",
            "WITHIN",
            "RETAIN",
            "WAIT",
            "UNIQUE",
            "WHERE",
            "HAVING",
            "SELECT",
            "COMMA",
            "LPAREN",
            "LBRACE",
            "RETURN",
            "PRINT",
        }
    )
    | _COMPARISON
    | _ARITHMETIC
)
"""Keywords and signs that need an expression or name; a keyword after them is the next part's."""
_STATEMENT_WORDS = ("print", "send", "log", "emit", "route", "return", "while", "break", "continue")
_MOST_NAMED = 6
_RARE = frozenset({"ALL", "AFTER", "TABLE"})
"""Words that are never named among what is expected: they would push out the usual ones."""
_REPEATS = frozenset({"PLUS", "STAR", "QUESTION"})
_ONE_REPEAT = "write one of `+`, `*`, `?` and `{2,3}`: a repeat is neither reluctant nor possessive"
_SKIPS = "write `after match skip past last event`, `after match skip to first name` or `... to last name`"


def unexpected(
    source: Source, token: Token | None, expected: Iterable[str], before: Sequence[Token], *, is_name: bool
) -> QueryError:
    """The mistake of a token where only `expected` kinds are accepted; None: the text's end.

    `before`: the tokens before it, of which the last three count. `is_name`: a keyword meant as a
    name.
    """
    kinds = [kind for kind in expected if kind not in {"$end", *PSEUDO_KINDS, *_RARE}]
    if token is None:
        place = source.span(before[-1].span.end - 1, before[-1].span.end) if before else source.span(0, 0)
        return QueryError.of(Mistake.UNEXPECTED, place, found="end of the text", expected=_in_words(kinds))
    if token.type in {"REFUSED", "REFUSED_VALUE"}:
        what, reason = f"`{token.content}`", REASONS[token.content]
        return QueryError.of(Mistake.NOT_IN_QUERIES, token.span, what=what, reason=reason)
    if is_name:
        return QueryError.of(Mistake.KEYWORD_AS_NAME, token.span, word=token.content)
    misspelt = _misspelt_statement(before)
    if misspelt is not None:
        return misspelt
    is_repeat = token.type in _REPEATS and "ARROW" in kinds
    hint = None if is_repeat else _hint_of_foreign_word(token, kinds, before)
    if hint is not None:
        return QueryError.of(Mistake.FOREIGN_WORD, token.span, found=_found(token), hint=hint)
    mistake = QueryError.of(Mistake.UNEXPECTED, token.span, found=_found(token), expected=_in_words(kinds))
    if is_repeat and before and before[-1].type in {*_REPEATS, "REPEAT"}:
        return mistake.with_hint(_ONE_REPEAT)
    if token.type != "NAME":
        return mistake.with_hint(_hint_of_members(token, frozenset(kinds), before))
    if token.content == "after" and "WHERE" in kinds:
        return mistake.with_hint(_SKIPS)
    keyword = nearest(token.content, [SPELLING[kind] for kind in kinds if kind in KEYWORDS.values()])
    return mistake.with_hint(None if keyword is None else f"did you mean `{keyword}`?")


def _hint_of_foreign_word(token: Token, expected: Sequence[str], before: Sequence[Token]) -> str | None:
    """How a word or sign of another language is written here; None: it is not one that is known."""
    accepted = frozenset(expected)
    match [*before, token][-4:]:
        case [*_, Token(content="interval" | "INTERVAL"), _]:
            return "a duration is written `10 minutes`"
        case [*_, Token(content="by" | "BY"), _] if "WITH" in accepted:
            return "the key of an input is written `A() key k`"
        case [*_, Token(type="LT"), Token(type="GT")] if "LPAREN" in accepted:
            return "write `!=`"
        case [Token(type="IN"), Token(type="LPAREN"), Token(), Token(type="COMMA")]:
            return "a list is written in square brackets: `a.k in [1, 2]`"
        case [Token(type="IN" | "LBRACKET" | "LPAREN"), Token(type="LBRACKET" | "LPAREN" | "MINUS"), Token(), _] if (
            token.type == "COLON" and accepted & {"COMMA", "RPAREN"}
        ):
            return "a range is a filter of its own, `A(v in [1.0 : 5.0])`; in a condition write `v >= 1.0 and v <= 5.0`"
        case [*_, Token(type="STAR"), Token(type="STAR")] if "LPAREN" in accepted:
            return "a power is written `a.v.pow(2.0)`"
        case [*_, Token(type="SELECT"), Token(type="STAR")]:
            return "a match has all fields of its events; a `select` adds one value: `select a.v as v`"
        case [*_, Token(type="LPAREN"), Token(type="STAR")]:
            return "name what is counted: `count(a)`"
        case [*_, Token(type="LPAREN"), Token()] if accepted == {"RPAREN"}:
            return "conditions are in a `where`, or in the input: `A(v > 1.0) key k`"
        case [*_, Token(type="COLON")] if "NAME" in accepted and "LPAREN" not in accepted:
            return "the type comes first: `float v;`"
        case [*_, Token(type="DOT")] if accepted == {"SEMICOLON"}:
            return "what is nested has an event type of its own: `event P { string name; } event A { P process; }`"
        case [*_, Token(type="SIGN")] if "NAME" in accepted:
            return "a name with such signs is written in backquotes, as `` `@timestamp` ``"
        case [*_, Token(type="REPEAT")] if "AS" in accepted:
            return "a repeat follows the name: `A as a {3}`"
        case [*_, Token(type="STRING_LITERAL")] if "ASSIGN" in accepted:
            return 'statements are `print "x";`, `log "x";` and `send ... to "channel";`'
    is_word = token.type == "NAME" or token.type in KEYWORDS.values()
    if is_word and KEYWORDS.get(token.content.casefold()) in accepted:
        return None  # in capital letters
    return hint_at(token.content if is_word else SPELLING.get(token.type, ""), accepted)


def _hint_of_members(token: Token, expected: frozenset[str], before: Sequence[Token]) -> str | None:
    """What to write where `user.id` is not possible: in the time of an input."""
    match before[-2:]:
        case [Token(), Token(type="NAME") as name] if token.type == "DOT" and expected & _AFTER_INPUT_NAME:
            found = _MEMBER.match(token.source.text, token.end)
            member = found[1] if found is not None else "member"
            return (
                f"expected a field or an action of the event; define `action {member}() returns string"
                f" {{ return {name.content}.{member}; }}` in the event and write `{member}() as {member}`"
            )
        case _:
            return None


def is_meant_as_name(token: Token, before: Sequence[Token]) -> bool:
    """Whether a keyword where a name could stand was probably meant as one."""
    return token.type in KEYWORDS.values() and not _begins_part(token, before)


def _begins_part(token: Token, before: Sequence[Token]) -> bool:
    """Whether the keyword was certainly not meant as a name.

    `inputs { A() within 3; find ...`: the closing brace is missing. `key within 3`: the key is
    missing. A keyword that has a member is a name, `A(event.outcome = "failure")`.
    """
    if not before or token.source.text.startswith(".", token.end):
        return False
    last = before[-1]
    is_first_of_line = "\n" in token.source.text[last.end : token.start]
    is_after_part = token.type in _STRUCTURE and last.type in {"SEMICOLON", "LBRACE", "RBRACE"}
    return is_first_of_line or is_after_part or last.type in _BEFORE_OPERAND


def _misspelt_statement(before: Sequence[Token]) -> QueryError | None:
    """The mistake if the word before the token is nearly a statement's keyword: `prnt "x";`."""
    match before[-2:]:
        case [Token(type="LBRACE" | "RBRACE" | "SEMICOLON"), Token(type="NAME") as word]:
            keyword = nearest(word.content, _STATEMENT_WORDS)
            mistake = QueryError.of(Mistake.UNEXPECTED, word.span, found=_found(word), expected="a statement")
            return None if keyword is None else mistake.with_hint(f"did you mean `{keyword}`?")
        case _:
            return None


def _found(token: Token) -> str:
    match token.type:
        case "NAME":
            return f"'{token.content}'"
        case "STRING_LITERAL":
            return "string"
        case "INTEGER_LITERAL" | "FLOAT_LITERAL" | "DECIMAL_LITERAL":
            return "number"
        case "REPEAT":
            return f"`{{{token.content}}}`"
        case kind:
            return f"`{SPELLING[kind]}`"


def _in_words(kinds: list[str]) -> str:
    """`;`, a name or an expression: a handful at most.

    Keywords that structure a file only if nothing else fits.
    """
    left = set(kinds)
    left -= set() if left >= _EXPRESSION else {"NEW"}
    left -= {"AT"} if "WHERE" in left else set()
    left -= set() if left >= _ARITHMETIC else {"PLUS"}
    left -= {"STAR", "QUESTION"} if "QUESTION" in left else set()
    left -= {"IN", "IS", "NOT"} if left >= _COMPARISON else set()
    words: list[str] = []
    if left >= _STATEMENT:
        words.append("a statement")
        left = left & {"RBRACE"}
    elif left >= _EXPRESSION:
        words.append("an expression")
        left -= {
            *KEYWORDS.values(),
            "NAME",
            "INTEGER_LITERAL",
            "DECIMAL_LITERAL",
            *_EXPRESSION,
            "LBRACKET",
            "LBRACE",
            "DOT",
        }
    elif left >= _TYPE:
        words.append("a type")
        left -= {*_TYPE, "BOOLEAN", "INTEGER", "FLOAT", "DECIMAL", "STRING", "NAME"}
    elif "NAME" in left:
        words.append("a name")
        left -= {"NAME", *SOFT_KEYWORDS}
    for group, word in ((_COMPARISON, "a comparison"), (_ARITHMETIC, "an operator")):
        if left >= group:
            left -= group
            words.append(word)
    words += ["a string"] if "STRING_LITERAL" in left else []
    words += ["a number"] if "INTEGER_LITERAL" in left else []
    others = [kind for kind in SPELLING if kind in left and kind not in _STRUCTURE]
    others.sort(key=lambda kind: kind in KEYWORDS.values())
    words += [f"`{SPELLING[kind]}`" for kind in others]
    words = words or [f"`{SPELLING[kind]}`" for kind in _STRUCTURE if kind in left] or ["nothing more"]
    if len(words) > _MOST_NAMED:
        return "one of " + ", ".join(words[:_MOST_NAMED]) + ", ..."
    return listed(words, "or")
