"""Metrics per query: how a source's events fit the settings of time, named as in Stream Analytics.

Counts come from the ledger (`runtime.results.ledger`) and are sums of all calls so far. A rate is
the difference of two of them. "Watermark Delay" is that of one moment: how far the clock is ahead
of the timeline that is furthest behind.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

import pyarrow as pa
import pyarrow.compute as pc

from querylang.plan.model import QueryPlan
from runtime.engine.engine import Engine
from runtime.input_policies import clock_inputs, is_clocked, key_places
from runtime.instants import LATEST, NO_TIME
from runtime.results.ledger import SUPPRESSED
from runtime.results.schemas import Results

METRICS_SCHEMA = pa.schema(
    [("query", pa.string()), ("metric", pa.string()), ("outcome", pa.string()), ("value", pa.float64())]
)
"""One row per query and metric.

outcome: "dropped" or "adjusted" if the metric counts only such events; null = it does not
value: a count; for a delay seconds, null = unknown
"""

WATERMARK_DELAY = "Watermark Delay"

_COUNTED: tuple[tuple[str, str | None, tuple[str, ...]], ...] = (
    ("Early Input Events", "dropped", ("early",)),
    ("Late Input Events", "dropped", ("late",)),
    ("Late Input Events", "adjusted", ("adjusted_late",)),
    ("Out-of-Order Input Events", "dropped", ("out_of_order",)),
    ("Out-of-Order Input Events", "adjusted", ("adjusted_out_of_order",)),
    ("Backlogged Input Events", None, ("pending",)),
)
"""Metrics that are sums of outcomes in the ledger. A pending event that was adjusted counts in the
backlog only."""

_NO_INPUT = ("tick", "control", "unrelated", "malformed", "unknown_type")
"""The outcomes of received records that are not events of the query's inputs."""


def metrics_table(
    engine: Engine, output_counts: Mapping[str, int], wall: int | None = None, *, ledger: pa.Table | None = None
) -> pa.Table:
    """The metrics (METRICS_SCHEMA) of all queries, in the order of the plan.

    output_counts: by query title, the number of its output rows
    wall: the wall clock, µs, from which delays are measured; None = the arrival clock
    ledger: the accounts of all records; None = the engine's
    """
    counts = _by_query(engine.ledger() if ledger is None else ledger)
    rows: list[tuple[str, str, str | None, float | None]] = []
    for query in engine.plan.queries:
        own = counts.get(query.public_title, Counter())
        figures = [*_figures(own), ("Output Events", None, output_counts.get(query.public_title, 0))]
        if query.at_most is not None:
            figures.append(("Suppressed Matches", None, own[SUPPRESSED]))
        figures.append((WATERMARK_DELAY, None, _delay(engine, query, wall)))
        rows += [(query.public_title, name, outcome, value) for name, outcome, value in figures]
    columns = zip(*rows, strict=True) if rows else [()] * len(METRICS_SCHEMA)
    return pa.table(
        [pa.array(own, field.type) for own, field in zip(columns, METRICS_SCHEMA, strict=True)], schema=METRICS_SCHEMA
    )


def output_events(results: Results) -> dict[str, int]:
    """By query title, the number of outputs without errors; of matches if there are no outputs."""
    outputs = results.outputs.select(["query", "instance", "kind"]).group_by(["query", "instance", "kind"])
    counts = Counter[str]()
    for row in outputs.aggregate([([], "count_all")]).to_pylist():
        if row["kind"] != "error":
            counts[_title(row["query"], row["instance"])] += row["count_all"]
    matches = {title: len(table) for title, table in results.matches.items()}
    return {**matches, **counts}


def _title(query: str, instance: str) -> str:
    return f"{query}/{instance}" if instance else query


def _by_query(ledger: pa.Table) -> dict[str, Counter[str]]:
    counts: dict[str, Counter[str]] = {}
    columns = (ledger.column(name).to_pylist() for name in ("query", "what", "count"))
    for query, what, count in zip(*columns, strict=True):
        counts.setdefault(query, Counter())[what] += count
    return counts


def _figures(counts: Counter[str]) -> Iterator[tuple[str, str | None, float | None]]:
    yield "Input Events", None, counts["received"] - sum(counts[word] for word in _NO_INPUT)
    for name, outcome, words in _COUNTED:
        yield name, outcome, sum(counts[word] for word in words)


def _delay(engine: Engine, query: QueryPlan, wall: int | None) -> float | None:
    """Seconds; None before the first record, for complete inputs, and for clocks per key."""
    now = engine.clock if wall is None else wall
    bound = _least_bound(engine, query)
    if now is None or bound is None or bound == NO_TIME or bound >= LATEST:
        return None
    return (now - bound) / 1_000_000


def _least_bound(engine: Engine, query: QueryPlan) -> int | None:
    """The bound of the timeline that is furthest behind, µs; None = unknown."""
    if not query.keys or any(key_places(query, inputs) is None for inputs in clock_inputs(query)):
        return engine.definitive(query.title, (None,) * len(query.keys))
    policies = [item.policy for item in query.inputs if is_clocked(item) and item.policy is not None]
    if not policies or engine.clock is None:
        return None
    clocks = engine.clocks()
    bounds = clocks.filter(pc.equal(clocks["query"], query.title))["bound"].to_pylist()
    longest = [policy.max_delay for policy in policies]
    by_clock = NO_TIME if None in longest else engine.clock - max(filter(None, longest), default=0)
    return max(by_clock, min((NO_TIME if bound is None else bound for bound in bounds), default=NO_TIME))
