"""The archive of Ensue's own code, as executors get it that have no Ensue installed.

The same files give the same bytes, so that the archive's digest tells whether two are equal.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterable
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from querylang.errors import InputError

PACKAGES = ("querylang", "runtime", "job_engine", "spark_backend", "ensue")

KERNELS = "kernels.zip"
"""The name in the archive of an archive of compiled kernels."""

ROOT = Path(__file__).resolve().parents[2]
"""The folder of the packages."""

_LEFT_OUT = {".pyc", ".pyo", ".nbi", ".nbc"}
_MOMENT = (1980, 1, 1, 0, 0, 0)
"""The earliest time that an archive can have."""


def package(kernels: bytes | None = None) -> bytes:
    """The archive; `kernels`: an archive of `ensue compile --out`, None = without."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as out:
        _add_ensue(out, kernels)
    return content.getvalue()


def write_package(path: Path, kernels: bytes | None, others: Iterable[tuple[str, Path]] = ()) -> None:
    """Write the archive to a file.

    others: files to add, by their path in the archive

    Raises InputError.
    """
    part = path.with_name(f"{path.name}.part")
    try:
        with zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED) as out:
            _add_ensue(out, kernels)
            for name, file in others:
                _add(out, name, file.read_bytes())
        part.replace(path)
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror}") from error
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)


def digest(content: bytes) -> str:
    """A name for what an archive contains."""
    return sha256(content).hexdigest()[:16]


def _add_ensue(out: zipfile.ZipFile, kernels: bytes | None) -> None:
    for folder in PACKAGES:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.is_file() and path.suffix not in _LEFT_OUT and "__pycache__" not in path.parts:
                _add(out, path.relative_to(ROOT).as_posix(), path.read_bytes())
    if kernels is not None:
        _add(out, KERNELS, kernels)


def _add(out: zipfile.ZipFile, name: str, content: bytes) -> None:
    entry = zipfile.ZipInfo(name, _MOMENT)
    entry.external_attr = 0o644 << 16
    entry.compress_type = zipfile.ZIP_DEFLATED
    out.writestr(entry, content)
