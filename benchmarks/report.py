"""The figures as tables for people."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from benchmarks.duckdb_compare import Compared
from benchmarks.embedded import Embedded
from benchmarks.ordering import Ordered, Resting
from benchmarks.patterns import Measured
from benchmarks.streaming import Streamed


def show_embedded(console: Console, items: Sequence[Embedded]) -> None:
    """The query of `events` over few keys and many."""
    table = Table("keys", "to matches", "to table", "matches per batch", "state", "per stored event")
    table.title = "Embedded: one core, columns in memory (M events/s)"
    for item in items:
        rates = f"{item.to_matches:.3g}", f"{item.to_table:.3g}"
        table.add_row(f"{item.keys:,}", *rates, f"{item.matches:,}", *_state(item.state_bytes, item.kept_events))
    console.print(table)


def show_patterns(console: Console, items: Sequence[Measured]) -> None:
    """Patterns of every kind; in events per second, since some are far from a million."""
    table = Table(
        "pattern", "keys", "events per batch", "events/s to matches", "matches per batch", "state", "per stored event"
    )
    table.title = "Patterns: one core, columns in memory"
    for item in items:
        sizes = f"{item.keys:,}", f"{item.events:,}", f"{item.rate * 1e6:,.0f}", f"{item.matches:,}"
        table.add_row(item.name, *sizes, *_state(item.state_bytes, item.kept_events))
    console.print(table)


def show_ordering(console: Console, items: Sequence[Ordered]) -> None:
    """Late streams beside orderly ones."""
    table = Table("stream", "events per batch", "orderly", "all late", "ratio", "admission's share")
    table.title = "Putting in order: one core, columns in memory to the table of matches"
    for item in items:
        times = f"{item.orderly_ms:,.0f} ms", f"{item.late_ms:,.0f} ms", f"{item.ratio:.3g}"
        table.add_row(item.name, f"{item.events:,}", *times, f"{item.share:.0%}")
    console.print(table)


def show_resting(console: Console, items: Sequence[Resting]) -> None:
    """A small batch beside many cold keys."""
    table = Table("keys", "hot", "per batch", "without the others", "per cold key")
    table.title = "Cold keys: one core, columns in memory"
    for item in items:
        times = f"{item.batch_ms:.1f} ms", f"{item.alone_ms:.1f} ms", f"{item.extra_ns:.3g} ns"
        table.add_row(f"{item.timelines:,}", f"{item.active:,}", *times)
    console.print(table)


def show_compared(console: Console, items: Sequence[Compared]) -> None:
    """Against DuckDB, over the same file."""
    table = Table("pattern", "events", "keys", "matches", "ours", "self-join", "window", "ratio", "slices", "ratio")
    table.title = "One Parquet file, one core, medians: Ensue and DuckDB"
    for item in items:
        sizes = f"{item.events:,}", f"{item.keys:,}", f"{item.matches:,}"
        times = f"{item.ours_ms:,.0f} ms", f"{item.join_ms:,.0f} ms", f"{item.window_ms:,.0f} ms"
        sliced = f"{item.sliced_ms:,.0f} ms", f"{item.sliced_ratio:.3g}"
        table.add_row(item.name, *sizes, *times, f"{item.ratio:.3g}", *sliced)
    console.print(table)


def show_streaming(console: Console, items: Sequence[Streamed]) -> None:
    """The Spark operator, one row per query and number of keys."""
    table = Table("query", "keys", "ours", "does nothing", "ratio", "in the operator", "state", "peak memory")
    table.title = f"Spark: {items[0].events_a_batch:,} events per micro-batch, medians"
    for job in items:
        rates = (f"{job.ours_ms:.0f} ms", f"{job.nothing_ms:.0f} ms", f"{job.ratio:.2f}")
        sizes = (f"{job.state_bytes / 1e6:.1f} MB", f"{job.peak_memory_bytes / 2**30:.2f} GiB")
        table.add_row(job.name, f"{job.keys:,}", *rates, f"{job.operator_seconds:.2f} s", *sizes)
    console.print(table)


def _state(state_bytes: int, kept_events: int) -> tuple[str, str]:
    return f"{state_bytes / 1e6:.1f} MB", f"{state_bytes / max(1, kept_events):.0f} B"
