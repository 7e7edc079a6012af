"""How many executors an application has: they register while the driver is at work already."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from querylang.errors import InputError, counted
from querylang.printable import warn

if TYPE_CHECKING:
    from pyspark import SparkContext

SETTLED = 3.0
"""Seconds without a new executor after which no more are waited for."""

SILENCE = 20.0
"""Seconds without any executor after which this is reported."""

LONGEST_WAIT = 600.0
"""Seconds without any executor after which a start is given up."""


def await_executors(context: SparkContext) -> int:
    """Wait until executors have registered, and their number grows no more; gives it.

    Raises InputError if there is none for too long.
    """
    expected = int(context.getConf().get("spark.executor.instances", "0") or 0)
    return settled_number(
        lambda: len(context._jsc.sc().statusTracker().getExecutorInfos()) - 1,  # noqa: SLF001 # the driver counts
        expected,
        context.master or "",
    )


def settled_number(
    number: Callable[[], int],
    expected: int,
    master: str,
    now: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> int:
    """The number of executors once it grows no more, or is what was asked for."""
    began = changed = now()
    last, is_reported = 0, False
    while True:
        found, moment = number(), now()
        if found != last:
            last, changed = found, moment
        if found and (found >= expected > 0 or moment - changed >= SETTLED):
            return found
        if not found and moment - began >= SILENCE and not is_reported:
            warn(f"{_no_executor(master, moment - began)}; the job starts when one registers")
            is_reported = True
        if not found and moment - began >= LONGEST_WAIT:
            raise InputError(_no_executor(master, moment - began))
        sleep(0.1)


def _no_executor(master: str, seconds: float) -> str:
    return (
        f"no executor of {master} has registered for {counted(round(seconds), 'second')}: does the cluster have workers"
        " with free cores, and as much memory as `executor_memory` asks for?"
    )
