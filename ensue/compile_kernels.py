"""What the process in the background runs: it compiles what replays of most queries need.

The replays run as plain Python, which tells the kernels and the types of their arguments.
`python -m ensue.compile_kernels` compiles with the lowest priority, and is the first
process that the system ends if memory is short.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from typing import Any, NamedTuple

import numpy as np

from ensue.background import give_way
from ensue.data_options import DataOptions
from querylang.errors import InputError
from runtime.columns.rows import stable_order
from runtime.compiling.compiled import Call, Kernel, load_compiler, recorded_calls
from runtime.progress_line import be_silent
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
query Spread { inputs { A() key k within 30 seconds; } find every A as a select stddev(a.v) as s select stddev(a.n) as t }
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


# Kernels compiled in as many processes as there are cores.
#
# Calls in plain Python tell which kernels are needed, and for which types of arguments. The
# processes are forks, so they share what has been imported. Each takes the largest kernel that is
# left.


class _Version(NamedTuple):
    """Machine code to be made: of a kernel, for some types of arguments."""

    kernel: Kernel[..., Any]
    types: tuple[Any, ...]


_versions: list[_Version] = []
"""What is being compiled: forks find it here, because numba's dispatchers do not travel well."""


def compile_calls(calls: Iterable[Call], processes: int, tell: Callable[[int, int], None] | None) -> None:
    """Compile what some calls need, and store it; raises InputError if a process is ended.

    tell: is called with the number of versions that are done, and of all
    """
    versions = {_version(call): None for call in calls}
    _versions[:] = sorted(versions, key=lambda version: -_size(version.kernel))
    for done, _ in enumerate(_compile_all(processes)):
        if tell is not None:
            tell(done, len(_versions))


def _compile_all(processes: int) -> Iterator[None]:
    """Yields before the first version, and after each."""
    yield
    if processes == 1:
        yield from map(_compile, range(len(_versions)))
        return
    load_compiler()
    try:
        with ProcessPoolExecutor(processes, get_context("fork"), initializer=be_silent) as pool:
            yield from pool.map(_compile, range(len(_versions)))
    except BrokenProcessPool as error:
        raise InputError("a process that compiled kernels was ended from outside: is memory short?") from error


def _compile(number: int) -> None:
    version = _versions[number]
    version.kernel.machine_code.compile(version.types)


def _version(call: Call) -> _Version:
    type_of = call.kernel.machine_code.typeof_pyval
    return _Version(call.kernel, tuple(map(type_of, call.arguments)))


def _size(kernel: Kernel[..., Any]) -> int:
    """How much there is to compile: bytes of Python's code, with the kernels that it calls."""
    return len(kernel.function.__code__.co_code) + sum(map(_size, kernel.called.values()))


if __name__ == "__main__":
    main()
