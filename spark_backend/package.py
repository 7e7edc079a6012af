"""Ensue's own code, its kernels and its packages, for executors that have no Ensue."""

from __future__ import annotations

import io
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import suppress
from hashlib import sha256
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import TYPE_CHECKING

from querylang.errors import InputError
from querylang.system_errors import refused
from runtime.compiling.files import VARIABLE
from spark_backend.executors import NEEDED

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession


# The archive of Ensue's own code, as executors get it that have no Ensue installed.
#
# The same files give the same bytes, so that the archive's digest tells whether two are equal.

PACKAGES = ("querylang", "runtime", "job_engine", "spark_backend", "ensue")

KERNELS = "kernels.zip"
"""The name in the archive of an archive of compiled kernels."""

ROOT = Path(__file__).resolve().parents[1]
"""The folder of the packages."""

_OTHER_FILES = {".pyc", ".pyo", ".nbi", ".nbc"}
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
        raise refused(error, f"{path}: cannot be written") from error
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)


def digest(content: bytes) -> str:
    """A name for what an archive contains."""
    return sha256(content).hexdigest()[:16]


def _add_ensue(out: zipfile.ZipFile, kernels: bytes | None) -> None:
    for folder in PACKAGES:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.is_file() and path.suffix not in _OTHER_FILES and "__pycache__" not in path.parts:
                _add(out, path.relative_to(ROOT).as_posix(), path.read_bytes())
    if kernels is not None:
        _add(out, KERNELS, kernels)


def _add(out: zipfile.ZipFile, name: str, content: bytes) -> None:
    entry = zipfile.ZipInfo(name, _MOMENT)
    entry.external_attr = 0o644 << 16
    entry.compress_type = zipfile.ZIP_DEFLATED
    out.writestr(entry, content)


# Send Ensue to the executors of an application, so that it need not be installed there.
#
# Spark unpacks the archive in the working folder of each executor, also of those that start later.
# Workers find it by PYTHONPATH, before any Ensue that is installed: driver and executors always run
# the same release.

_FOLDERS: dict[str, str] = {}
"""By application: the name of the folder on its executors."""


def ship_package(context: SparkContext) -> str:
    """Send Ensue to all executors, once per application; gives the name of its folder there."""
    application = context.applicationId
    if application not in _FOLDERS:
        content = package()
        name = f"ensue-{digest(content)}"
        sent = Path(context._temp_dir) / f"{name}.zip"  # noqa: SLF001 # it is removed with the application
        sent.write_bytes(content)
        context.addArchive(f"{sent}#{name}")
        paths = [name, *filter(None, context.environment.get("PYTHONPATH", "").split(os.pathsep))]
        context.environment["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(paths))
        _FOLDERS[application] = name
    return _FOLDERS[application]


# Let the driver run the Python that executors run: Spark plans the reading of sources with it.
#
# It has the same path there, but perhaps neither Ensue nor the packages: those of this process
# serve.

LONGEST_ANSWER = 20
"""Seconds."""

_ASK = "import sys; print('%d.%d' % sys.version_info[:2])"


def refuse_unfit_driver_python(program: str) -> None:
    """Raise InputError where what executors run as Python does not run here, or is another one."""
    what = f"executors run {program!r} as Python, and Spark runs it on this machine, too, to list sources"
    if shutil.which(program) is None:
        raise InputError(f"{what}: here it does not exist. Put a Python there, or a link to one")
    try:
        done = subprocess.run(  # noqa: S603 # the program that Spark would run
            [program, "-c", _ASK], capture_output=True, text=True, timeout=LONGEST_ANSWER, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return
    own = f"{sys.version_info[0]}.{sys.version_info[1]}"
    if done.returncode == 0 and done.stdout.strip() != own:
        raise InputError(f"{what}: here it is Python {done.stdout.strip()}, while this one is {own}")


def add_own_packages(context: SparkContext) -> None:
    """Let Pythons of this machine find Ensue and its packages behind all that they have."""
    own = (str(ROOT), sysconfig.get_path("purelib"), sysconfig.get_path("platlib"))
    paths = [*filter(None, context.environment.get("PYTHONPATH", "").split(os.pathsep)), *own]
    context.environment["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(paths))


# The packages that executors need beside Ensue, as they are installed for this Python.

CLIENTS = ("confluent-kafka", "fastavro")
"""Clients that workers read topics with, sent along where they are installed."""

_NAME = re.compile(r"[A-Za-z0-9._-]+")
_UNUSED_FOLDERS = ("__pycache__", "tests", "include")
"""Folders of packages that no worker loads."""


def dependency_files(names: Iterable[str] = (*NEEDED, *CLIENTS)) -> Iterator[tuple[str, Path]]:
    """The files of these packages, and of those that they require: by their path on `sys.path`.

    Raises InputError for a package that executors need and that is not installed here.
    """
    found = _with_required(names)
    missing = sorted(set(NEEDED) & set(names) - set(found))
    if missing:
        raise InputError(f"{', '.join(missing)} cannot be added: not installed for this Python")
    for package in found.values():
        for file in package.files or ():
            path = Path(str(package.locate_file(file)))
            if ".." not in file.parts and not set(_UNUSED_FOLDERS) & set(file.parts) and path.is_file():
                yield file.as_posix(), path


def _with_required(names: Iterable[str]) -> dict[str, Distribution]:
    """By name, those that are installed; requirements of other systems and of extras are not."""
    found: dict[str, Distribution] = {}
    left = list(names)
    while left:
        name = left.pop().lower().replace("_", "-")
        if name in found:
            continue
        try:
            found[name] = distribution(name)
        except PackageNotFoundError:
            continue
        for requirement in found[name].requires or ():
            wanted = _NAME.match(requirement)
            if wanted is not None and "extra ==" not in requirement:
                left.append(wanted[0])
    return dict(sorted(found.items()))


# The archive of compiled kernels that a job ships to its executors.
#
# Spark copies the file to every executor. Workers name it to themselves as users do, with
# `ENSUE_KERNELS`, unless their environment names another one. Kernels that `ensue package` put
# beside Ensue's code need no name.
#
# A session has one file of a name: with another content all of its later tasks would fail, those of
# other jobs too. So an archive is sent under a name that depends on its content.

PACKAGED = ROOT / KERNELS

_FILE = "ENSUE_KERNELS_OF_JOB"


def ship_kernels(session: SparkSession, archive: Path) -> None:
    """Send an archive to all executors, for all jobs of the session that begin from now on."""
    context, content = session.sparkContext, archive.read_bytes()
    sent = Path(context._temp_dir) / f"ensue-kernels-{sha256(content).hexdigest()[:32]}.zip"  # noqa: SLF001 # it is removed with the application
    if not sent.exists():
        sent.write_bytes(content)
    context.addFile(str(sent))
    context.environment[_FILE] = sent.name


def use_shipped_kernels() -> None:
    """On a worker, before it runs a kernel; again is harmless."""
    if VARIABLE in os.environ:
        return
    name = os.environ.get(_FILE)
    if name is not None:
        from pyspark import SparkFiles

        os.environ[VARIABLE] = SparkFiles.get(name)
    elif PACKAGED.is_file():
        os.environ[VARIABLE] = str(PACKAGED)
