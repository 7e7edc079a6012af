"""The text of `PATTERN ( … )` to elements, from the tokens of the SQL reader."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ensue.importing.row_patterns import Element, NotTranslatedError

if TYPE_CHECKING:
    from sqlglot.tokenizer_core import Token

_FOREIGN = {
    "|": "alternatives",
    "(": "groups",
    "^": "anchors",
    "$": "anchors",
    "-": "exclusions",
}


MOST_DIGITS = 9
"""Of a number in a quantifier or an interval."""


def elements_of(tokens: Sequence[Token]) -> tuple[Element, ...]:
    """The elements of a pattern, without its outer brackets; raises NotTranslatedError."""
    found: list[Element] = []
    at = 0
    while at < len(tokens):
        token = tokens[at]
        if (what := _FOREIGN.get(token.text)) or (token.text == "{" and _text(tokens, at + 1) == "-"):
            raise NotTranslatedError(token.line, f"{what or 'exclusions'} in the pattern are not translated")
        if token.text.upper() == "PERMUTE" and _text(tokens, at + 1) == "(":
            raise NotTranslatedError(token.line, "PERMUTE is not translated")
        if not token.text.replace("_", "a").isalnum() or token.text[0].isdigit():
            raise NotTranslatedError(token.line, f"{token.text!r} in the pattern is not understood")
        if _text(tokens, at + 1) == "{" and _text(tokens, at + 2) == "-":
            raise NotTranslatedError(token.line, "exclusions in the pattern are not translated")
        least, most, at = _quantifier(tokens, at + 1)
        is_reluctant = (least, most) != (1, 1) and _text(tokens, at) == "?"
        at += is_reluctant
        element = Element(token.text.upper(), token.line, least, most, is_reluctant)
        if element.most == 0:
            raise NotTranslatedError(token.line, f"{token.text} takes no row")
        if any(other.variable == element.variable for other in found):
            raise NotTranslatedError(token.line, f"{token.text} is in the pattern twice")
        found.append(element)
    return tuple(found)


def _quantifier(tokens: Sequence[Token], at: int) -> tuple[int, int | None, int]:
    """Least, most, and where the next token is."""
    match _text(tokens, at):
        case "+":
            return 1, None, at + 1
        case "*":
            return 0, None, at + 1
        case "?":
            return 0, 1, at + 1
        case "{":
            return _counts(tokens, at)
    return 1, 1, at


def _counts(tokens: Sequence[Token], at: int) -> tuple[int, int | None, int]:
    end = at
    while _text(tokens, end) not in ("}", ""):
        end += 1
    parts = "".join(token.text for token in tokens[at + 1 : end]).split(",")
    is_number = all(part == "" or (part.isdecimal() and len(part) <= MOST_DIGITS) for part in parts)
    if not is_number or len(parts) > 2 or parts == [""]:
        raise NotTranslatedError(tokens[at].line, "this quantifier is not understood")
    least = int(parts[0] or 0)
    most = least if len(parts) == 1 else int(parts[1]) if parts[1] else None
    return least, most, end + 1


def _text(tokens: Sequence[Token], at: int) -> str:
    return tokens[at].text if at < len(tokens) else ""
