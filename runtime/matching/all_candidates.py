"""`find all`: which candidates of one event are its matches."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import combinations, product
from typing import Any

from querylang.plan.model import Term

MOST_MATCHES = 10_000
"""For one event; of more candidates the most recent ones are matches."""

TOO_MANY = f"more than {MOST_MATCHES:,} matches with one event: only the most recent {MOST_MATCHES:,} are given"
"""The text of the `error` row."""

Bindings = Mapping[int, Any]
Recency = Callable[[Bindings], Any]


def matches_of(
    candidates: Iterable[Bindings], terms: Sequence[Term], recency: Recency, *, are_ordered: bool
) -> tuple[list[Bindings], bool]:
    """The matches among the candidates, oldest first; and whether there were too many.

    are_ordered: the most recent candidates come first, so no more than are given need be searched

    Sides of an `or` that bind the same events are one match, with the names of both. The search
    finds that one before the ones with the names of one side only.
    """
    found = list[Bindings]()
    covered = set[frozenset[tuple[int, Any]]]()
    has_more = False
    for bindings in candidates:
        if frozenset(bindings.items()) in covered:
            continue
        covered.update(_of_fewer_sides(bindings, terms))
        found.append(bindings)
        if are_ordered and len(found) > MOST_MATCHES:
            return found[MOST_MATCHES - 1 :: -1], True
        if len(found) > 4 * MOST_MATCHES:
            found, has_more = sorted(found, key=recency)[-MOST_MATCHES:], True
    found.sort(key=recency)
    return found[-MOST_MATCHES:], has_more or len(found) > MOST_MATCHES


def _of_fewer_sides(bindings: Bindings, terms: Sequence[Term]) -> Iterator[frozenset[tuple[int, Any]]]:
    """The same candidate without the names of some sides of an `or`; at least one side is left."""
    sides: dict[int, dict[int, set[int]]] = defaultdict(lambda: defaultdict(set))
    for term in bindings:
        for number, side in terms[term].sides:
            sides[number][side].add(term)
    choices = [list(_left_out([*by_side.values()])) for by_side in sides.values() if len(by_side) > 1]
    for chosen in product(*choices):
        left_out = set[int]().union(*chosen)
        if left_out:
            yield frozenset((term, bound) for term, bound in bindings.items() if term not in left_out)


def _left_out(sides: Sequence[set[int]]) -> Iterator[set[int]]:
    """The terms of each choice of sides but all of them."""
    for count in range(len(sides)):
        for chosen in combinations(sides, count):
            yield set[int]().union(*chosen)
