"""The table of matches that were only found so far, perhaps in another thread than the engine's."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from runtime.results.match_table import match_table
from runtime.results.matched import Later, Matched
from runtime.threads import in_threads, shares

LEAST = 10_000
"""So many matches per thread are worth one."""


def gather(later: Later, threads: int = 1) -> pa.Table:
    """The table of the matches (`match_schema`)."""

    def part(share: slice) -> pa.Table:
        return match_table(later.plan, later.query, later.table, later.keys, later.matched.part(share))

    threads = max(1, min(threads, len(later.matched) // LEAST))
    parts = [slice(*share) for share in shares(len(later.matched), threads)]
    return pa.concat_tables(in_threads(part, parts, threads))


def joined(parts: Sequence[Later]) -> Later:
    """The matches that several engines have found in one call, in order; there is one part."""
    if len(parts) == 1:
        return parts[0]
    matched, first = [], 0
    for part in parts:
        matched.append(part.matched.behind(first))
        first += len(part.table)
    table = pa.concat_tables([part.table for part in parts]).unify_dictionaries().combine_chunks()
    keys = [
        pa.concat_arrays([column[: len(part.table)] for part, column in zip(parts, columns, strict=True)])
        for columns in zip(*(part.keys for part in parts), strict=True)
    ]
    return Later(parts[0].plan, parts[0].query, table, keys, Matched.joined(matched).by_step(keys))
