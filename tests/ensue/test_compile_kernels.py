"""Which kernels are compiled: only what a plan needs, and ahead what most plans need."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from ensue import compile_kernels
from ensue.commands import compile_ahead
from querylang.errors import InputError
from runtime.compiling import files
from runtime.compiling.compiled import Call
from runtime.compiling.files import VARIABLE, pack, shipped_folder
from tests.ensue.command import Run

EVERY_PLAN = {"_admit_all", "_identities", "_mixed", "_rows_to_keep", "by_place", "group_rows"}
"""The kernels of a plan without anything special."""

NAMES = (
    "; from runtime.compiling import compiled; print(*sorted(item.function.__name__ for item in compiled._RAN_PLAIN))"
)
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
        (PLAIN, None, {"_gather", "search_chain"}),
        (KEYED, None, {"_gather", "_hash_text", "_mix_in", "search_chain"}),
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
                "search",
            },
        ),
    ],
)
def test_a_plan_uses_what_it_needs(query: str, ordering: str | None, more: set[str]) -> None:
    assert _kernels_of(ONE_PLAN.format(query=query, ordering=ordering)) == EVERY_PLAN | more


def test_what_most_plans_need_is_compiled_ahead() -> None:
    ahead = _kernels_of("from ensue.compile_kernels import compile_all; compile_all()")
    assert ahead >= EVERY_PLAN | {"search", "search_chain", "outlive", "run_records", "superseded_by", "_by_digits"}
    assert ahead >= {"advance_idle", "_gather_states", "write_values", "sums_of_parts", "means_of_integers"}


COMPILE_SMALL = """
from ensue.compile_kernels import REPLAYS, compile_calls
from ensue import embedded
from ensue.data_options import DataOptions
from runtime.compiling.compiled import recorded_calls
with recorded_calls() as calls:
    embedded.replay(*REPLAYS[0][:2], DataOptions())
small = [call for call in calls if call.kernel.function.__name__ in ("by_place", "_gather")]
told = []
compile_calls(small, 2, lambda done, total: told.append((done, total)))
print(told)
"""
LOADED = """
import sys
from ensue.compile_kernels import REPLAYS
from ensue import embedded
from ensue.data_options import DataOptions
from runtime.compiling.compiled import recorded_calls
with recorded_calls() as calls:
    embedded.replay(*REPLAYS[0][:2], DataOptions())
names = ("by_place", "_gather")
small = {call.kernel: call.arguments for call in calls if call.kernel.function.__name__ in names}
for kernel, arguments in small.items():
    kernel.machine_code(*arguments)
    print(kernel.function.__name__, dict(kernel.machine_code.stats.cache_misses))
"""


def test_two_processes_store_what_the_next_process_loads(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    environment = os.environ | {"ENSUE_COMPILE": "never", "NUMBA_CACHE_DIR": str(tmp_path)}

    def run(code: str) -> str:
        command = [sys.executable, "-c", code]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout

    assert run(COMPILE_SMALL).splitlines() == ["[(0, 3), (1, 3), (2, 3), (3, 3)]"]
    assert sorted(run(LOADED).splitlines()) == ["_gather {}", "by_place {}"]


def test_a_process_that_is_ended_is_a_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compile_kernels, "_versions", [])
    monkeypatch.setattr(compile_kernels, "_version", lambda call: call)
    monkeypatch.setattr(compile_kernels, "_size", lambda kernel: 0)
    monkeypatch.setattr(compile_kernels, "_compile", _ended)
    with pytest.raises(InputError, match="is memory short"):
        compile_kernels.compile_calls([Call(None, ())], 2, None)  # type: ignore[arg-type]


def _ended(number: int) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


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
    files._unpacked.cache_clear()
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


def test_an_archive_of_classes_that_fails_is_told(monkeypatch: pytest.MonkeyPatch, ensue: Run) -> None:
    codes = {"ensue.archive_classes": 1}
    monkeypatch.setattr(compile_ahead, "_run", lambda command, *_, **__: codes.get(command[-1], 0))
    done = ensue("compile")
    assert done.returncode == 0
    assert done.stderr.splitlines() == [
        "archiving Spark's classes, so that jobs start sooner: another half minute of a processor",
        "the archive of Spark's classes was not made: jobs will start more slowly",
    ]
