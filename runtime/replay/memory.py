"""Arrow's memory during a replay: the C library keeps that of one piece for the next.

Arrow's own allocator gives free pages back to the system within milliseconds. So each piece would
get its memory, some hundred megabytes a second, from the system again, page by page.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

import pyarrow as pa

VARIABLE = "ARROW_DEFAULT_MEMORY_POOL"
"""With it users choose Arrow's allocator themselves."""

_LOCK = Lock()
_before: list[pa.MemoryPool] = []
"""By replay that runs now, the allocator when it began."""


@contextmanager
def memory_kept() -> Iterator[None]:
    """Arrow allocates with the C library meanwhile, unless somebody has chosen an allocator.

    It is one setting of the process: it ends with the last of several replays in threads.
    """
    with _LOCK:
        is_ours = not os.environ.get(VARIABLE) and (bool(_before) or _backend() == "mimalloc")
        if is_ours:
            _before.append(pa.default_memory_pool() if not _before else _before[0])
            pa.set_memory_pool(pa.system_memory_pool())
    try:
        yield
    finally:
        with _LOCK:
            before = _before.pop() if is_ours else None
            if before is not None and not _before and _backend() == "system":
                pa.set_memory_pool(before)


def _backend() -> str:
    return str(pa.default_memory_pool().backend_name)
