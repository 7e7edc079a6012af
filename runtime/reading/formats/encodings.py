"""Compressed files, text in other encodings, and text that is not UTF-8."""

from __future__ import annotations

import codecs
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from querylang.dataclass import dataclass, replace
from querylang.errors import InputError
from querylang.system_errors import refused
from runtime.file_forms import COMPRESSIONS, USUAL_CSV, UTF_8, Asked, CsvForm, kind_of, size_text
from runtime.reading.formats.raw_table import RawTable, as_text_of_bytes, one_line, plain_array
from runtime.temporary import OTHER_PLACE, temporary_folder

# Compressed files, and text in other encodings, as plain files of UTF-8 that readers know. A plain
# file is written to the folder of temporary files, in pieces, and removed after it was read: so
# memory stays bounded, and readers may go back in it. A small file may unfold to any size; there is
# a limit.

_PIECE = 1 << 20
_RECORDS, _TIMES = 16, 200
"""A file may unfold to so many of the longest records, or to so many times its size."""

BROKEN = "\udcff"
"""Stands for bytes that are not text: no UTF-8 either, so that the row is malformed."""


_TEXTS = (".csv", ".tsv", ".json", ".jsonl", ".ndjson", ".yaml", ".yml")

_MAGIC: Mapping[bytes, str] = {
    b"PAR1": "a Parquet file; rename it to end in `.parquet`",
    b"ARROW1": "an Arrow file; rename it to end in `.arrow`",
    b"\x1f\x8b": "compressed by gzip; rename it to end in `{suffix}.gz`",
    b"BZh": "compressed by bzip2; rename it to end in `{suffix}.bz2`",
    b"\x28\xb5\x2f\xfd": "compressed by zstd; rename it to end in `{suffix}.zst`",
    b"PK\x03\x04": "a zip archive, as Excel's files are; take the table out of it, or save it as CSV",
    b"\xd0\xcf\x11\xe0": "an old Excel file; save it as CSV",
    b"Obj\x01": "an Avro file; convert it to Parquet or JSON lines",
    b"ORC": "an ORC file; convert it to Parquet",
    b"SQLite format 3": "an SQLite database; export the table as CSV",
    b"7z\xbc\xaf": "a 7-Zip archive; take the table out of it",
    b"%PDF-": "a PDF document",
}
"""By the first bytes of a file: what it is, whatever its name says."""


def refuse_other_kind(path: Path, suffix: str) -> None:
    """Raise InputError for a file of another kind than its name, which ends so, says."""
    if suffix not in _TEXTS or kind_of(path)[1]:
        return
    with path.open("rb") as file:
        first = file.read(16)
    for magic, told in _MAGIC.items():
        # letters may begin a text, such as the name of a column; a binary file has zeros, too
        if first.startswith(magic) and (not magic.isalnum() or _is_binary(path)):
            raise InputError(f"{path}: its name ends in {suffix}, but it is {told.format(suffix=suffix)}")


def _is_binary(path: Path) -> bool:
    with path.open("rb") as file:
        return b"\0" in file.read(1 << 16)


@contextmanager
def plain_file(path: Path, asked: Asked, encoding: str = UTF_8, escape: str | None = None) -> Iterator[Path]:
    """The file, or a plain one in its place; messages of errors name the file.

    encoding: of its text, if that is not UTF-8
    escape: what stands before quotes that do not end a cell of CSV; None = they are doubled

    Raises InputError and OSError.
    """
    kind, compression = kind_of(path)
    if not compression and encoding == UTF_8 and escape is None:
        yield path
        return
    with temporary_folder() as folder:
        plain = folder / f"table{kind}"
        with path.open("rb") as file, plain.open("wb") as out:
            source = pa.CompressedInputStream(file, COMPRESSIONS[compression]) if compression else file
            try:
                _unfold(_Limited(path, cast("BinaryIO", source), asked), out, encoding, escape)
            except OSError as error:
                raise refused(error, f"{path}: cannot be unfolded into {folder}", OTHER_PLACE) from error
            except UnicodeError as error:  # such as UTF-16 of which nothing says the order of bytes
                raise InputError(f"{path}: is not {encoding} text: {one_line(error)}") from None
        try:
            yield plain
        except InputError as error:
            raise InputError(str(error).replace(str(plain), str(path))) from error


