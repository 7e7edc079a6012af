"""`make compat`: small real jobs on several versions of PySpark, and the table in `docs/cluster.md`.

Each version is installed alone, below `build/compat`; all other packages are those of `.venv`, which come from the lock file.
Versions may be named: `python tools/compatibility.py 4.0.5`. Then the table keeps the rows of the others.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "cluster.md"
VERSIONS = ("4.2.0", "4.1.4", "4.0.5", "3.5.9")
START, END = "<!-- table: versions -->\n", "<!-- end -->"


def python_of(version: str) -> Path:
    """The Python of an environment with one version of PySpark."""
    folder = ROOT / "build" / "compat" / version
    if not (folder / "ready").exists():
        venv.create(folder, clear=True)
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(folder / "bin" / "python")]
        subprocess.run([*pip, "install", "--quiet", "--no-compile", f"pyspark=={version}"], check=True)
        (packages,) = (folder / "lib").glob("python*/site-packages")
        (packages / "others.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
        (folder / "ready").touch()
    return folder / "bin" / "python"


def outcomes(version: str) -> dict[str, str]:
    """By case: `yes`, or what was wrong."""
    command = [str(python_of(version)), "-m", "tests.support.compatibility"]
    done = subprocess.run(
        command, cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE, text=True, check=False
    )
    found = [json.loads(line) for line in done.stdout.splitlines()]
    for name, outcome, seconds in found:
        print(f"{version}  {name}: {outcome}  ({seconds} s)")
    return {name: outcome for name, outcome, _ in found}


def table(found: dict[str, dict[str, str]]) -> str:
    """The table, a row per version."""
    names = list(dict.fromkeys(name for cases in found.values() for name in cases))
    lines = [["PySpark", *names], ["---"] * (len(names) + 1)]
    for version, cases in found.items():
        lines.append([version, *(cases.get(name, "not tried").replace("|", "\\|") for name in names)])
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def known() -> dict[str, dict[str, str]]:
    """What the page has."""
    text = PAGE.read_text()
    head, _, *rows = text[text.index(START) + len(START) : text.index(END)].splitlines()
    names = [cell.strip() for cell in head.strip("| ").split("|")][1:]
    cells = [[cell.strip() for cell in row.strip("| ").split(" | ")] for row in rows]
    return {version: dict(zip(names, found, strict=True)) for version, *found in cells}


if __name__ == "__main__":
    found = known() | {version: outcomes(version) for version in sys.argv[1:] or VERSIONS}
    text = PAGE.read_text()
    PAGE.write_text(text[: text.index(START) + len(START)] + table(found) + text[text.index(END) :])
