"""Compiled kernels in an archive, which a job ships to machines that have none.

An archive is unpacked once, into a private folder of the user's, and only if `ENSUE_KERNELS` names
it: compiled kernels are code. Its kernels are for one release, one Python and one type of
processor. Where it does not fit, kernels are compiled as if there were none.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import time
import zipfile
from contextlib import suppress
from functools import cache
from hashlib import sha256
from pathlib import Path

from querylang.errors import InputError

VARIABLE = "ENSUE_KERNELS"

KEPT = 30 * 86_400
"""Seconds for which an unpacked archive is kept that no process has used."""

_UNPACKED = "shipped_"

_NAME = re.compile(r"[\w.-]+\.nb[ic]")
"""The files of an archive: no folders."""


def shipped_folder(of_user: Path) -> Path | None:
    """The folder of shipped kernels; None = none are shipped. Raises InputError.

    of_user: the user's cache folder, where archives are unpacked
    """
    named = os.environ.get(VARIABLE)
    return _unpacked(Path(named), of_user) if named else None


def has_archive() -> bool:
    """Whether an archive is named, not a folder to be filled."""
    return Path(os.environ.get(VARIABLE) or os.curdir).is_file()


def pack(folder: Path, archive: Path) -> None:
    """Writes the kernels of a folder to an archive. Raises InputError."""
    try:
        part = archive.with_name(f"{archive.name}.part")
        with zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED) as out:
            for path in sorted(folder.iterdir()):
                if _NAME.fullmatch(path.name):
                    out.write(path, path.name)
        part.replace(archive)
    except OSError as error:
        raise InputError(f"{archive}: cannot be written: {error.strerror}") from error


@cache
def _unpacked(archive: Path, of_user: Path) -> Path:
    if archive.is_dir():
        return archive
    try:
        folder = of_user / f"{_UNPACKED}{sha256(archive.read_bytes()).hexdigest()[:32]}"
        if not folder.exists():
            of_user.mkdir(mode=0o700, parents=True, exist_ok=True)
            part = Path(tempfile.mkdtemp(dir=of_user))  # private
            try:
                _unpack(archive, part)
                with suppress(OSError):  # another process was faster
                    part.rename(folder)
            finally:
                shutil.rmtree(part, ignore_errors=True)
            _remove_unused(of_user)
        with suppress(OSError):
            os.utime(folder)  # says that it is used
    except (OSError, zipfile.BadZipFile) as error:
        reason = getattr(error, "strerror", None) or "not an archive of `ensue compile --out`"
        raise InputError(f"{VARIABLE}: {archive}: {reason}") from error
    return folder


def _remove_unused(of_user: Path) -> None:
    """Remove what was unpacked of other archives, if no process has used it for long."""
    for folder in of_user.glob(f"{_UNPACKED}*"):
        with suppress(OSError):
            if time.time() - folder.stat().st_mtime > KEPT:
                shutil.rmtree(folder, ignore_errors=True)


def _unpack(archive: Path, folder: Path) -> None:
    with zipfile.ZipFile(archive) as found:
        for name in found.namelist():
            if _NAME.fullmatch(name) is None:
                raise zipfile.BadZipFile
            (folder / name).write_bytes(found.read(name))
            (folder / name).chmod(0o600)
