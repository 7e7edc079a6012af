"""Methods of strings; text against patterns with wildcards, and addresses against networks.

Characters are Unicode code points; white space is that of ASCII. Regular expressions are RE2's,
which match in linear time; an invalid one fails. Where case is ignored, it is by Unicode's simple
folding, character by character, with the tables of this Python: `ß` equals `ẞ`, and not `ss`.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from querylang.errors import counted
from querylang.plan.text_forms import NotANetworkError, network_of
from runtime.interpreter.decimals import of_text
from runtime.interpreter.numbers import whole
from runtime.interpreter.values import EvaluationError, limit_size

WHITE_SPACE = " \t\n\r\f\v"

_INTEGER = re.compile(rf"[{WHITE_SPACE}]*([+-]?[0-9]+)")
_NUMBER = re.compile(rf"[{WHITE_SPACE}]*([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)")
_NOT_FINITE = re.compile(rf"[{WHITE_SPACE}]*([+-]?(?:Infinity|NaN))")

MOST_DIGITS = 4_000
"""The most characters of an integer in a text."""


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


def joined(left: str, right: str) -> str:
    """`left + right`."""
    limit_size(len(left) + len(right))
    return left + right


def substring(text: str, start: int, end: int | None = None) -> str:
    """The characters from `start` up to (not including) `end`; negative indexes count from the end.

    end: None = to the end of the text
    """
    size = len(text)
    first = start + size if start < 0 else start
    last = size if end is None else end + size if end < 0 else end
    if not 0 <= first <= last <= size:
        given = f"{start}" if end is None else f"{start}, {end}"
        raise EvaluationError(f"substring({given}) is outside of a text of {size} characters")
    return text[first:last]


def find_from(text: str, part: str, start: int) -> int:
    """The index where `part` first occurs at or after `start`; -1 = nowhere."""
    if not 0 <= start <= len(text):
        raise EvaluationError(f"findFrom({start}) is outside of a text of {counted(len(text), 'character')}")
    return text.find(part, start)


def replace_all(text: str, old: str, new: str) -> str:
    """Replace every occurrence; an empty text has none."""
    if not old:
        return text
    limit_size(len(text) + text.count(old) * (len(new) - len(old)))
    return text.replace(old, new)


def split(separator: str, text: str) -> list[str]:
    """Split at every separator; an empty separator splits between all characters."""
    return text.split(separator) if separator else list(text)


def tokenize(separators: str, text: str) -> list[str]:
    """Split at any of these characters; empty parts are left out."""
    parts = re.split(f"[{re.escape(separators)}]", text) if separators else [text]
    return [part for part in parts if part]


def join(separator: str, texts: Sequence[str]) -> str:
    """The texts, separated by `separator`."""
    limit_size(sum(map(len, texts)) + len(separator) * len(texts))
    return separator.join(texts)


def to_integer(text: str) -> int:
    """The integer at the beginning of the text; 0 if there is none."""
    found = _INTEGER.match(text[:MOST_DIGITS])
    return whole(int(found[1])) if found else 0


def to_float(text: str) -> float:
    """The number at the beginning of the text; 0.0 if there is none."""
    found = _NUMBER.match(text) or _NOT_FINITE.match(text)
    return float(found[1]) if found else 0.0


def to_decimal(text: str) -> Decimal:
    """The number at the beginning of the text; 0 if there is none."""
    found = _NUMBER.match(text)
    return of_text(found[1]) if found else Decimal(0)


def _matched(function: Callable[..., Any], text: str, pattern: str, **options: Any) -> Any:
    try:
        return function(pa.scalar(text, pa.string()), pattern=pattern, **options).as_py()
    except (pa.ArrowInvalid, UnicodeDecodeError) as error:  # invalid pattern; lone surrogate
        raise EvaluationError(str(error)) from error


def match_whole(text: Any, pattern: str) -> Any:
    """Whether the whole text matches, by pyarrow; raises ArrowInvalid for an invalid pattern.

    The pattern is compiled alone first: `)(` would be valid inside the group that anchors it.
    """
    pc.match_substring_regex(pa.scalar(""), pattern=pattern)
    return pc.match_substring_regex(text, pattern=rf"\A(?:{pattern})\z")


def matches(text: str, pattern: str) -> bool:
    """Whether the whole text matches."""
    return bool(_matched(match_whole, text, pattern))


def search(text: str, pattern: str) -> list[str]:
    """All matches from left to right, without overlaps."""
    return _marked(text, pattern, r"\0", None)[1::2]


def group_search(text: str, pattern: str) -> list[str]:
    """The groups of the first match; empty if there is no match."""
    if not _matched(pc.match_substring_regex, text, pattern):
        return []
    groups = next(count for count in range(11) if count == 10 or not _has_group(text, pattern, count + 1))
    return [_marked(text, pattern, rf"\{number}", 1)[1] for number in range(1, groups + 1)]


def _has_group(text: str, pattern: str, number: int) -> bool:
    try:
        pc.replace_substring_regex(pa.scalar(text, pa.string()), pattern=pattern, replacement=rf"\{number}")
    except pa.ArrowInvalid:
        return False
    return True


def _marked(text: str, pattern: str, part: str, count: int | None) -> list[str]:
    r"""Split the text around `part` of each match; the pieces with odd indexes are these parts.

    part: what to keep of a match: `\0` all of it, `\1` its first group
    count: how many matches; None = all
    """
    used = set(text)
    mark = next(mark for mark in map(chr, range(1, 0xD800)) if mark not in used)
    replaced = _matched(
        pc.replace_substring_regex, text, pattern, replacement=f"{mark}{part}{mark}", max_replacements=count
    )
    return str(replaced).split(mark)


def replace(text: str, pattern: str, replacement: str) -> str:
    r"""Replace every match.

    In the replacement `$1` is the first group, `$0` the whole match, `\$` a dollar sign.
    """
    rewritten = re.sub(r"\\(.)|\$([0-9])|\\", _reference, replacement, flags=re.DOTALL)
    result = str(_matched(pc.replace_substring_regex, text, pattern, replacement=rewritten))
    limit_size(len(result))
    return result


def _reference(found: re.Match[str]) -> str:
    """A reference to a group, or an escaped character, in RE2's syntax."""
    escaped, group = found.groups()
    if group is not None:
        return rf"\{group}"
    return escaped if escaped not in (None, "\\") else r"\\"


STRING_METHODS: dict[str, Callable[..., Any]] = {
    "length": len,
    "isEmpty": lambda text: not text,
    "contains": lambda text, part: part in text,
    "startsWith": str.startswith,
    "endsWith": str.endswith,
    "find": str.find,
    "findFrom": find_from,
    "substring": substring,
    "toUpper": str.upper,
    "toLower": str.lower,
    "ltrim": lambda text: text.lstrip(WHITE_SPACE),
    "rtrim": lambda text: text.rstrip(WHITE_SPACE),
    "matches": matches,
    "like": like,
    "likeIgnoreCase": like_ignoring_case,
    "equalsIgnoreCase": equal_ignoring_case,
    "inNetwork": in_network,
    "search": search,
    "groupSearch": group_search,
    "replace": replace,
    "replaceAll": replace_all,
    "split": split,
    "tokenize": tokenize,
    "join": join,
    "intern": str,
    "toInteger": to_integer,
    "toFloat": to_float,
    "toDecimal": to_decimal,
}
