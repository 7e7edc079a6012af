"""The pattern as a plain table: states, transitions, checks.

The automaton reads a partition *backwards from the latest event* (`docs/architecture.md`): a state is what remains
to be matched before the current point, a transition consumes one event for one or more names. The same table drives
the reference matcher and the kernel, and is what `explain` prints. Immutable.
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
