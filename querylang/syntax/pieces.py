"""Find the queries of a text without parsing it, and what those of one form have alike.

A book of rules has few shapes and many queries. What is found here is certain for texts without
mistakes; texts in which something is unusual have no pieces.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from querylang.dataclass import dataclass
from querylang.syntax.lexer import KEYWORDS, SOFT_WORDS

_STRING = r'"[^"\\\n]*(?:\\.[^"\\\n]*)*"'
_COMMENT = r"//[^\n]*|/\*[\s\S]*?\*/"
_NUMBER = r"(?<![\w.#])[0-9]{1,18}(?:\.[0-9]{1,18})?(?![\w.])"
_SIGN = re.compile(rf"{_STRING}|{_COMMENT}|(?<![\w.#])query[ \t\r\n]+([^\W\d]\w*)[ \t\r\n]*{{|[{{}}'`\"]")
_CONSTANT = re.compile(rf"({_STRING}|{_COMMENT}|{_NUMBER})")
_METHOD = re.compile(r"\.\s*\w+\s*\($")
_BEFORE = frozenset("=<>[,+-*")
"""Signs behind which a constant is an operand or an element."""
_WORDS = (" print", " log")
_UNUSUAL = re.compile("[\0\ud800-\udfff]")

INTEGER, FLOAT, TEXT = "\0i", "\0f", "\0s"
"""What stands for a constant in a form, by its kind."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A query of a text.

    - `start`, `end`: its place. `name_start`: that of its name.
    - `form`: what is behind its name, without comments, and with a mark for each constant that may
      be another one.
    - `constants`: these constants, as they are written.
    """

    start: int
    end: int
    name_start: int
    name: str
    form: str
    constants: tuple[str, ...]


def pieces(text: str) -> list[Piece]:
    """The queries of a text that have a name, in their order."""
    if _UNUSUAL.search(text):
        return []
    found = list[Piece]()
    depth, begun = 0, None
    for sign in _SIGN.finditer(text):
        match sign.group()[-1] if sign.group(1) else sign.group()[0]:
            case "{":
                begun = sign if depth == 0 and sign.group(1) else begun
                depth += 1
            case "}":
                depth -= 1
                if depth == 0 and begun is not None:
                    found += _piece(text, begun, sign.end())
                    begun = None
            case "'" | "`":
                return []
            case '"' if len(sign.group()) == 1:
                return []
        if depth < 0:
            return []
    return found if depth == 0 else []


def _piece(text: str, begun: re.Match[str], end: int) -> Iterator[Piece]:
    """The piece, unless its name is a word of the language."""
    name = begun.group(1)
    if name in KEYWORDS or name in SOFT_WORDS or name.startswith("__"):
        return
    parts = _CONSTANT.split(text[begun.end(1) : end])
    constants = list[str]()
    for place in range(1, len(parts), 2):
        part = parts[place]
        if part[0] == "/":
            parts[place] = " "
        elif "\\" not in part and _may_differ(parts[place - 1].rstrip(), parts[place + 1].lstrip()[:1]):
            constants.append(part)
            parts[place] = TEXT if part[0] == '"' else FLOAT if "." in part else INTEGER
    yield Piece(begun.start(), end, begun.start(1), name, "".join(parts), tuple(constants))


def _may_differ(before: str, after: str) -> bool:
    """Whether a constant is an operand, an element or an argument, by what is beside it."""
    last = before[-1:]
    if after == ":" or (last == "," and after == "}"):  # of a range, of a repeat
        return False
    return last in _BEFORE or before.endswith(_WORDS) or (last == "(" and _METHOD.search(before[-80:]) is not None)


def written_with(piece: Piece, constants: Mapping[str, str]) -> str:
    """The text of the query with other constants in place of its own."""
    given = iter(piece.constants)
    return f"query {piece.name}" + re.sub("\0[ifs]", lambda _: constants[next(given)], piece.form)
