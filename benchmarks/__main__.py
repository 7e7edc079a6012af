"""`python -m benchmarks [--small] [--only PART] [--json FILE] [--docs]`: measures, prints tables, writes JSON. See `docs/benchmarks.md`."""

from __future__ import annotations

import argparse
import json
import os
import platform
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks import (
    books,
    books_chart,
    duckdb_compare,
    embedded,
    engines,
    everything,
    latency,
    many,
    ordering,
    page,
    patterns,
    report,
    rules,
    streaming,
    topics,
    why,
    words,
)

PARTS = (
    *(
        "embedded",
        "many",
        "books",
        "book-jobs",
        "everything",
        "patterns",
        "words",
        "rules",
        "why",
        "ordering",
        "cold",
        "duckdb",
        "latency",
        "streaming",
    ),
    *("topics", "engines"),
)

_PAGE = Path(__file__).parents[1] / "docs" / "benchmarks.md"


@dataclass(frozen=True, slots=True)
class Extent:
    """How much is measured.

    pattern_keys: None = as many keys as each pattern asks for
    said: how the words of the language are measured
    """

    events: int
    batches: int
    keys: tuple[int, ...]
    many: tuple[int, ...]
    books: books.Size
    everything: tuple[int, ...]
    pattern_keys: int | None
    said: words.Size
    timelines: int
    compared: duckdb_compare.Size
    streamed: streaming.Size
    streamed_patterns: streaming.Size
    most_patterns: int
    delays: latency.Size
    from_topics: topics.Size
    on_engines: engines.Size


FULL = Extent(
    events=1_000_000,
    batches=12,
    keys=(10_000, 1_000_000),
    many=(1, 10, 100, 1_000),
    books=books.Size(
        events=200_000,
        events_apart=2_000_000,
        disjoint=(1, 10, 100, 1_000, 10_000, 30_000),
        rules=(30, 300, 3_000),
        copies=(1, 10, 100, 1_000),
        instances=(1, 10, 100, 1_000, 10_000),
        in_job=(
            *(("disjoint", 1_000, "query"), ("copies", 100, "query"), ("instances", 1_000, "query")),
            *(("disjoint", 1_000, "one"), ("instances", 1_000, "one")),
        ),
    ),
    everything=(1, 10, 100, 1_000, 10_000),
    pattern_keys=None,
    said=words.Size(events=200_000, tried=5_000, of_key=50),
    timelines=1_000_000,
    compared=duckdb_compare.Size(events=2_000_000, keys=10_000, rounds=5),
    streamed=streaming.Size(events_a_batch=1_000_000, batches=6, rounds=3, buckets=16),
    streamed_patterns=streaming.Size(events_a_batch=1_000_000, batches=4, rounds=2, buckets=16),
    most_patterns=len(patterns.PATTERNS),
    delays=latency.Size(events_a_file=1_000, batches=25, rounds=2, warm_up=5, seconds=15.0, buckets=4),
    from_topics=topics.Size(messages_a_batch=200_000, batches=7, rounds=3, seconds=20.0, buckets=4),
    on_engines=engines.Size(
        events_a_batch=(1_000_000, 4_000_000),
        keys=10_000,
        batches=5,
        rounds=3,
        messages_a_batch=200_000,
        rates=(1_000, 10_000),
        seconds=20.0,
    ),
)
SMALL = Extent(
    events=20_000,
    batches=4,
    keys=(100,),
    many=(1, 3),
    books=books.Size(
        events=1_000,
        events_apart=1_000,
        disjoint=(3,),
        rules=(20,),
        copies=(3,),
        instances=(3,),
        rounds=1,
        in_job=(("instances", 5, "one"),),
        batches=4,
    ),
    everything=(1, 10),
    pattern_keys=2_000,
    said=words.Size(events=200, tried=200, of_key=10, most=4),
    timelines=20_000,
    compared=duckdb_compare.Size(events=20_000, keys=500, rounds=1),
    streamed=streaming.Size(events_a_batch=20_000, batches=2, rounds=1, buckets=4),
    streamed_patterns=streaming.Size(events_a_batch=20_000, batches=2, rounds=1, buckets=4),
    most_patterns=0,
    delays=latency.Size(events_a_file=1_000, batches=3, rounds=1, warm_up=1, seconds=0.3, buckets=2),
    from_topics=topics.Size(messages_a_batch=2_000, batches=4, rounds=1, seconds=2.0, buckets=2),
    on_engines=engines.Size(
        events_a_batch=(20_000,), keys=100, batches=3, rounds=1, messages_a_batch=0, rates=(), seconds=1.0
    ),
)


