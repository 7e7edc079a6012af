"""What random queries with additions find does not depend on cuts, restarts, the matcher, or eviction."""

from __future__ import annotations

import random
from unittest.mock import patch

import pytest

from runtime.engine import shared_admission
from tests.oracle.pieces import at_once, found_in, in_pieces, loaded
from tests.oracle.random_patterns import ALL
from tests.oracle.random_queries import random_draw

TOGETHER = 10
"""So many queries read one stream."""


@pytest.mark.parametrize("seed", range(2))
def test_pieces_and_restarts_find_the_same(seed: int) -> None:
    draw, chooser = random_draw(seed, ALL, TOGETHER), random.Random(seed)
    plan, arrivals = loaded(draw)
    assert found_in(plan, in_pieces(plan, arrivals, chooser)) == found_in(plan, at_once(plan, arrivals))


@pytest.mark.parametrize("seed", range(2, 3))
def test_nothing_that_is_evicted_could_be_used(seed: int) -> None:
    draw, chooser = random_draw(seed, ALL, TOGETHER), random.Random(seed)
    plan, arrivals = loaded(draw)
    with patch.object(shared_admission, "rows_to_keep", lambda released, *_: released.order):
        kept = found_in(plan, in_pieces(plan, arrivals, random.Random(seed)))
    assert found_in(plan, in_pieces(plan, arrivals, chooser)) == kept
