"""Jars of other programs for tests: Maven fetches them once into `build/`."""

from __future__ import annotations

import fcntl
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def fetched_jars(pom: Path, folder: Path) -> Path:
    """The folder with the jars of a pom; skips the test where Maven, or Maven Central, cannot be reached."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if folder.is_dir():
            return folder
        if shutil.which("mvn") is None:
            pytest.skip(f"the jars of {pom.parent.name} are fetched by Maven, which is not installed")
        draft = folder.with_name("draft")
        command = ["mvn", "-q", "-B", "-f", str(pom), "dependency:copy-dependencies", f"-DoutputDirectory={draft}"]
        found = subprocess.run(command, capture_output=True, text=True, check=False)
        if found.returncode:
            pytest.skip(f"Maven Central cannot be reached: {found.stdout.strip().splitlines()[:1]}")
        draft.rename(folder)
    return folder
