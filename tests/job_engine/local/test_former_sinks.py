"""Sinks that change while a micro-batch is interrupted: each row is in one of them, the former or the new one."""

from __future__ import annotations

import errno
import json
from collections import Counter
from pathlib import Path
from shutil import copytree, rmtree
from typing import Any

import pandas as pd
import pytest
from deltalake import DeltaTable

from job_engine.job.job import run as run_once
from job_engine.sinks.folder.publishing import Publishing
from querylang.errors import InputError
from tests.support.embedded import match_ids
from tests.support.local_jobs import CrashAt, crashed, local, run
from tests.support.sensors import add_files, answer, project, table

CHANNEL = "channels: {rises: {format: parquet, path: out/rises}}\n"


def sensors(folder: Path, sink: str, *, more: str = "") -> Path:
    path = local(project(folder, sink=sink))
    path.write_text(path.read_text() + more)
    add_files(folder, table(), 8)
    return path


def rows_in(folder: Path) -> pd.DataFrame:
    """What a folder of files, or a table, shows."""
    if (folder / "_delta_log").exists():
        return DeltaTable(str(folder)).to_pandas()
    return pd.concat([pd.read_parquet(path) for path in sorted(folder.rglob("[!.]*.parquet"))])


def assert_each_row_once(folder: Path, matches: list[str], outputs: list[str]) -> None:
    whole = answer(folder)
    ids = Counter(name for path in matches for name in all_ids(folder / "out" / path))
    assert ids == Counter(name for names in match_ids(whole).values() for name in names)
    columns = ["kind", "channel", "match_id", "text"]
    found = pd.concat([rows_in(folder / "out" / path) for path in outputs if (folder / "out" / path).exists()])
    assert Counter(found[columns].fillna("").itertuples(index=False, name=None)) == Counter(
        whole.outputs.to_pandas()[columns].fillna("").itertuples(index=False, name=None)
    )
    assert not list((folder / "out").rglob("*.draft"))


def all_ids(folder: Path) -> list[str]:
    return [name for part in sorted(folder.iterdir()) for name in rows_in(part)["match_id"]]


@pytest.mark.parametrize("sink", ["parquet", "delta"])
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("path: out/matches", "path: out/other"),
        ("path: out/output", "path: out/elsewhere"),
        ("checkpoint:", f"{CHANNEL}checkpoint:"),
        (CHANNEL, ""),
    ],
    ids=["matches", "output", "channel", "no-channel"],
)
def test_a_micro_batch_is_repeated_into_other_sinks(
    tmp_path: Path, sink: str, old: str, new: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = sensors(tmp_path, sink, more=CHANNEL if old == CHANNEL else "")
    run_some = crashed(path, CrashAt("published", 3), interval=0.0)
    assert run_some
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
    run(path)
    moved = [name for name in ("matches", "other") if (tmp_path / "out" / name).exists()]
    assert_each_row_once(tmp_path, moved, ["output", "elsewhere", "rises"])
    assert "which was interrupted, were removed: the sinks have changed" in caplog.text
    caplog.clear()
    add_files(tmp_path, table().iloc[:0], 1, first=50)
    run(path)
    assert "were removed" not in caplog.text


def test_what_no_sink_gets_any_more_stays(tmp_path: Path) -> None:
    path = sensors(tmp_path, "parquet")
    crashed(path, CrashAt("published", 3))
    before = sorted((tmp_path / "out" / "discarded").iterdir())
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(line for line in lines if "out/discarded" not in line))
    run(path)
    assert before
    assert sorted((tmp_path / "out" / "discarded").iterdir()) == before


def test_where_nobody_can_look_it_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = sensors(tmp_path, "parquet")
    crashed(path, CrashAt("published", 3))
    file = tmp_path / "state" / "ensue" / "sinks.json"
    sinks = json.loads(file.read_text())
    sinks["sinks"]["output"] = {"format": "kafka", "place": None, "shown": "topic 'alarms'"}
    file.write_text(json.dumps(sinks))
    run(path)
    assert "topic 'alarms': may have results of micro-batch 0, which was interrupted, and is repeated" in caplog.text


def test_a_folder_that_cannot_be_written_has_a_way_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = sensors(tmp_path, "parquet")
    crashed(path, CrashAt("published", 3))
    path.write_text(path.read_text().replace("path: out/output", "path: out/elsewhere"))

    def fails(*_: Any) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr(Publishing, "remove", fails)
        with pytest.raises(InputError, match=r"out/output: was a sink; .* error\. Or delete `ensue/sinks.json`"):
            run_once(path, once=True)
    (tmp_path / "state" / "ensue" / "sinks.json").unlink()
    run(path)
    assert len(rows_in(tmp_path / "out" / "elsewhere"))


def test_a_file_of_sinks_has_no_secret(tmp_path: Path) -> None:
    path = sensors(tmp_path, "parquet")
    run(path)
    plain = json.loads((tmp_path / "state" / "ensue" / "sinks.json").read_text())
    assert plain["checkpoint"] == str(tmp_path / "state")
    assert plain["sinks"]["output"] == {
        "format": "parquet",
        "place": str(tmp_path / "out" / "output"),
        "shown": str(tmp_path / "out" / "output"),
    }


def files_in(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(folder.rglob("*.parquet"))}


def test_a_copy_of_a_job_takes_nothing_out_of_the_sinks_of_the_original(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = sensors(tmp_path, "parquet")
    crashed(path, CrashAt("published", 3))
    copytree(tmp_path / "state", tmp_path / "copied")
    before = files_in(tmp_path / "out")
    other = tmp_path / "other.yaml"
    other.write_text(
        path.read_text().replace("path: out/", "path: new/").replace("checkpoint: state", "checkpoint: copied")
    )
    run(other)
    assert files_in(tmp_path / "out") == before
    assert "the checkpoint was somewhere else, and may be a copy" in caplog.text
    run(path)
    assert_each_row_once(tmp_path, ["matches"], ["output"])


def test_what_the_checkpoint_does_not_know_stays_in_a_former_sink(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = sensors(tmp_path, "parquet")
    crashed(path, CrashAt("published", 3))
    copytree(tmp_path / "state", tmp_path / "older")
    run(path)
    before = files_in(tmp_path / "out" / "output")
    rmtree(tmp_path / "state")
    (tmp_path / "older").rename(tmp_path / "state")
    lines = path.read_text().replace("path: out/", "path: new/")
    path.write_text(lines)
    run(path)
    assert files_in(tmp_path / "out" / "output") == before
    assert "which the checkpoint does not know" in caplog.text
