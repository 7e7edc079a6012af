"""The tokens of the language, and how a text is split into them and comments, with ply.

Lexing never stops: unknown characters, unfinished strings and comments, and reserved names are
reported and skipped.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

from ply import lex

from querylang.dataclass import dataclass
from querylang.errors import Mistake, QueryError
from querylang.source import Source, Span
from querylang.syntax.ast import Comment

KEYWORDS: dict[str, str] = {
    word: word.upper()
    for word in (
        # the structure of a file
        *("package", "using", "event", "query", "metadata", "parameters", "inputs", "find", "action", "constant"),
        *("key", "within", "retain", "with", "unique", "time", "from", "wait"),
        *("every", "where", "without", "select", "having", "between", "as"),
        # statements
        *(
            "if",
            "ifpresent",
            "then",
            "else",
            "while",
            "for",
            "break",
            "continue",
            "return",
            "print",
            "log",
            "at",
            "send",
            "to",
        ),
        *("emit", "route", "on", "spawn", "die", "monitor"),
        # types
        *("boolean", "integer", "float", "decimal", "string", "location", "sequence", "dictionary", "optional"),
        # expressions
        *("and", "or", "xor", "not", "in", "true", "false", "new"),
        "returns",
    )
}
"""Keyword to token kind. Units of time are names; a number before them makes them units."""

SOFT_KEYWORDS: tuple[str, ...] = (
    "TIME",
    "FROM",
    "TO",
    "KEY",
    "UNIQUE",
    "RETAIN",
    "AT",
    "METADATA",
    "PARAMETERS",
    "THEN",
)
"""Kinds of keywords that may also be names where that is unambiguous."""

SOFT_WORDS: dict[str, str] = {
    word: word.upper()
    for word in (
        *("all", "after", "match", "skip", "past", "first", "last", "most", "per", "by", "is", "null"),
        *("table", "network"),
    )
}
"""Word to token kind, of words that are names wherever the grammar does not have them
(`querylang.syntax.lexer`).
"""

TYPE_KEYWORDS: tuple[str, ...] = (
    *("boolean", "integer", "float", "decimal", "string", "location", "sequence", "dictionary", "optional"),
)
"""Keywords that are types."""

SYMBOLS: dict[str, str] = {
    "->": "ARROW",
    "=>": "NEXT",
    ":=": "ASSIGN",
    "<=": "LE",
    ">=": "GE",
    "!=": "NE",
    "=": "EQ",
    "<": "LT",
    ">": "GT",
    "+": "PLUS",
    "-": "MINUS",
    "*": "STAR",
    "/": "SLASH",
    "%": "PERCENT",
    ".": "DOT",
    ",": "COMMA",
    ";": "SEMICOLON",
    ":": "COLON",
    "(": "LPAREN",
    ")": "RPAREN",
    "[": "LBRACKET",
    "]": "RBRACKET",
    "{": "LBRACE",
    "}": "RBRACE",
    "@": "SIGN",
    "?": "QUESTION",
}
"""Symbol to token kind; longer ones come before their prefixes."""

FOREIGN_OPERATORS: dict[str, str] = {"==": "=", "&&": "and", "||": "or", "!": "not"}
"""Operators of other languages, and how they are written here."""

FOREIGN_SIGNS: dict[str, str] = {
    "#": "comments begin with `//`",
    "^": "a power is written `a.v.pow(2.0)`",
    "~": 'text is compared by methods: `a.s.contains("x")`, `.matches("x.*")`',
    "|": "there are no pipes; a condition is joined to others by `and` and `or`",
    "$": "a name is written without `$`",
    "&": "write `and`",
}
"""Signs of other languages without a meaning here, and what is said of them."""

KINDS: tuple[str, ...] = (
    "NAME",
    "INTEGER_LITERAL",
    "FLOAT_LITERAL",
    "DECIMAL_LITERAL",
    "STRING_LITERAL",
    *KEYWORDS.values(),
    *SOFT_WORDS.values(),
    *SYMBOLS.values(),
)

PSEUDO_KINDS: tuple[str, ...] = ("REFUSED", "REFUSED_VALUE", "ONLY_EXPRESSION", "REPEAT")
"""Kinds without a word: a foreign statement or value, the start of a single expression, `{2,3}`."""

SPELLING: dict[str, str] = {
    **{kind: word for word, kind in (KEYWORDS | SOFT_WORDS).items()},
    **{kind: symbol for symbol, kind in SYMBOLS.items()},
}
"""The spelling of each token kind that has only one."""


@dataclass(slots=True)
class Token:
    """A word of the text.

    `content`: its value: a name without `#`, a string without quotes and escapes. There are many
    tokens, so a place is stored as two numbers and a `Span` is made on demand.
    """

    type: str
    content: str
    source: Source
    start: int
    end: int

    @property
    def span(self) -> Span:
        """The place in the source."""
        return Span(self.source, self.start, self.end)

    def replaced(self, type_: str, content: str, end: int) -> Token:
        """Another token from the start of this one up to `end`."""
        return Token(type_, content, self.source, self.start, end)


MOST_MISTAKES = 1000
"""Per text; further mistakes are not reported."""

ESCAPES = {'"': '"', "\\": "\\", "n": "\n", "t": "\t", "r": "\r"}

_KEYWORD_KINDS = frozenset(KEYWORDS.values())
_BEFORE_CONSTANTS = frozenset({"LBRACKET", "COMMA"})
_CONSTANT = re.compile(r'[ \t\r\n]*([0-9]+|"[^"\\\n\ud800-\udfff]*")[ \t\r\n]*,')
_NEXT_QUOTE = re.compile(r'(?:[^"\\]|\\.)*"')
_BEHIND_STRING = re.compile(r"\s*([-;,:+.(){}\]=!<>/]|(to|at|as|and|or|xor|within|where|between)\b|$)")
_HALF_CHARACTERS = re.compile("[\ud800-\udfff]")
"""Surrogates: Python strings may contain them, tables cannot."""
_OTHER_CHARACTERS = re.compile(r"[^\s\w\"#;{}()<>=,.:@*/%+\[\]-]+")


class _Rules:
    """Read by ply: docstrings are patterns, tried in the order of the methods."""

    tokens = KINDS
    t_ignore = " \t\r\n\f\v\ufeff\u00a0"

    def t_comment(self, t: Any) -> None:
        r"//[^\n]* | /\*[\s\S]*?\*/"
        t.lexer.comments.append(Comment(t.value.rstrip(), t.lexer.source.span(t.lexpos, t.lexpos + len(t.value))))

    def t_open_comment(self, t: Any) -> None:
        r"/\*[\s\S]*"
        _report(t, Mistake.OPEN_COMMENT, 2)

    def t_DECIMAL_LITERAL(self, t: Any) -> Any:
        r"([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?d(?!\w)"
        return t

    def t_FLOAT_LITERAL(self, t: Any) -> Any:
        r"[0-9]*\.[0-9]+([eE][+-]?[0-9]+)? | [0-9]+\.?[eE][+-]?[0-9]+(?!\w) | [0-9]+\.(?!(?>\s|//[^\n]*|/\*[\s\S]*?\*/)*+[\w\#.])"
        return t

    def t_INTEGER_LITERAL(self, t: Any) -> Any:
        r"0[xX][0-9a-fA-F]+(?!\w) | [0-9]+"
        return t

    def t_STRING_LITERAL(self, t: Any) -> Any:
        r'"[^"\\\n]*(\\.[^"\\\n]*)*"'
        for half in _HALF_CHARACTERS.finditer(t.value):
            _report_at(t, Mistake.BAD_CHARACTER, t.lexpos + half.start(), t.lexpos + half.end(), found=half.group())
        t.value = _unescaped(t) if "\\" in t.value else t.value[1:-1]
        return t

    def t_open_string(self, t: Any) -> Any:
        r'"[^"\\\n]*(\\.[^"\\\n]*)*'
        end = _end_on_later_line(t.lexer.lexdata, t.lexer.lexpos)
        t.type = "STRING_LITERAL"
        if end is None:
            _report(t, Mistake.OPEN_STRING, len(t.value))
            t.value = t.value[1:]
        else:
            t.value = t.lexer.lexdata[t.lexpos : end]
            t.lexer.lexpos = end
            t.value = _unescaped(t)
        return t

    def t_foreign_string(self, t: Any) -> Any:
        r"'[^'\"\\\n]*'"
        _report(t, Mistake.FOREIGN_QUOTES, len(t.value))
        t.type, t.value = "STRING_LITERAL", t.value[1:-1]
        return t

    def t_foreign_operator(self, t: Any) -> Any:
        r"={2,} | &{2,} | \|{2,} | !+(?!=)"
        meant = FOREIGN_OPERATORS[t.value[0] if t.value[0] == "!" else t.value[:2]]
        _report(t, Mistake.FOREIGN_OPERATOR, len(t.value), found=t.value[:20], meant=meant)
        t.type, t.value = KEYWORDS.get(meant) or SYMBOLS[meant], meant
        return t

    def t_NAME(self, t: Any) -> Any:
        r"\#?[^\W\d]\w*"
        if t.value.startswith("#"):
            t.value = t.value[1:]
        else:
            t.type = KEYWORDS.get(t.value, "NAME")
        if t.value.startswith("__"):
            _report(t, Mistake.RESERVED_NAME, len(t.value), name=t.value)
        return t

    def t_quoted_name(self, t: Any) -> Any:
        r"`[^`\n\r]+`"
        t.type, t.value = "NAME", t.value[1:-1]
        return t

    def t_SYMBOL(self, t: Any) -> Any:
        t.type = SYMBOLS[t.value]
        return t

    t_SYMBOL.__doc__ = "|".join(re.escape(symbol) for symbol in SYMBOLS)

    def t_error(self, t: Any) -> None:
        other = _OTHER_CHARACTERS.match(t.value)
        length = len(other.group()) if other else 1
        _report(t, Mistake.BAD_CHARACTER, length, found=t.value[:length][:20])
        t.lexer.skip(length)


@cache
def _lexer() -> Any:
    return lex.lex(object=_Rules(), reflags=re.VERBOSE)


@dataclass(frozen=True, slots=True)
class Lexed:
    """A text's tokens in order, its comments, its lexical mistakes."""

    tokens: list[Token]
    comments: list[Comment]
    mistakes: list[QueryError]


