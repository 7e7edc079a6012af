"""The automaton of a pattern as a table: states, transitions, checks.

It reads the events of one key *backwards from the latest one* (`docs/architecture.md`). A state is
the remainder of the pattern that is still to be found; a transition binds one event to one or more
names. The reference matcher and the kernel run this table, and `explain` prints it.
"""

from __future__ import annotations

from dataclasses import dataclass

ACCEPT = -1
"""The target of a transition that completes the candidate."""


@dataclass(frozen=True, slots=True)
class Transition:
    """Consumes one event of `input` for the terms `binds`, then needs `checks` (indexes of conditions) to hold."""

    input: int
    binds: tuple[int, ...]
    checks: tuple[int, ...]
    target: int


@dataclass(frozen=True, slots=True)
class State:
    """What may be consumed next, going back in time; earlier transitions are preferred for the same event."""

    transitions: tuple[Transition, ...]


@dataclass(frozen=True, slots=True)
class Automaton:
    """`states[0]` is the start: its transition must consume the latest event."""

    states: tuple[State, ...]
