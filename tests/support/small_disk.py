"""A small file system in memory, for tests of full disks."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def small_disk(folder: Path, kilobytes: int) -> Iterator[None]:
    """The folder as a file system of so many kilobytes; skips the test where nobody may mount one."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount a small file system")
    folder.mkdir(parents=True, exist_ok=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("mounting is not allowed here")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def enlarge(folder: Path) -> None:
    """Make room."""
    subprocess.run(["mount", "-o", "remount,size=256m", str(folder)], check=True)
