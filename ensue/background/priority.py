"""The priority of processes in the background: the lowest."""

from __future__ import annotations

import os
import resource
from contextlib import suppress
from pathlib import Path

MOST_SECONDS = 900
"""Of a processor: far more than all kernels need."""


def give_way() -> None:
    """Let every other process go first, and end by itself."""
    os.nice(19)
    resource.setrlimit(resource.RLIMIT_CPU, (MOST_SECONDS, MOST_SECONDS))
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000", "ascii")
