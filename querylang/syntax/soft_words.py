"""Find the words that are keywords only where the grammar has them, such as `all` behind `find`.

Everywhere else they are names, and so are all of them with a `#`: texts that use them as names of
fields, events, queries or of a pattern mean what they meant before these words were added.
"""

from __future__ import annotations

from collections.abc import Iterator

from querylang.syntax.tokens import SOFT_WORDS, Token

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
    for number, token in enumerate(tokens):
        match token.type:
            case "LPAREN":
                depth += 1
            case "RPAREN":
                depth -= 1
            case "FIND":
                depth = 0
            case "NAME" if token.content == "all" and _is_find_all(tokens, number):
                yield number
            # In the brackets of a `between` names stand side by side; nowhere else three do.
            case "NAME" if token.content == "after" and depth == 0:
                yield from _skip(tokens, number)


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
