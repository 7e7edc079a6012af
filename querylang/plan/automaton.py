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
    """Binds one event of `input` to the terms `binds`, if `checks` (indexes of conditions) hold.

    `follows`: only the event directly before the one that was bound last, in the key's total order.
    """

    input: int
    binds: tuple[int, ...]
    checks: tuple[int, ...]
    target: int
    follows: bool = False


@dataclass(frozen=True, slots=True)
class State:
    """What may be bound next, going back in time.

    For the same event earlier transitions are preferred.

    `accepts`: None: the candidate is not complete. Else it may end here if these conditions hold;
    more events are preferred to the end.
    """

    transitions: tuple[Transition, ...]
    accepts: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class Automaton:
    """The states; the transitions of `states[0]` bind the latest event."""

    states: tuple[State, ...]