Place = tuple[int, int]
"""Where a part of a text begins and ends."""


def tokenize(source: Source, left_out: Sequence[Place] = (), only: Place | None = None) -> Lexed:
    """Split a text into tokens.

    left_out: the places of whole queries whose tokens are not wanted
    only: the place of the only query whose tokens are
    """
    lexer = _lexer().clone()
    lexer.source, lexer.mistakes, lexer.comments = source, [], []
    lexer.input(source.text)
    lexer.lexpos, stop = only or (0, len(source.text))
    ends = dict(left_out)
    tokens: list[Token] = []
    before = ""
    while lexer.lexpos < stop and (item := lexer.token()) is not None:
        if item.lexpos in ends:
            lexer.lexpos = ends[item.lexpos]
            continue
        # After a dot every word is a name: a field may have the name of a keyword.
        kind = "NAME" if before == "DOT" and item.type in _KEYWORD_KINDS else item.type
        tokens.append(Token(kind, item.value, source, item.lexpos, lexer.lexpos))
        before = kind
        if kind in _BEFORE_CONSTANTS:
            lexer.lexpos = _add_constants(tokens, source, lexer.lexpos)
    return Lexed(with_soft_words(tokens), lexer.comments, lexer.mistakes)


def _add_constants(tokens: list[Token], source: Source, position: int) -> int:
    """Add the tokens of integers and short strings with a comma behind each; gives their end.

    There may be thousands, and they mean the same anywhere: one expression finds both tokens.
    """
    text = source.text
    while (found := _CONSTANT.match(text, position)) is not None:
        start, end = found.span(1)
        if text[start] == '"':
            tokens.append(Token("STRING_LITERAL", text[start + 1 : end - 1], source, start, end))
        else:
            tokens.append(Token("INTEGER_LITERAL", text[start:end], source, start, end))
        position = found.end()
        tokens.append(Token("COMMA", ",", source, position - 1, position))
    return position


