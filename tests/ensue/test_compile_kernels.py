"""Which kernels are compiled: only what a plan needs, and ahead what most plans need."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from querylang.errors import InputError
from runtime import shipped_kernels
from runtime.shipped_kernels import VARIABLE, pack, shipped_folder

EVERY_PLAN = {"_admit_all", "_identities", "_mixed", "_rows_to_keep", "by_place", "group_rows", "search"}
"""The kernels of a plan without anything special."""

NAMES = "; from runtime import compiled; print(*sorted(item.function.__name__ for item in compiled._RAN_PLAIN))"
ONE_PLAN = """
from ensue import embedded
from ensue.compile_kernels import EVENTS
from ensue.data_options import DataOptions
embedded.replay({query!r}, EVENTS, DataOptions(ordering={ordering!r}))
"""
PLAIN = "query Q { inputs { A() within 30 seconds; } find A as a -> A as b where b.v > a.v }"
KEYED = "query Q { inputs { A() key k within 30 seconds; } find A as a -> A as b where b.v > a.v }"
WAIT = "query Q { inputs { A() within 9 seconds; B() within 9 seconds; } find A as a -> wait(1.0) without B as b }"


def _kernels_of(code: str) -> set[str]:
    environment = os.environ | {"ENSUE_COMPILE": "never"}
    command = [sys.executable, "-c", f"{code}\n{NAMES.removeprefix('; ')}"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return set(done.stdout.split())


@pytest.mark.parametrize(
    ("query", "ordering", "more"),
    [
        (PLAIN, None, {"_gather"}),
        (KEYED, None, {"_gather", "_hash_text", "_mix_in"}),
        (
            WAIT,
            "stream_analytics late=5s",
            {
                "_count",
                "_number_near",
                "fill_trees",
                "find_definitive",
                "limit_to_watermarks",
                "outlive",
                "run_records",
            },
        ),
    ],
)
def test_a_plan_uses_what_it_needs(query: str, ordering: str | None, more: set[str]) -> None:
    assert _kernels_of(ONE_PLAN.format(query=query, ordering=ordering)) == EVERY_PLAN | more


def test_what_most_plans_need_is_compiled_ahead() -> None:
    ahead = _kernels_of("from ensue.compile_kernels import compile_all; compile_all()")
    assert ahead >= EVERY_PLAN | {"outlive", "run_records", "superseded_by", "advance_idle", "_gather_known"}


def _folder(tmp_path: Path, names: list[str]) -> Path:
    folder = tmp_path / "folder"
    folder.mkdir()
    for name in names:
        (folder / name).write_text(name)
    return folder


def test_an_archive_is_unpacked_once_into_a_private_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive, of_user = tmp_path / "kernels.zip", tmp_path / "cache"
    pack(_folder(tmp_path, ["search.search_0-1.py311.nbi", "search.search_0-1.py311.1.nbc", "other.txt"]), archive)
    monkeypatch.setenv(VARIABLE, str(archive))
    found = shipped_folder(of_user)
    assert found is not None
    assert sorted(path.name for path in found.iterdir()) == [
        "search.search_0-1.py311.1.nbc",
        "search.search_0-1.py311.nbi",
    ]
    assert found.stat().st_mode & 0o777 == 0o700
    shipped_kernels._unpacked.cache_clear()
    assert shipped_folder(of_user) == found
    assert [path.name for path in of_user.iterdir()] == [found.name]


@pytest.mark.parametrize("content", ["text", "../outside.nbi", None])
def test_what_is_no_archive_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str | None) -> None:
    archive = tmp_path / "kernels.zip"
    if content == "text":
        archive.write_text(content)
    elif content is not None:
        with zipfile.ZipFile(archive, "w") as out:
            out.writestr(content, "")
    monkeypatch.setenv(VARIABLE, str(archive))
    with pytest.raises(InputError, match=r"ENSUE_KERNELS: .*kernels\.zip: "):
        shipped_folder(tmp_path / "cache")
    assert not (tmp_path / "outside.nbi").exists()


def test_without_the_variable_nothing_is_shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    assert shipped_folder(tmp_path) is None
