"""What fails in a simulated world, and where: one draw at every call that leaves the process.

A call site is an operation and the function of product code that asks for it. Rare sites fail as often as frequent
ones: the chance of a fault falls with the number of calls that a site has had in a run.
"""

from __future__ import annotations

import random
import sys
from collections import Counter
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from types import CodeType

ROOT = str(Path(__file__).resolve().parents[2]) + "/"
_PRODUCT = tuple(f"{ROOT}{package}/" for package in ("job_engine", "runtime", "ensue"))
_BELOW = tuple(
    f"{ROOT}job_engine/{name}"
    for name in (
        "local_path.py",
        "place.py",
        "stores.py",
        "arrow_files.py",
        "durable_files.py",
        "delta_package.py",
        "clock.py",
        "threads.py",
    )
)


class Fault(StrEnum):
    """How a call ends."""

    KILL_BEFORE = "killed before"
    KILL_AFTER = "killed after"
    POWER_BEFORE = "power lost before"
    POWER_AFTER = "power lost after"
    FULL = "disk full"
    BROKEN = "input/output error"
    SHORT = "short"
    LATE = "late"
    DEATH = "worker died"
    AWAY = "away"
    LOST = "answer lost"
    OTHER = "another writer next"


CRASHES = (Fault.KILL_BEFORE, Fault.KILL_AFTER, Fault.POWER_BEFORE, Fault.POWER_AFTER)

FAULTS: dict[str, tuple[Fault, ...]] = {
    "write": (*CRASHES, Fault.FULL, Fault.BROKEN, Fault.SHORT),
    "create": (*CRASHES, Fault.FULL, Fault.BROKEN),
    "sync": (*CRASHES, Fault.BROKEN, Fault.LATE),
    **dict.fromkeys(("replace", "link", "mkdir"), (*CRASHES, Fault.FULL, Fault.BROKEN)),
    **dict.fromkeys(("unlink", "rmdir", "chmod", "utime"), (*CRASHES, Fault.BROKEN)),
    **dict.fromkeys(("open", "stat", "list"), (Fault.KILL_BEFORE, Fault.BROKEN, Fault.LATE)),
    "broker": (*CRASHES, Fault.AWAY, Fault.LOST, Fault.LATE),
    "table": (Fault.KILL_BEFORE, Fault.BROKEN, Fault.LATE, Fault.OTHER),
    "checkpoint": (*CRASHES, Fault.FULL, Fault.BROKEN, Fault.LATE),
    "store": (Fault.KILL_BEFORE, Fault.KILL_AFTER, Fault.AWAY, Fault.LOST, Fault.LATE),
    "lock": (Fault.KILL_AFTER, Fault.LATE),
    "ask": (Fault.KILL_BEFORE, Fault.KILL_AFTER, Fault.DEATH, Fault.LATE),
}
"""By operation, the ways in which it can fail."""

OFTEN = {"table": 3.0, "checkpoint": 20.0}
"""Operations of few sites, which fail so many times as often as others."""

Met = Counter[tuple[str, str, str]]
"""By operation, function and fault (`""` = none), how often."""

_NAMES: dict[CodeType, str | None] = {}


def asking() -> str:
    """The function of product code that asks for what happens now, as `module:function`."""
    frame = sys._getframe(1)  # the way to the caller
    found = "?"
    while frame is not None:  # type: ignore[redundant-expr] # the outermost frame has none behind it
        code = frame.f_code
        name = _NAMES[code] if code in _NAMES else _NAMES.setdefault(code, _name(code))
        if name is not None:
            found = name
            if not code.co_filename.startswith(_BELOW):
                return found
        frame = frame.f_back  # type: ignore[assignment]
    return found


def _name(code: CodeType) -> str | None:
    if not code.co_filename.startswith(_PRODUCT):
        return None
    return f"{code.co_filename.removeprefix(ROOT).removesuffix('.py')}:{code.co_qualname}"


@dataclass(frozen=True, slots=True)
class Aim:
    """A call that fails once in a world, instead of calls that are drawn.

    function: how its name ends
    passed: so many such calls come first, and are well
    """

    operation: str
    function: str
    fault: Fault
    passed: int = 0


class Faults:
    """Draws the faults of one world.

    rate: about how often each site fails in a run; 0 = nothing fails
    met: is counted in
    """

    def __init__(self, chooser: random.Random, met: Met) -> None:
        self.rate = 0.0
        self.kinds: frozenset[Fault] = frozenset(Fault)
        self.said: list[str] = []
        self.aim: Aim | None = None
        self.muted: frozenset[int] = frozenset()
        """The numbers of faults, from 0, that do not happen after all: for less of a world."""
        self._part = ""
        self._drawn_so_far = 0
        self._chooser = chooser
        self._met = met
        self._calls: Counter[tuple[str, str]] = Counter()

    @property
    def count(self) -> int:
        """How many faults were drawn, with those that are muted."""
        return self._drawn_so_far

    def begin(self, rate: float, kinds: frozenset[Fault]) -> None:
        """A run begins, in which these faults may happen."""
        self.rate, self.kinds, self._part = rate, kinds, ""
        self._calls.clear()

    def focus(self, part: str) -> None:
        """Only calls of functions in whose names this is fail in this run, and more often."""
        self.rate, self._part = max(self.rate, 0.03) * 3, part

    def draw(self, operation: str) -> Fault | None:
        """How a call ends that is made now; None = well."""
        site = (operation, asking())
        fault = self._drawn(site)
        if fault is not None:
            self._drawn_so_far += 1
            if self._drawn_so_far - 1 in self.muted:
                fault = None
        self._met[(*site, "" if fault is None else fault.value)] += 1
        if fault is not None:
            self.said.append(f"{fault}: {operation} of {site[1]}")
        return fault

    def _drawn(self, site: tuple[str, str]) -> Fault | None:
        if self.aim is not None and site[0] == self.aim.operation and site[1].endswith(self.aim.function):
            if self.aim.passed:
                self.aim = replace(self.aim, passed=self.aim.passed - 1)
                return None
            fault, self.aim = self.aim.fault, None
            return fault
        if not self.rate or self._part not in site[1]:
            return None
        self._calls[site] += 1
        if self._chooser.random() >= self.rate * OFTEN.get(site[0], 1.0) / self._calls[site] ** 1.5:
            return None
        possible = [fault for fault in FAULTS[site[0]] if fault in self.kinds]
        return self._chooser.choice(possible) if possible else None
