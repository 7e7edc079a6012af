"""What the process in the background runs: it compiles what replays of most queries need.

The replays run as plain Python, which tells the kernels and the types of their arguments.
`python -m ensue.compile_kernels` compiles with the lowest priority, and is the first
process that the system ends if memory is short.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ensue.background import give_way
from ensue.data_options import DataOptions
from runtime.columns.rows import stable_order
from runtime.compiling.ahead import compile_calls
from runtime.compiling.compiled import recorded_calls
from runtime.threads import thread_count

PATTERNS = """
query Plain { inputs { A() within 30 seconds; } find A as a -> A as b where b.v > a.v }
query Keyed {
    inputs { A() key k within 30 seconds; B() key k within 30 seconds; }
    find A as a -> B as b where b.v + 1.0 > a.v and b.k = a.k without A as c where c.v > 100.0
}
query Every {
    inputs { A() key k within 30 seconds; }
    find every A as a select sum(a.v) as total having sum(a.v) > 1.0
}
query Ends { inputs { A() key k within 30 seconds; B() key k within 30 seconds; } find A as a -> wait(1.0) without B as b }
"""

WAITING = "query Late { inputs { A() key k within 30 seconds wait 1 second; } find A as a -> A as b where b.v > a.v }"

RARER = """
event A { string k; float v; integer n; }
event B { string k; float v; integer n; }
query Whole {
    inputs { A() key k within 30 seconds with unique n; }
    find A as a -> A as b where b.n / 2 > a.n % 2 where b.v > a.v
}
query Kept { inputs { A() key k retain 2; } find A as a -> A as b where b.n = a.n }
query Runs {
    inputs { A() key k within 30 seconds; B() key k within 30 seconds; }
    find A as a+ consecutive => B as b where a.v > prev(a).v where sum(a.v) > b.v
}
query All { inputs { A() key k within 30 seconds; } find all A as a -> A as b where b.v > a.v }
"""

EVENTS = [
    {"event": event, "at": float(at), "ts": float(at), "k": key, "v": value}
    for at, (event, key, value) in enumerate([("A", "x", 1.0), ("B", "x", 3.0), ("A", "y", 2.0), ("A", "x", 4.0)])
]

RARER_EVENTS = [row | {"n": number} for number, row in enumerate(EVENTS)]
RARER_EVENTS.append({"event": "A", "at": 9.0, "ts": 9.0, "k": "x", "v": None, "n": 3})

REPLAYS = (
    (PATTERNS, EVENTS, None),
    (WAITING, EVENTS, None),
    (PATTERNS, EVENTS, "stream_analytics late=5s out_of_order=2s action=adjust"),
    (RARER, RARER_EVENTS, "streaminsight idle=10s"),
)
"""Queries, events and ordering policies: the first is what most users need first."""

MANY = 1 << 15
"""So many matches are sorted by a kernel."""


def main() -> None:
    """Compile, quietly."""
    give_way()
    compile_all()


def compile_all(tell: Callable[[int, int], None] | None = None) -> None:
    """Compile the kernels of the replays, unless they are stored; needs `ENSUE_COMPILE=never`.

    tell: is called with the number of kernels that are done, and of all
    """
    from ensue import embedded

    with recorded_calls() as calls:
        for queries, events, ordering in REPLAYS:
            embedded.replay(queries, events, DataOptions(ordering=ordering))
        stable_order(np.arange(MANY, 0, -1))
    compile_calls(calls, thread_count(), tell)


if __name__ == "__main__":
    main()
