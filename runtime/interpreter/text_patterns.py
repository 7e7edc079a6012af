"""Text against patterns with wildcards, without regard to case, and addresses against networks.

Case is ignored by Unicode's simple folding, character by character, with the tables of this Python:
`ß` equals `ẞ`, and not `ss`.
"""

from __future__ import annotations

import ipaddress
import re
from functools import lru_cache

from querylang.plan.networks import NotANetworkError, network_of
from runtime.interpreter.values import EvaluationError

ANY_TEXT, ANY_CHARACTER = "*", "?"
"""What stands for other text in a pattern; a backslash before it takes that away."""

Wildcards = tuple[tuple[str | None, ...], ...]
"""What a pattern asks for between its `*`: characters one after the other, None for any one."""

_KEPT = 1024
"""So many patterns are read once."""


@lru_cache(_KEPT)
def wildcards(pattern: str) -> Wildcards:
    """The parts of a pattern; one more than it has `*`."""
    parts: list[list[str | None]] = [[]]
    at = 0
    while at < len(pattern):
        character = pattern[at]
        if character == "\\" and pattern[at + 1 : at + 2] in ("*", "?", "\\"):
            at += 1
            parts[-1].append(pattern[at])
        elif character == ANY_TEXT:
            parts.append([])
        else:
            parts[-1].append(None if character == ANY_CHARACTER else character)
        at += 1
    return tuple(map(tuple, parts))


def regular_expression(pattern: str) -> str:
    """A pattern as a regular expression of RE2 for the whole text."""
    parts = (
        "".join("." if character is None else re.escape(character) for character in part) for part in wildcards(pattern)
    )
    return rf"(?s)\A{'.*'.join(parts)}\z"


def like(text: str, pattern: str) -> bool:
    """Whether the whole text fits a pattern: `*` is any text, `?` one character.

    Each part between two `*` is taken where it first occurs, so no way is tried twice.
    """
    first, *others = wildcards(pattern)
    if not _fits(text, 0, first):
        return False
    if not others:
        return len(text) == len(first)
    last = others.pop()
    begin, end = len(first), len(text) - len(last)
    for part in others:
        begin = _place(text, begin, end, part)
        if begin < 0:
            return False
        begin += len(part)
    return begin <= end and _fits(text, end, last)


def _place(text: str, begin: int, end: int, part: tuple[str | None, ...]) -> int:
    """Where a part first fits from `begin` on and ends at `end` at the latest; -1 = nowhere."""
    if None not in part:
        return text.find("".join(map(str, part)), begin, end)
    return next((at for at in range(begin, end - len(part) + 1) if _fits(text, at, part)), -1)


def _fits(text: str, at: int, part: tuple[str | None, ...]) -> bool:
    found = text[at : at + len(part)]
    return len(found) == len(part) and all(wanted in (None, own) for wanted, own in zip(part, found, strict=True))


def folded(text: str) -> str:
    """The text with each character in the form that stands for all its cases."""
    return text.lower() if text.isascii() else "".join(map(_folded, text))


@lru_cache(1 << 16)
def _folded(character: str) -> str:
    for other in (character.casefold(), character.lower()):
        if len(other) == 1:
            return other
    return character


def like_ignoring_case(text: str, pattern: str) -> bool:
    """`like`, without regard to case."""
    return like(folded(text), folded(pattern))


def equal_ignoring_case(text: str, other: str) -> bool:
    """Whether two texts are equal without regard to case."""
    return folded(text) == folded(other)


def in_network(text: str, network: str) -> bool:
    """Whether a text is an address of a network; an address of the other version is not.

    Raises EvaluationError for what is not a network.
    """
    try:
        wanted = network_of(network)
    except NotANetworkError as error:
        raise EvaluationError(str(error)) from error
    try:
        return ipaddress.ip_address(text) in wanted
    except ValueError:
        return False
