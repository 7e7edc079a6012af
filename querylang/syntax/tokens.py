"""The tokens of the language: kinds, keywords, and a token with its place."""

from __future__ import annotations

from dataclasses import dataclass

from querylang.source import Source, Span

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

SOFT_WORDS: dict[str, str] = {word: word.upper() for word in ("all", "after", "match", "skip", "past", "first", "last")}
"""Word to token kind, of words that are names wherever the grammar does not have them
(`querylang.syntax.soft_words`).
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