class _Limited:
    """The content of a file, up to a limit."""

    def __init__(self, path: Path, source: BinaryIO, asked: Asked) -> None:
        self._path = path
        self._source = source
        self._asked = asked
        self._most = max(_RECORDS * asked.max_record, _TIMES * path.stat().st_size)
        self._found = 0

    def read(self) -> bytes:
        """The next piece; b"" = there is none. Raises InputError if there is too much."""
        try:
            piece = self._source.read(_PIECE)
        except (pa.ArrowException, OSError) as error:
            raise InputError(f"{self._path}: cannot be unfolded: {one_line(error)}") from error
        self._found += len(piece)
        if self._found > self._most:
            raise InputError(
                f"{self._path}: unfolds to more than {size_text(self._most)};"
                f" if that is right, set a larger `max_record` than {size_text(self._asked.max_record)}"
            )
        return piece


def _unfold(source: _Limited, out: BinaryIO, encoding: str, escape: str | None) -> None:
    decoder = None if encoding == UTF_8 else codecs.getincrementaldecoder(encoding)(_HANDLER)
    quotes = None if escape is None else _Quotes(escape.encode())
    is_end = False
    while not is_end:
        piece = source.read()
        is_end = not piece
        if decoder is not None:
            piece = _utf_8(decoder.decode(piece, final=is_end))
        out.write(piece if quotes is None else quotes.doubled(piece, is_end=is_end))


class _Quotes:
    r"""Writes `\"` as `""`, and `\\` as `\`; before anything else the escape is usual text."""

    def __init__(self, escape: bytes) -> None:
        self._escape = escape
        self._form = re.compile(re.escape(escape) + b"([" + re.escape(escape) + b'"])')
        self._waiting = b""

    def doubled(self, piece: bytes, *, is_end: bool) -> bytes:
        """The next piece; an escape at its end waits for what follows."""
        data = self._waiting + piece
        length = len(data) - len(data.rstrip(self._escape))
        kept = len(data) - (0 if is_end else length % 2)
        self._waiting = data[kept:]
        return self._form.sub(lambda found: b'""' if found[1] == b'"' else found[1], data[:kept])


def _utf_8(text: str) -> bytes:
    return text.encode(UTF_8, "surrogatepass")


def _broken(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeDecodeError), "it is registered for decoding only"
    return BROKEN, error.end


_HANDLER = "ensue.broken"
codecs.register_error(_HANDLER, _broken)


# Text that is not UTF-8: columns may hold any bytes as text, and no reader looks at them. Such a
# cell is not a value. If it were taken with replacement characters, different keys could become
# one.

REPLACEMENT = "\ufffd"
_SHOWN_BROKEN = BROKEN.encode(UTF_8, "surrogatepass").decode(UTF_8, "backslashreplace")
"""A byte that is not text in the encoding of its file, as `RawTable.shown` has it."""
_ONLY_CP1252 = re.compile(r"\\x[89]")
"""A byte that is a control character in Latin-1, and a letter or a sign in Windows' encoding."""


@dataclass(frozen=True, slots=True)
class BrokenCell:
    """A cell whose text is not UTF-8.

    row: from 0
    column: its name
    reason: for people: the text, the column, and what is wrong
    """

    row: int
    column: str
    reason: str


def without_broken_text(
    raw: RawTable, names: Collection[str], texts: Collection[str] = (), csv: CsvForm = USUAL_CSV
) -> tuple[RawTable, Sequence[BrokenCell]]:
    """The table with null in place of text that is not UTF-8, and where that was.

    names: the columns that are looked at, if the table has them
    texts: those that are text also where they are declared as bytes
    csv: how the table is written, if it is CSV

    Raises InputError for a column in memory that is damaged otherwise.
    """
    if raw.is_ascii:
        return raw, ()
    raw = _with_texts(raw, texts)
    columns = raw.columns
    cells: list[BrokenCell] = []
    for name in names:
        position = columns.schema.get_field_index(name)
        if position < 0 or _is_sound(columns.column(position)):
            continue
        column = raw.column(name)
        broken = _broken_rows(column)
        rows = np.flatnonzero(broken).tolist()
        cells += [BrokenCell(row, name, _reason(raw, name, row, csv)) for row in rows]
        taken = column.take(pa.array(np.arange(len(column)), mask=broken))
        _check(taken, raw.name)
        columns = columns.set_column(position, name, taken)
    return raw if columns is raw.columns else replace(raw, columns=columns), cells


