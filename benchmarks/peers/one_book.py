"""`python -m benchmarks.peers.one_book FOLDER PASSES ENOUGH`: a book in Ensue, in a process of its own; one line for each pass.

The Java systems print the same lines (`java/…/Books.java`).
"""

from __future__ import annotations

import json
import resource
import sys
from dataclasses import replace
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import pyarrow as pa
from pyarrow import feather

import ensue
from benchmarks.peers.rule_books import BookFiles, checksum
from ensue.data_options import DataOptions
from ensue.embedded import read
from runtime.engine import Engine

_MILLISECOND = 1_000
"""Of the times of matches, which are microseconds; events are a millisecond apart."""


def one_pass(files: BookFiles, table: pa.Table) -> dict[str, Any]:
    """Loads the queries, and takes all events to tables of matches."""
    start = process_time(), perf_counter()
    queries = ensue.load(files.query.read_text("utf-8"))
    few = read(queries, table.slice(0, 1), DataOptions())
    engine = Engine(few.plan)
    loaded = process_time(), perf_counter()
    whole = replace(few, records=read(queries, table, DataOptions()).records)
    found = whole.replay().results.matches
    done = process_time(), perf_counter()
    del engine  # its parts are used until here
    by_rule = [found.get(query.name) for query in few.plan.queries]
    return {
        "loading": loaded[0] - start[0],
        "loading_wall": loaded[1] - start[1],
        "seconds": done[0] - loaded[0],
        "wall": done[1] - loaded[1],
        "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "matches": [0 if matches is None else len(matches) for matches in by_rule],
        "checksums": ["0" if matches is None else str(_checksum(matches)) for matches in by_rule],
    }


def _checksum(matches: pa.Table) -> int:
    """The checksum of a query's matches. What a threshold counts is not kept, and its last event is its time."""
    members = matches.column("members").combine_chunks()
    if members.type.num_fields == 0:
        return checksum([matches.column("time").cast(pa.int64()).to_numpy() // _MILLISECOND])
    steps = [members.field(place).field("offset").to_numpy() - 1 for place in range(members.type.num_fields)]
    return checksum(steps)


def main() -> None:
    """Runs what the arguments say."""
    folder, passes, enough = sys.argv[1:]
    files = BookFiles.of(Path(folder))
    table = feather.read_table(str(files.table), memory_map=False).combine_chunks()
    for _ in range(int(passes)):
        if process_time() < float(enough):
            print(json.dumps(one_pass(files, table)), flush=True)


if __name__ == "__main__":
    main()
