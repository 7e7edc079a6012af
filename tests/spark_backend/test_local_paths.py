"""Every local path that a job holds is one of its own class, however it came to it."""

from __future__ import annotations

import errno
import os
import pickle
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path

import pytest

from job_engine.deployment_file import load_deployment
from job_engine.local_path import LocalPath, temporary_file, temporary_folder
from job_engine.place import files_below, place_of, place_of_plain, place_to_plain
from tests.support.sensors import project


def paths_in(value: object) -> Iterator[Path]:
    """All local paths in a tree of dataclasses, mappings and tuples."""
    if isinstance(value, Path):
        yield value
    elif is_dataclass(value):
        for field in fields(value):
            yield from paths_in(getattr(value, field.name))
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from paths_in(item)
    elif isinstance(value, tuple | list):
        for item in value:
            yield from paths_in(item)


def test_what_comes_of_a_path_is_one_of_the_same_class(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "c.csv").touch()
    path = LocalPath.of(tmp_path) / "a"
    made = [path / "b", path.parent, *path.parents, path.with_name("x"), path.resolve(), path.absolute(), path.real()]
    made += [*path.iterdir(), *path.glob("*"), *path.rglob("*.csv"), *(inner for inner, _, _ in path.walk_below())]
    made += [*files_below(path), pickle.loads(pickle.dumps(path)), place_of_plain(place_to_plain(path))]
    assert {type(item) for item in made} == {LocalPath}
    assert path == tmp_path / "a"
    assert hash(path) == hash(tmp_path / "a")


def test_a_folder_that_cannot_be_listed_is_not_empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(path: object) -> Iterator[os.DirEntry[str]]:
        raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))

    assert [*files_below(tmp_path / "none")] == []
    monkeypatch.setattr(os, "scandir", fails)
    with pytest.raises(OSError, match="Input/output error"):
        list(files_below(tmp_path))


@pytest.mark.parametrize("text", ["in", "/data/in", "file:/data/in"])
def test_a_text_names_such_a_path(text: str) -> None:
    assert {type(place_of(text)), type(place_of(text, Path("/base")))} == {LocalPath}


def test_what_is_temporary_has_such_a_path() -> None:
    with temporary_folder() as folder:
        assert {type(folder), type(temporary_file(folder))} == {LocalPath}
    assert not folder.exists()


def test_a_deployment_holds_no_other_path(tmp_path: Path) -> None:
    found = list(paths_in(load_deployment(project(tmp_path))))
    assert len(found) >= 5
    assert [path for path in found if not isinstance(path, LocalPath)] == []


def test_wrong_paths_of_a_deployment_are_noticed() -> None:
    assert list(paths_in({"a": (1, Path("b"))})) == [Path("b")]


def test_a_new_file_is_nobody_elses(tmp_path: Path) -> None:
    path = LocalPath.of(tmp_path) / "a"
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(FileExistsError):
        path.new_file(0o600)
    with pytest.raises(OSError, match="Too many levels of symbolic links"):
        path.plain_file()
    assert path.is_taken()
    assert not path.exists()
