"""The archive of Spark's classes: private, whole or not there, and never in the way."""

from __future__ import annotations

import os
import shlex
import time
from pathlib import Path

import pytest

from spark_backend.launch.session_settings import KEPT, KEPT_PART, archive_file, class_options, making


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "a cache"))
    file = archive_file()
    assert file is not None
    return file


def part_of_options() -> Path:
    (option,) = shlex.split(class_options())[-1:]
    return Path(option.removeprefix("-XX:ArchiveClassesAtExit="))


def test_a_session_uses_what_another_one_has_made(archive: Path) -> None:
    assert not class_options()
    with making(archive):
        part_of_options().write_text("classes")
    assert shlex.split(class_options())[-1] == f"-XX:SharedArchiveFile={archive}"
    assert [path.name for path in archive.parent.iterdir()] == [archive.name]


def test_an_archive_that_others_may_write_is_not_used(archive: Path) -> None:
    with making(archive):
        part_of_options().write_text("classes")
    archive.chmod(0o666)
    assert not class_options()


def test_an_archive_that_no_jvm_has_written_is_none(archive: Path) -> None:
    with pytest.raises(OSError, match="part"), making(archive):
        pass
    assert not archive.exists()
    assert not class_options()


def test_archives_that_nothing_uses_any_more_are_removed(archive: Path) -> None:
    archive.parent.mkdir(parents=True)
    ages = {
        "spark_classes_old.jsa": KEPT + 1,
        "spark_classes_used.jsa": 0,
        "spark_classes_old.12.part": KEPT_PART + 1,
        "spark_classes_made.34.part": 0,
    }
    for name, age in ages.items():
        archive.with_name(name).touch()
        os.utime(archive.with_name(name), (0, time.time() - age))
    with making(archive):
        part_of_options().write_text("classes")
    kept = {archive.name, "spark_classes_used.jsa", "spark_classes_made.34.part"}
    assert {path.name for path in archive.parent.iterdir()} == kept


def test_an_archive_of_a_jvm_that_failed_is_not_kept(archive: Path) -> None:
    with pytest.raises(OSError, match="code 1"), making(archive):
        _fail_half_way(part_of_options())
    assert not list(archive.parent.iterdir())


def _fail_half_way(part: Path) -> None:
    part.write_text("half of the classes")
    raise OSError("the JVM that wrote the archive failed with code 1")


def test_the_jvm_verifies_an_archive(archive: Path) -> None:
    """It crashes if it maps a damaged one."""
    with making(archive):
        part_of_options().write_text("classes")
    assert "-XX:+VerifySharedSpaces" in class_options()


def test_without_java_there_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert archive_file() is None
    assert not class_options()
