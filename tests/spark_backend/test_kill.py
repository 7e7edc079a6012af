"""SIGKILL in the middle of a run, and a restart: nothing lost, nothing twice, the embedded matches."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from job_engine.job.checkpoint.job_folder import JobFolder
from job_engine.job.job import run
from job_engine.setting_keys import Engine
from tests.support.killed_runs import kill_when, restarted, start, wait_until
from tests.support.sensors import add_files, expected, project, project_of_two, streamed, table, totals
from tests.support.waiting import LONGEST


def one_source(folder: Path) -> Path:
    path = project(folder, files=1)
    add_files(folder, table(), 6)
    return path


def two_sources(folder: Path) -> Path:
    """Of which one is read twice as fast: its records wait in the state."""
    path = project_of_two(folder, ledger=True)
    add_files(folder, table().iloc[::2], 3, source="north")
    add_files(folder, table().iloc[1::2], 6, source="south")
    return path


@pytest.mark.parametrize(
    ("moment", "made"),
    [
        ("while the results of a batch are being written", one_source),
        ("after the results, before the commit", two_sources),
    ],
)
def test_a_killed_run_goes_on_where_it_stopped(tmp_path: Path, moment: str, made: Callable[[Path], Path]) -> None:
    tmp_path = tmp_path / "br[1] {a,b}*"
    tmp_path.mkdir()
    path = made(tmp_path)
    process = start(path)
    if moment.startswith("while"):
        drafts = tmp_path / "out"
        kill_when(process, lambda: any(drafts.rglob("*-00000002-*")))
    else:
        accounts = tmp_path / "state" / "ensue" / "ledger" / "0000000002.json"
        kill_when(process, accounts.exists)
    assert not (tmp_path / "state" / "commits" / "5").exists()
    batches, ledger = restarted(path)
    assert 0 not in batches
    assert streamed(tmp_path) == expected(tmp_path)
    account = totals(ledger, "Rise")
    assert account.pop("received") == len(table()) == sum(account.values())
    assert written_ledger(tmp_path) == {word: count for word, count in totals(ledger, "Rise").items() if count}
    assert not list((tmp_path / "out").rglob("*.draft"))


def machines(folder: Path) -> Path:
    """One file for each of six machines, all of the same time; a micro-batch reads two."""
    path = project(folder, files=2)
    rows = table()
    for number in range(6):
        add_files(folder, rows[rows["sensor"].str[1:].astype(int) % 6 == number], 1, first=number)
    return path


def test_a_killed_run_over_files_of_the_same_time_gives_what_all_of_them_give(
    tmp_path: Path, engine_of_processes: Engine
) -> None:
    path = machines(tmp_path)
    process = start(path)
    kill_when(process, lambda: any((tmp_path / "out").rglob("*-00000001-*")))
    _, ledger = restarted(path)
    assert streamed(tmp_path) == expected(tmp_path)
    account = totals(ledger, "Rise")
    assert account == {"received": len(table()), "used": account["used"], "late": account["late"]}


def written_ledger(folder: Path) -> dict[str, int]:
    """The changes of all micro-batches for the query Rise, added up: the sink has them by file."""
    rows = pd.read_parquet(folder / "out" / "ledger")
    changes = rows[rows["query"] == "Rise"].groupby("what")["count"].sum()
    return {word: count for word, count in changes.to_dict().items() if count}


@pytest.mark.parametrize("send", [os.killpg, os.kill], ids=["Ctrl-C", "SIGTERM"])
def test_a_run_that_is_told_to_stop_says_what_it_did(tmp_path: Path, send: Callable[[int, int], None]) -> None:
    path = project(tmp_path, files=1)
    add_files(tmp_path, table(300), 1)
    process = start(path, "-m", "ensue.cli", "run")
    wait_until(process, (tmp_path / "state" / "commits" / "0").exists)
    send(process.pid, signal.SIGINT if send is os.killpg else signal.SIGTERM)
    output, errors = process.communicate(timeout=LONGEST)
    assert process.returncode == 0
    assert "300 records" in output
    others = ("incubator", "compiling kernels", "of its first 300 records are late")
    told = [line for line in errors.splitlines() if not any(words in line for words in others)]
    assert told
    assert all(line.startswith("batch ") for line in told), errors


def test_what_was_too_large_and_never_published_is_planned_anew(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = project(tmp_path, files=3)
    add_files(tmp_path, table(), 6)
    run(path, once=True)
    forget_results(tmp_path, 1)
    path.write_text(path.read_text().replace("maxFilesPerTrigger: 3", "maxFilesPerTrigger: 1"))
    run(path, once=True, flush=True)
    said = "micro-batch 1, which was interrupted, is planned anew, with a smaller `maxFilesPerTrigger: 1`"
    assert said in caplog.text
    manifests = [json.loads(file.read_text()) for file in sorted((tmp_path / "state").rglob("inputs/manifests/*.json"))]
    assert [len(it["sources"]["readings"]["piece"].get("files", ())) for it in manifests][:4] == [3, 0, 1, 1]
    assert streamed(tmp_path) == expected(tmp_path)
    account = totals(JobFolder(tmp_path / "state").ledger.total(), "Rise")
    assert account.pop("received") == len(table()) == sum(account.values())


def forget_results(folder: Path, batch: int) -> None:
    """Leave of a micro-batch what a crash leaves between its step and its publication."""
    state = folder / "state"
    found = [
        *folder.rglob(f"out/**/*-{batch:08}-*"),
        state / "commits" / str(batch),
        state / "commits" / f".{batch}.crc",
        *(state / "ensue" / name / f"{batch:010}.json" for name in ("ledger", "progress")),
    ]
    assert any(place.is_relative_to(folder / "out") for place in found)
    for place in found:
        place.unlink()