def _report(t: Any, mistake: Mistake, length: int, **facts: str) -> None:
    _report_at(t, mistake, t.lexpos, t.lexpos + length, **facts)


def _report_at(t: Any, mistake: Mistake, start: int, end: int, **facts: str) -> None:
    if len(t.lexer.mistakes) == MOST_MISTAKES:
        mistake, facts = Mistake.TOO_MANY_MISTAKES, {"limit": str(MOST_MISTAKES)}
    if len(t.lexer.mistakes) <= MOST_MISTAKES:
        found = QueryError.of(mistake, t.lexer.source.span(start, end), **facts)
        hint = FOREIGN_SIGNS.get(facts.get("found", "")[:1]) if mistake is Mistake.BAD_CHARACTER else None
        t.lexer.mistakes.append(found.with_hint(hint))


def _end_on_later_line(text: str, position: int) -> int | None:
    """The position after a string of several lines; None if its end is missing.

    Such strings are legal but rare. The next quote ends the string if it is the only unpaired one
    in its line, and if what follows can follow a string.
    """
    found = _NEXT_QUOTE.match(text, position)
    if found is None:
        return None
    line_end = text.find("\n", found.end())
    rest = text[found.end() : line_end if line_end >= 0 else len(text)]
    has_even_rest = len(re.sub(r"\\.|[^\"]", "", rest)) % 2 == 0
    return found.end() if has_even_rest and _BEHIND_STRING.match(rest) else None


