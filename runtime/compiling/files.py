"""Where machine code of kernels is on disk: known without numba, which is slow to load."""

from __future__ import annotations

import os
import re
import shutil
import stat
import tempfile
import time
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from hashlib import blake2b, sha256
from pathlib import Path
from types import FunctionType

from querylang.errors import InputError
from querylang.system_errors import refused

# Compiled kernels in an archive, which a job ships to machines that have none. An archive is
# unpacked once, into a private folder of the user's, and only if `ENSUE_KERNELS` names it: compiled
# kernels are code. Its kernels are for one release, one Python and one type of processor. Where it
# does not fit, kernels are compiled as if there were none.

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
        raise refused(error, f"{archive}: cannot be written") from error


@cache
def _unpacked(archive: Path, of_user: Path) -> Path:
    if archive.is_dir():
        return archive
    try:
        folder = of_user / f"{_UNPACKED}{sha256(archive.read_bytes()).hexdigest()[:32]}"
        if not folder.exists():
            of_user.mkdir(mode=0o700, parents=True, exist_ok=True)
            part = Path(tempfile.mkdtemp(prefix=_UNPACKED, dir=of_user))  # private
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
        if isinstance(error, OSError):
            raise refused(error, f"{VARIABLE}: {archive}") from error
        raise InputError(f"{VARIABLE}: {archive}: not an archive of `ensue compile --out`") from error
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


_OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH

_IMPORTED = re.compile(r"^from runtime\.([\w.]+) import", re.MULTILINE)

_COMPILER = {f"compiling.{name}" for name in ("machine_code", "pipeline", "lowering")}
"""The modules that decide how kernels are compiled."""


def name_on_disk(function: FunctionType) -> str:
    """A kernel's name with the digest of all sources: another version has another name."""
    return f"{function.__qualname__}_{digest_of_kernels()}"


def is_on_disk(function: FunctionType) -> bool:
    """Whether some machine code of a kernel has been stored by this version."""
    file = Path(function.__code__.co_filename)
    pattern = f"{file.stem}.{name_on_disk(function)}-*.nbi"
    return any(is_private(path.resolve()) for folder in _folders(file) for path in folder.glob(pattern))


def can_be_stored(function: FunctionType) -> bool:
    """Whether a folder for its machine code can be written."""
    beside = Path(function.__code__.co_filename).parent / "__pycache__"
    given = os.environ.get("NUMBA_CACHE_DIR")
    return any(can_keep(folder) for folder in ([Path(given)] if given else []) + [beside, cache_of_user()])


def cache_of_user() -> Path:
    """The user's cache folder: for installations that are read-only."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()) / "ensue"


def is_private(path: Path) -> bool:
    """Whether only this user and root may change what is found at a path.

    A folder above may be open to all if nobody can rename there what belongs to others, as in /tmp.
    """
    owners = {0, os.geteuid()}
    for place in (path, *path.parents):
        found = place.stat()
        is_sticky = place != path and bool(found.st_mode & stat.S_ISVTX)
        if found.st_uid not in owners or (found.st_mode & _OTHERS_MAY_WRITE and not is_sticky):
            return False
    return True


def can_keep(folder: Path) -> bool:
    """Whether files can be kept in a folder: it can be written, or made, and is private."""
    there = next(place for place in (folder.absolute(), *folder.absolute().parents) if place.exists())
    return os.access(there, os.W_OK | os.X_OK) and is_private(there.resolve())


def _folders(file: Path) -> Iterator[Path]:
    """The folders that may hold machine code of a file."""
    shipped = shipped_folder(cache_of_user())
    if shipped is not None:
        yield shipped
    for several in (os.environ.get("NUMBA_CACHE_DIR"), cache_of_user()):
        if several:
            yield from Path(several).glob(f"{file.parent.name}_*")
    yield file.parent / "__pycache__"


@cache
def digest_of_kernels() -> str:
    """The digest of this version."""
    return sources_digest(Path(__file__).parent.parent)


def sources_digest(folder: Path) -> str:
    """A digest of all modules below `folder` that define kernels, of what they import, and of how
    they are compiled. Who imports from a folder's `__init__` may have anything of the folder."""
    sources = {_module_name(path, folder): path.read_text("utf-8") for path in sorted(folder.rglob("*.py"))}
    kernels = [source for source in sources.values() if "compiling.compiled" in _IMPORTED.findall(source)]
    imported = {name for source in kernels for name in _IMPORTED.findall(source)}
    folders = tuple(f"{name}." for name in imported)
    digest = blake2b(digest_size=8)
    for name, source in sources.items():
        if name in imported or name.startswith(folders) or name in _COMPILER or source in kernels:
            digest.update(source.encode())
    return digest.hexdigest()


@cache
def code_digest(*packages: str) -> str:
    """A digest of all modules of these packages, by their dotted names: of code whose results are
    kept on the disk."""
    root, digest = Path(__file__).parents[2], blake2b(digest_size=16)
    for package in packages:
        for path in sorted(root.joinpath(*package.split(".")).rglob("*.py")):
            digest.update(blake2b(path.read_bytes()).digest())
    return digest.hexdigest()


def _module_name(path: Path, folder: Path) -> str:
    """The dotted name below `folder`: `matching.kernel.search`."""
    return ".".join(path.relative_to(folder).with_suffix("").parts)
