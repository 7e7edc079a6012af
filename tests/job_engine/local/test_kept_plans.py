"""The plan of many queries is kept beside the checkpoint: a start does not compile what has not changed."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from job_engine.deployment_file import load_deployment
from job_engine.job import compilation
from job_engine.job.checkpoint.job_folder import JobFolder
from job_engine.job.preflight import Checked, checked
from job_engine.job.stages.prepare import prepare
from job_engine.local_path import LocalPath
from querylang.errors import InputError
from tests.support.local_jobs import local, run
from tests.support.sensors import add_files, expected, project, streamed, table

COUNT = 70
"""Queries, which are enough for a plan to be kept."""


def many(folder: Path, count: int = COUNT, settings: str = "") -> Path:
    """A job of the sensors' queries and more of them, which has run once."""
    path = local(project(folder, files=1))
    more = [
        f"query Many{number} {{ parameters {{ float least := 0.0; }} inputs {{ Reading(value > {number}.5) key sensor"
        f" within 3.0 wait 5.0; }} find Reading as a -> Reading as b where b.value > a.value + 99.0 + least }}"
        for number in range(count)
    ]
    (folder / "many.query").write_text("\n".join(more))
    texts = path.read_text().replace("[sensors.query]", "[sensors.query, many.query]")
    path.write_text(texts + settings)
    add_files(folder, table(), 3)
    run(path)
    return path


def plan_file(folder: Path) -> Path:
    return folder / "state" / "ensue" / "plan.json"


def without_identity(ready: Checked) -> list[Any]:
    """All of it that can be compared."""
    same = replace(ready, deployment=None)  # type: ignore[arg-type]
    return [same, ready.program.plan(), ready.files.before.plan()]


def compiles(monkeypatch: pytest.MonkeyPatch) -> list[None]:
    """Gets an entry for each time that texts are compiled."""
    calls = list[None]()
    made = compilation.compile_deployment

    def compile_deployment(*args: Any, **options: Any) -> compilation.Compiled:
        calls.append(None)
        return made(*args, **options)

    monkeypatch.setattr(compilation, "compile_deployment", compile_deployment)
    return calls


@pytest.mark.parametrize("apply", [False, True])
def test_a_start_with_a_kept_plan_is_one_with_compiled_texts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, apply: bool
) -> None:
    path = many(tmp_path)
    calls = compiles(monkeypatch)
    ready = checked(load_deployment(path), apply=apply)
    assert not calls
    plan_file(tmp_path).unlink()
    other = checked(load_deployment(path), apply=apply)
    assert calls
    assert without_identity(ready) == without_identity(other)
    assert not ready.has_other_texts


def test_a_job_continues_with_a_kept_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = many(tmp_path, settings="parameters: {Many1: {eu: {least: 1.0}, us: {least: 2.0}}}\n")
    calls = compiles(monkeypatch)
    before = plan_file(tmp_path).read_bytes()
    late = table().iloc[-50:].assign(at=lambda rows: rows["at"] + (rows["at"].max() - rows["at"].min()) * 2)
    add_files(tmp_path, late, 1, first=3)
    run(path)
    assert not calls
    assert plan_file(tmp_path).read_bytes() == before


def test_the_plan_of_few_queries_is_not_kept(tmp_path: Path) -> None:
    many(tmp_path, 3)
    assert not plan_file(tmp_path).exists()


def test_a_plan_with_values_that_may_be_secret_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEAST", "12.25")
    many(tmp_path, settings='parameters: {Many1: {least: "${LEAST}"}}\n')
    assert not plan_file(tmp_path).exists()


def edited(old: str, new: str, name: str = "many.query") -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        text = (folder / name).read_text()
        assert old in text
        (folder / name).write_text(text.replace(old, new))

    return change


def moved(folder: Path) -> None:
    (folder / "many.query").rename(folder / "more.query")
    edited("many.query", "more.query", "sensors.yaml")(folder)


BEFORE = "buckets:"

CHANGES: dict[str, Callable[[Path], None]] = {
    "a text": edited("value > 1.5", "value > 1.75"),
    "a comment": edited("query Many1 ", "/* first */ query Many1 "),
    "another file": moved,
    "a parameter": edited(BEFORE, "parameters: {Many1: {least: 0.5}}\nbuckets:", "sensors.yaml"),
    "keys that are forgotten": edited(BEFORE, "forget_keys: 1 hour\nbuckets:", "sensors.yaml"),
    "an ordering": edited("path: data,", "path: data, ordering: {policy: apama},", "sensors.yaml"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_changed_texts_and_settings_are_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    path = many(tmp_path)
    CHANGES[name](tmp_path)
    deployment, calls = load_deployment(path), compiles(monkeypatch)
    with suppress(InputError):  # some are refused
        checked(deployment, apply=True)
    assert calls


def test_another_release_compiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = many(tmp_path)
    calls = compiles(monkeypatch)
    monkeypatch.setattr(compilation, "code_digest", lambda *_: "other")
    checked(load_deployment(path))
    assert calls


def test_files_that_were_applied_since_then_are_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = many(tmp_path)
    kept = plan_file(tmp_path).read_bytes()
    edited("value > 1.5", "value > 1.75")(tmp_path)
    prepare(path, apply=True).close()
    assert plan_file(tmp_path).read_bytes() != kept
    plan_file(tmp_path).write_bytes(kept)  # as if a crash had kept the new one from being written
    edited("value > 1.75", "value > 1.5")(tmp_path)
    calls = compiles(monkeypatch)
    assert checked(load_deployment(path), apply=True).has_other_texts
    assert calls


def cut(data: bytes) -> bytes:
    return data[: len(data) // 2]


def of_another_version(data: bytes) -> bytes:
    return json.dumps(json.loads(data) | {"version": 99}).encode()


def with_another_field(data: bytes) -> bytes:
    assert b"sensor" in data
    return data.replace(b"sensor", b"sentor")


def with_another_letter(data: bytes) -> bytes:
    place = data.index(b"packed") + 200
    return data[:place] + (b"A" if data[place : place + 1] != b"A" else b"B") + data[place + 1 :]


DAMAGES = [cut, of_another_version, with_another_field, with_another_letter, lambda _: b"", lambda _: b"[]"]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_plan_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: Callable[[bytes], bytes]
) -> None:
    path = many(tmp_path)
    before = plan_file(tmp_path).read_bytes()
    plan_file(tmp_path).write_bytes(damage(before))
    calls = compiles(monkeypatch)
    run(path)
    assert calls
    assert plan_file(tmp_path).read_bytes() == before
    assert streamed(tmp_path) == expected(tmp_path)
    assert JobFolder(LocalPath.of(tmp_path / "state")).ledger.total()
