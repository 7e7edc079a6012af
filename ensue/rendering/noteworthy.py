"""Which steps of a long replay a person wants to see: those around what happened, and the end."""

from __future__ import annotations

from collections.abc import Sequence

from querylang.errors import counted, listed
from runtime.replay.stepping import Step

FIRST, LAST = 9, 3
"""Steps with matches that are shown, and as many with discards, where there are many."""

BEFORE, AFTER = 3, 1
"""Steps around each."""

AT_END = 6
"""Steps at the end."""


def noteworthy(steps: Sequence[Step]) -> tuple[list[Step], str]:
    """The steps to show, and what they are: `the steps around 12 of 90 matches, and the last 6`.

    In place of those between is one step, whose text says how many rows it stands for.
    """
    matched = [place for place, step in enumerate(steps) if step.matches or step.outputs]
    discarded = [place for place, step in enumerate(steps) if step.discarded is not None]
    count = len(steps)
    shown = set(range(max(0, count - AT_END), count))
    parts = []
    for places, one, many in ((matched, "step with results", "steps with results"), (discarded, "discard", "discards")):
        chosen = places if len(places) <= FIRST + LAST else [*places[:FIRST], *places[-LAST:]]
        shown |= {near for place in chosen for near in range(max(0, place - BEFORE), min(count, place + AFTER + 1))}
        if places:
            number = counted(len(places), one, many)
            parts.append(number if len(chosen) == len(places) else f"{len(chosen)} of {number}")
    around = f"what is around {listed(parts)}, and " if parts else ""
    return _with_gaps(steps, sorted(shown)), f"{around}the last {counted(min(AT_END, count), 'step')}"


def _with_gaps(steps: Sequence[Step], shown: Sequence[int]) -> list[Step]:
    found: list[Step] = []
    at = 0
    for place in shown:
        rows = sum(step.row is not None for step in steps[at:place])
        if rows:
            found.append(Step(at=steps[at].at, text=f"… {counted(rows, 'row')}"))
        found.append(steps[place])
        at = place + 1
    return found
