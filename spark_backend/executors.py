"""Executors on other machines: how many there are, what they have, and Ensue sent to them."""

from __future__ import annotations

import io
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import time
import uuid
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from hashlib import sha256
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import TYPE_CHECKING, Any

from job_engine.durable_files import make_folder
from job_engine.local_path import LocalPath
from querylang.dataclass import dataclass, field
from querylang.errors import InputError, PassingError, counted
from querylang.printable import warn
from querylang.system_errors import refused
from runtime.compiling.files import VARIABLE

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession


# Executors on other machines: how many there are, and what each of them needs before a start.

# Check before a start that each executor has what Ensue needs: Python and four packages.
#
# What a task finds out is sent as plain values: Ensue is not on the executor yet, or another
# release.

NEEDED: Mapping[str, tuple[str, str | None]] = {
    "numba": ("0.68", "0.69"),
    "numpy": ("2.0", None),
    "pandas": ("2.2", "3"),
    "pyarrow": ("18", None),
}
"""By package: the oldest version that fits, and the first later one that does not."""

LONGEST_TASK = 1.0
"""Seconds that a task waits for the others, so that each runs in a place of its own."""

_WAY_OUT = (
    "Install it there, or name a Python that has it: `spark: {conf: {spark.pyspark.python: PATH}}`."
    " docs/cluster.md shows how to send packages along"
)


@dataclass(frozen=True, slots=True)
class ExecutorState:
    """What an executor has.

    place: its machine and folder
    python: the program of its workers
    versions: of the packages that it has
    ensue: where it imports Ensue from; None = it cannot
    """

    place: str
    python: str
    versions: Mapping[str, str] = field(default_factory=dict)
    ensue: str | None = None


def refuse_unfit_executors(context: SparkContext, executors: int, folder: str) -> None:
    """Raise InputError for executors that lack a package, have one that does not fit, or no Ensue.

    folder: the name of the folder that Ensue was sent to
    """
    found = {item.place: item for item in _looked_at(context, executors)}
    problems = {problem for item in found.values() for problem in problems_of(item, folder)}
    if problems:
        raise InputError("; ".join(sorted(problems)) + f". {_WAY_OUT}")


def problems_of(found: ExecutorState, folder: str) -> Iterator[str]:
    """What is wrong with an executor, without its folder: many have the same mistake."""
    where = f"the Python of an executor on {found.place.partition(' ')[0]}, {found.python},"
    missing = [name for name in NEEDED if name not in found.versions]
    if missing:
        yield f"{where} lacks {', '.join(missing)}"
    for name, version in found.versions.items():
        least, beyond = NEEDED[name]
        if not fits(version, least, beyond):
            wanted = f"{least} or later" if beyond is None else f"from {least}, before {beyond}"
            yield f"{where} has {name} {version}; Ensue needs {wanted}"
    if not missing and (found.ensue is None or f"/{folder}/" not in found.ensue):
        yield f"{where} imports Ensue from {found.ensue or 'nowhere'}, not from what the job has sent"


def fits(version: str, least: str, beyond: str | None) -> bool:
    """Whether a version is in a range."""
    return _numbers(version) >= _numbers(least) and (beyond is None or _numbers(version) < _numbers(beyond))


def _numbers(version: str) -> list[int]:
    """The numbers that a version begins with."""
    return [int(number) for number in re.findall(r"\d+", re.split(r"[^\d.]", version)[0])]


def _looked_at(context: SparkContext, executors: int) -> Iterable[ExecutorState]:
    tasks = max(context.defaultParallelism, executors)
    rows = context.parallelize(range(tasks), tasks).mapPartitions(_looking(tuple(NEEDED), LONGEST_TASK))
    for place, python, versions, ensue in rows.collect():
        yield ExecutorState(place, python, versions, ensue)


def _looking(names: tuple[str, ...], seconds: float) -> Callable[[Iterable[int]], Iterator[Any]]:
    """The task, as a function that is sent by value: nothing of ours is imported to load it."""

    def look(_: Iterable[int]) -> Iterator[Any]:
        import socket
        import sys
        import time
        from importlib.metadata import PackageNotFoundError, version
        from importlib.util import find_spec
        from pathlib import Path

        versions = {}
        for name in names:
            try:
                versions[name] = version(name)
            except PackageNotFoundError:
                if find_spec(name) is not None:
                    versions[name] = str(__import__(name).__version__)
        try:
            spec = find_spec("spark_backend.spark_operator")
        except ImportError:
            spec = None
        time.sleep(seconds)
        yield f"{socket.gethostname()} {Path.cwd()}", sys.executable, versions, None if spec is None else spec.origin

    return look


