"""Where the repository is, and what is in it: for the tests of this folder."""

from __future__ import annotations

import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("querylang", "runtime", "job_engine", "spark_backend", "ensue")
"""In the order of their imports: each may import those before it."""


def tracked_files() -> list[Path]:
    """Every file that git knows, in order of name."""
    listing = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout.decode()
    return [ROOT / name for name in listing.split("\0") if name]
