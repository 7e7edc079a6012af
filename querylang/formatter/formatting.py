"""Format a query text in its canonical layout, with its comments.

Each comment stays between the same two words, and at most one empty line stays between two
statements. Formatting a formatted text changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from querylang.dataclass import dataclass, replace
from querylang.errors import QueryErrors
from querylang.formatter.expression_text import INDENT
from querylang.formatter.printer import printed, refusals
from querylang.plan.expression import Type
from querylang.plan.text import written_name
from querylang.source import Source
from querylang.syntax.ast import Comment
from querylang.syntax.lexer import KEYWORDS, Token, tokenize
from querylang.syntax.parser import parse

NAMELESS = "query"
"""The name of a text without a path."""

_INSTEAD = {("COLON", "AS"), ("LT", "LBRACE"), ("GT", "RBRACE")}
"""Words that the printer replaces by another."""
_DROPPED = frozenset({"LPAREN", "RPAREN", "LBRACE", "RBRACE", "THEN", "COMMA", "SEMICOLON", "EQ", "AS", "NAME", "PLUS"})
"""Words that the printer may leave out."""
_ADDED = frozenset({"COMMA"})
"""Words that the printer may add."""


def format_text(text: str, path: str = "") -> str:
    """The text in its canonical layout. Raises QueryErrors if it cannot be parsed."""
    source = Source(path or NAMELESS, text)
    file, mistakes = parse(source)
    mistakes = mistakes or refusals(file)
    if mistakes:
        raise QueryErrors(sorted(mistakes, key=lambda error: (error.span.start, error.span.end)))
    return _with_comments(source, file.comments, printed(file))


@dataclass(frozen=True, slots=True)
class _Note:
    """A comment, and whether it begins and ends its line in the source."""

    text: str
    begins_line: bool
    ends_line: bool
    follows_blank: bool


@dataclass(frozen=True, slots=True)
class _Gap:
    """The comments between two words, and whether an empty line is before the second word."""

    notes: tuple[_Note, ...] = ()
    ends_blank: bool = False


def _with_comments(source: Source, comments: Sequence[Comment], layout: str) -> str:
    """The layout with the source's comments and empty lines, aligned word by word."""
    written = tokenize(Source("", layout)).tokens
    read = tokenize(source).tokens
    gaps = _gaps(source, read, comments)
    partners = _aligned(read, written)
    pending: list[_Gap] = []
    lines = _Lines()
    at = 0
    for position, token in enumerate(written):
        partner = partners[position]
        if partner is not None:
            pending += gaps[at : partner + 1]
            at = partner + 1
        is_behind = token.type in {"SEMICOLON", "COMMA"}
        gap = _Gap() if is_behind else _merged(pending)
        lines.add(layout, written, position, gap, _text(token, None if partner is None else read[partner]))
        pending = [gap for gap in pending if gap.notes] if is_behind else []
    lines.end(_merged([*pending, *gaps[at:]]))
    return lines.text()


def _text(written: Token, read: Token | None) -> str:
    """How a word is written: as the printer does.

    An expression in a string with comments stays as it is.
    """
    if read is None or {read.type, written.type} != {"STRING_LITERAL"} or read.content == written.content:
        return written.span.text
    inside = tokenize(Source("", read.content))
    words, printed_words = (_words(found) for found in (inside.tokens, tokenize(Source("", written.content)).tokens))
    return read.span.text if inside.comments and words and words == printed_words else written.span.text


def _words(tokens: Sequence[Token]) -> list[str]:
    """The words of an expression, without brackets."""
    return [token.content for token in tokens if token.type not in {"LPAREN", "RPAREN"}]


def _gaps(source: Source, read: Sequence[Token], comments: Sequence[Comment]) -> list[_Gap]:
    """The gap before each word, and after the last."""
    gaps: list[_Gap] = []
    rest = list(reversed(comments))
    end = 0
    for start in [*(token.start for token in read), len(source.text)]:
        notes: list[_Note] = []
        while rest and rest[-1].span.start < start:
            comment = rest.pop()
            before = source.text[end : comment.span.start]
            end = comment.span.end
            following = min(start, rest[-1].span.start if rest else start)
            notes.append(
                _Note(
                    comment.text,
                    begins_line="\n" in before or comment.span.start == len(before) == 0,
                    ends_line="\n" in source.text[end:following] or comment.text.startswith("//"),
                    follows_blank=before.count("\n") > 1,
                )
            )
        gaps.append(_Gap(tuple(notes), source.text[end:start].count("\n") > 1))
        end = read[len(gaps) - 1].end if len(gaps) <= len(read) else end
    return gaps


def _merged(gaps: Sequence[_Gap]) -> _Gap:
    """Several gaps as one: the words between them are left out."""
    notes: list[_Note] = []
    for note in (note for gap in gaps for note in gap.notes):
        is_on_new_line = bool(notes) and notes[-1].text.startswith("//")
        notes.append(replace(note, begins_line=note.begins_line or is_on_new_line))
    return _Gap(tuple(notes), bool(gaps) and gaps[-1].ends_blank)


