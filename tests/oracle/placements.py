"""Every assignment of events to the names of a pattern, whatever the conditions say."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from tests.oracle.events import Event
from tests.oracle.expressions import Binding
from tests.oracle.shapes import Both, Chain, Either, Kind, Link, Repeat, Repeated, Shape, Step, below, names, waits

Windows = Mapping[str, Sequence[Event]]
"""By event type the events that may be bound, oldest first."""


@dataclass(frozen=True, slots=True)
class Placement:
    """What the names are bound to, and where the waits in the middle have their points; None = unset."""

    names: Mapping[str, Binding]
    points: Mapping[str, int | None] = field(default_factory=dict)

    def entries(self) -> list[Event]:
        """All events, newest first, one entry per name."""
        return sorted((event for bound in self.names.values() for event in events_of(bound)), key=place, reverse=True)

    def members(self) -> list[Event]:
        """All events, oldest first, each once."""
        return sorted(set(self.entries()), key=place)

    def merged(self, other: Placement) -> Placement:
        return Placement({**self.names, **other.names}, {**self.points, **other.points})


def place(event: Event) -> int:
    return event.place


def events_of(bound: Binding) -> tuple[Event, ...]:
    """The events of one name."""
    match bound:
        case None:
            return ()
        case Event():
            return (bound,)
        case _:
            return bound


def placements(shape: Shape, windows: Windows) -> list[Placement]:
    """All ways in which the pattern holds."""
    match shape:
        case Step():
            return [Placement({shape.name: event}) for event in windows[shape.type]]
        case Repeated():
            return [*repeated(shape, windows)]
        case Chain():
            return chained(shape, windows)
        case Both():
            right = placements(shape.right, windows)
            return [one.merged(other) for one in placements(shape.left, windows) for other in right]
        case Either():
            return [*either(shape, windows)]


def repeated(shape: Repeated, windows: Windows) -> Iterator[Placement]:
    """A repeat: each number of iterations that it allows, each strictly later than the one before."""
    iterations = placements(shape.inside, windows)
    longest = sum(len(window) for window in windows.values())
    most = longest if shape.repeat.most is None else min(shape.repeat.most, longest)
    inner = [*names(shape.inside)]
    found: list[list[Placement]] = [[]]
    for count in range(most + 1):
        if count >= shape.repeat.least:
            yield from (as_runs(inner, run, shape.repeat) for run in found if is_dense(run, shape.repeat))
        found = [[*run, one] for run in found for one in iterations if not run or is_before(run[-1], one)]


def is_dense(run: Sequence[Placement], repeat: Repeat) -> bool:
    """`consecutive`: no event of the partition stands between those of the run."""
    events = sorted(event.place for one in run for event in one.entries())
    return not repeat.consecutive or all(later == earlier + 1 for earlier, later in pairwise(events))


def as_runs(inner: Sequence[str], run: Sequence[Placement], repeat: Repeat) -> Placement:
    """The names of a repeat: runs, or for `?` what the only iteration has."""
    if repeat.kind is Kind.OPTIONAL:
        return run[0] if run else Placement(dict.fromkeys(inner))
    return Placement({name: tuple(event for one in run for event in events_of(one.names[name])) for name in inner})


def is_before(left: Placement, right: Placement) -> bool:
    """All of the left is earlier than all of the right."""
    return all(early.place < late.place for early in left.entries() for late in right.entries())


def chained(shape: Chain, windows: Windows) -> list[Placement]:
    found = placements(shape.first, windows)
    for link in shape.links:
        right = placements(link.part, windows)
        pairs = ((one, other) for one in found for other in right)
        found = [joined(one, link, other) for one, other in pairs if may_follow(one, link, other)]
    return found


def may_follow(left: Placement, link: Link, right: Placement) -> bool:
    """Whether the right may follow the link."""
    if not is_before(left, right):
        return False
    early, late = left.entries(), right.entries()
    if link.wait:
        assert early, "a wait stands behind a step that is never empty"
        return all(event.time >= early[0].time + link.wait.length for event in late)
    nothing_between = not early or not late or late[-1].place == early[0].place + 1
    return link.sign == "->" or nothing_between


def joined(left: Placement, link: Link, right: Placement) -> Placement:
    both = left.merged(right)
    if link.wait is None:
        return both
    return Placement(both.names, {**both.points, link.wait.name: left.entries()[0].time + link.wait.length})


def either(shape: Either, windows: Windows) -> Iterator[Placement]:
    """One side each, the other unset; and both sides where they bind exactly the same events."""
    left, right = placements(shape.left, windows), placements(shape.right, windows)
    yield from (one.merged(unset(shape.right)) for one in left)
    yield from (unset(shape.left).merged(other) for other in right)
    yield from (one.merged(other) for one in left for other in right if one.members() == other.members())


def unset(shape: Shape) -> Placement:
    """A side of an `or` that is not taken."""
    return Placement(dict.fromkeys(names(shape)), {wait.name: None for wait in waits(shape)})


def recency(placement: Placement, written: Sequence[str]) -> tuple[list[int], list[list[int]]]:
    """What is larger for the more recent placement; `written`: the names in the order of the pattern's text."""
    by_name = [[event.place for event in reversed(events_of(placement.names[name]))] for name in reversed(written)]
    return [event.place for event in placement.entries()], by_name


def without_covered(found: Sequence[Placement], shape: Shape) -> list[Placement]:
    """Of `or` sides on the same events only the placement that has the names of both."""
    return [one for one in found if not any(covers(other, one, shape) for other in found)]


def covers(fuller: Placement, placement: Placement, shape: Shape) -> bool:
    """Whether it is the same, with the names of `or` sides besides that are unset in the other."""
    more = {name for name, bound in placement.names.items() if bound != fuller.names[name]}
    choices = [item for item in below(shape) if isinstance(item, Either)]
    untaken = {name for item in choices for name in untaken_names(item, placement)}
    return bool(more) and more <= untaken and all(fuller.names[name] is not None for name in more)


def untaken_names(shape: Either, placement: Placement) -> list[str]:
    """The names of the unset side, where the other is set."""
    left, right = [*names(shape.left)], [*names(shape.right)]
    left_set, right_set = (any(placement.names[name] is not None for name in side) for side in (left, right))
    return (right if left_set and not right_set else []) + (left if right_set and not left_set else [])
