"""A replay in one line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from querylang.errors import counted
from querylang.plan.model import QueryPlan
from querylang.printable import one_line
from runtime.results.schemas import Results


def summary_text(rows: int, results: Results, idle: Sequence[QueryPlan]) -> str:
    """`6 rows, 2 matches, 1 discarded (1 late)`.

    rows: rows that were processed
    idle: queries without an instance
    """
    parts = [counted(rows, "row"), *_counts(results)]
    if idle:
        parts.append(f"no instance of {', '.join(query.name for query in idle)}")
    return one_line(", ".join(parts))


def counts_text(results: Results) -> str:
    """`2 matches, 1 discarded (1 late)`."""
    return one_line(", ".join(_counts(results)))


def _counts(results: Results) -> list[str]:
    reasons = Counter([] if results.discarded is None else results.discarded.column("reason").to_pylist())
    parts = [counted(sum(map(len, results.matches.values())), "match", "matches")]
    if reasons:
        parts.append(f"{reasons.total()} discarded ({', '.join(f'{n} {reason}' for reason, n in reasons.items())})")
    return parts
