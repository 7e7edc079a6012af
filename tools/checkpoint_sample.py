"""Write a job with its checkpoint to `tests/snapshots`, as this version leaves it: later versions must continue it.

Run it once for each version of the record of checkpoints, and for each engine: `python -m tools.checkpoint_sample NAME
ENGINE`. It refuses to replace a sample. The job has run twice. In between, its state was moved to other buckets, and commands have changed its
queries. Its second source is behind, so records of the first one are held; one query hands over, waits are pending.
`changes.csv` has the changes as rows of an event table; `later.csv` and `later.jsonl` are what comes after the sample.
"""

from __future__ import annotations

import json
import os
import sys
import tarfile
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from job_engine.deployment_file import load_deployment
from job_engine.job.checkpoint.checkpoint_record import RECORD_VERSION
from job_engine.job.commands import send_change
from job_engine.job.job import deploy, run
from job_engine.job.upkeep.moving import rebucket

SAMPLES = Path(__file__).resolve().parent.parent / "tests" / "snapshots"

DEPLOYMENT = """\
name: old
queries: [old.query]
sources:
  s: {format: csv, path: in, arrival: at, event: A}
  t: {format: json, path: in-t, arrival: at, event: B}
control: {format: csv, path: control}
sinks:
  matches: {format: json, path: out/matches}
  output: {format: json, path: out/output}
  discarded: {format: json, path: out/discarded}
buckets: BUCKETS
checkpoint: state
engine: ENGINE
"""
EVENT = """\
@TimeFrom("getTime") @OutOfOrder()
event A { string k; float v; float ts; action getTime() returns float { return ts; } }
event B { string k; float w; }
"""
RISE = """\
query Rise {
  parameters { float least := 1.0; }
  inputs { A() key k within 60 seconds wait 5 seconds; }
  find A as x -> A as y where y.v >= x.v + least { print y.k; }
}
"""
SILENCE = """\
query Silence { inputs { A() key k within 12 seconds; } find A as x -> wait(10.0) without A as y }
"""
PAIR = """\
query Pair { inputs { A() key k within 60 seconds; B() key k within 60 seconds; } find A as a -> B as b where b.w > a.v }
"""
WAIT = """\
query Wait { inputs { B() key k within 60 seconds; } find B as b -> wait(7.0) as over without B as x }
"""
RUNS = """\
query Runs { inputs { A() key k within 60 seconds; } find A as low -> A as more {2,} where more.v > low.v }
"""

CHANGES: tuple[tuple[float, str, list[Any]], ...] = (
    (5.0, "DeployQuery", [RUNS]),
    (5.0, "SetParameters", ["Rise", "", {"least": 2.0}]),
    (5.0, "SetParameters", ["Rise", "low", {"least": 0.5}]),
    (5.0, "ReplaceQuery", [SILENCE.replace("10.0", "4.0")]),
)
"""Arrival, name and arguments; the old text of Silence runs on for a while."""

WRITTEN = 1_700_000_000
"""When the files were written: in whole seconds, as archives keep times."""

HEAD = "at,k,v,ts,source,offset\n"
"""The rows say where they are from: a job and a replay then give one match the same identity."""

ROWS = (
    HEAD + "1,a,1,1,x,1\n2,b,1,2,x,2\n2,a,4,1.5,x,3\n3,a,2,2.5,x,4\n",
    HEAD + "8,a,0,7.5,x,5\n9,b,x,9,x,6\n9,b,3,4,x,7\n10,a,3,8,x,8\n",
)
LATER = HEAD + "12,a,5,11,x,9\n13,b,4,1,x,10\n14,b,9,12.5,x,11\n30,a,6,29,x,12\n31,b,9,30,x,13\n50,a,7,48,x,14\n"
OTHER_ROWS = (
    '{"at": 1.5, "k": "a", "w": 9, "source": "y", "offset": 1}\n{"at": 3, "k": "b", "w": 9, "source": "y", "offset": 2}\n',
    '{"at": 4, "k": "a", "w": 5, "source": "y", "offset": 3}\n{"at": 6, "k": "b", "w": 9, "source": "y", "offset": 4}\n',
)
"""Of the source that is behind."""

OTHER_LATER = (
    '{"at": 9, "k": "a", "w": 7, "source": "y", "offset": 5}\n{"at": 15, "k": "b", "w": 7, "source": "y", "offset": 6}\n'
    '{"at": 51, "k": "a", "w": 9, "source": "y", "offset": 7}\n'
)


def write_sample(archive: Path, engine: str) -> None:
    """Run the job in a folder of its own, and keep the folder."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        _run(folder, DEPLOYMENT.replace("ENGINE", engine))
        with tarfile.open(archive, "w:gz") as kept:
            for path in sorted(folder.rglob("*")):
                kept.add(path, str(path.relative_to(folder)), recursive=False, filter=_without_owner)


def _run(folder: Path, deployment: str) -> None:
    job = folder / "old.yaml"
    _write(job, deployment.replace("BUCKETS", "3"))
    _write(folder / "old.query", EVENT + RISE + SILENCE + PAIR + WAIT)
    _write(folder / "control/1.csv", 'at,event\n2,"SetDelayedEventsLeeway(20.0, 3.0)"\n')
    _write(folder / "later.csv", LATER)
    _write(folder / "later.jsonl", OTHER_LATER)
    changes = [(place, json.dumps({name: arguments})) for place, name, arguments in CHANGES]
    rows = "".join(f"{place},{_quoted(text)}\n" for place, text in changes)
    _write(folder / "changes.csv", "at,event\n" + rows)
    _write(folder / "in/1.csv", ROWS[0])
    _write(folder / "in-t/1.jsonl", OTHER_ROWS[0])
    run(job, once=True)
    rebucket(job, 2)
    _write(job, deployment.replace("BUCKETS", "2"))
    for place, text in changes:
        send_change(load_deployment(job), text, at=str(place), wait=False)
    _write(folder / "in/2.csv", ROWS[1])
    _write(folder / "in-t/2.jsonl", OTHER_ROWS[1])
    _run_until_read(job)


def _run_until_read(job: Path) -> None:
    """A run that is stopped leaves the sources where they are; one that ends lets them catch up."""
    handle = deploy(job)
    try:
        while handle.status().ledger.get(("Wait", "y", "received"), 0) < 4:
            handle.await_termination(0.5)
    finally:
        handle.stop()


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, "utf-8")
    os.utime(path, (WRITTEN, WRITTEN))


def _quoted(text: str) -> str:
    doubled = text.replace('"', '""')
    return f'"{doubled}"'


def _without_owner(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = "root"
    return entry


if __name__ == "__main__":
    sample = SAMPLES / f"checkpoint-{RECORD_VERSION}-{sys.argv[1]}.tar.gz"
    if sample.exists():
        raise SystemExit(f"{sample} is there: a sample stays as its version wrote it")
    write_sample(sample, sys.argv[2])
    print(f"wrote {sample}: {sample.stat().st_size} bytes")
