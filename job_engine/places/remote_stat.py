"""What a store tells of a file."""

from __future__ import annotations

import stat
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RemoteStat:
    """What a store tells of a file, named as in `os.stat_result`.

    A store has no inodes. Times are whole seconds: S3 lists no more, and some servers list more
    than they tell of a single object.
    """

    st_size: int
    st_mtime_ns: int
    st_mode: int = stat.S_IFREG
    st_ino: int = 0
    st_dev: int = 0
