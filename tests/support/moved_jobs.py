"""Deployment files that are changed as `ensue move` asks."""

from __future__ import annotations

import re
from pathlib import Path


def set_file(job: Path, **settings: object) -> None:
    """Set keys of the job itself, each of which is a line of its file."""
    text = job.read_text("utf-8")
    for key, value in settings.items():
        line = f"{key}: {value}"
        text, count = re.subn(rf"(?m)^{key}: .*$", line, text)
        if not count:
            text = f"{text.rstrip()}\n{line}\n"
    job.write_text(text, "utf-8")
