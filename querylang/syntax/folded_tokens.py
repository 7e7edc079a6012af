"""Fold what spans several tokens into one, before parsing: foreign constructs, and `{2,3}`."""

from __future__ import annotations

from collections.abc import Sequence

from querylang.syntax.lexer import TYPE_KEYWORDS, Token

# Constructs of the vendor's larger language that queries cannot use: each listener, `spawn` or
# stream query becomes one token. So it is one mistake with its own message, and the text around it
# is parsed as usual.

REASONS: dict[str, str] = {
    "on": "listeners belong to monitors; use a pattern instead",
    "spawn": "a query finds its patterns per key anyway",
    "die": "a query ends when it is undeployed",
    "monitor": "monitors are another kind of file",
    "monitor.subscribe": "a query receives what its inputs name, on every channel",
    "member": "it is written in the larger language of monitors",
    "stream": "a pattern or `find every` replaces stream queries",
    "try": "an exception ends the block, and the match becomes an error row",
    "throw": "an error is sent or logged like any other event",
    "switch": "every value has one type; use `if ... else if`",
    "enqueue": "`send ... to` sends events",
    "static": "an action of the query needs no event",
}
"""The reason for each word."""

_BEFORE_STATEMENT = frozenset({"LBRACE", "RBRACE", "SEMICOLON", "RPAREN", "THEN", "REFUSED"})
_BEFORE_NAME = frozenset({"AS", "DOT", "KEY", "COMMA", "LPAREN", "GT", *(word.upper() for word in TYPE_KEYWORDS)})
"""Behind these a word was meant as a name."""
_STATEMENT_WORDS: dict[str, tuple[str, ...]] = {
    "try": ("LBRACE",),
    "throw": ("NAME", "STRING_LITERAL", "NEW"),
    "switch": ("LPAREN",),
    "enqueue": ("NAME", "STRING_LITERAL"),
    "static": ("ACTION", *(word.upper() for word in TYPE_KEYWORDS)),
}
"""Names that begin a statement of the larger language if such a token follows."""
_OPENING = frozenset({"LBRACE", "LPAREN", "LBRACKET"})
_CLOSING = frozenset({"RBRACE", "RPAREN", "RBRACKET"})
_FIRST_KINDS = frozenset({"ON", "SPAWN", "DIE", "MONITOR", "FROM"})
_FIRST_NAMES = frozenset({"stream", *_STATEMENT_WORDS})


def folded(tokens: Sequence[Token]) -> list[Token]:
    """The tokens with each foreign construct as one REFUSED (a statement) or REFUSED_VALUE."""
    kept: list[Token] = []
    position = 0
    while position < len(tokens):
        token = tokens[position]
        may_begin = token.type in _FIRST_KINDS or token.content in _FIRST_NAMES
        word = _foreign_word(tokens, position) if may_begin else None
        before = kept[-1].type if kept else "LBRACE"
        is_name = before in _BEFORE_NAME or (word in _STATEMENT_WORDS and before not in _BEFORE_STATEMENT)
        if word is None or is_name:
            kept.append(token)
            position += 1
            continue
        is_statement = not kept or kept[-1].type in _BEFORE_STATEMENT
        end = _end(tokens, position, is_statement=is_statement)
        if word == "try" and end < len(tokens) and tokens[end].content == "catch":
            end = _end(tokens, end, is_statement=True)
        kept.append(token.replaced("REFUSED" if is_statement else "REFUSED_VALUE", word, tokens[end - 1].end))
        position = end
    return kept


def _foreign_word(tokens: Sequence[Token], position: int) -> str | None:
    """The word of the foreign construct that begins here, if one does."""
    token = tokens[position]
    kinds = [item.type for item in tokens[position + 1 : position + 3]]
    match token.type, kinds:
        case "ON" | "SPAWN" | "DIE", _:
            return token.content
        case "MONITOR", ["DOT", *_]:
            return "monitor.subscribe"
        case "MONITOR", _:
            return "monitor"
        case ("FROM", ["NAME", "IN"]):
            return "stream"
        case "NAME", ["LT", *_] if token.content == "stream":
            return "stream"
        case "NAME", [following, *_] if following in _STATEMENT_WORDS.get(token.content, ()):
            return token.content
        case _:
            return None


