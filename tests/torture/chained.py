"""Random queries that feed each other, as jobs whose files are cut at random."""

from __future__ import annotations

import os
import random
from pathlib import Path

from tests.support.books import KEYS, Row, book, rows
from tests.torture.project import SINKS
from tests.torture.streams import SECOND, Source, write_next
from tests.torture.streams import Row as Record


def chained_deployment(chooser: random.Random, folder: Path, engine: str) -> tuple[Path, list[Source]]:
    """Write a job without files; gives its deployment file, and its sources with the rows that are to come.

    In half of them what is routed stays in its bucket.
    """
    program = book(chooser, chooser.choice(KEYS) if chooser.random() < 0.5 else None)
    names = chooser.sample(["a", "B", "c c", "d-1"], chooser.choice((1, 1, 2)))
    sources = [Source(name, "json", None, []) for name in names]
    given: list[Row] = []
    for _ in range(chooser.choice((1, 3, 6))):
        begin = given[-1]["at"] if given else 0
        given += [row | {"at": row["at"] + begin} for row in rows(chooser, program.from_sources)]
    for number, row in enumerate(given):
        chooser.choice(sources).rows.append(Record(number, row["at"] * SECOND, row))
    (folder / "case.query").write_text(program.text, encoding="utf-8")
    lines = ["name: case", "queries: [case.query]", f"engine: {engine}", "sources:"]
    for source in sources:
        (folder / source.name).mkdir()
        files = f"{{maxFilesPerTrigger: {chooser.choice((1, 1, 2, 3))}, recursiveFileLookup: true}}"
        lines.append(f"  {source.name}: {{format: json, path: {source.name}, source_time: ts, options: {files}}}")
    lines += [SINKS, f"buckets: {chooser.choice((1, 2, 5))}", "checkpoint: state"]
    path = folder / "case.yaml"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path, sources


def write_all(chooser: random.Random, folder: Path, sources: list[Source], longest: int) -> None:
    """Write what is left of all sources, in files of at most so many records."""
    for source in sources:
        while path := write_next(chooser, folder / source.name, source, longest):
            at = 1_600_000_000 + len(source.files)
            os.utime(path, (at, at))