def main() -> None:
    """Everything, one measurement after the other."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="How fast, against what.")
    parser.add_argument("--small", action="store_true", help="a little of everything: does it run?")
    parser.add_argument("--json", type=Path, default=Path("build/benchmarks.json"), help="where to write the figures")
    parser.add_argument("--only", choices=PARTS, help="one part only")
    parser.add_argument("--docs", action="store_true", help="write the tables of docs/benchmarks.md")
    arguments = parser.parse_args()
    extent = SMALL if arguments.small else FULL
    machine = {"cores": len(os.sched_getaffinity(0)), "processor": platform.machine()}
    figures: dict[str, Any] = {"machine": machine | {"python": platform.python_version()}}
    console = Console(width=None if Console().is_terminal else 140)
    for name in PARTS:
        found: Sequence[Any] = []
        # A broker takes long to start, for a test that asks only whether everything runs.
        if arguments.only == name or (arguments.only is None and not (arguments.small and name == "topics")):
            measure, tables_of = _MEASUREMENTS[name]
            found = measure(extent)
            tables = tables_of(found)
            console.print(*tables)
            if arguments.docs:
                page.put(_PAGE, f"make bench, {name}", "\n\n".join(map(page.markdown, tables)))
                if name == "books":
                    (_PAGE.parent / "images" / "books.svg").write_text(books_chart.chart(found), encoding="utf-8")
        figures[name] = [asdict(item) for item in found]
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    arguments.json.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")


def _embedded(extent: Extent) -> list[embedded.Embedded]:
    return [embedded.measure(extent.events, keys, extent.batches) for keys in extent.keys]


def _many(extent: Extent) -> list[many.Many]:
    return many.measure(extent.events // 10, extent.keys[0], min(extent.batches, 5), extent.many)


def _books(extent: Extent) -> list[books.Measured]:
    return books.measure(extent.books)


def _book_jobs(extent: Extent) -> list[books.InJob]:
    with TemporaryDirectory() as folder:
        return books.measure_in_jobs(Path(folder), extent.books)


def _everything(extent: Extent) -> list[everything.Grown]:
    return everything.measure(extent.everything)


def _patterns(extent: Extent) -> list[patterns.Measured]:
    return patterns.measure(extent.events, extent.batches, extent.pattern_keys)


def _words(extent: Extent) -> list[words.Spoken]:
    return words.measure(extent.said)


def _rules(extent: Extent) -> list[rules.Ruled]:
    return rules.measure(extent.events, extent.batches)


def _why(extent: Extent) -> list[why.Explained]:
    with TemporaryDirectory() as folder:
        return why.measure(Path(folder), extent.events, max(1, extent.batches // 3))


def _ordering(extent: Extent) -> list[ordering.Ordered]:
    return ordering.measure(extent.events, extent.keys[0], extent.batches)


def _cold(extent: Extent) -> list[ordering.ColdKeys]:
    return [ordering.measure_cold(extent.timelines, extent.batches)]


def _duckdb(extent: Extent) -> list[duckdb_compare.Compared]:
    with TemporaryDirectory() as folder:
        return duckdb_compare.measure(Path(folder), extent.compared)


def _streaming(extent: Extent) -> list[streaming.Streamed]:
    first, *_ = extent.keys
    chosen = [pattern for pattern in patterns.PATTERNS if pattern.on_spark][: extent.most_patterns]
    with TemporaryDirectory() as folder:
        found = [streaming.measure(Path(folder), keys, extent.streamed) for keys in extent.keys]
        for pattern in chosen:
            size = extent.streamed_patterns
            found.append(streaming.measure(Path(folder), first, size, pattern.name, pattern.query))
        return found


def _topics(extent: Extent) -> list[topics.FromTopics]:
    with TemporaryDirectory() as folder:
        return [topics.measure(Path(folder), extent.from_topics)]


def _engines(extent: Extent) -> list[engines.Compared]:
    with TemporaryDirectory() as folder:
        return engines.measure(Path(folder), extent.on_engines)


def _latency(extent: Extent) -> list[latency.Delays]:
    with TemporaryDirectory() as folder:
        return [latency.measure(Path(folder), extent.delays)]


_MEASUREMENTS: dict[str, tuple[Callable[[Extent], Sequence[Any]], Callable[[Any], list[Table]]]] = {
    "embedded": (_embedded, report.embedded),
    "many": (_many, report.many),
    "books": (_books, report.books),
    "book-jobs": (_book_jobs, report.book_jobs),
    "everything": (_everything, report.everything),
    "patterns": (_patterns, report.patterns),
    "words": (_words, report.words),
    "rules": (_rules, report.rules),
    "why": (_why, report.why),
    "ordering": (_ordering, report.ordering),
    "cold": (_cold, report.cold),
    "duckdb": (_duckdb, report.compared),
    "streaming": (_streaming, report.streaming),
    "latency": (_latency, report.latency),
    "topics": (_topics, report.topics),
    "engines": (_engines, report.engines),
}


if __name__ == "__main__":
    main()
