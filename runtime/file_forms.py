"""What is known of files before they are read: by their names, and by what users say of them.

Needs no Arrow: deployment files are checked without it.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any
from urllib.parse import unquote

from querylang.dataclass import asdict, dataclass
from querylang.errors import InputError, did_you_mean, listed

# Names of files and folders: in natural order, and folders named `key=value`.

# The natural order of names: digits in them are compared as numbers, `9.csv` before `10.csv`.

_DIGITS = re.compile("([0-9]+)")

NaturalKey = tuple[tuple[object, ...], str]


def natural_key(path: str) -> NaturalKey:
    """What paths are sorted by, folder by folder; equal ones (`01`, `1`) by their characters."""
    return tuple(tuple(map(_part, enumerate(_DIGITS.split(name)))) for name in path.split("/")), path


def _part(numbered: tuple[int, str]) -> object:
    """A text, or the value of digits, as (length, digits): digits may be too many for a number."""
    place, text = numbered
    value = text.lstrip("0")
    return (len(value), value) if place % 2 else text


# Folders named `key=value`, as Hive and Spark write them: the files below, and their keys.

_NOTHING = "__HIVE_DEFAULT_PARTITION__"
"""The value that stands for null."""


class FileBelow(type(Path())):  # type: ignore[misc]  # the class of paths of this system
    """A file in folders named `key=value`, below the folder that a user names.

    It is the path that it is; its source is called by the path from that folder on.
    """

    from_folder: str

    @staticmethod
    def of(folder: Path, path: Path) -> FileBelow:
        """A file in a folder below this one."""
        file = FileBelow(path)
        file.from_folder = path.relative_to(folder).as_posix()
        return file


def path_of(table: str | Path) -> Path:
    """The path of a table; one that is a path stays one of its class."""
    return table if isinstance(table, Path) else Path(table)


def name_of_table(path: str | Path) -> str:
    """What the source of a file is called: the file's name, with its folders if these are keys."""
    return path.from_folder if isinstance(path, FileBelow) else Path(path).name


def shown_name(path: str | Path) -> str:
    """The same as text: bytes of a name that are not UTF-8 are written as hexadecimal numbers."""
    return name_of_table(path).encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def is_key(name: str) -> bool:
    """Whether a folder of this name is a key and its value."""
    key, equals, value = name.partition("=")
    return bool(key and equals and value) and key[0] != "."


def keys_of(name: str) -> dict[str, str | None]:
    """The keys in the folders directly above a file, by the name of its source; None = null.

    `clicks/year=2024/month=1/a.csv` has year 2024 and month 1.
    """
    found: dict[str, str | None] = {}
    for folder in reversed(name.split("/")[:-1]):
        if not is_key(folder):
            break
        key, _, value = folder.partition("=")
        found.setdefault(unquote(key), None if value == _NOTHING else unquote(value))
    return dict(reversed(found.items()))


def files_below(folder: Path, root: Path | None = None) -> Iterator[Path]:
    """The files in a folder, and in all folders of keys below it.

    Names that begin with `.` or `_` are skipped.
    """
    for item in folder.iterdir():
        if is_key(item.name) and item.is_dir():
            yield from files_below(item, root or folder)
        elif item.name[0] not in "._":
            yield item if root is None else FileBelow.of(root, item)


# What is said of files before they are read: format, form of CSV, and what is asked of readers.
#
# Needs no Arrow: deployment files are checked without it.

# How a CSV file is written, as users give it: delimiter, encoding, what is missing and others.

UTF_8 = "utf-8"

CSV_KEYS = ("delimiter", "encoding", "decimal", "thousands", "missing", "header", "names", "skip", "escape")

