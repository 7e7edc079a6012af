"""Many queries over one stream: conditions that differ in a number, with equal inputs; one core, to tables of matches.

Processor time of a batch and size of the state, each also as a multiple of that of one query.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from time import process_time

from benchmarks import events
from benchmarks.embedded import significant
from runtime.engine.engine import Engine

_QUERY = """
query Q{number} {{
    inputs {{
        A() key k within 30 seconds wait 10 seconds;
        B() key k within 30 seconds wait 10 seconds;
    }}
    find A as a -> B as b where b.v > a.v + {least} within 30 seconds
}}
"""


@dataclass(frozen=True, slots=True)
class Many:
    """Medians over the batches after the first; `times`, `state_times`: multiples of one query's."""

    queries: int
    events: int
    seconds: float
    times: float
    matches: int
    state_bytes: int
    state_times: float


def text(count: int) -> str:
    """So many queries, whose matches become fewer from one to the next."""
    types = events.QUERY[: events.QUERY.index("query")]
    queries = (_QUERY.format(number=number, least=0.9 + 0.09 * number / count) for number in range(count))
    return types + "".join(queries)


def measure(count: int, keys: int, batches: int, numbers: Sequence[int]) -> list[Many]:
    """`numbers`: of queries; the first is what the others are compared with."""
    found: list[Many] = []
    for number in numbers:
        engine, spent, matches = Engine(events.plan(text(number)), matcher="kernel"), [], 0
        for batch in range(batches):
            arrivals = events.arrivals(engine.plan, count, keys, batch * count)
            started = process_time()
            results = engine.process(arrivals)
            spent.append(process_time() - started)
            matches = sum(len(table) for table in results.matches.values())
        seconds, size = median(spent[1:]), len(engine.snapshot())
        base = found[0] if found else None
        times = seconds / base.seconds if base else 1.0
        state_times = size / base.state_bytes if base else 1.0
        found.append(Many(number, count, seconds, significant(times), matches, size, significant(state_times)))
    return found
