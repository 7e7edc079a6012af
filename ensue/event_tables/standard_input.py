"""Standard input as an event table: it is written to a temporary file, because tables are read
twice."""

from __future__ import annotations

import atexit
import shutil
import sys
import tempfile
from pathlib import Path

from querylang.errors import InputError, did_you_mean

NAME = Path("-")

_LOOKED_AT = 1 << 16
_PACKED = {b"\x1f\x8b": ".gz", b"BZh": ".bz2", b"\x28\xb5\x2f\xfd": ".zst"}
_TYPED = {b"PAR1": ".parquet", b"ARROW1": ".arrow"}


def table_of_standard_input(format_: str | None) -> Path:
    """A file with what is read, whose name says the format. Raises InputError.

    format_: such as `csv` or `json.gz`; None = as its first bytes look
    """
    if sys.stdin is None or sys.stdin.closed:
        raise InputError("-: standard input was read already; give it once only")
    suffix = None if format_ is None else _known(format_)
    source = sys.stdin.buffer
    first = source.read(_LOOKED_AT)
    folder = Path(tempfile.mkdtemp(prefix="ensue-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    table = folder / f"stdin{_looks_like(first) if suffix is None else suffix}"
    with table.open("wb") as file:
        file.write(first)
        shutil.copyfileobj(source, file, 1 << 20)
    sys.stdin.close()
    return table


def _known(format_: str) -> str:
    from runtime.reading.tables import SUFFIXES, is_table

    suffix = f".{format_.lower().removeprefix('.')}"
    if not is_table(f"table{suffix}"):
        known = [name.removeprefix(".") for name in SUFFIXES]
        raise InputError(
            f"--input-format: unknown format {format_!r}; known: {' '.join(known)}{did_you_mean(format_, known)}"
        )
    return suffix


def _looks_like(first: bytes) -> str:
    for magic, suffix in _TYPED.items():
        if first.startswith(magic):
            return suffix
    for magic, packing in _PACKED.items():
        if first.startswith(magic):
            raise InputError(f"-: is compressed; say what it holds, such as `--input-format csv{packing}`")
    text = first.removeprefix(b"\xef\xbb\xbf").lstrip()
    if text[:1] in (b"{", b"["):
        return ".jsonl"
    names = text.partition(b"\n")[0]
    return ".tsv" if b"\t" in names and b"," not in names else ".csv"