CSV_LISTS = ("missing", "names")
"""Settings of several texts, which a comma divides."""

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
    thousands: what divides the digits of large numbers; None = nothing does
    missing: the text of cells without a value, beside the empty cell
    has_header: whether the first record has the names of the columns
    names: of the columns, instead of those in the file; empty = as in the file, or `column1` ...
    skip: how many lines come before the table
    escape: the character before a quote that does not end a cell; None = quotes are doubled
    """

    delimiter: str | None = None
    encoding: str = UTF_8
    decimal: str = POINT
    thousands: str | None = None
    missing: tuple[str, ...] = ()
    has_header: bool = True
    names: tuple[str, ...] = ()
    skip: int = 0
    escape: str | None = None

    def __str__(self) -> str:
        """As users write it: `delimiter=; encoding=cp1252 decimal=,`."""
        words = [] if self.delimiter is None else [f"delimiter={shown_delimiter(self.delimiter)}"]
        words += [] if self.encoding == UTF_8 else [f"encoding={self.encoding}"]
        words += [] if self.decimal == POINT else [f"decimal={self.decimal}"]
        words += [] if self.thousands is None else [f"thousands={shown_delimiter(self.thousands)}"]
        words += [f"missing={_quoted(self.missing)}"] if self.missing else []
        words += [] if self.has_header else ["header=no"]
        words += [f"names={_quoted(self.names)}"] if self.names else []
        words += [f"skip={self.skip}"] if self.skip else []
        words += [] if self.escape is None else [f"escape={self.escape}"]
        return " ".join(words)

    def to_plain(self) -> dict[str, Any]:
        """As JSON can hold it."""
        return {**asdict(self), "missing": list(self.missing), "names": list(self.names)}

    @staticmethod
    def of_plain(plain: Mapping[str, Any]) -> CsvForm:
        """The inverse of `to_plain`."""
        return CsvForm(**{**plain, "missing": tuple(plain["missing"]), "names": tuple(plain["names"])})


USUAL_CSV = CsvForm()

Given = str | bool | int | Sequence[str]
"""A setting as users give it: text, or in Python and YAML also a list, a number, yes or no."""


def read_csv_form(given: str | Mapping[str, Given] | None) -> CsvForm:
    """`delimiter=; encoding=latin-1`, or a mapping of the same; raises InputError."""
    if given is None:
        return USUAL_CSV
    words = _words(given) if isinstance(given, str) else {str(key): value for key, value in given.items()}
    for key in words:
        if key not in CSV_KEYS:
            raise InputError(f"csv: unknown setting {key!r}; expected {listed(CSV_KEYS)}{did_you_mean(key, CSV_KEYS)}")
    return csv_form({key: read_csv_setting(key, value) for key, value in words.items()})


def read_csv_setting(key: str, value: Given) -> Any:
    """The value of one of CSV_KEYS; raises InputError."""
    if key in CSV_LISTS:
        items = value.split(",") if isinstance(value, str) else value
        if isinstance(items, bool | int) or not all(isinstance(item, str) for item in items):
            raise InputError(f"csv: {key} {value!r} is not a list of texts; write `{key}=A,B`")
        return tuple(item.strip() for item in items)
    text = {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)
    return _READERS[key](text)


def csv_form(settings: Mapping[str, Any]) -> CsvForm:
    """A form from values of `read_csv_setting`; raises InputError if two of them contradict."""
    known = {_FIELDS.get(key, key): value for key, value in settings.items()}
    if known.get("names"):
        repeated = next((name for name in known["names"] if known["names"].count(name) > 1), None)
        if repeated is not None:
            raise InputError(f"csv: the name {repeated!r} is given twice")
        known.setdefault("has_header", False)
    form = CsvForm(**known)
    if form.thousands == form.decimal:
        raise InputError(f"csv: {form.decimal!r} cannot divide thousands and begin the fraction; write `decimal=,` too")
    if form.escape is not None and form.escape == form.delimiter:
        raise InputError(f"csv: {form.escape!r} cannot be the delimiter and escape quotes")
    return form


_WORD = re.compile(r"""\s*(\w+)=(?:"([^"]*)"|(\t|\S+))\s*""")


def _words(text: str) -> dict[str, Given]:
    words: dict[str, Given] = {}
    at = 0
    while at < len(text):
        word = _WORD.match(text, at)
        if word is None:
            raise InputError(f"csv: {text[at:].strip()!r} is not a setting; write `delimiter=; encoding=latin-1`")
        if word[1] in words:
            raise InputError(f"csv: {word[1]!r} is given twice")
        words[word[1]] = word[3] if word[2] is None else word[2]
        at = word.end()
    return words


def _quoted(items: Sequence[str]) -> str:
    text = ",".join(items)
    return f'"{text}"' if re.search(r"\s", text) or not text else text


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


def read_thousands(text: str) -> str:
    """One character that no number begins with; raises InputError."""
    divider = {"space": " ", "comma": ",", "point": "."}.get(text, text)
    if divider not in _DIVIDERS:
        raise InputError(f"csv: thousands {text!r} divides no numbers; write one such as `,` `.` `'` or `space`")
    return divider


_DIVIDERS = (",", ".", "'", " ", "_", "\u00a0", "\u202f", "\u2019")


WITH_THOUSANDS = r"^\s*[+-]?\d{1,3}(,\d{2,3})*,\d{3}(\.\d+)?\s*$"
WITH_COMMA = r"^\s*[+-]?\d{1,20},\d{1,20}\s*$"
"""Numbers with a comma, for Python and RE2: before the last three digits it divides thousands."""

_OTHERS = str.maketrans(".,", ",.")
_NAMES = {POINT: "points", COMMA: "commas"}


_MISSING = ("NA", "N/A", "n/a", "#N/A", "na", "nil", "NIL", "null", "NULL", "None", "none", "-", "?", "\\N")
"""What programs write where there is no value."""


