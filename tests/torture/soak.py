"""`make soak`: a job under steady load; memory, state, files of the checkpoint and micro-batch time must stay level.

Finds the highest rate first (a backlog read at once), then runs at half of it. Draws a chart and prints one line of figures.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from tests.torture.victims import Victim, members

QUERY = """\
event A { string k; float v; float ts; }
event B { string k; float v; float ts; }
query Rise {
    inputs { A() key k within 30.0 wait 2.0; B() key k within 30.0 wait 2.0; }
    find A as a -> B as b where b.v > a.v + 0.9
}
"""
DEPLOYMENT = """\
name: soak
queries: [soak.query]
sources:
  events: {format: parquet, path: in, source_time: ts, after: delete, options: {maxFilesPerTrigger: 20}}
sinks:
  matches: {format: parquet, path: out/matches}
buckets: 4
trigger: 1 second
checkpoint: state
"""
KEYS = 10_000
ROWS_PER_FILE = 50_000
LEVEL = 1.25
"""The last third may be higher than the middle one by this factor."""


@dataclass(frozen=True, slots=True)
class Measure:
    """What is measured at one moment; sizes in bytes, `batch`: seconds of the last micro-batch."""

    second: float
    memory: int
    state: int
    files: int
    batch: float


def events(number: int, rows: int, rate: float) -> pd.DataFrame:
    """File `number` of a stream of `rate` events per second."""
    chooser = np.random.default_rng(number)
    at = 1_700_000_000 + (number * rows + np.arange(rows)) / rate
    return pd.DataFrame(
        {
            "at": pd.to_datetime(at, unit="s", utc=True).round("us"),
            "event": np.where(chooser.random(rows) < 0.5, "A", "B"),
            "k": np.char.add("k", chooser.integers(0, KEYS, rows).astype(str)),
            "v": chooser.random(rows),
            "ts": at - chooser.random(rows) * 2,
        }
    )


def write(folder: Path, number: int, rate: float) -> None:
    """One file, visible at once."""
    draft = folder / f".{number:08}.draft"
    events(number, ROWS_PER_FILE, rate).to_parquet(draft)
    draft.replace(folder / f"{number:08}.parquet")


def prepare(folder: Path) -> Path:
    """The job's files; gives the deployment file."""
    (folder / "in").mkdir(parents=True)
    (folder / "soak.query").write_text(QUERY, encoding="utf-8")
    (folder / "soak.yaml").write_text(DEPLOYMENT, encoding="utf-8")
    return folder / "soak.yaml"


def highest_rate(folder: Path, files: int = 60) -> float:
    """Events per second over a backlog, without the start of the job (its first third)."""
    deployment = prepare(folder)
    for number in range(files):
        write(folder / "in", number, 50_000)
    victim = Victim.start(deployment)
    commits, moments = folder / "state" / "commits", []
    while len(moments) < files // 20:
        time.sleep(0.02)
        assert victim.is_running, victim.log.read_text()[-2000:]
        moments += [time.monotonic()] * (len(list(commits.glob("[0-9]*"))) - len(moments))
    victim.end()
    return (files - 20) * ROWS_PER_FILE / (moments[-1] - moments[0])


def soak(folder: Path, rate: float, seconds: float) -> Iterator[Measure]:
    """Run a job at `rate` events per second; a measure every ten seconds."""
    deployment = prepare(folder)
    victim = Victim.start(deployment)
    started, written, told = time.monotonic(), 0, 0.0
    try:
        while (now := time.monotonic() - started) < seconds:
            assert victim.is_running, victim.log.read_text()[-2000:]
            while written * ROWS_PER_FILE < now * rate:
                write(folder / "in", written, rate)
                written += 1
            if now - told >= 10:
                told = now
                yield _measure(folder, victim, now)
            time.sleep(0.05)
    finally:
        victim.end()


def _measure(folder: Path, victim: Victim, second: float) -> Measure:
    memory = sum(_resident(process) for process in [victim.process.pid, *members(victim.process.pid)])
    checkpoint = [path for path in (folder / "state").rglob("*") if path.is_file()]
    state = 0
    for path in checkpoint:
        try:
            state += path.stat().st_size
        except FileNotFoundError:
            continue  # it has just been removed
    return Measure(second, memory, state, len(checkpoint), _last_seconds(victim.log))


def _resident(process: int) -> int:
    try:
        return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * 4096
    except OSError:
        return 0


def _last_seconds(log: Path) -> float:
    lines = [line for line in log.read_text().splitlines()[-20:] if line.startswith("batch ")]
    return float(lines[-1].split(", ")[-1].removesuffix(" s")) if lines else 0.0


def risen(measures: Sequence[Measure]) -> list[str]:
    """What was higher in the last third than in the middle one."""
    third = len(measures) // 3
    found = []
    for name in ("memory", "state", "files", "batch"):
        middle, last = (
            np.median([getattr(item, name) for item in part]) for part in (measures[third:-third], measures[-third:])
        )
        if last > middle * LEVEL:
            found.append(f"{name} rose from {middle:.3g} to {last:.3g}")
    return found


def chart(measures: Sequence[Measure]) -> str:
    """One line of blocks per figure."""
    blocks, lines = "▁▂▃▄▅▆▇█", []
    for name in ("memory", "state", "files", "batch"):
        values = np.array([getattr(item, name) for item in measures], float)
        parts = [part.mean() for part in np.array_split(values, min(60, len(values)))]
        highest = max(parts) or 1.0
        drawn = "".join(blocks[min(7, int(part / highest * 7.99))] for part in parts)
        lines.append(f"{name:<7}{drawn} {values.min():.3g} to {values.max():.3g}")
    return "\n".join(lines)


def main() -> int:
    """Runs what the arguments say."""
    parser = argparse.ArgumentParser(prog="soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--rate", type=float, help="events per second; default: half of the highest")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as temporary:
        rate = given.rate or highest_rate(Path(temporary) / "highest") / 2
        measures = list(soak(Path(temporary) / "soak", rate, given.minutes * 60))
    print(chart(measures))
    found = risen(measures)
    print(f"soak: {given.minutes:g} minutes at {rate:,.0f} events/s: {'; '.join(found) or 'all level'}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
