"""Roles in a job: between micro-batches and runs, changed while it runs, in other buckets, shown and forgotten."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq

import ensue
from job_engine.job.checkpoint.job_folder import JobFolder
from job_engine.job.job import run as run_once
from job_engine.job.upkeep.keys import forget, job_state
from job_engine.job.upkeep.moving import rebucket
from tests.support.local_jobs import CrashAt, crashed, local, run
from tests.support.moved_jobs import set_file
from tests.support.sensors import add_files, expected, project, streamed, totals

EVENT = """\
@TimeFrom("ts")
event Process { integer pid; integer ppid; string name; float ts; }
"""
QUERIES = """
query Family {
    inputs {
        Process() as parent key pid? as process within 60.0 wait 5.0;
        Process(name != "init") as child key ppid as process within 60.0 wait 9.0;
    }
    find parent as p -> child as c { print c.name; }
}
query Twice {
    inputs {
        Process(ppid < 9) as low key pid within 60.0 wait 5.0;
        Process(ppid > 4) as high key pid within 20.0 new by name within 10.0 wait 5.0;
    }
    find all low as a -> high as b
}
query Both {
    inputs {
        Process(ppid < 12) as low key pid within 60.0 wait 5.0;
        Process(ppid > 4) as high key pid within 20.0 wait 5.0;
    }
    find low as a and high as b
}
"""


def processes(count: int = 1200, seed: int = 5) -> pd.DataFrame:
    """Processes 0.1 s apart, up to 8 s late, of which some have no parent."""
    chance = np.random.default_rng(seed)
    at = 1_700_000_000 + np.arange(count) * 0.1
    pid, ppid = pd.array(chance.integers(0, 20, count), "Int64"), pd.array(chance.integers(0, 20, count), "Int64")
    ppid[chance.random(count) < 0.1] = pd.NA
    return pd.DataFrame(
        {
            "at": pd.to_datetime(at, unit="s", utc=True).round("us"),
            "event": "Process",
            "pid": pid,
            "ppid": ppid,
            "name": chance.choice(["init", "sh", "ls"], count),
            "ts": at - chance.random(count) * 8,
        }
    )


def job(folder: Path, queries: str = QUERIES, files: int = 5) -> Path:
    path = local(project(folder))
    (folder / "sensors.query").write_text(EVENT + queries)
    add_files(folder, processes(), files)
    return path


def replayed(folder: Path) -> Any:
    files = sorted((folder / "data").iterdir())
    rows = pd.concat([pd.read_parquet(file) for file in files], ignore_index=True)
    return ensue.replay(folder / "sensors.query", rows, flush=True)


def assert_like_a_replay(folder: Path) -> None:
    """Matches, refusals and ledger of a job that has read all."""
    wanted = expected(folder)
    assert all(len(ids) > 20 for ids in wanted.values())
    assert streamed(folder) == wanted
    result = replayed(folder)
    refused = pq.read_table(folder / "out/discarded").to_pandas()
    columns = ["query", "event", "reason"]
    assert Counter(map(tuple, refused[columns].to_numpy().tolist())) == Counter(
        map(tuple, result.discarded[columns].to_numpy().tolist())
    )
    total = JobFolder(folder / "state").ledger.total()
    for name in wanted:
        rows = result.ledger[result.ledger["query"] == name]
        assert drained(totals(total, name)) == drained(rows.groupby("what")["count"].sum().to_dict())


def drained(counts: dict[str, int]) -> dict[str, int]:
    return {word: int(count) for word, count in counts.items() if count}


def test_roles_continue_behind_each_durable_write(tmp_path: Path) -> None:
    path = job(tmp_path)
    crashed(path, CrashAt("stepped", 2))
    crashed(path, CrashAt("published", 1), interval=0.0)
    crashed(path, CrashAt("committed", 0), interval=0.0)
    run(path)
    assert_like_a_replay(tmp_path)


def keys_of(path: Path, query: str, key: str) -> Any:
    """What is kept of a key of a query."""
    return next(item.to_plain() for item in job_state(path, [key]).keys or () if item.query == query)


def test_roles_go_to_other_buckets_are_shown_and_forgotten(tmp_path: Path) -> None:
    path = job(tmp_path)
    later = sorted((tmp_path / "data").iterdir())[2:]
    texts = [file.read_bytes() for file in later]
    for file in later:
        file.unlink()
    run_once(path, once=True)
    shown = keys_of(path, "Family", '{"process": 3}')
    fields = [event["fields"] for event in shown["events"]]
    assert {event["event"] for event in shown["events"]} == {"Process"}
    assert all(3 in (event["pid"], event["ppid"]) for event in fields)
    rebucket(path, 2)
    set_file(path, buckets=2)
    for file, text in zip(later, texts, strict=True):
        file.write_bytes(text)
    run_once(path, once=True, flush=True)
    assert_like_a_replay(tmp_path)
    forget(path, ['{"process": 3}'])
    run_once(path, once=True)
    assert not keys_of(path, "Family", '{"process": 3}')["events"]
    assert keys_of(path, "Family", '{"process": 4}')["events"]


APART = """
@TimeFrom("ts")
event Parent { integer pid; integer ppid; string name; float ts; }
@TimeFrom("ts")
event Child { integer pid; integer ppid; string name; float ts; }
query Apart {
    inputs {
        Parent() key pid? as process within 60.0 wait 5.0;
        Child(name != "init") key ppid as process within 60.0 wait 9.0;
    }
    find Parent as p -> Child as c { print c.name; }
}
"""
FAMILY, _, _ = QUERIES.partition("query Twice")


def pairs(folder: Path, query: str) -> Counter[str]:
    """The times of a query's matches, and the arrivals of what they bind."""
    rows = pd.concat([pd.read_parquet(file) for file in (folder / "out/matches" / query).iterdir()])
    records = [rows[name].map(lambda member: str(member["arrival"])) for name in "pc"]
    return Counter(zip(rows["time"].map(str), rows["emitted"].map(str), *records, strict=True))


def test_a_query_with_roles_is_replaced_as_one_with_types_of_their_own(tmp_path: Path) -> None:
    path = local(project(tmp_path))
    (tmp_path / "sensors.query").write_text(EVENT + FAMILY + APART)
    rows = processes(600)
    rows = rows[rows["pid"] != rows["ppid"].fillna(-1)]  # one event never makes a pair, two events do
    given = pd.concat([rows.assign(event=name) for name in ("Process", "Parent", "Child")]).sort_values(
        "at", kind="stable"
    )
    add_files(tmp_path, given.iloc[:900], 2)
    run_once(path, once=True)
    text = EVENT + FAMILY + APART
    text = text.replace("as c {", "as c where c.name != p.name {")
    (tmp_path / "sensors.query").write_text(text.replace("process within 60.0", "process within 20.0"))
    add_files(tmp_path, given.iloc[900:], 2, first=2)
    run_once(path, once=True, apply=True, flush=True)
    found = pairs(tmp_path, "Family")
    assert found.total() > 100
    assert found == pairs(tmp_path, "Apart")
    counts = totals(JobFolder(tmp_path / "state").ledger.total(), "Family")
    beside = ("role_discarded", "found", "given", "suppressed")
    assert counts["received"] == sum(n for word, n in counts.items() if word not in (*beside, "received"))
