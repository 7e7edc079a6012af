"""One engine in this process over a whole plan: the results that Spark has to agree with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

import pyarrow as pa

from querylang.plan.model import Plan
from runtime.columns.arrivals import Arrivals
from runtime.engine.engine import Engine
from runtime.results.schemas import OUTPUT_SCHEMA, Results, discard_schema, in_order

Ledger = dict[tuple[object, ...], int]
"""Records by query, source and what became of them."""
Summary = tuple[list[str], list[str], Ledger, int]
"""Match ids, texts of outputs, ledger, number of discarded records; whatever the order of the results."""


def embedded(plan: Plan, arrivals: Arrivals, *, flush: bool = True) -> Results:
    engine = Engine(plan)
    found = [engine.process(arrivals), *([engine.flush()] if flush else [])]
    matches = {
        query.name: pa.concat_tables(result.matches[query.name] for result in found if query.name in result.matches)
        for query in plan.queries
        if any(query.name in result.matches for result in found)
    }
    discarded = [result.discarded for result in found if result.discarded is not None]
    return in_order(
        plan,
        Results(
            matches=matches,
            outputs=pa.concat_tables([OUTPUT_SCHEMA.empty_table(), *(result.outputs for result in found)]),
            discarded=pa.concat_tables([discard_schema(plan).empty_table(), *discarded]),
            ledger=engine.ledger(),
        ),
    )


def plain(results: Results) -> dict[str, object]:
    """All of the results, in their order, as they can be compared."""
    return {
        "matches": {name: _without_rank(table) for name, table in results.matches.items()},
        "outputs": _without_rank(results.outputs),
        "discarded": [] if results.discarded is None else results.discarded.to_pylist(),
        "ledger": results.ledger.to_pylist(),
    }


def _without_rank(table: pa.Table) -> list[dict[str, object]]:
    return table.drop_columns("_rank").to_pylist()


def match_ids(results: Results) -> dict[str, list[str]]:
    """By query, sorted; queries without a match are left out."""
    found = {name: sorted(table.column("match_id").to_pylist()) for name, table in results.matches.items()}
    return {name: ids for name, ids in found.items() if ids}


def summary(results: Results) -> Summary:
    matches = sorted(match for ids in match_ids(results).values() for match in ids)
    outputs = sorted(str(output["text"]) for output in results.outputs.to_pylist())
    discarded = 0 if results.discarded is None else len(results.discarded)
    return matches, outputs, ledger_of(results.ledger.to_pylist()), discarded


def ledger_of(rows: Iterable[dict[str, object]]) -> Ledger:
    """The ledger that these changes add up to."""
    total: Counter[tuple[object, ...]] = Counter()
    for row in rows:
        total[row["query"], row["source"], row["what"]] += row["count"]  # type: ignore[assignment, operator]
    return {key: count for key, count in total.items() if count}


def by_word(ledger: Mapping[tuple[object, ...], int]) -> Ledger:
    """The counts of all sources together: a job counts by source, a replay by file."""
    total: Counter[tuple[object, ...]] = Counter()
    for (query, _, what), count in ledger.items():
        total[query, what] += count
    return {key: count for key, count in total.items() if count}
