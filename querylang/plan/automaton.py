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
    """Binds one event of `input` to the terms `binds`, if `checks` (indexes of conditions) hold."""

    input: int
    binds: tuple[int, ...]
    checks: tuple[int, ...]
    target: int


@dataclass(frozen=True, slots=True)
class State:
    """What may be bound next, going back in time.

    For the same event earlier transitions are preferred.
    """

    transitions: tuple[Transition, ...]


@dataclass(frozen=True, slots=True)
class Automaton:
    """The states; the transitions of `states[0]` bind the latest event."""

    states: tuple[State, ...]