def _reason(raw: RawTable, name: str, row: int, csv: CsvForm) -> str:
    shown = raw.shown(name, row)
    if csv.encoding != UTF_8 and not raw.has_types:
        return f"{shown.replace(_SHOWN_BROKEN, REPLACEMENT)} in {name!r} is not {csv.encoding} text"
    reason = f"{shown} in {name!r} is not UTF-8 text"
    if raw.has_types:
        return reason
    encoding = "cp1252" if _ONLY_CP1252.search(shown) else "latin-1"
    return f"{reason}; if it is {encoding}: `--csv encoding={encoding}`"


def _with_texts(raw: RawTable, texts: Collection[str]) -> RawTable:
    columns = raw.columns
    for name in texts:
        position = columns.schema.get_field_index(name)
        kind = columns.schema.field(position).type if position >= 0 else pa.null()
        if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
            columns = columns.set_column(position, name, as_text_of_bytes(columns.column(position)))
    return raw if columns is raw.columns else replace(raw, columns=columns)


def _is_sound(column: pa.ChunkedArray) -> bool:
    """Whether all text of a column is UTF-8: one pass over it, or over a dictionary's values."""
    if not _has_text(column.type):
        return True
    try:
        for chunk in column.chunks:
            own = chunk.dictionary if pa.types.is_dictionary(chunk.type) else chunk
            own.validate(full=not _is_ascii(own))
    except pa.ArrowInvalid:
        return False
    return True


_ABOVE_ASCII = np.uint64(0x8080808080808080)
"""The bits that no byte of ASCII has, in eight bytes."""


def _is_ascii(column: pa.Array) -> bool:
    """Whether a column is ASCII and its texts follow each other: a tenth of the time of decoding.

    False where it is not known: with nulls, and where something else than ASCII is near.
    """
    validity, offsets, data = column.buffers() if pa.types.is_string(column.type) else (None, None, None)
    if validity is not None or offsets is None or data is None or not len(column):
        return False
    column.validate()  # that the buffers are as long as they have to be
    ends = np.frombuffer(offsets, np.int32)[column.offset : column.offset + len(column) + 1]
    if ends[0] < 0 or (ends[1:] < ends[:-1]).any():
        return False
    words = np.frombuffer(data, np.uint64, data.size // 8)[ends[0] // 8 : ends[-1] // 8]
    rest = np.frombuffer(data, np.uint8)[ends[-1] // 8 * 8 : ends[-1]]
    return not (np.bitwise_or.reduce(words) & _ABOVE_ASCII or (rest & 0x80).any())


def _check(column: pa.Array, table: str) -> None:
    try:
        column.validate(full=True)
    except pa.ArrowInvalid as error:
        raise InputError(f"{table}: a column is damaged: {one_line(error)}") from None


def _has_text(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        return _has_text(kind.value_type)
    return _is_string(kind) or any(_has_text(kind.field(number).type) for number in range(kind.num_fields))


def _is_string(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _broken_rows(column: pa.Array) -> NDArray[np.bool_]:
    """By row: whether text in it is not UTF-8. Called only where there is such a row."""
    column = plain_array(column)
    kind = column.type
    broken = np.zeros(len(column), np.bool_)
    if _is_string(kind):
        cells = pc.cast(column, pa.large_binary()).to_pylist()
        return np.array([cell is not None and not _is_utf8(cell) for cell in cells], np.bool_)
    if pa.types.is_struct(kind):
        for part in column.flatten():
            broken |= _broken_rows(part)
    elif _is_list(kind):
        parents = pc.list_parent_indices(column).to_numpy(zero_copy_only=False)
        broken[parents[_broken_rows(column.flatten())]] = True
    elif pa.types.is_map(kind):
        entries = column.view(pa.list_(pa.struct([("key", kind.key_type), ("value", kind.item_type)])))
        return _broken_rows(entries)
    return broken


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True
