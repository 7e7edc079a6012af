"""A world that has a problem, with less in it: fewer faults, lives and rows, as long as something is wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from tests.simulation.jobs import Less, Story, tell


def _wrong(story: Story) -> bool:
    return bool(story.problems)


def shrunk(
    seed: int, fails: Callable[[Story], bool] = _wrong, tells: Callable[[int, Less], Story] | None = None
) -> Story:
    """The story of the smallest world that is found by leaving out one thing after the other; its text says what is left.

    fails: whether a story still shows what is looked for
    tells: lets a world happen
    """
    tells = tells or (lambda own, less: tell(own, less=less))
    less = Less()
    best = tells(seed, less)
    if not fails(best):
        return best
    found = True
    while found:
        found = False
        for simpler in _simpler(less, best):
            story = tells(seed, simpler)
            if fails(story):
                less, best, found = simpler, story, True
                break
    best.lines.insert(0, f"with {less}")
    return best


def _simpler(less: Less, story: Story) -> Iterator[Less]:
    """What more can be left out, the boldest first."""
    left = [number for number in range(story.faults) if number not in less.muted]
    width = len(left)
    while width:
        for start in range(0, len(left), width):
            yield replace(less, muted=less.muted | {*left[start : start + width]})
        width //= 2
    lives = story.lives - 1 if less.lives is None else less.lives  # without the last one, in which nothing fails
    rows = story.rows if less.rows is None else less.rows
    for fewer in sorted({lives // 2, lives - 1} - {lives, -1}):
        yield replace(less, lives=fewer)
    for fewer in sorted({rows // 2, rows - 1} - {rows, -1}):
        yield replace(less, rows=fewer)