def _unescaped(t: Any) -> str:
    def meant(match: re.Match[str]) -> str:
        letter = match.group(1)
        if letter not in ESCAPES:
            start = t.lexpos + 1 + match.start()
            _report_at(t, Mistake.BAD_ESCAPE, start, start + 2, found=match.group())
        return ESCAPES.get(letter, letter)

    return re.sub(r"\\(.)", meant, t.value[1:-1])


# Words that are keywords only where the grammar has them, such as `all` behind `find`. Everywhere
# else they are names, and so are all of them with a `#`: texts that use them as names of fields,
# events, queries or of a pattern mean what they meant before these words were added.

_SKIP = ("after", "match", "skip")


def with_soft_words(tokens: list[Token]) -> list[Token]:
    """The tokens, with words of `SOFT_WORDS` as keywords where they are meant."""
    found = dict.fromkeys(_places(tokens))
    if not found:
        return tokens
    return [_as_keyword(token) if number in found else token for number, token in enumerate(tokens)]


def _places(tokens: list[Token]) -> Iterator[int]:
    """The numbers of the tokens that are meant as keywords."""
    depth = 0
    is_rate = False  # behind `at most`: its words follow values, where no name can
    latest = -1  # the word of `at most` before
    for number, token in enumerate(tokens):
        is_behind_value = number - 1 > latest and _ends_value(tokens[number - 1])
        match token.type:
            case "LPAREN":
                depth += 1
            case "RPAREN":
                depth -= 1
            case "FIND":
                depth = 0
            case "LBRACE" | "SEMICOLON":
                is_rate = False
            case "NAME" if token.content == "all" and _is_find_all(tokens, number):
                yield number
            # In the brackets of a `between` names stand side by side; nowhere else three do.
            case "NAME" if token.content == "after" and depth == 0:
                yield from _skip(tokens, number)
            case "NAME" if token.content == "most" and depth == 0 and _is_plain(token):
                if number > 1 and tokens[number - 1].type == "AT" and _ends_value(tokens[number - 2]):
                    is_rate, latest = True, number
                    yield number
            case "NAME" if token.content in ("per", "by") and is_rate and is_behind_value and depth == 0:
                is_rate, latest = token.content == "per", number
                yield number
            case "NAME" if token.content == "is":
                yield from _is_null(tokens, number)
            case "NAME" if token.content == "table":
                yield from _table(tokens, number)
            # An expression begins with `new`; behind a value it is the word of an input.
            case "NAME" if token.content == "by" and number > 1 and tokens[number - 1].type == "NEW":
                if _is_plain(token) and _ends_value(tokens[number - 2]):
                    yield number