# Check before a start that executors see the job's local folders, by files that the driver sees.
#
# A folder on another machine may have the same name and other files.


def refuse_unseen_folders(
    context: SparkContext, executors: int, read: Mapping[str, Path], written: Mapping[str, Path]
) -> None:
    """Raise InputError for folders that some executor does not see.

    executors: how many there are
    read, written: the folders that tasks read from and write to, by what they are for
    """
    with _marked(written) as marks:
        wanted = {what: str(folder / _known(folder)) for what, folder in read.items()}
        wanted |= {what: str(mark) for what, mark in marks.items()}
        unseen = sorted(set(_unseen(context, executors, list(wanted.items()))))
    if unseen:
        what, host = unseen[0]
        folder = {**read, **written}[what]
        raise InputError(
            f"{folder}: the executor on {host} does not see this folder of {what} as the driver does."
            " Put it on storage that all machines share, or in a store such as `s3://`: docs/places.md"
        )


def _known(folder: Path) -> str:
    """A name in the folder; "" = it is empty, and has to exist only."""
    return min((path.name for path in folder.iterdir()), default="") if folder.is_dir() else ""


@contextmanager
def _marked(folders: Mapping[str, Path]) -> Iterator[dict[str, Path]]:
    """Files that only these folders have, for as long as it takes to look for them."""
    name = f".ensue-{uuid.uuid4().hex}"
    marks = {what: folder / name for what, folder in folders.items()}
    try:
        for mark in marks.values():
            make_folder(LocalPath.of(mark.parent))
            mark.touch()
        yield marks
    finally:
        for mark in marks.values():
            mark.unlink(missing_ok=True)


def _unseen(context: SparkContext, executors: int, wanted: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    tasks = max(context.defaultParallelism, executors)
    found: list[tuple[str, str]] = (
        context.parallelize(range(tasks), tasks).mapPartitions(looking(wanted, LONGEST_TASK)).collect()
    )
    return found


def looking(wanted: Sequence[tuple[str, str]], seconds: float) -> Callable[[Iterable[int]], Iterator[tuple[str, str]]]:
    """The task, as a function that is sent by value: what is not there, and the machine's name."""

    def look(_: Iterable[int]) -> Iterator[tuple[str, str]]:
        import os
        import socket
        import time

        time.sleep(seconds)
        for what, path in wanted:
            if not os.path.lexists(path):
                yield what, socket.gethostname()

    return look


# How many executors an application has: they register while the driver is at work already.

SETTLED = 3.0
"""Seconds without a new executor after which no more are waited for."""

SILENCE = 20.0
"""Seconds without any executor after which this is reported."""

LONGEST_WAIT = 600.0
"""Seconds without any executor after which a start is given up."""


def await_executors(context: SparkContext) -> int:
    """Wait until executors have registered, and their number grows no more; gives it.

    Raises PassingError if there is none for too long.
    """
    expected = int(context.getConf().get("spark.executor.instances", "0") or 0)
    return settled_number(
        lambda: len(context._jsc.sc().statusTracker().getExecutorInfos()) - 1,  # noqa: SLF001 # the driver counts
        expected,
        context.master or "",
    )


def settled_number(
    number: Callable[[], int],
    expected: int,
    master: str,
    now: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> int:
    """The number of executors once it grows no more, or is what was asked for."""
    began = changed = now()
    last, is_reported = 0, False
    while True:
        found, moment = number(), now()
        if found != last:
            last, changed = found, moment
        if found and (found >= expected > 0 or moment - changed >= SETTLED):
            return found
        if not found and moment - began >= SILENCE and not is_reported:
            warn(f"{_no_executor(master, moment - began)}; the job starts when one registers")
            is_reported = True
        if not found and moment - began >= LONGEST_WAIT:
            raise PassingError(_no_executor(master, moment - began))
        sleep(0.1)


def _no_executor(master: str, seconds: float) -> str:
    return (
        f"no executor of {master} has registered for {counted(round(seconds), 'second')}: does the cluster have workers"
        " with free cores, and as much memory as `executor_memory` asks for?"
    )


# Ensue's own code, its kernels and its packages, for executors that have no Ensue.

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
