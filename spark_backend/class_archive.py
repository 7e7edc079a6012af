"""Classes of Spark in an archive that a JVM maps into memory: with one it starts in half the time.

An archive is made once, by a JVM that writes at its end which classes it has used. It fits one
JVM and one release of Spark: elsewhere the JVM ignores it. Classes are code, so an archive that
others could have written is not used. A JVM that maps a damaged one crashes. So the JVM verifies
its checksums, and an archive gets its name only when all of it is on the disk.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import blake2b
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from job_engine.durable_files import publish
from runtime.compiling.files import cache_of_user, is_private

KEPT = 30 * 86_400
"""Seconds for which an archive is kept that no JVM has used."""

KEPT_PART = 86_400
"""Seconds after which a part is removed: the process that made it was ended half-way."""

_QUIET = "-XX:+IgnoreUnrecognizedVMOptions -Xlog:cds=off -Xlog:cds+dynamic=off"
_making: Path | None = None
_without: Path | None = None


def archive_file() -> Path | None:
    """Where the archive for this machine's JVM is, or would be; None = no JVM, or no Spark."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=str(Path(home) / "bin") if home else None)
    found = find_spec("pyspark")
    if java is None or found is None:
        return None
    binary = Path(java).resolve()
    spark = os.environ.get("SPARK_HOME") or found.origin
    settings = os.environ.get("SPARK_CONF_DIR", "")  # a part of the class path
    name = repr((str(binary), binary.stat().st_mtime_ns, version("pyspark"), spark, settings))
    return cache_of_user() / f"spark_classes_{blake2b(name.encode(), digest_size=16).hexdigest()}.jsa"


def class_options() -> str:
    """Options for a JVM that is about to start; "" = it starts without an archive."""
    global _without  # noqa: PLW0603 # whoever archives classes knows nothing of the JVM
    if _making is not None:
        return f"{_QUIET} {_quoted(f'-XX:ArchiveClassesAtExit={_making}')}"
    with suppress(OSError):
        file = archive_file()
        if file is not None and is_private(file):
            os.utime(file)  # says that it is used
            return f"{_QUIET} -XX:+VerifySharedSpaces {_quoted(f'-XX:SharedArchiveFile={file}')}"
        _without = file
    return ""


def missing_archive() -> Path | None:
    """The archive that a JVM of this process was started without; None = no JVM was."""
    return _without


def _quoted(option: str) -> str:
    """An option as Spark reads it from a text of several, even if a folder's name has a space."""
    escaped = option.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


@contextmanager
def making(file: Path) -> Iterator[None]:
    """Let a JVM that starts and ends meanwhile write the archive. Raises OSError.

    It is not kept if the block raises an error, as it has to if that JVM failed.
    """
    global _making  # noqa: PLW0603 # a session is started by functions that know nothing of it
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    _remove_unused(file)
    part = file.with_suffix(f".{os.getpid()}.part")
    _making = part
    try:
        yield
        part.chmod(0o600)
        publish([(part, file)])
    finally:
        _making = None
        part.unlink(missing_ok=True)


def _remove_unused(kept: Path) -> None:
    for pattern, seconds in (("*.jsa", KEPT), ("*.part", KEPT_PART)):
        for other in kept.parent.glob(f"spark_classes_{pattern}"):
            with suppress(OSError):
                if other != kept and time.time() - other.stat().st_mtime > seconds:
                    other.unlink()
