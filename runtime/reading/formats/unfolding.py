"""Compressed files, and text in other encodings, as plain files of UTF-8 that readers know.

A plain file is written to the folder of temporary files, in pieces, and removed after it was read:
so memory stays bounded, and readers may go back in it. A small file may unfold to any size;
there is a limit.
"""

from __future__ import annotations

import codecs
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

import pyarrow as pa

from querylang.errors import InputError
from runtime.reading.formats.asked import Asked, size_text
from runtime.reading.formats.csv_form import UTF_8
from runtime.reading.formats.raw_table import one_line

COMPRESSIONS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}
"""By ending of a file's name: Arrow's name of the compression."""

_PIECE = 1 << 20
_RECORDS, _TIMES = 16, 200
"""A file may unfold to so many of the longest records, or to so many times its size."""

BROKEN = "\udcff"
"""Stands for bytes that are not text: no UTF-8 either, so that the row is malformed."""


def kind_of(path: Path) -> tuple[str, str]:
    """The endings of a file's name in lower case, of its format and its compression, if any."""
    suffix = path.suffix.lower()
    return (Path(path.stem).suffix.lower(), suffix) if suffix in COMPRESSIONS else (suffix, "")


@contextmanager
def plain_file(path: Path, asked: Asked, encoding: str = UTF_8) -> Iterator[Path]:
    """The file, or a plain one in its place; messages of errors name the file.

    encoding: of its text, if that is not UTF-8. Raises InputError and OSError.
    """
    kind, compression = kind_of(path)
    if not compression and encoding == UTF_8:
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="ensue-") as folder:
        plain = Path(folder) / f"table{kind}"
        with path.open("rb") as file, plain.open("wb") as out:
            source = pa.CompressedInputStream(file, COMPRESSIONS[compression]) if compression else file
            try:
                _unfold(_Limited(path, cast("BinaryIO", source), asked), out, encoding)
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


def _unfold(source: _Limited, out: BinaryIO, encoding: str) -> None:
    decoder = None if encoding == UTF_8 else codecs.getincrementaldecoder(encoding)(_HANDLER)
    while piece := source.read():
        out.write(piece if decoder is None else _utf_8(decoder.decode(piece)))
    if decoder is not None:
        out.write(_utf_8(decoder.decode(b"", final=True)))


def _utf_8(text: str) -> bytes:
    return text.encode(UTF_8, "surrogatepass")


def _broken(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeDecodeError), "it is registered for decoding only"
    return BROKEN, error.end


_HANDLER = "ensue.broken"
codecs.register_error(_HANDLER, _broken)
