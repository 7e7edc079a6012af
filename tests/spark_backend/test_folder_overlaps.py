"""Folders of a deployment that lie in each other are refused, by what is on the disk."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from job_engine.deployment_file import load_deployment
from job_engine.local_path import LocalPath
from job_engine.setting_values import Folder, FolderKind, overlaps
from querylang.errors import FileErrors

DEPLOYMENT = """\
name: job
queries: [q.query]
sources:
  a: {format: csv, path: data/a}
  b: {format: csv, path: data/b, options: {recursiveFileLookup: false}}
control: {format: json, path: control}
sinks:
  matches: {format: parquet, path: out/matches}
  output: {format: parquet, path: out/output}
checkpoint: state
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("data/a", "data/b/deep", "data/ab", "Data/A"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "q.query").write_text("")
    (tmp_path / "link").symlink_to(tmp_path / "data" / "a")
    return tmp_path


def mistakes(folder: Path, *changes: tuple[str, str]) -> list[str]:
    text = DEPLOYMENT
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    (folder / "d.yaml").write_text(text)
    try:
        load_deployment(folder / "d.yaml", {})
    except FileErrors as error:
        return [f"{line}: {message}" for line, message in error.found]
    return []


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("out/matches", "data/a/out", "8: the folder of the sink 'matches' lies in that of the source 'a'"),
        ("out/matches", "link/out", "8: the folder of the sink 'matches' lies in that of the source 'a'"),
        ("out/matches", "data/b/../a/out", "8: the folder of the sink 'matches' lies in that of the source 'a'"),
        ("out/matches", "data/a", "8: the source 'a' and the sink 'matches' have the same folder"),
        ("data/b,", "link,", "5: the source 'a' and the source 'b' have the same folder"),
        ("data/b,", "data/a/../a/,", "5: the source 'a' and the source 'b' have the same folder"),
        ("path: control", "path: link", "6: the source 'a' and the control stream have the same folder"),
        ("out/matches", "out/output/deep", "8: the folder of the sink 'matches' lies in that of the sink 'output'"),
        ("out/matches", "state/out", "8: the folder of the sink 'matches' lies in that of the checkpoint"),
        ("path: control", "path: state", "10: the control stream and the checkpoint have the same folder"),
        ("checkpoint: state", "checkpoint: data/a/x", "10: the folder of the checkpoint lies in that of the source 'a'"),
        ("out/matches", ".", "4: the folder of the source 'a' lies in that of the sink 'matches'"),
    ],
)  # fmt: skip
def test_folders_in_each_other_are_refused_with_their_line(folder: Path, old: str, new: str, expected: str) -> None:
    found = mistakes(folder, (old, new))
    assert found[0].partition("; choose")[0] == expected


def test_folders_beside_each_other_are_fine(folder: Path) -> None:
    assert mistakes(folder) == []
    assert mistakes(folder, ("data/a}", "data/ab}")) == []
    assert mistakes(folder, ("data/a}", "Data/A}")) == []


def test_a_source_below_another_is_refused_if_the_other_reads_subfolders(folder: Path) -> None:
    below = ("data/a}", "data/b/deep}")
    assert mistakes(folder, below) == []
    (mistake,) = mistakes(folder, below, ("recursiveFileLookup: false", "recursiveFileLookup: true"))
    assert mistake.startswith("4: the folder of the source 'a' lies in that of the source 'b'")


def test_each_folder_is_looked_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[str] = []
    real = LocalPath.real

    def counted(path: LocalPath) -> LocalPath:
        looked.append(str(path))
        return real(path)

    monkeypatch.setattr(LocalPath, "real", counted)
    folders = [
        Folder(FolderKind.SINK, f"s{number}", LocalPath(tmp_path / f"s{number}"), number) for number in range(50)
    ]
    assert list(overlaps(folders)) == []
    assert len(looked) == 50


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount")
def test_a_folder_that_is_mounted_twice_is_one_folder(folder: Path) -> None:
    place = folder / "mounted"
    place.mkdir()
    if os.system(f"mount --bind {folder / 'data' / 'a'} {place} 2>/dev/null") != 0:
        pytest.skip("mounting is not allowed here")
    try:
        assert mistakes(folder, ("data/b,", "mounted,")) == [
            "5: the source 'a' and the source 'b' have the same folder"
        ]
    finally:
        os.system(f"umount {place}")
