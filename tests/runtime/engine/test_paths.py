"""Paths of routed records in columns, against tuples: their order, a choice of them, and as bytes."""

from __future__ import annotations

import random
from decimal import Decimal

import numpy as np
import pytest

from runtime.columns.arrivals import PLACE
from runtime.engine.paths import OF_RECORD, Paths

KEYS = [("P", "", (1, "x")), ("P", "eu", (0, None)), ("Q", "", (2, Decimal("1.5"))), ("P", "", (0, None))]


def some(chance: random.Random, before: Paths) -> Paths:
    """Paths of a round, behind those of earlier ones or of records."""
    count = chance.randint(1, 9)
    parents = [chance.randint(-1, len(before) - 1) for _ in range(count)]
    roots = [[chance.randint(0, 2), OF_RECORD, *(chance.randint(0, 1) for _ in PLACE)] for _ in range(count)]
    hops = [[chance.randrange(len(KEYS)), chance.randint(0, 1), chance.randint(0, 1)] for _ in range(count)]
    return before.behind(np.array(parents), np.array(roots).T, np.array(hops).T, KEYS)


def as_tuples(paths: Paths) -> list[tuple[object, ...]]:
    """As they are compared, root first."""
    found = []
    for number, (end, depth) in enumerate(zip(paths.ends, paths.depths, strict=True)):
        hops = [(*paths.keys[key], match, output) for key, match, output in paths.hops[:, end - depth : end].T.tolist()]
        found.append((tuple(paths.roots[:, number].tolist()), *hops))
    return found


@pytest.mark.parametrize("seed", range(5))
def test_paths_are_as_their_tuples(seed: int) -> None:
    chance, paths = random.Random(seed), Paths.none()
    for _ in range(4):
        paths = Paths.concat([paths, some(chance, paths)])
    tuples = as_tuples(paths)
    assert len(set(map(len, tuples))) > 1
    assert paths.rows().tolist() == sorted(range(len(tuples)), key=tuples.__getitem__)
    rows = np.array([chance.randrange(len(tuples)) for _ in range(7)])
    taken = Paths.of_bytes(paths.take(rows).to_bytes())
    assert as_tuples(taken) == [tuples[row] for row in rows]
    assert len(taken.keys) == len({*taken.hops[0].tolist()})
    assert not len(Paths.of_bytes(Paths.none().to_bytes()))
