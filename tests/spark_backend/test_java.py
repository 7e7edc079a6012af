"""A Java that cannot run Spark is refused in one line."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.errors import PySparkRuntimeError

from querylang.errors import InputError
from spark_backend.plain_errors import refuse_unusable_java, start_in_plain_words

NEW, OLD = 'openjdk version "17.0.9"', 'openjdk version "1.8.0_372"'


def java(folder: Path, version: str, *, refusal: str = "") -> Path:
    """A JAVA_HOME whose java says that it has a version."""
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    refuses = f'if [ $# -gt 1 ]; then echo "{refusal}" >&2; exit 1; fi\n' if refusal else ""
    program.write_text(f"#!/bin/sh\n{refuses}echo '{version}' >&2\n")
    program.chmod(0o755)
    return folder


def test_no_java_is_one_line_with_the_way_out(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"^no Java was found: Spark needs Java 17 or later\. Install one"):
        refuse_unusable_java("2g", {"PATH": str(tmp_path)})


def test_a_wrong_java_home_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"^JAVA_HOME is '.*none', where there is no bin/java"):
        refuse_unusable_java("2g", {"JAVA_HOME": str(tmp_path / "none")})


def test_an_old_java_is_named_with_its_version(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"bin/java is Java 8, which is too old"):
        refuse_unusable_java("2g", {"JAVA_HOME": str(java(tmp_path, OLD))})


def test_the_version_may_be_in_a_file_beside_java(tmp_path: Path) -> None:
    home = java(tmp_path, "silent")
    (home / "release").write_text('IMPLEMENTOR="Debian"\nJAVA_VERSION="11.0.2"\n')
    with pytest.raises(InputError, match="is Java 11,"):
        refuse_unusable_java("2g", {"JAVA_HOME": str(home)})


def test_what_java_says_against_the_options_is_told(tmp_path: Path) -> None:
    home = java(tmp_path, NEW, refusal="Error: no room")
    refuse_unusable_java("2g", {"JAVA_HOME": str(home)})
    options = {"PYSPARK_SUBMIT_ARGS": "--driver-memory 900g pyspark-shell"}
    with pytest.raises(InputError, match=r"^Java does not start: Error: no room\. Choose how much memory"):
        refuse_unusable_java("2g", {"JAVA_HOME": str(home), **options})


def test_a_limit_of_memory_asks_for_less(tmp_path: Path) -> None:
    home = java(tmp_path, NEW, refusal="Could not reserve enough space for 2097152KB object heap")
    options = {"JAVA_TOOL_OPTIONS": "-Dx=y", "JAVA_HOME": str(home)}
    with pytest.raises(InputError, match=r"object heap\. The system gives Java less than that: raise the limit"):
        refuse_unusable_java("2g", options)


def test_a_jvm_that_ends_at_its_start_is_no_failure_of_ours() -> None:
    with pytest.raises(InputError, match=r"^Java ended while Spark started"), start_in_plain_words():
        raise PySparkRuntimeError(errorClass="JAVA_GATEWAY_EXITED", messageParameters={})
    with pytest.raises(InputError, match="System memory 1 must be at least 2 bytes"), start_in_plain_words():
        raise RuntimeError("IllegalArgumentException: System memory 1 must be at least 2. Please increase")
