"""Metrics per query: how a source's events fit the settings of time, named as in Stream Analytics.

Counts come from the ledger (`runtime.results.ledger`) and are sums of all calls so far. A rate is
the difference of two of them. "Watermark Delay" is that of one moment: how far the clock is ahead
of the timeline that is furthest behind.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

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

_NO_INPUT = ("tick", "control", "unrelated", "malformed", "unknown_type")
"""The outcomes of received records that are not events of the query's inputs."""

_METRICS: tuple[tuple[str, str | None, tuple[str, ...], tuple[str, ...]], ...] = (
    ("Input Events", None, ("received",), _NO_INPUT),
    ("Early Input Events", "dropped", ("early",), ()),
    ("Late Input Events", "dropped", ("late",), ()),
    ("Late Input Events", "adjusted", ("adjusted_late",), ()),
    ("Out-of-Order Input Events", "dropped", ("out_of_order",), ()),
    ("Out-of-Order Input Events", "adjusted", ("adjusted_out_of_order",), ()),
    ("Backlogged Input Events", None, ("pending",), ()),
    ("Output Events", None, (), ()),
    ("Suppressed Matches", None, (SUPPRESSED,), ()),
    (WATERMARK_DELAY, None, (), ()),
)
"""In the order in which they are shown: name, outcome, and the words of the ledger that are added
and subtracted. A pending event that was adjusted counts in the backlog only."""

_OUTPUTS, _SUPPRESSED, _DELAYS = 7, 8, 9
"""The places of those that are more than a sum, or not there for every query."""

_WORDS = tuple(dict.fromkeys(word for _, _, added, subtracted in _METRICS for word in (*added, *subtracted)))

_SIGNS = np.array([[(word in added) - (word in left) for _, _, added, left in _METRICS] for word in _WORDS])
"""By word and metric, whether it is added or subtracted."""


def metrics_table(
    engine: Engine, output_counts: Mapping[str, int], wall: int | None = None, *, ledger: pa.Table | None = None
) -> pa.Table:
    """The metrics (METRICS_SCHEMA) of all queries, in the order of the plan.

    output_counts: by query title, the number of its output rows
    wall: the wall clock, µs, from which delays are measured; None = the arrival clock
    ledger: the accounts of all records; None = the engine's
    """
    queries = engine.plan.queries
    titles = [query.public_title for query in queries]
    values = _sums(engine.ledger() if ledger is None else ledger, titles)
    values[:, _OUTPUTS] = [output_counts.get(title, 0) for title in titles]
    values[:, _DELAYS] = np.array([_delay(engine, query, wall) for query in queries], np.float64)
    is_shown = np.ones(values.shape, np.bool_)
    is_shown[:, _SUPPRESSED] = [query.at_most is not None for query in queries]
    of_query, metric = map(pa.array, np.nonzero(is_shown))
    shown = values[is_shown]
    names, outcomes, _, _ = zip(*_METRICS, strict=True)
    columns = [
        pa.array(titles, pa.string()).take(of_query),
        *(pa.array(own, pa.string()).take(metric) for own in (names, outcomes)),
    ]
    return pa.table([*columns, pa.array(shown, mask=np.isnan(shown))], schema=METRICS_SCHEMA)


def _sums(ledger: pa.Table, titles: Sequence[str]) -> NDArray[np.float64]:
    """By query and metric, the sum of its words in the ledger; queries may have one title."""
    different = {title: place for place, title in enumerate(dict.fromkeys(titles))}
    query, word = (
        pc.index_in(ledger.column(name), pa.array(list(known), pa.string())).fill_null(-1).to_numpy()
        for name, known in (("query", different), ("what", _WORDS))
    )
    counts = ledger.column("count").to_numpy()
    is_counted = (query >= 0) & (word >= 0)
    sums = np.zeros((len(different), len(_METRICS)), np.int64)
    np.add.at(sums, query[is_counted], _SIGNS[word[is_counted]] * counts[is_counted, np.newaxis])
    return sums[[different[title] for title in titles]].astype(np.float64)


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


def _delay(engine: Engine, query: QueryPlan, wall: int | None) -> float | None:
    """Seconds; None before the first record, for complete inputs, and for clocks per key."""
    now = engine.clock if wall is None else wall
    bound = _least_bound(engine, query)
    if now is None or bound is None or bound == NO_TIME or bound >= LATEST:
        return None
    return (now - bound) / 1_000_000


def _least_bound(engine: Engine, query: QueryPlan) -> int | None:
    """The bound of the timeline that is furthest behind, µs; None = unknown."""
    policies = [item.policy for item in query.inputs if is_clocked(item) and item.policy is not None]
    shared = clock_inputs(query) if policies else []
    if not query.keys or any(key_places(query, inputs) is None for inputs in shared):
        return engine.definitive(query.title, (None,) * len(query.keys))
    if not policies or engine.clock is None:
        return None
    clocks = engine.clocks()
    bounds = clocks.filter(pc.equal(clocks["query"], query.title))["bound"].to_pylist()
    longest = [policy.max_delay for policy in policies]
    by_clock = NO_TIME if None in longest else engine.clock - max(filter(None, longest), default=0)
    return max(by_clock, min((NO_TIME if bound is None else bound for bound in bounds), default=NO_TIME))