def _aligned(read: Sequence[Token], written: Sequence[Token]) -> list[int | None]:
    """For each printed word the position of the source word; None: the printer has added it."""
    partners: list[int | None] = []
    at = 0
    for token in written:
        found = next((index for index in _candidates(read, at) if _stands_for(read[index], token)), None)
        if found is None and token.type not in _ADDED and at < len(read):
            found = at  # a string or number in another spelling
        partners.append(found)
        at = at if found is None else found + 1
    return partners


def _candidates(read: Sequence[Token], at: int) -> Iterator[int]:
    """The next word, and those after words that may be left out."""
    while at < len(read):
        yield at
        if read[at].type not in _DROPPED:
            return
        at += 1


def _stands_for(read: Token, written: Token) -> bool:
    return (read.type, read.content) == (written.type, written.content) or (read.type, written.type) in _INSTEAD


class _Lines:
    """The output text, built word by word."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._indent = ""
        """Of the current line of the layout."""

    def add(self, layout: str, written: Sequence[Token], position: int, gap: _Gap, text: str) -> None:
        """Add the next word, written as `text`, with the gap before it."""
        token = written[position]
        before = written[position - 1] if position else None
        between = layout[before.end if before is not None else 0 : token.start]
        is_block = before is not None and (before.type, token.type) == ("LBRACE", "RBRACE")
        is_line = before is None or "\n" in between
        inner = ""
        if is_line:
            self._indent = between.rpartition("\n")[2]
            inner = self._indent + (INDENT if token.type == "RBRACE" else "")
        elif is_block and gap.notes:
            is_line, inner = True, self._indent + INDENT
            between = f"\n{self._indent}"
        elif gap.notes:
            inner = self._indent + ("" if token.type == "ELSE" else INDENT)
        if is_line:
            self._line(before, token, between, gap, inner)
        else:
            self._words(between, gap, inner)
        self._parts.append(text)

    def end(self, gap: _Gap) -> None:
        """Add the gap after the last word."""
        for number, note in enumerate(gap.notes):
            self._note(note, "", may_be_blank=True, is_first=number == 0 and not self._parts)
        if self._parts and not self._parts[-1].endswith("\n"):
            self._parts.append("\n")

    def text(self) -> str:
        """The whole text."""
        return "".join(self._parts)

    def _line(self, before: Token | None, token: Token, between: str, gap: _Gap, indent: str) -> None:
        """Add a word that begins a line.

        Comments are on lines before it, or after the word before it.
        """
        wants_blank = between.count("\n") > 1
        may_be_blank = before is not None and before.type != "LBRACE"
        for found in gap.notes:
            is_first = not self._parts
            is_separated = wants_blank and found.begins_line
            wants_blank = wants_blank and not is_separated
            note = replace(found, follows_blank=found.follows_blank or is_separated)
            self._note(note, indent, may_be_blank=may_be_blank, is_first=is_first)
            may_be_blank = True
        if not self._parts:
            return
        last = gap.notes[-1] if gap.notes else None
        if last is not None and last.begins_line and not last.ends_line and token.type != "RBRACE":
            self._parts.append(" ")
            return
        ends_item = before is not None and before.type in {"SEMICOLON", "RBRACE"}
        is_kept = gap.ends_blank and (ends_item or last is not None) and token.type != "RBRACE"
        self._parts.append(("\n\n" if wants_blank or is_kept else "\n") + self._indent)

    def _words(self, between: str, gap: _Gap, indent: str) -> None:
        """A word within a line; comments stand before it, and break the line where they must."""
        for note in gap.notes:
            self._note(note, indent, may_be_blank=False, is_first=False)
        if not gap.notes:
            self._parts.append(between)
        elif gap.notes[-1].text.startswith("//") or (gap.notes[-1].begins_line and gap.notes[-1].ends_line):
            self._parts.append("\n" + indent)
        else:
            self._parts.append(" ")

    def _note(self, note: _Note, indent: str, *, may_be_blank: bool, is_first: bool) -> None:
        if is_first:
            pass
        elif note.begins_line:
            self._parts.append(("\n\n" if note.follows_blank and may_be_blank else "\n") + indent)
        else:
            self._parts.append(" ")
        self._parts.append(note.text)


# The definitions of event types that data shows, as query texts write them.


def definitions(schemas: Mapping[str, Mapping[str, Type]]) -> str:
    """All in one line: `event A { string k; float v; }`."""
    return " ".join(
        f"event {name} {{ {' '.join(f'{type_} {_field(field)};' for field, type_ in fields.items())} }}"
        for name, fields in schemas.items()
    )


def _field(name: str) -> str:
    return f"#{name}" if name in KEYWORDS else written_name(name)