def _ends_value(token: Token) -> bool:
    """Whether an expression, a name or a duration can end with it, so that no name can follow."""
    return token.type in _ENDS or token.type in SOFT_KEYWORDS


_ENDS = frozenset({"NAME", "INTEGER_LITERAL", "FLOAT_LITERAL", "DECIMAL_LITERAL", "STRING_LITERAL", "RPAREN"}) | {
    *("RBRACKET", "TRUE", "FALSE", "STAR", "PLUS", "QUESTION", "REPEAT", "LAST", "FIRST", "EVENT"),
}


def _is_null(tokens: list[Token], number: int) -> Iterator[int]:
    """The words of `is null` or `is not null` behind a value."""
    null = number + 1 + (number + 1 < len(tokens) and tokens[number + 1].type == "NOT")
    if number == 0 or null >= len(tokens) or tokens[null].content != "null":
        return
    is_meant = _is_plain(tokens[number]) and _is_plain(tokens[null]) and _ends_value(tokens[number - 1])
    if is_meant and not _is_in_between(tokens, number):
        yield from (number, null)


def _is_in_between(tokens: list[Token], number: int) -> bool:
    """Whether names stand side by side there: `between (a b)`."""
    while number and (tokens[number].type == "NAME" or tokens[number].type in SOFT_KEYWORDS):
        number -= 1
    return number > 0 and (tokens[number - 1].type, tokens[number].type) == ("BETWEEN", "LPAREN")


def _table(tokens: list[Token], number: int) -> Iterator[int]:
    """The word of `table Name {`, and in its braces those of `key network name;`."""
    is_first = number == 0 or tokens[number - 1].type in ("SEMICOLON", "RBRACE")
    behind = tokens[number + 1 : number + 3]
    if not is_first or not _is_plain(tokens[number]) or [token.type for token in behind[1:]] != ["LBRACE"]:
        return
    if not _ends_value(behind[0]):
        return
    yield number
    for place in range(number + 3, len(tokens)):
        token = tokens[place]
        if token.type == "RBRACE":
            return
        is_word = token.content == "network" and _is_plain(token) and tokens[place - 1].type == "KEY"
        if is_word and [following.type for following in tokens[place + 2 : place + 3]] == ["SEMICOLON"]:
            yield place


def _is_find_all(tokens: list[Token], number: int) -> bool:
    """Whether it is the word of `find all`; otherwise it is an event type."""
    if number == 0 or tokens[number - 1].type != "FIND" or not _is_plain(tokens[number]):
        return False
    match [token.type for token in tokens[number + 1 : number + 3]]:
        case [] | ["AS" | "COLON" | "DOT", *_] | ["LPAREN", "RPAREN"]:
            return False
        case _:
            return True


def _skip(tokens: list[Token], number: int) -> Iterator[int]:
    """The words of `after match skip past last event`, or of `... to first name`."""
    head = tokens[number : number + len(_SKIP)]
    if tuple(token.content for token in head) != _SKIP or not all(map(_is_plain, head)):
        return
    yield from range(number, number + len(_SKIP))
    ahead = number + len(_SKIP)
    second = ""
    for place, token in enumerate(tokens[ahead : ahead + 2], ahead):
        words = ("past",) if place == ahead else ("last",) if second == "past" else ("first", "last")
        second = token.content
        if token.content in words and _is_plain(token):
            yield place


def _is_plain(token: Token) -> bool:
    """Whether it is a word without a `#` or quotes."""
    return token.type == "NAME" and token.source.text[token.start] == token.content[:1]


def _as_keyword(token: Token) -> Token:
    return token.replaced(SOFT_WORDS[token.content], token.content, token.end)
