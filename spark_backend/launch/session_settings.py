"""Settings of sessions that we start; they are needed before Spark is imported."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from hashlib import blake2b
from importlib.metadata import version
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path

from job_engine.durable_files import publish
from querylang.errors import PassingError
from querylang.system_errors import reason_of
from runtime.compiling.files import cache_of_user, is_private
from runtime.temporary import folder_of_process

# Classes of Spark in an archive that a JVM maps into memory: with one it starts in half the time.
#
# An archive is made once, by a JVM that writes at its end which classes it has used. It fits one
# JVM and one release of Spark: elsewhere the JVM ignores it. Classes are code, so an archive that
# others could have written is not used. A JVM that maps a damaged one crashes. So the JVM verifies
# its checksums, and an archive gets its name only when all of it is on the disk.

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


# What a master's name says: which machines run the tasks, and whether anybody answers there.

LONGEST_ANSWER = 10.0
"""Seconds."""


def is_local(master: str) -> bool:
    """Whether all tasks run in the JVM of the driver."""
    return master.startswith("local") and not master.startswith("local-cluster")


def submitted_master(environment: Mapping[str, str]) -> str | None:
    """The master that PYSPARK_SUBMIT_ARGS names; None = it names none."""
    try:
        words = shlex.split(environment.get("PYSPARK_SUBMIT_ARGS", ""))
    except ValueError:  # Spark says what is wrong with it
        return None
    named = [after for word, after in pairwise(words) if word == "--master"]
    named += [word.removeprefix("--master=") for word in words if word.startswith("--master=")]
    return named[-1] if named else None


def refuse_silent(master: str) -> None:
    """Raise PassingError if no standalone master answers: Spark would try for a minute."""
    found = re.fullmatch(r"spark://(.+)", master)
    if found is None:
        return
    reasons = []
    for place in found[1].split(","):
        host, _, port = place.rpartition(":")
        try:
            with socket.create_connection((host, int(port)), timeout=LONGEST_ANSWER):
                return
        except (OSError, ValueError, OverflowError) as error:
            reasons.append(f"{place}: {reason_of(error)}")
    raise PassingError(
        f"no master of Spark answers at {master} ({'; '.join(reasons)}). Is it started, and the port right?"
    )


STATE_STORE = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"

LOG_SETTINGS = Path(__file__).resolve().parents[1] / "log4j2.properties"

OPTIONS = "spark.driver.extraJavaOptions"

AT_RUN_TIME = {
    "spark.sql.session.timeZone": "UTC",
    # Our rows are few and large: one Arrow batch may hold all rows of a task.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "200000",
    # One task per file: opening a file is taken to cost as much as reading a whole partition.
    "spark.sql.files.openCostInBytes": str(128 << 20),
    # A worker that a signal ends tells which one.
    "spark.sql.execution.pyspark.udf.faulthandler.enabled": "true",
    "spark.sql.streaming.stateStore.providerClass": STATE_STORE,
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.streaming.numRecentProgressUpdates": "20",
    # Rows are spread by bucket on purpose: merging partitions would lose parallelism.
    "spark.sql.adaptive.enabled": "false",
}
"""Settings of every session that runs a job of our own."""

AT_START = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.python.worker.reuse": "true",
    "spark.python.worker.faulthandler.enabled": "true",
    # Packed numbers do not get much smaller, and the shuffle of one machine passes no network.
    "spark.shuffle.compress": "false",
    "spark.driver.memory": "2g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    OPTIONS: f"-Xss16m -XX:TieredStopAtLevel=1 -Dlog4j2.configurationFile={LOG_SETTINGS.as_uri()}",
}
"""Settings of a session that we start ourselves.

Only the JVM's quick compiler runs. The other one needed more time than it saved, since records do
not pass through the JVM: with it a micro-batch took a quarter longer.

The deep stack is for a query that is stopped while its results are being written: Spark then
searches a long message with a regular expression that recurses for each character.
"""


OF_WORKERS = {
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "MALLOC_MMAP_THRESHOLD_": str(1 << 30),
    "MALLOC_TRIM_THRESHOLD_": str(1 << 30),
    "MALLOC_TOP_PAD_": str(64 << 20),
}
"""Variables of Python workers of our own jobs, unless the environment has them.

Workers keep memory from one micro-batch to the next. To give it back and get it again, page by
page, took a quarter of their time.
"""


MASTER = "spark.master"

_OF_ONE_MACHINE = {"spark.ui.enabled", "spark.shuffle.compress", "spark.driver.host", "spark.driver.bindAddress"}
"""Those that are wrong, or not wanted, where executors are on other machines."""


def settings_of_start(name: str, cores: int | None = None, settings: Mapping[str, str] | None = None) -> dict[str, str]:
    """All settings of a new session, those of the JVM included; local unless they name a master."""
    given = dict(settings or {})
    count = cores or os.cpu_count() or 2
    given.setdefault(MASTER, submitted_master(os.environ) or f"local[{count}]")
    own = AT_START | AT_RUN_TIME | {"spark.sql.shuffle.partitions": str(count)}
    if not is_local(given[MASTER]):
        own = {key: value for key, value in own.items() if key not in _OF_ONE_MACHINE}
        del own["spark.sql.shuffle.partitions"]
    temporary = _quoted(f"-Djava.io.tmpdir={folder_of_process()}")  # Spark's own folders are there, too
    options = " ".join(filter(None, (own[OPTIONS], temporary, given.get(OPTIONS), class_options())))
    return {"spark.app.name": name} | own | given | {OPTIONS: options}
