"""The engine alone: columns in memory, unordered by key and time, to matches; one core."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median
from time import perf_counter
from typing import Any

from benchmarks import events
from querylang.plan.model import Plan
from runtime.engine import query_runner
from runtime.engine.engine import Engine
from runtime.results.matched import Matched


@dataclass(frozen=True, slots=True)
class Embedded:
    """Medians over the batches after the first two. Rates are million events a second."""

    keys: int
    events: int
    to_matches: float
    to_table: float
    matches: int
    state_bytes: int
    kept_events: int


def measure(count: int, keys: int, batches: int, plan: Plan | None = None) -> Embedded:
    """`plan` None: the query of `benchmarks.events`. `to_matches`: every match as the row numbers of its members; `to_table`: as a table in order, with identity and payload."""
    plan = plan or events.plan()
    engine = Engine(plan, matcher="kernel")
    whole: list[float] = []
    gathering: list[float] = []
    matches = 0
    with _stopwatch(query_runner, "gather_table", gathering), _stopwatch(Matched, "by_step", gathering):
        for batch in range(batches):
            arrivals = events.arrivals(plan, count, keys, batch * count)
            gathering.append(0.0)
            started = perf_counter()
            results = engine.process(arrivals)
            whole.append(perf_counter() - started)
            matches = sum(table.num_rows for table in results.matches.values())
    spent = [total - table for total, table in zip(whole, _per_batch(gathering), strict=True)]
    state = engine.snapshot()
    return Embedded(
        keys=keys,
        events=count,
        to_matches=significant(count / median(spent[2:]) / 1e6),
        to_table=significant(count / median(whole[2:]) / 1e6),
        matches=matches,
        state_bytes=len(state),
        kept_events=engine.retained(),
    )


@contextmanager
def _stopwatch(owner: Any, name: str, times: list[float]) -> Iterator[None]:
    """Every call of a function or method appends its time, in seconds."""
    own = getattr(owner, name)

    def timed(*arguments: Any) -> Any:
        started = perf_counter()
        result = own(*arguments)
        times.append(perf_counter() - started)
        return result

    setattr(owner, name, timed)
    try:
        yield
    finally:
        setattr(owner, name, own)


def significant(number: float) -> float:
    """Three digits that count, be the number large or small."""
    return float(f"{number:.3g}")


def _per_batch(times: list[float]) -> list[float]:
    """A zero begins a batch; what follows it, if anything, is the batch's time."""
    result: list[float] = []
    for time in times:
        if time:
            result[-1] += time
        else:
            result.append(0.0)
    return result
