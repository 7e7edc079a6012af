"""The figures as tables for people: on a terminal, and in Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from benchmarks import books as books_figures
from benchmarks import engines as engine_figures
from benchmarks.duckdb_compare import Compared
from benchmarks.embedded import Embedded, significant
from benchmarks.everything import Grown
from benchmarks.latency import Delays
from benchmarks.many import Many
from benchmarks.ordering import ColdKeys, Ordered
from benchmarks.patterns import Measured
from benchmarks.rules import Ruled
from benchmarks.streaming import Streamed
from benchmarks.topics import FromTopics
from benchmarks.why import Explained
from benchmarks.words import BASE, Spoken


def embedded(items: Sequence[Embedded]) -> list[Table]:
    """The query of `events` over few keys and many."""
    table = Table("keys", "to matches", "to table", "matches per batch", "state", "per stored event")
    table.title = "Embedded: one core, columns in memory (M events/s)"
    for item in items:
        rates = f"{item.to_matches:.3g}", f"{item.to_table:.3g}"
        table.add_row(f"{item.keys:,}", *rates, f"{item.matches:,}", *_state(item.state_bytes, item.kept_events))
    return [table]


def many(items: Sequence[Many]) -> list[Table]:
    """Conditions over one key and window, beside each other."""
    table = Table(
        "queries", "events per batch", "processor time", "of one query", "matches per batch", "state", "of one query"
    )
    table.title = "Many queries over one stream: one core, columns in memory"
    for item in items:
        times = f"{item.seconds:.3f} s", f"{item.times:.3g} x", f"{item.matches:,}"
        table.add_row(
            f"{item.queries:,}",
            f"{item.events:,}",
            *times,
            f"{item.state_bytes / 1e6:.2f} MB",
            f"{item.state_times:.2f} x",
        )
    return [table]


def books(items: Sequence[books_figures.Measured]) -> list[Table]:
    """Programs of many queries that concern few records each."""
    table = Table("book", "queries", "events", "loading, a query", "run", "events/s")
    for heading in ("of one query", "of one for all", "matches", "looked at"):
        table.add_column(heading)
    table.title = "Books: programs of many queries, one thread, from a table to tables of matches"
    for item in items:
        loading = f"{1e3 * item.loading / item.queries:.2f} ms"
        counts = f"{item.queries:,}", f"{item.events:,}"
        table.add_row(
            item.book,
            *counts,
            loading,
            f"{item.seconds:.2f} s",
            f"{significant(item.events / item.seconds):,.0f}",
            f"{item.times:.3g} x",
            "" if item.times_as_one is None else f"{item.times_as_one:.2g} x",
            f"{item.matches:,}",
            f"{100 * item.looked_at:.2g} %",
        )
    return [table]


def book_jobs(items: Sequence[books_figures.InJob]) -> list[Table]:
    """Books in jobs, beside the same without a job."""
    table = Table("book", "queries", "events", "layout", "a micro-batch", "of one query", "without a job", "ratio")
    table.title = (
        "Books in jobs: processor time of all processes, one bucket, a micro-batch of files to files of matches"
    )
    for item in items:
        times = f"{item.times:.3g} x", f"{item.embedded:.3g} x", f"{item.ratio:.2f}"
        table.add_row(item.book, f"{item.queries:,}", f"{item.events:,}", item.layout, f"{item.seconds:.2f} s", *times)
    return [table]


def everything(items: Sequence[Grown]) -> list[Table]:
    """Each kind of thing, a column for each number of them, with growth over a tenth as many."""
    counts = sorted({item.count for item in items})
    table = Table("things", *(f"{count:,}" for count in counts), "grows")
    table.title = "Many of everything: processor time, and how many times that of a tenth as many"
    for name in dict.fromkeys(item.things for item in items):
        own = {item.count: item for item in items if item.things == name}
        cells = [_grown(own[count]) if count in own else "" for count in counts]
        table.add_row(name, *cells, "**steeply**" if any(item.is_steep for item in own.values()) else "")
    return [table]


def _grown(item: Grown) -> str:
    growth = "" if item.growth is None else f", {item.growth:.2g} x"
    return f"{item.seconds:.2f} s{growth}"


def patterns(items: Sequence[Measured]) -> list[Table]:
    """Patterns of every kind; in events per second, since some are far from a million."""
    table = Table(
        "pattern", "keys", "events per batch", "events/s to matches", "matches per batch", "state", "per stored event"
    )
    table.title = "Patterns: one core, columns in memory"
    for item in items:
        sizes = f"{item.keys:,}", f"{item.events:,}", f"{item.rate * 1e6:,.0f}", f"{item.matches:,}"
        table.add_row(item.name, *sizes, *_state(item.state_bytes, item.kept_events))
    return [table]


def words(items: Sequence[Spoken]) -> list[Table]:
    """Each word of the language beside a comparison: how many are how fast, and the slowest and the fastest of each kind."""
    base, *others = items
    table = Table("words", "half and more", "a tenth and more", "a hundredth and more", "less", "slowest", "fastest")
    table.title = f"Words, beside the {base.rate:,.0f} events/s of `{BASE}`, from a table to a table of matches"
    kinds: dict[str, list[Spoken]] = {}
    for item in others:
        of = item.name.rpartition(" of ")[2]
        kinds.setdefault(f"{item.group} of {of}" if item.group in ("operator", "method") else item.group, []).append(
            item
        )
    for name, found in kinds.items():
        in_order = sorted(found, key=lambda item: item.part)
        counts = [0, 0, 0, 0]
        for item in found:
            counts[sum(item.part < least for least in (0.5, 0.1, 0.01))] += 1
        table.add_row(name, *map(str, counts), *(_spoken(item) for item in (in_order[0], in_order[-1])))
    return [table]


def _spoken(item: Spoken) -> str:
    name = item.name.rpartition(" of ")[0] if item.group in ("operator", "method") else item.name
    return f"`{name}` {item.part:.2g}"


def rules(items: Sequence[Ruled]) -> list[Table]:
    """Clauses of rule books beside queries without them."""
    table = Table("what", "events", "matches", "with it", "beside", "ratio")
    table.title = "Rule books: one core, a table in memory to a table of matches"
    for item in items:
        times = f"{1000 * item.seconds:,.0f} ms", f"{1000 * item.beside:,.0f} ms", f"{item.ratio:.2f}"
        table.add_row(item.name, f"{item.events:,}", f"{item.matches:,}", *times)
    return [table]


def why(items: Sequence[Explained]) -> list[Table]:
    """What `why` costs by each kind of question."""
    table = Table("asked", "events", "read and replayed before", "answer", "once more", "memory")
    table.title = "Why: one key, seconds of a processor and more memory than before"
    for item in items:
        times = f"{item.replay:.2f} s", f"{item.first:.2f} s", f"{item.again:.2f} s"
        table.add_row(item.question, f"{item.events:,}", *times, f"{item.megabytes:.0f} MB")
    return [table]


def ordering(items: Sequence[Ordered]) -> list[Table]:
    """Late streams beside orderly ones."""
    table = Table("stream", "events per batch", "orderly", "all late", "ratio", "admission's share")
    table.title = "Putting in order: one core, columns in memory to the table of matches"
    for item in items:
        times = f"{item.orderly_ms:,.0f} ms", f"{item.late_ms:,.0f} ms", f"{item.ratio:.3g}"
        table.add_row(item.name, f"{item.events:,}", *times, f"{item.share:.0%}")
    return [table]


def cold(items: Sequence[ColdKeys]) -> list[Table]:
    """A small batch beside many cold keys."""
    table = Table("keys", "hot", "per batch", "without the others", "per cold key")
    table.title = "Cold keys: one core, columns in memory"
    for item in items:
        times = f"{item.batch_ms:.1f} ms", f"{item.alone_ms:.1f} ms", f"{item.extra_ns:.3g} ns"
        table.add_row(f"{item.timelines:,}", f"{item.active:,}", *times)
    return [table]


def compared(items: Sequence[Compared]) -> list[Table]:
    """Against DuckDB, over the same file."""
    table = Table("pattern", "events", "keys", "matches", "ours", "self-join", "window", "ratio", "slices", "ratio")
    table.title = "One Parquet file, one core, medians: Ensue and DuckDB"
    for item in items:
        sizes = f"{item.events:,}", f"{item.keys:,}", f"{item.matches:,}"
        times = f"{item.ours_ms:,.0f} ms", f"{item.join_ms:,.0f} ms", f"{item.window_ms:,.0f} ms"
        sliced = f"{item.sliced_ms:,.0f} ms", f"{item.sliced_ratio:.3g}"
        table.add_row(item.name, *sizes, *times, f"{item.ratio:.3g}", *sliced)
    return [table]


def streaming(items: Sequence[Streamed]) -> list[Table]:
    """The Spark operator, one row per query and number of keys."""
    table = Table("query", "keys", "ours", "does nothing", "ratio", "in the operator", "state", "peak memory")
    table.title = f"Spark: {items[0].events_a_batch:,} events per micro-batch, medians"
    for job in items:
        rates = (f"{job.ours_ms:.0f} ms", f"{job.nothing_ms:.0f} ms", f"{job.ratio:.2f}")
        sizes = (f"{job.state_bytes / 1e6:.1f} MB", f"{job.peak_memory_bytes / 2**30:.2f} GiB")
        table.add_row(job.name, f"{job.keys:,}", *rates, f"{job.operator_seconds:.2f} s", *sizes)
    return [table]


def latency(items: Sequence[Delays]) -> list[Table]:
    """Small micro-batches, and the way from a file to its matches."""
    table = Table("measured", "ours", "does nothing", "ratio")
    (found,) = items
    table.title = f"Spark: files of {found.events_a_file:,} events, {found.buckets} buckets"
    rows = (
        ("a micro-batch of one file, median", found.batch_ms, found.nothing_batch_ms, found.batch_ratio),
        ("the same, doing nothing behind our source", found.batch_ms, found.packed_batch_ms, found.packed_batch_ratio),
        ("from file to match, 10,000 events/s, p50", found.p50_ms, found.nothing_p50_ms, found.p50_ratio),
        ("from file to match, 10,000 events/s, p99", found.p99_ms, found.nothing_p99_ms, found.p99_ratio),
    )
    for name, own, nothing, ratio in rows:
        table.add_row(name, f"{own:,.0f} ms", f"{nothing:,.0f} ms", f"{ratio:.2f}")
    return [table]


def topics(items: Sequence[FromTopics]) -> list[Table]:
    """From messages to matches in a Delta table."""
    table = Table("measured", "ours", "does nothing", "ratio")
    (found,) = items
    table.title = f"Kafka: JSON to matches in Delta, {found.buckets} buckets, the broker on this machine"
    batch = f"messages/s, {found.messages_a_batch:,} per micro-batch, median"
    table.add_row(batch, f"{found.rate:,.0f}", f"{found.nothing_rate:,.0f}", f"{found.ratio:.2f}")
    for name, own, nothing, ratio in (
        ("from produce to match, 10,000 messages/s, p50", found.p50_ms, found.nothing_p50_ms, found.p50_ratio),
        ("from produce to match, 10,000 messages/s, p99", found.p99_ms, found.nothing_p99_ms, found.p99_ratio),
    ):
        table.add_row(name, f"{own:,.0f} ms", f"{nothing:,.0f} ms", f"{ratio:.2f}")
    decoding = Table("decoding by itself, one core", "messages/s")
    decoding.add_row("to columns", f"{found.columns:,.0f}")
    decoding.add_row("to columns, selected and packed for the shuffle", f"{found.packed:,.0f}")
    decoding.add_row("json.loads, row by row", f"{found.by_row:,.0f}")
    return [table, decoding]


def engines(items: Sequence[engine_figures.Compared]) -> list[Table]:
    """Both engines."""
    table = Table("measured", "unit", "spark", "local", "local / spark", title="The same jobs on both engines")
    for item in items:
        table.add_row(item.name, item.unit, _three(item.spark), _three(item.local), _three(item.ratio))
    return [table]


def _three(number: float) -> str:
    """Three digits, and all before the point."""
    return f"{number:,.0f}" if abs(number) >= 100 else f"{number:.3g}"


def _state(state_bytes: int, kept_events: int) -> tuple[str, str]:
    return f"{state_bytes / 1e6:.1f} MB", f"{state_bytes / max(1, kept_events):.0f} B"
