"""What a master's name says: which machines run the tasks, and whether anybody answers there."""

from __future__ import annotations

import re
import shlex
import socket
from collections.abc import Mapping
from itertools import pairwise

from querylang.errors import InputError

LONGEST_ANSWER = 10.0
"""Seconds."""


def is_local(master: str) -> bool:
    """Whether all tasks run in the JVM of the driver."""
    return master.startswith("local") and not master.startswith("local-cluster")


def submitted_master(environment: Mapping[str, str]) -> str | None:
    """The master that PYSPARK_SUBMIT_ARGS names; None = it names none."""
    try:
        words = shlex.split(environment.get("PYSPARK_SUBMIT_ARGS", ""))
    except ValueError:  # Spark says what is wrong with it
        return None
    named = [after for word, after in pairwise(words) if word == "--master"]
    named += [word.removeprefix("--master=") for word in words if word.startswith("--master=")]
    return named[-1] if named else None


def refuse_silent(master: str) -> None:
    """Raise InputError if no standalone master answers: Spark would try for a minute."""
    found = re.fullmatch(r"spark://(.+)", master)
    if found is None:
        return
    reasons = []
    for place in found[1].split(","):
        host, _, port = place.rpartition(":")
        try:
            with socket.create_connection((host, int(port)), timeout=LONGEST_ANSWER):
                return
        except (OSError, ValueError, OverflowError) as error:
            reasons.append(f"{place}: {getattr(error, 'strerror', None) or error}")
    raise InputError(
        f"no master of Spark answers at {master} ({'; '.join(reasons)}). Is it started, and the port right?"
    )
