"""Random queries over random streams, as jobs whose files are cut at random, compared with a replay.

`python -m tests.torture.deployments --cases 50 --seed 1`
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from job_engine.job.job import run
from tests.differential.patterns import random_queries
from tests.support.scenario import EVENTS, PAYLOAD, SECOND, Scenario, field_name, leeway_text, query_text
from tests.support.scenario import Row as ScenarioRow
from tests.torture.answers import replayed, written
from tests.torture.project import SINKS
from tests.torture.streams import Row, Source, write_next

TOGETHER = 10
"""So many queries share a stream."""


def random_deployment(chooser: random.Random, folder: Path, seed: int) -> tuple[Path, list[Source]]:
    """Write a job with all its files; gives its deployment file and its sources."""
    scenarios = random_queries(seed, TOGETHER)
    names = chooser.sample(["a", "B", "c c", "d-1"], chooser.choice((1, 1, 2, 3)))
    sources = [Source(name, "json", None, []) for name in names]
    for number, row in scenarios[0].ordered():
        chooser.choice(sources).rows.append(Row(number, row.at, cells_of(scenarios, number, row)))
    (folder / "case.query").write_text(query_text(scenarios), encoding="utf-8")
    lines = ["name: case", "queries: [case.query]", "sources:"]
    for source in sources:
        (folder / source.name).mkdir()
        files = f"{{maxFilesPerTrigger: {chooser.choice((1, 1, 2, 3))}, recursiveFileLookup: true}}"
        lines.append(f"  {source.name}: {{format: json, path: {source.name}, options: {files}}}")
        longest = chooser.choice((1, 3, 10, 100))
        while path := write_next(chooser, folder / source.name, source, max(longest, len(source.rows) // 12)):
            _date(path, len(source.files))
    lines += [SINKS, f"buckets: {chooser.choice((1, 2, 5))}", "checkpoint: state"]
    deployment = folder / "case.yaml"
    deployment.write_text("\n".join(lines), encoding="utf-8")
    return deployment, sources


def _date(path: Path, number: int) -> None:
    os.utime(path, (1_600_000_000 + number, 1_600_000_000 + number))


def cells_of(scenarios: list[Scenario], number: int, row: ScenarioRow) -> dict[str, Any]:
    cells: dict[str, Any] = {"at": row.at / SECOND, "event": row.kind}
    match row.kind:
        case "tick":
            return cells | {"event": None}
        case "control":
            return cells | {"event": row.text if row.leeway is None else leeway_text(*row.leeway)}
        case "malformed":
            return cells | {"event": "A("}
        case "unknown":
            return cells | {"event": "Unknown"}
        case "U":
            return cells | {"id": number}
    event = row.kind.removeprefix("H")
    # A file of a job in which no row has a field would not be a table of the event.
    cells |= {"ts": None if row.time is None else row.time / SECOND}
    names = PAYLOAD if row.kind in EVENTS else ("k", "c") if event else ()
    cells |= {field_name(event, name): getattr(row, name) for name in names}
    return cells | ({"id": number} if row.kind in EVENTS else {})


def check(folder: Path, seed: int) -> list[str]:
    """Run one deployment to its end; how it differs from a replay, a line each."""
    chooser = random.Random(seed)
    deployment, sources = random_deployment(chooser, folder, seed)
    run(deployment, once=True, flush=True)
    return written(folder / "out").differences(replayed(folder / "case.query", sources, []))


def main() -> int:
    """Runs what the arguments say; prints one line of figures."""
    parser = argparse.ArgumentParser(prog="deployments", description=__doc__)
    parser.add_argument("--cases", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    started, wrong = time.monotonic(), 0
    for seed in range(given.seed, given.seed + given.cases):
        with tempfile.TemporaryDirectory() as temporary:
            found = check(Path(temporary), seed)
        wrong += bool(found)
        for line in found:
            print(f"seed {seed}: {line[:1000]}", flush=True)
    seconds = time.monotonic() - started
    print(f"deployments: {given.cases} of {TOGETHER} queries each, {wrong} differ from a replay, {seconds:.0f} s")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
