"""Let the driver run the Python that executors run: Spark plans the reading of sources with it.

It has the same path there, but perhaps neither Ensue nor the packages: those of this process serve.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from typing import TYPE_CHECKING

from querylang.errors import InputError
from spark_backend.cluster.package import ROOT

if TYPE_CHECKING:
    from pyspark import SparkContext

LONGEST_ANSWER = 20
"""Seconds."""

_ASK = "import sys; print('%d.%d' % sys.version_info[:2])"


def refuse_unfit_driver_python(program: str) -> None:
    """Raise InputError where what executors run as Python does not run here, or is another one."""
    what = f"executors run {program!r} as Python, and Spark runs it on this machine, too, to list sources"
    if shutil.which(program) is None:
        raise InputError(f"{what}: here it does not exist. Put a Python there, or a link to one")
    try:
        done = subprocess.run(  # noqa: S603 # the program that Spark would run
            [program, "-c", _ASK], capture_output=True, text=True, timeout=LONGEST_ANSWER, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return
    own = f"{sys.version_info[0]}.{sys.version_info[1]}"
    if done.returncode == 0 and done.stdout.strip() != own:
        raise InputError(f"{what}: here it is Python {done.stdout.strip()}, while this one is {own}")


def add_own_packages(context: SparkContext) -> None:
    """Let Pythons of this machine find Ensue and its packages behind all that they have."""
    own = (str(ROOT), sysconfig.get_path("purelib"), sysconfig.get_path("platlib"))
    paths = [*filter(None, context.environment.get("PYTHONPATH", "").split(os.pathsep)), *own]
    context.environment["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(paths))
