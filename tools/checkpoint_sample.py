"""Write a job with its checkpoint to `tests/snapshots`, as this version leaves it: later versions must continue it.

Run it once for each version of the record of checkpoints: `python -m tools.checkpoint_sample`. It refuses to replace a
sample. The job has run twice. In between, its state was moved to other buckets, and commands have changed its queries.
`changes.csv` has these changes as rows of an event table, and `later.csv` is what comes after the sample.
"""

from __future__ import annotations

import json
import os
import tarfile
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from spark_backend.job.checkpoint_record import RECORD_VERSION
from spark_backend.job.commands.control import send_change
from spark_backend.job.job import run
from spark_backend.job.upkeep.rebucket import rebucket
from spark_backend.settings.deployment_file import load_deployment

SAMPLES = Path(__file__).resolve().parent.parent / "tests" / "snapshots"

DEPLOYMENT = """\
name: old
queries: [old.query]
sources:
  s: {format: csv, path: in, arrival: at}
control: {format: csv, path: control}
sinks:
  matches: {format: json, path: out/matches}
  output: {format: json, path: out/output}
  discarded: {format: json, path: out/discarded}
buckets: BUCKETS
checkpoint: state
"""
EVENT = """\
@TimeFrom("getTime") @OutOfOrder()
event A { string k; float v; float ts; action getTime() returns float { return ts; } }
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

HEAD = "at,k,v,ts\n"
ROWS = (
    HEAD + "1,a,1,1\n2,b,1,2\n2,a,4,1.5\n3,a,2,2.5\n",
    HEAD + "8,a,0,7.5\n9,b,x,9\n9,b,3,4\n10,a,3,8\n",
)
LATER = HEAD + "12,a,5,11\n13,b,4,1\n14,b,9,12.5\n30,a,6,29\n31,b,9,30\n50,a,7,48\n"


def write_sample(archive: Path) -> None:
    """Run the job in a folder of its own, and keep all but its results."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        _run(folder)
        with tarfile.open(archive, "w:gz") as kept:
            for path in sorted(folder.rglob("*")):
                place = path.relative_to(folder)
                if place.parts[0] != "out":
                    kept.add(path, str(place), recursive=False, filter=_without_owner)


def _run(folder: Path) -> None:
    job = folder / "old.yaml"
    _write(job, DEPLOYMENT.replace("BUCKETS", "3"))
    _write(folder / "old.query", EVENT + RISE + SILENCE)
    _write(folder / "control/1.csv", 'at,event\n2,"SetDelayedEventsLeeway(20.0, 3.0)"\n')
    _write(folder / "later.csv", LATER)
    changes = [(place, json.dumps({name: arguments})) for place, name, arguments in CHANGES]
    rows = "".join(f"{place},{_quoted(text)}\n" for place, text in changes)
    _write(folder / "changes.csv", "at,event\n" + rows)
    _write(folder / "in/1.csv", ROWS[0])
    run(job, once=True)
    rebucket(job, 2)
    _write(job, DEPLOYMENT.replace("BUCKETS", "2"))
    for place, text in changes:
        send_change(load_deployment(job), text, at=str(place), wait=False)
    _write(folder / "in/2.csv", ROWS[1])
    run(job, once=True)


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
    sample = SAMPLES / f"checkpoint-{RECORD_VERSION}.tar.gz"
    if sample.exists():
        raise SystemExit(f"{sample} is there: a sample stays as its version wrote it")
    write_sample(sample)
    print(f"wrote {sample}: {sample.stat().st_size} bytes")
