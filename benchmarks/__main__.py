"""`python -m benchmarks [--small] [--json FILE]`: measures, prints a table, writes JSON. See `docs/benchmarks.md`."""

from __future__ import annotations

import argparse
import json
import platform
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console
from rich.table import Table

from benchmarks import embedded, streaming

FULL = streaming.Size(events_a_batch=1_000_000, batches=6, rounds=3, buckets=16)
SMALL = streaming.Size(events_a_batch=20_000, batches=2, rounds=1, buckets=4)


def main() -> None:
    """Everything, one measurement after the other."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="How fast, against what.")
    parser.add_argument("--small", action="store_true", help="a little of everything: does it run?")
    parser.add_argument("--json", type=Path, default=Path("build/benchmarks.json"), help="where to write the figures")
    parser.add_argument("--only", choices=["embedded", "streaming"], help="one part only")
    arguments = parser.parse_args()
    size, keys = (SMALL, [100, 2_000]) if arguments.small else (FULL, [10_000, 1_000_000])
    inside: list[embedded.Embedded] = []
    outside: list[streaming.Streamed] = []
    if arguments.only != "streaming":
        batches = 4 if arguments.small else 12
        inside = [embedded.measure(size.events_a_batch, count, batches) for count in keys]
    if arguments.only != "embedded":
        with TemporaryDirectory() as folder:
            outside = [streaming.measure(Path(folder), count, size) for count in keys]
    _print(inside, outside)
    figures = {
        "machine": {"cores": _cores(), "processor": platform.machine(), "python": platform.python_version()},
        "embedded": [asdict(item) for item in inside],
        "streaming": [asdict(item) for item in outside],
    }
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    arguments.json.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")


def _cores() -> int:
    import os

    return len(os.sched_getaffinity(0))


def _print(inside: list[embedded.Embedded], outside: list[streaming.Streamed]) -> None:
    console = Console()
    if inside:
        table = Table("keys", "to matches", "to table", "matches a batch", "state", "a kept event")
        table.title = "Embedded: one core, columns in memory (M events/s)"
        for item in inside:
            each = f"{item.state_bytes / max(1, item.kept_events):.0f} B"
            state = f"{item.state_bytes / 1e6:.1f} MB"
            rates = (f"{item.to_matches:.2f}", f"{item.to_table:.2f}")
            table.add_row(f"{item.keys:,}", *rates, f"{item.matches:,}", state, each)
        console.print(table)
    if outside:
        table = Table("keys", "ours", "does nothing", "ratio", "in the operator", "state", "peak memory")
        table.title = f"Spark: {outside[0].events_a_batch:,} events a micro-batch, medians"
        for job in outside:
            rates = (f"{job.ours_ms:.0f} ms", f"{job.nothing_ms:.0f} ms", f"{job.ratio:.2f}")
            sizes = (f"{job.state_bytes / 1e6:.1f} MB", f"{job.peak_memory_bytes / 2**30:.2f} GiB")
            table.add_row(f"{job.keys:,}", *rates, f"{job.operator_seconds:.2f} s", *sizes)
        console.print(table)


if __name__ == "__main__":
    main()