def hint_of_cell(cell: str, *, decimal: str | None) -> str:
    """The end of a message: the setting that reads a cell.

    decimal: what decimals have before their fraction; None = do not ask whether it is a number
    """
    found = "" if decimal is None else hint_of_number(cell.translate(_OTHERS) if decimal == COMMA else cell, decimal)
    word = cell.strip()
    if found or word not in _MISSING:
        return found
    return f"; if it means that there is no value: `--csv missing={word}`"


def hint_of_number(cell: str, decimal: str) -> str:
    """The setting that reads a number whose points and commas are not those of `decimal`.

    cell: with a point before its fraction, as `decimal` has it
    """
    other = POINT if decimal == COMMA else COMMA
    if re.fullmatch(WITH_THOUSANDS, cell, re.ASCII):
        return f"; if {_NAMES[other]} divide thousands: `--csv thousands={other}`"
    if re.fullmatch(WITH_COMMA, cell, re.ASCII):
        return f"; with {_NAMES[other]} in decimals: `--csv decimal={other}`"
    return ""


def read_header(text: str) -> bool:
    """Whether there is a row of names; raises InputError."""
    if text.lower() not in _TRUTHS:
        raise InputError(f"csv: header {text!r} is neither `yes` nor `no`")
    return _TRUTHS[text.lower()]


_TRUTHS = {"yes": True, "no": False, "true": True, "false": False}


def read_skip(text: str) -> int:
    """A number of lines; raises InputError."""
    if not text.isascii() or not text.isdigit() or len(text) > 9:
        raise InputError(f"csv: skip {text!r} is not a number of lines; write one such as `skip=2`")
    return int(text)


def read_escape(text: str) -> str:
    """One ASCII character that is neither a quote nor a letter; raises InputError."""
    escape = "\\" if text in ("backslash", "\\\\") else text
    if len(escape) != 1 or not escape.isascii() or not escape.isprintable() or escape.isalnum() or escape in '" ':
        raise InputError(f"csv: escape {text!r} is not a character before quotes; write `escape=\\`")
    return escape


_READERS: Mapping[str, Callable[[str], Any]] = {
    "delimiter": read_delimiter,
    "encoding": read_encoding,
    "decimal": read_decimal,
    "thousands": read_thousands,
    "header": read_header,
    "skip": read_skip,
    "escape": read_escape,
}

_FIELDS = {"header": "has_header"}
"""By setting: the field of `CsvForm` with another name."""


COMPRESSIONS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}
"""By ending of a file's name: Arrow's name of the compression."""


def kind_of(path: PurePath) -> tuple[str, str]:
    """The endings of a file's name in lower case, of its format and its compression, if any."""
    suffix = path.suffix.lower()
    return (PurePath(path.stem).suffix.lower(), suffix) if suffix in COMPRESSIONS else (suffix, "")


# What is asked of the readers of files, and the limits that hold for every table.

MAX_RECORD = 16 << 20
"""How long a record may be, in bytes, where users do not say it."""

MOST_NAMES = 1_000
"""How many different names the objects of a JSON table may have together, nested ones included.

A table has a cell for each row and name. Where there are more, only the columns that the queries
need are kept.
"""

MOST_SHOWN = 1_000
"""How many characters of a record or cell messages show."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What is asked of a reader.

    few_values: text columns with few different cells; they may come as dictionaries
    wanted: the names of the columns that are needed, in lower case; None = all
    max_record: length of the longest record that is read, in bytes; longer ones are unreadable
    csv: how CSV files are written
    rows: most rows of a part, if the reader can choose; None = as it likes. The parts of a Parquet
        file's first row group have half as many, so that work on them begins sooner
    has_named_times: whether users name a column of times
    only: the names of the only columns that are looked at, in lower case; None = all. A reader that
        can leaves out the others
    """

    few_values: Collection[str] = ()
    wanted: Collection[str] | None = None
    max_record: int = MAX_RECORD
    csv: CsvForm = USUAL_CSV
    rows: int | None = None
    has_named_times: bool = False
    only: Collection[str] | None = None

    def chosen(self, names: Iterable[str]) -> list[str] | None:
        """Those of these columns that are looked at; None = all."""
        return None if self.only is None else [name for name in names if name.casefold() in self.only]

    @property
    def too_long(self) -> str:
        """Why a longer record is unreadable."""
        return f"longer than {size_text(self.max_record)}, the limit `max_record`"


EVERYTHING = Asked()


def size_text(size: int) -> str:
    """`16 MB`."""
    for unit, name in ((1 << 30, "GB"), (1 << 20, "MB"), (1 << 10, "kB")):
        if size >= unit:
            return f"{size // unit:,} {name}" if size % unit == 0 else f"{size / unit:,.1f} {name}"
    return f"{size} bytes"


def shortened(text: str) -> str:
    """A text for a message, cut off if it is long."""
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}... ({len(text):,} characters)"
