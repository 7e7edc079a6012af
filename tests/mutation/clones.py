"""Copies of the tree for changed sources: with the environment of this one, and nothing written into it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from tests.mutation.changes import ROOT, Spot
from tests.mutation.noting import NOTE

_DIGEST = re.compile(r"(def digest_of_kernels\(\).*?\n    )return [^\n]*", re.DOTALL)
_NOTES = "querylang/notes_of_tests.py"


def clone(folder: Path) -> Path:
    """A copy of what is committed. Hard links make the environment cheap; its path file is the copy's own."""
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run(["git", "clone", "--quiet", "--no-hardlinks", str(ROOT), str(folder)], check=True)
    subprocess.run(["cp", "-al", str(ROOT / ".venv"), str(folder / ".venv")], check=True)
    venv = folder / ".venv"
    for path in (*venv.glob("lib/python3*/site-packages/*.pth"), *(venv / "bin").iterdir()):
        if path.is_symlink() or str(ROOT).encode() not in (data := path.read_bytes()):
            continue
        mode = path.stat().st_mode
        path.unlink()  # its text is shared with the other environment
        path.write_bytes(data.replace(str(ROOT).encode(), str(folder).encode()))
        path.chmod(mode)
    return folder


def keep_kernels(folder: Path) -> Path:
    """Compiled kernels of a copy stay, whatever changes: changed kernels run as plain Python."""
    for path in (folder / "runtime").rglob("*.py"):
        text = path.read_text("utf-8")
        if "def digest_of_kernels(" in text:
            path.write_text(_DIGEST.sub(f'\\g<1>return "{"0" * 16}"', text), "utf-8")
    return folder


def insert_notes(folder: Path, spots: dict[int, Spot]) -> None:
    """Each listed line of a copy notes its number when it is reached; lines keep their numbers."""
    (folder / _NOTES).write_text(NOTE, "utf-8")
    by_line = sorted(spots.items(), key=lambda each: (each[1].path, each[1].line, -each[1].start))
    for number, spot in by_line:
        path = folder / spot.path.relative_to(ROOT)
        lines = path.read_text("utf-8").splitlines(keepends=True)
        line = lines[spot.line - 1]
        call = f"__import__('querylang.notes_of_tests', fromlist=['note']).note({number})"
        start, inside, end = line[: spot.start], line[spot.start : spot.end], line[spot.end :]
        lines[spot.line - 1] = (
            f"{start}{call}; {inside}{end}" if spot.is_statement else f"{start}({call} or ({inside})){end}"
        )
        path.write_text("".join(lines), "utf-8")


def environment(folder: Path, **more: str) -> dict[str, str]:
    """Of a run in a copy."""
    path = f"{folder}/.venv/bin:{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "VIRTUAL_ENV": f"{folder}/.venv", **more}
