"""Refuse a session whose local workers run a Python without our packages, in one line."""

from __future__ import annotations

import shutil
import subprocess
import sys
from functools import cache

from querylang.errors import InputError, listed

NEEDED = ("numpy", "pandas", "pyarrow", "numba")
"""What workers import; Ensue itself is on their path."""

LONGEST_ANSWER = 20
"""Seconds."""

_ASK = "import importlib.util, sys; print(*sys.version_info[:2], *[n for n in sys.argv[1:] if not importlib.util.find_spec(n)])"

_WAY_OUT = (
    "Before the session is made, let its workers run this Python:"
    ' os.environ["PYSPARK_PYTHON"] = sys.executable. A session that `ensue` starts does so'
)


@cache
def refuse_other_python(program: str) -> None:
    """Raise InputError if a program that workers run as Python cannot run them.

    program: as the session has it, a path or a name
    """
    found = shutil.which(program)
    if found is None:
        raise InputError(f"this session's workers run {program!r}, which does not exist. {_WAY_OUT}")
    if found == sys.executable:
        return
    problem = _problem(found)
    if problem is not None:
        raise InputError(f"this session's workers run {found!r}, which {problem}. {_WAY_OUT}")


def _problem(program: str) -> str | None:
    """Why this Python cannot run workers; None = it can, or it did not say."""
    try:
        answer = subprocess.run(  # noqa: S603 # the program that Spark would run
            [program, "-c", _ASK, *NEEDED], capture_output=True, text=True, timeout=LONGEST_ANSWER, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    major, minor, *missing = answer.stdout.split() if answer.returncode == 0 else ["", ""]
    if not major:
        return None
    if (int(major), int(minor)) != sys.version_info[:2]:
        return f"is Python {major}.{minor}, while this one is {sys.version_info[0]}.{sys.version_info[1]}"
    return f"has no {listed(missing)}" if missing else None
