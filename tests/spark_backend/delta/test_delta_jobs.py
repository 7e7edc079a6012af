"""Jobs that write Delta tables: the matches of a replay, once, after kills before and between commits."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from deltalake import DeltaTable, write_deltalake

from job_engine.job.job import deploy, run
from job_engine.job.reports import BatchReport
from job_engine.setting_keys import Engine
from querylang.errors import EnsueError, InputError
from tests.support.delta_tables import FROM_TABLE, match_ids_in, replayed
from tests.support.engines import ON_BOTH
from tests.support.killed_runs import kill_when, restarted, start
from tests.support.sensors import QUERY, add_files, expected, project, project_of_two, table, totals
from tests.support.waiting import LONGEST


def before_the_commits(folder: Path) -> bool:
    return any((folder / "out" / "matches").rglob("*-00000002-*"))


def between_the_commits(folder: Path) -> bool:
    return (folder / "out" / "matches" / "Jump" / "_delta_log" / f"{2:020d}.json").exists()


@pytest.mark.parametrize(
    ("moment", "engine"),
    [(before_the_commits, Engine.LOCAL), (between_the_commits, Engine.SPARK), (between_the_commits, Engine.LOCAL)],
    indirect=["engine"],
)
def test_a_killed_run_gives_each_match_once(tmp_path: Path, moment: Callable[[Path], bool], engine: Engine) -> None:
    path = project(tmp_path, sink="delta", files=1)
    add_files(tmp_path, table(), 6)
    kill_when(start(path), lambda: moment(tmp_path))
    assert not (tmp_path / "state" / "commits" / "5").exists()
    _, ledger = restarted(path)
    assert match_ids_in(tmp_path / "out" / "matches") == expected(tmp_path)
    account = totals(ledger, "Rise")
    assert account.pop("received") == len(table()) == sum(account.values())
    changes = DeltaTable(str(tmp_path / "out" / "ledger")).to_pyarrow_table().to_pandas()
    written = changes[changes["query"] == "Rise"].groupby("what")["count"].sum().to_dict()
    assert {word: count for word, count in written.items() if count} == {
        word: count for word, count in totals(ledger, "Rise").items() if count
    }
    for found in tmp_path.rglob("_delta_log"):
        own = {file.name for file in found.parent.glob("*.parquet")}
        assert own == {Path(uri).name for uri in DeltaTable(str(found.parent)).file_uris()}


def write_commits(folder: Path, rows: pd.DataFrame, count: int) -> None:
    """Each commit has two files, whose arrival times overlap; the event type is a partition, and not in them."""
    halves = rows.assign(half=(np.arange(len(rows)) % 2).astype("int64"))
    for part in np.array_split(np.arange(len(rows)), count):
        write_deltalake(folder / "readings", halves.iloc[part], mode="append", partition_by=["event", "half"])


@ON_BOTH
def test_a_job_over_a_table_gives_the_matches_of_a_replay(tmp_path: Path, engine: Engine) -> None:
    (tmp_path / "sensors.query").write_text(QUERY)
    path = tmp_path / "sensors.yaml"
    path.write_text(FROM_TABLE)
    rows = table(1500)
    write_commits(tmp_path, rows.iloc[:700], 3)
    first = run(path, once=True)
    assert sum(totals(first.ledger, "Rise").values()) > 0
    write_commits(tmp_path, rows.iloc[700:], 4)
    DeltaTable(tmp_path / "readings").create_checkpoint()
    report = run(path, once=True, flush=True)
    assert match_ids_in(tmp_path / "out" / "matches") == replayed(tmp_path)
    assert totals(report.ledger, "Rise")["received"] == len(rows)
    assert not any("before_clock" in key for key in report.ledger)


def test_a_data_file_that_was_removed_is_a_loss(tmp_path: Path, engine: Engine) -> None:
    (tmp_path / "sensors.query").write_text(QUERY)
    path = tmp_path / "sensors.yaml"
    path.write_text(FROM_TABLE)
    write_commits(tmp_path, table(100), 1)
    next(path for path in (tmp_path / "readings").rglob("*.parquet")).unlink()
    with pytest.raises(InputError, match=r"the data file no longer exists: it was removed by VACUUM.*--accept-loss"):
        run(path, once=True)
    assert totals(run(path, once=True, accept_loss=True).ledger, "Rise")["lost"] == 50


def test_a_micro_batch_is_repeated_with_the_settings_of_the_run_that_began_it(tmp_path: Path, engine: Engine) -> None:
    """`idle` has let time advance in it, and its results are in the table; the next run has `--once`, hence no `idle`."""
    path = project_of_two(tmp_path)
    text = path.read_text().replace("format: parquet, path: out", "format: delta, path: out")
    path.write_text(text.replace("idle: none", "idle: 1 second"))
    rows = table(600)
    add_files(tmp_path, rows.iloc[:300], 1, source="north")
    add_files(tmp_path, rows.iloc[:60], 1, source="south")
    jumps = tmp_path / "out" / "matches" / "Jump"
    found: list[int] = []

    def killed(report: BatchReport) -> None:
        found.append(sum(report.matches.values()))
        if len(found) > 1 and found[-1]:
            raise RuntimeError("killed")

    with pytest.raises(EnsueError):
        deploy(path, killed).await_termination(LONGEST)
    first = DeltaTable(str(jumps)).to_pyarrow_table()["match_id"].to_pylist()
    assert first
    add_files(tmp_path, rows.iloc[300:], 1, first=1, source="north")
    batches: list[BatchReport] = []
    run(path, once=True, flush=True, progress=batches.append)
    assert sum(batches[0].matches.values()) == found[-1]
    again = DeltaTable(str(jumps)).to_pyarrow_table()["match_id"].to_pylist()
    assert len(again) == len(set(again)) > len(first)
    path.write_text(path.read_text().replace("idle: 1 second", "idle: 2 seconds"))
    assert run(path, once=True).batches == 0
