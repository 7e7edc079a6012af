"""The choice between plain Python and machine code, call by call of a kernel.

Machine code is some hundred times as fast, but it must be loaded, and compiled first, once per
machine. So a process begins with plain Python. It changes to machine code at a call with many
entries, or once calls in plain Python have taken as long as the change does. So nothing takes much
longer than with the better choice. `ENSUE_COMPILE` sets the choice; answers are the same.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from enum import StrEnum
from math import inf
from time import perf_counter
from typing import NamedTuple

from querylang.errors import InputError

VARIABLE = "ENSUE_COMPILE"


class Setting(StrEnum):
    """The values of the environment variable."""

    AUTO = "auto"  # plain Python first; a process in the background compiles for the next time
    OFF = "off"  # the same without that process
    ALWAYS = "always"  # machine code from the first call on
    NEVER = "never"  # plain Python only


def setting() -> Setting:
    """What the environment says. Raises InputError."""
    found = os.environ.get(VARIABLE) or Setting.AUTO
    if found not in set(Setting):
        raise InputError(f"{VARIABLE}: expected {', '.join(Setting)}; found '{found}'")
    return Setting(found)


class Patience(NamedTuple):
    """How long plain Python is good enough.

    seconds: that its calls have taken in this process
    entries: of the longest array of a call
    """

    seconds: float
    entries: int


TO_LOAD = Patience(1.0, 20_000)
"""While a kernel's machine code is on disk: to load all of it takes about a second."""

TO_COMPILE = Patience(20.0, 100_000)
"""While it is not: to compile it takes about a quarter of a minute."""


AT_ONCE = Patience(-1.0, -1)
"""For a process that lives long: machine code that is on disk is used from the first call on."""


class TakesTooLong(Exception):
    """A call in plain Python is given up; machine code makes it again."""


class Choice:
    """What a process has chosen so far."""

    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        self._to_load = TO_LOAD
        self._spent = 0.0  # seconds, by the calls in plain Python that have ended
        self._deadline = self._last_deadline = inf  # of the call at work; the second one if nothing is on disk
        self._is_on_disk: Callable[[], bool] = lambda: True

    def load_at_once(self) -> None:
        """Wait no longer for machine code that is on disk."""
        self._to_load = AT_ONCE

    def is_plain(self, entries: int, is_on_disk: Callable[[], bool]) -> bool:
        """Whether a call runs as plain Python.

        entries: of its longest array
        is_on_disk: whether the kernel's machine code is
        """
        if self._setting in {Setting.ALWAYS, Setting.NEVER}:
            return self._setting == Setting.NEVER
        if entries <= self._to_load.entries and self._spent <= self._to_load.seconds:
            return True
        return entries <= TO_COMPILE.entries and self._spent <= TO_COMPILE.seconds and not is_on_disk()

    def begin(self, is_on_disk: Callable[[], bool]) -> float:
        """A call in plain Python begins; returns when."""
        now = perf_counter()
        if self._setting != Setting.NEVER:
            self._is_on_disk = is_on_disk
            self._deadline = now + self._to_load.seconds - self._spent
            self._last_deadline = now + TO_COMPILE.seconds - self._spent
        return now

    def end(self, began: float) -> None:
        """It ends, or is given up."""
        self._spent += perf_counter() - began

    def check_time(self) -> None:
        """Raise TakesTooLong if the call at work has taken too long."""
        if perf_counter() > self._deadline:
            if self._deadline >= self._last_deadline or self._is_on_disk():
                raise TakesTooLong
            self._deadline = self._last_deadline
