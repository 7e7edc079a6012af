"""How a CSV file is written: its delimiter and encoding, as users give them.

Imports the standard library only: deployment files are checked without Arrow.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Mapping
from dataclasses import dataclass

from querylang.errors import InputError, did_you_mean, listed

UTF_8 = "utf-8"

CSV_KEYS = ("delimiter", "encoding", "decimal")

POINT, COMMA = ".", ","

_NAMED_DELIMITERS = {"tab": "\t", "\\t": "\t", "space": " ", "comma": ",", "semicolon": ";", "pipe": "|"}
_NOT_OF_TEXT = ("idna", "punycode", "unicode_escape", "raw_unicode_escape", "undefined", "mbcs", "oem")
_USUAL_ENCODINGS = ("utf-8", "latin-1", "iso-8859-1", "iso-8859-15", "cp1252", "utf-16", "utf-16-le", "cp437", "ascii")


@dataclass(frozen=True, slots=True)
class CsvForm:
    """How a CSV file is written.

    delimiter: the character between cells; None = a tab in `.tsv`, else a comma
    encoding: as Python names it
    decimal: what decimals have before their fraction, a point or a comma
    """

    delimiter: str | None = None
    encoding: str = UTF_8
    decimal: str = POINT

    def __str__(self) -> str:
        """As users write it: `delimiter=; encoding=cp1252 decimal=,`."""
        words = [] if self.delimiter is None else [f"delimiter={shown_delimiter(self.delimiter)}"]
        words += [] if self.encoding == UTF_8 else [f"encoding={self.encoding}"]
        words += [] if self.decimal == POINT else [f"decimal={self.decimal}"]
        return " ".join(words)


USUAL_CSV = CsvForm()


def read_csv_form(given: str | Mapping[str, str] | None) -> CsvForm:
    """`delimiter=; encoding=latin-1`, or a mapping of the same; raises InputError."""
    if given is None:
        return USUAL_CSV
    words = _words(given) if isinstance(given, str) else {str(key): str(value) for key, value in given.items()}
    for key in words:
        if key not in CSV_KEYS:
            raise InputError(f"csv: unknown setting {key!r}; expected {listed(CSV_KEYS)}{did_you_mean(key, CSV_KEYS)}")
    delimiter = words.get("delimiter")
    return CsvForm(
        None if delimiter is None else read_delimiter(delimiter),
        read_encoding(words.get("encoding", UTF_8)),
        read_decimal(words.get("decimal", POINT)),
    )


def _words(text: str) -> dict[str, str]:
    words: dict[str, str] = {}
    at, form = 0, re.compile(r"\s*(\w+)=(\t|\S+)\s*")
    while at < len(text):
        word = form.match(text, at)
        if word is None:
            raise InputError(f"csv: {text[at:].strip()!r} is not a setting; write `delimiter=; encoding=latin-1`")
        if word[1] in words:
            raise InputError(f"csv: {word[1]!r} is given twice")
        words[word[1]] = word[2]
        at = word.end()
    return words


def read_delimiter(text: str) -> str:
    """One ASCII character, or its name, such as `tab`; raises InputError."""
    delimiter = _NAMED_DELIMITERS.get(text, text)
    if len(delimiter) != 1 or not delimiter.isascii() or delimiter in '"\r\n\0':
        raise InputError(f"csv: delimiter {text!r} is not one ASCII character; write one such as `;` or `|`, or `tab`")
    return delimiter


def read_decimal(text: str) -> str:
    """A point or a comma; raises InputError."""
    if text not in (POINT, COMMA):
        raise InputError(f"csv: decimal {text!r} is neither a point nor a comma; write `decimal=,`")
    return text


def shown_delimiter(delimiter: str) -> str:
    """A delimiter as users write it."""
    return {"\t": "tab", " ": "space"}.get(delimiter, delimiter)


def read_encoding(text: str) -> str:
    """The usual name of an encoding; raises InputError."""
    try:
        found = codecs.lookup(text).name
        if isinstance("a".encode(found), bytes) and found not in _NOT_OF_TEXT:
            return found
    except (LookupError, ValueError, TypeError):
        pass  # no encoding, or one of something else than text
    raise InputError(
        f"csv: there is no encoding {text!r}{did_you_mean(text, _USUAL_ENCODINGS)};"
        " usual ones are utf-8, latin-1, cp1252 and utf-16"
    )
