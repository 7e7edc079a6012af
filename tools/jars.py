"""Jars of other programs: Ivy, which is part of PySpark, fetches them from Maven Central once."""

from __future__ import annotations

import fcntl
import importlib.util
import subprocess
from pathlib import Path

from querylang.errors import InputError

_NAMES = "[artifact]-[revision](-[classifier]).[ext]"


def fetched_jars(folder: Path, group: str, artifact: str, version: str) -> Path:
    """The folder with a jar and all that it needs; several processes may ask for it at the same time.

    Raises InputError where Java is missing or Maven Central cannot be reached.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.is_dir():
            draft = folder.with_name("draft")
            _fetch(draft, group, artifact, version)
            draft.rename(folder)
    return folder


def _fetch(draft: Path, *dependency: str) -> None:
    spark = importlib.util.find_spec("pyspark")
    assert spark is not None, "PySpark is a package that Ensue needs"
    assert spark.origin is not None, "it is not a namespace"
    (ivy,) = (Path(spark.origin).parent / "jars").glob("ivy-*.jar")
    asked = ("-confs", "default", "-dependency", *dependency, "-retrieve", f"{draft}/{_NAMES}", "-warn")
    try:
        done = subprocess.run(["java", "-jar", str(ivy), *asked], capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise InputError("no Java here: Kafka's broker needs Java 17 or newer") from error
    # Ivy ends with 0 for what it did not find, too.
    if done.returncode or not any(draft.glob("*.jar")):
        said = [line.strip() for line in (done.stdout + done.stderr).splitlines() if "::" not in line and line.strip()]
        raise InputError(f"Maven Central does not give {':'.join(dependency)}: {said[-1] if said else 'no answer'}")
