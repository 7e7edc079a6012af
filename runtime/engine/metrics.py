"""The figures that tell how a source's events fit the settings of time, by the names of Stream Analytics' metrics.

Takes an engine and how many rows each query has given; gives one row a query and figure. Counts are of all calls so far, as in
`runtime.results.ledger`, from which they come: a rate is the difference of two of them. "Watermark Delay" is a moment's:
how far the arrival clock, or the wall clock where it is given, is ahead of the timeline that is furthest behind.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from querylang.plan.model import QueryPlan
from runtime.engine.engine import Engine
from runtime.instants import LATEST, NO_TIME
from runtime.policies.per_input import clock_inputs, is_clocked, key_places
from runtime.results.schemas import Results

METRICS_SCHEMA = pa.schema(
    [("query", pa.string()), ("metric", pa.string()), ("outcome", pa.string()), ("value", pa.float64())]
)
"""`outcome`: "dropped" or "adjusted" where events are told apart by that, else null. `value`: a count; of a delay seconds, null
where none can be told."""

WATERMARK_DELAY = "Watermark Delay"

_COUNTED: tuple[tuple[str, str | None, tuple[str, ...]], ...] = (
    ("Early Input Events", "dropped", ("early",)),
    ("Late Input Events", "dropped", ("late",)),
    ("Late Input Events", "adjusted", ("adjusted_late",)),
    ("Out-of-Order Input Events", "dropped", ("out_of_order",)),
    ("Out-of-Order Input Events", "adjusted", ("adjusted_out_of_order",)),
    ("Backlogged Input Events", None, ("pending",)),
)
"""Figures that are sums of words of the ledger. An adjusted event that is still pending is in the backlog only."""

_NO_INPUT = ("tick", "control", "unrelated", "malformed", "unknown_type")
"""Of what is received, what is no event of the query's inputs."""


def metrics_table(engine: Engine, given: Mapping[str, int], wall: int | None = None) -> pa.Table:
    """The figures (METRICS_SCHEMA) of all queries, in the order of the plan.

    `given`: rows that came of each query, by title. `wall`: the wall clock, µs; None: delays are behind the arrival clock.
    """
    counts = _by_query(engine.ledger())
    rows: list[dict[str, Any]] = []
    for query in engine.plan.queries:
        own = counts.get(query.title, Counter())
        figures = [*_figures(own), ("Output Events", None, given.get(query.title, 0))]
        figures.append((WATERMARK_DELAY, None, _delay(engine, query, wall)))
        rows += [
            {"query": query.title, "metric": name, "outcome": outcome, "value": value}
            for name, outcome, value in figures
        ]
    return pa.Table.from_pylist(rows, schema=METRICS_SCHEMA)


def output_events(results: Results) -> dict[str, int]:
    """By query's title what it gave: its outputs, errors left out; its matches where it has no outputs at all."""
    outputs = results.outputs.select(["query", "instance", "kind"]).to_pylist()
    counts = Counter(_title(row["query"], row["instance"]) for row in outputs if row["kind"] != "error")
    matches = {title: len(table) for title, table in results.matches.items()}
    return {**matches, **counts}


def _title(query: str, instance: str) -> str:
    return f"{query}/{instance}" if instance else query


def _by_query(ledger: pa.Table) -> dict[str, Counter[str]]:
    counts: dict[str, Counter[str]] = {}
    for row in ledger.to_pylist():
        counts.setdefault(row["query"], Counter())[row["what"]] += row["count"]
    return counts


def _figures(counts: Counter[str]) -> Iterator[tuple[str, str | None, float | None]]:
    yield "Input Events", None, counts["received"] - sum(counts[word] for word in _NO_INPUT)
    for name, outcome, words in _COUNTED:
        yield name, outcome, sum(counts[word] for word in words)


def _delay(engine: Engine, query: QueryPlan, wall: int | None) -> float | None:
    """Seconds; None before anything has come, after the end of all times, and for keys whose clocks are their own."""
    now = engine.clock if wall is None else wall
    bound = _least_bound(engine, query)
    if now is None or bound is None or bound == NO_TIME or bound >= LATEST:
        return None
    return (now - bound) / 1_000_000


def _least_bound(engine: Engine, query: QueryPlan) -> int | None:
    """How far the timeline has come that is furthest behind."""
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
