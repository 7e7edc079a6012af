"""`python -m benchmarks.stages [--events N] [--batches N] [--files N]`: where the time of a job goes, from the command on.

It runs `ensue run --once` over generated Parquet files, with Spark's own log of events, and prints what each part took per
micro-batch: on the clock, and of the processor.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks import events, many

HOOKS = Path(__file__).resolve().parent / "hooks"


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a function that is timed; times in seconds since 1970, `processor` in seconds of its thread."""

    process: int
    name: str
    start: float
    end: float
    processor: float


def main() -> None:
    """Runs the job and prints the tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.stages", description="Where the time of a job goes.")
    parser.add_argument("--events", type=int, default=1_000_000, help="events per micro-batch")
    parser.add_argument("--batches", type=int, default=6, help="number of micro-batches")
    parser.add_argument("--files", type=int, default=1, help="files per micro-batch")
    parser.add_argument("--keys", type=int, default=10_000)
    parser.add_argument("--buckets", type=int, default=8)
    parser.add_argument("--queries", type=int, default=1, help="queries that differ in a number")
    parser.add_argument("--data", type=Path, default=Path("build/stages"), help="where the files are kept")
    arguments = parser.parse_args()
    count = arguments.batches * arguments.files
    data = arguments.data / f"events-{arguments.events}-{count}-{arguments.keys}"
    if not data.exists():
        events.write_files(data, count, arguments.events // arguments.files, arguments.keys)
    with TemporaryDirectory(prefix="ensue-stages-") as folder:
        started, ended = _run(Path(folder), data, arguments.files, arguments.buckets, arguments.queries)
        calls, spark = _calls(Path(folder) / "calls"), _spark_events(Path(folder) / "spark")
    _print_start(calls, spark, started)
    _print_batches(calls, spark, arguments.events)
    print(f"whole command: {ended - started:.1f} s")


def _run(folder: Path, data: Path, files: int, buckets: int, queries: int) -> tuple[float, float]:
    """Run the command as users do; gives when it began and ended."""
    for name in ("calls", "spark"):
        (folder / name).mkdir()
    text = events.QUERY if queries == 1 else many.text(queries)
    (folder / "bench.query").write_text(text, encoding="utf-8")
    source = {"format": "parquet", "path": str(data.resolve()), "options": {"maxFilesPerTrigger": files}}
    deployment = {
        "name": "bench",
        "queries": ["bench.query"],
        "sources": {"table": source},
        "sinks": {"matches": {"format": "parquet", "path": "matches"}},
        "buckets": buckets,
        "checkpoint": "state",
    }
    (folder / "bench.yaml").write_text(json.dumps(deployment), encoding="utf-8")
    settings = {"enabled": "true", "dir": (folder / "spark").as_uri(), "compress": "false", "rolling.enabled": "false"}
    logged = " ".join(f"--conf spark.eventLog.{name}={value}" for name, value in settings.items())
    environment = os.environ | {
        "ENSUE_STAGES": str(folder / "calls"),
        "PYTHONPATH": str(HOOKS),
        "PYSPARK_SUBMIT_ARGS": f"{logged} pyspark-shell",  # a folder of settings would change Spark's class path
    }
    ensue = Path(sys.executable).with_name("ensue")
    started = time.time()
    done = subprocess.run(
        [ensue, "run", "bench.yaml", "--once"], cwd=folder, env=environment, check=False, capture_output=True, text=True
    )
    if done.returncode:
        sys.exit(done.stderr[-3000:])
    return started, time.time()


def _calls(folder: Path) -> list[Call]:
    found = [
        Call(int(file.stem), *json.loads(line))
        for file in folder.iterdir()
        for line in file.read_text(encoding="utf-8").splitlines()
    ]
    return sorted(found, key=lambda call: call.start)


def _spark_events(folder: Path) -> list[Mapping[str, Any]]:
    (file,) = [path for path in folder.rglob("*") if path.is_file() and "appstatus" not in path.name]
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def _print_start(calls: list[Call], spark: list[Mapping[str, Any]], started: float) -> None:
    """What happens up to the end of the first micro-batch, in order."""
    end = min(call.end for call in calls if call.name == "our part of the driver")
    print(f"\nfirst micro-batch done {end - started:.2f} s after the command; s from the command on:")
    rows = [(call.start, call.end, f"{call.name} [{call.process}]") for call in calls if call.start < end]
    for event in spark:
        if event["Event"] == "SparkListenerTaskEnd" and event["Task Info"]["Launch Time"] / 1000 < end:
            info = event["Task Info"]
            rows.append((info["Launch Time"] / 1000, info["Finish Time"] / 1000, f"Spark task {info['Task ID']}"))
    for first, last, name in sorted(rows):
        if last - first > 0.04 or name.startswith("process"):
            print(f"  {first - started:7.2f} to {last - started:6.2f}  {last - first:6.2f}  {name}")


def _print_batches(calls: list[Call], spark: list[Mapping[str, Any]], events_a_batch: int) -> None:
    """Medians over the micro-batches after the second."""
    progress = [
        json.loads(event["progress"]) if isinstance(event["progress"], str) else event["progress"]
        for event in spark
        if event["Event"].endswith("QueryProgressEvent")
    ]
    chosen = [item for item in progress if item["batchId"] >= 2 and item["sources"][0]["startOffset"] is not None]
    print(f"\nper micro-batch, medians of {len(chosen)}:")
    for name in chosen[0]["durationMs"]:
        print(f"  Spark: {name:24} {median(item['durationMs'].get(name, 0) for item in chosen) / 1000:8.3f} s")
    wall = median(item["durationMs"]["triggerExecution"] for item in chosen) / 1000
    print(f"  = {events_a_batch / wall / 1e6:.3f} million events per second")
    batches = [call for call in calls if call.name == "our part of the driver"][2:]
    spans = list(zip([None, *batches], batches, strict=False))
    table: dict[str, list[tuple[float, float, int]]] = defaultdict(list)
    for before, batch in spans[1:]:
        assert before is not None
        sums: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0, 0])
        for call in calls:
            if before.end < call.end <= batch.end:
                own = sums[call.name]
                own[0] += call.end - call.start
                own[1] += call.processor
                own[2] += 1
        for name, (seconds, processor, count) in sums.items():
            table[name].append((seconds, processor, int(count)))
    print(
        "\n  our functions                    clock  processor  calls   (sums over processes; one holds those it calls)"
    )
    for name, rows in sorted(table.items(), key=lambda item: -median(row[0] for row in item[1])):
        seconds, processor, count = (median(row[place] for row in rows) for place in range(3))
        print(f"  {name:30} {seconds:7.3f} {processor:9.3f} {count:6.0f}")
    _print_tasks(spark, [(a.end, b.end) for a, b in spans[1:] if a is not None])


def _print_tasks(spark: list[Mapping[str, Any]], spans: list[tuple[float, float]]) -> None:
    """What Spark says of the tasks of each stage."""
    table: dict[str, list[float]] = defaultdict(list)
    for start, end in spans:
        sums: dict[str, float] = defaultdict(float)
        for event in spark:
            if event["Event"] != "SparkListenerTaskEnd":
                continue
            info, found = event["Task Info"], event["Task Metrics"]
            if not start < info["Finish Time"] / 1000 <= end:
                continue
            kind = "result tasks" if event["Task Type"] == "ResultTask" else "reading tasks"
            sums[f"{kind}: number"] += 1
            sums[f"{kind}: clock"] += (info["Finish Time"] - info["Launch Time"]) / 1000
            sums[f"{kind}: run time"] += found["Executor Run Time"] / 1000
            sums[f"{kind}: processor of the JVM"] += found["Executor CPU Time"] / 1e9
            sums[f"{kind}: reading the task"] += found["Executor Deserialize Time"] / 1000
            sums[f"{kind}: shuffle write"] += found["Shuffle Write Metrics"]["Shuffle Write Time"] / 1e9
            sums[f"{kind}: shuffle MB"] += found["Shuffle Write Metrics"]["Shuffle Bytes Written"] / 1e6
            sums[f"{kind}: garbage"] += found["JVM GC Time"] / 1000
            for item in info["Accumulables"]:
                if "Update" in item and str(item.get("Name", "")).startswith(("time ", "data ")):
                    unit = 1e6 if item["Name"].startswith("data") else 1000
                    sums[f"{kind}: {item['Name']}"] += float(item["Update"]) / unit
        for name, value in sums.items():
            table[name].append(value)
    print("\n  Spark's tasks, sums per micro-batch")
    for name in sorted(table):
        print(f"  {name:60} {median(table[name]):8.3f}")


if __name__ == "__main__":
    main()
