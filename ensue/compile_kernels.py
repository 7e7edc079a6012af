"""What the process in the background runs: replays that need the kernels of most queries.

`python -m ensue.compile_kernels` compiles with the lowest priority, and is the first process that
the system ends if memory is short.
"""

from __future__ import annotations

import os
import resource
from contextlib import suppress
from pathlib import Path

from ensue.data_options import DataOptions

MOST_SECONDS = 900
"""Of a processor: far more than all kernels need."""

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
query Whole {
    inputs { A() key k within 30 seconds with unique n; }
    find A as a -> A as b where b.n / 2 > a.n % 2 where b.v > a.v
}
query Kept { inputs { A() key k retain 2; } find A as a -> A as b where b.n = a.n }
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


def main() -> None:
    """Compile, quietly."""
    give_way()
    compile_all()


def compile_all() -> None:
    """Run the replays; their kernels are compiled unless they are stored."""
    from ensue import embedded

    for queries, events, ordering in REPLAYS:
        embedded.replay(queries, events, DataOptions(ordering=ordering))


def give_way() -> None:
    """Let every other process go first, and end by itself."""
    os.nice(19)
    resource.setrlimit(resource.RLIMIT_CPU, (MOST_SECONDS, MOST_SECONDS))
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000", "ascii")


if __name__ == "__main__":
    main()
