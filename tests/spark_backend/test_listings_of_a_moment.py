"""A listing shows no file without those that came before it, though folders are listed one after the other."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from job_engine.local_path import LocalPath
from job_engine.sources.folder import listing
from job_engine.sources.folder.listing import SourceWatch, watch_of
from job_engine.sources.folder.settings import ListedSource

EARLY, LATE = "z", "a"
"""The last folder is listed first."""


def watch(folder: Path) -> SourceWatch:
    return watch_of(ListedSource("in", str(folder), (".json",), is_recursive=True))


def listed(folder: Path) -> set[str]:
    return set(watch(folder).new_files(lambda _: False, 0).files)


def grows(monkeypatch: pytest.MonkeyPatch, folder: Path, times: int) -> None:
    """So many times a file comes to `EARLY` once that was listed, and a later one to `LATE`."""
    entries, count = LocalPath.entries, 0

    @contextmanager
    def slow(path: LocalPath) -> Iterator[Iterator[object]]:
        nonlocal count
        with entries(path) as found:
            yield found
        if path.name == EARLY and count < times:
            (folder / EARLY / f"{count}-first.json").write_text("{}")
            (folder / LATE / f"{count}-then.json").write_text("{}")
            count += 1

    monkeypatch.setattr(LocalPath, "entries", slow)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in (EARLY, LATE):
        (tmp_path / name).mkdir()
    return tmp_path


@pytest.mark.parametrize("times", [1, 3])
def test_what_came_while_folders_were_listed_is_listed_in_order(
    folder: Path, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    grows(monkeypatch, folder, times)
    found = listed(folder)
    for number in range(times):
        assert f"{LATE}/{number}-then.json" not in found or f"{EARLY}/{number}-first.json" in found


def test_a_folder_that_never_rests_ends_no_job(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    grows(monkeypatch, folder, 1_000)
    assert listed(folder)
    assert len(list((folder / EARLY).iterdir())) == 1 + listing.MOST_AGAIN


@pytest.mark.parametrize("place", ["nothing", "a file"])
def test_a_folder_that_is_gone_is_no_change_for_ever(folder: Path, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    (folder / LATE / "below").mkdir()
    (folder / "1.json").write_text("{}")
    watched, entries, count = watch(folder), LocalPath.entries, 0
    watched.new_files(lambda _: False, 0)
    shutil.rmtree(folder / LATE)
    if place == "a file":
        (folder / LATE).write_text("")
    watched.new_files(lambda _: False, 0)

    def counted(path: LocalPath) -> AbstractContextManager[Iterator[os.DirEntry[str]]]:
        nonlocal count
        count += 1
        return entries(path)

    monkeypatch.setattr(LocalPath, "entries", counted)
    watched.new_files(lambda _: False, 0)
    assert count == 2, "the source's folder and the one that is left, once each"