def _end(tokens: Sequence[Token], position: int, *, is_statement: bool) -> int:
    """The position after the construct.

    A statement includes its `;` or block. A closing brace that it has not opened ends it.
    """
    depth = 0
    for index in range(position, len(tokens)):
        kind = tokens[index].type
        if kind in _OPENING:
            depth += 1
        elif kind in _CLOSING:
            depth -= 1
            if depth < 0:
                return max(index, position + 1)
            if depth == 0 and kind == "RBRACE" and is_statement:
                return index + 1
        elif kind == "SEMICOLON" and depth <= 0:
            return index + is_statement
    return len(tokens)


# `{2,3}` behind a step or a group of a pattern is one token. So a brace with a number behind it is
# never taken for the beginning of a block.

_MOST_DIGITS = 9
"""Of a number in a repeat; larger ones are read as this many nines, which is refused later."""
_LONGEST = 4
"""Tokens behind the brace: two numbers, a comma and a brace."""
_MOST_MEANT = 8
"""Tokens in braces that are meant as a repeat."""
_BEHIND_PATTERNS = frozenset({"ARROW", "NEXT", "AND", "OR", "WHERE", "WITHIN"})


def with_repeats(tokens: Sequence[Token]) -> list[Token]:
    """The tokens with each `{2}`, `{2,}` and `{2,3}` as one REPEAT, without braces and spaces.

    So is what only looks like one, such as `{n} ->`, as it is written: the grammar refuses it.
    """
    kept: list[Token] = []
    position = 0
    while position < len(tokens):
        token = tokens[position]
        length = _length(tokens, position) if token.type == "LBRACE" else 0
        meant = 0 if length or token.type != "LBRACE" else _meant_length(tokens, position)
        if meant:
            text = token.source.text[token.end : tokens[position + meant - 1].start].strip()
            kept.append(token.replaced("REPEAT", text, tokens[position + meant - 1].end))
        elif length:
            parts = tokens[position + 1 : position + length - 1]
            content = "".join(part.content if part.type == "COMMA" else _digits(part) for part in parts)
            kept.append(token.replaced("REPEAT", content, tokens[position + length - 1].end))
        else:
            kept.append(token)
        position += max(length, meant, 1)
    return kept


def _length(tokens: Sequence[Token], position: int) -> int:
    """How many tokens the repeat has that begins with this brace; 0: it is another brace."""
    kinds = [token.type for token in tokens[position + 1 : position + 1 + _LONGEST]]
    match kinds:
        case ["INTEGER_LITERAL", "RBRACE", *_]:
            return 3
        case ["INTEGER_LITERAL", "COMMA", "RBRACE", *_]:
            return 4
        case ["INTEGER_LITERAL", "COMMA", "INTEGER_LITERAL", "RBRACE"]:
            return 5
    return 0


def _meant_length(tokens: Sequence[Token], position: int) -> int:
    """The same for braces that can be nothing but a wrong repeat; no block is in that place."""
    if position == 0 or tokens[position - 1].type not in {"NAME", "RPAREN"}:
        return 0
    for length, token in enumerate(tokens[position + 1 : position + 2 + _MOST_MEANT], start=2):
        if token.type in {"SEMICOLON", "LBRACE", "ARROW", "NEXT"}:
            return 0
        if token.type == "RBRACE":
            following = tokens[position + length : position + length + 1]
            return length if following and following[0].type in _BEHIND_PATTERNS else 0
    return 0


def _digits(token: Token) -> str:
    text = token.content.lower()
    if text.startswith("0x"):
        text = str(int(text[:20], 16))
    text = text.lstrip("0") or "0"
    return text if len(text) <= _MOST_DIGITS else "9" * _MOST_DIGITS
