"""The archive of Spark's classes: private, whole or not there, and never in the way."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from spark_backend.class_archive import KEPT, archive_file, class_options, making


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    file = archive_file()
    assert file is not None
    return file


def part_of_options() -> Path:
    return Path(class_options().rpartition("ArchiveClassesAtExit=")[2])


def test_a_session_uses_what_another_one_has_made(archive: Path) -> None:
    assert not class_options()
    with making(archive):
        part_of_options().write_text("classes")
    assert class_options().endswith(f"-XX:SharedArchiveFile={archive}")
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
    old, used = archive.with_name("spark_classes_old.jsa"), archive.with_name("spark_classes_used.jsa")
    old.touch()
    used.touch()
    os.utime(old, (0, time.time() - KEPT - 1))
    with making(archive):
        part_of_options().write_text("classes")
    assert not old.exists()
    assert used.exists()


def test_without_java_there_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert archive_file() is None
    assert not class_options()
