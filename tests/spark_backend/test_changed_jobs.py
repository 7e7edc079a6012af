"""Changes of the queries of a job, against engines that run each query by itself; without Spark."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from runtime.replay.replay import read_records
from runtime.results.ledger import ledger_table
from spark_backend.wire.clock_sources import ClockSource
from spark_backend.wire.epochs import Epoch
from spark_backend.wire.packed_rows import Signal
from spark_backend.wire.tagged_rows import Tag
from tests.support.buckets import rows_of
from tests.support.changing_job import (
    OWN_TYPES,
    READING,
    SOURCES,
    ChangingJob,
    by_themselves,
    change_of,
    controls,
    read_unevenly,
    refused_of,
    tables,
)
from tests.support.embedded import ledger_of


@pytest.mark.parametrize(("buckets", "sources"), [(1, SOURCES), (3, SOURCES), (2, OWN_TYPES)])
@pytest.mark.parametrize("seed", range(8))
def test_random_changes_give_what_each_query_gives_by_itself(
    seed: int, buckets: int, sources: tuple[ClockSource, ...]
) -> None:
    compare(seed, ChangingJob(buckets, sources))


@pytest.mark.parametrize("seed", range(2))
def test_buckets_that_become_more_or_fewer_among_changes_give_the_same(seed: int) -> None:
    compare(seed, ChangingJob(2), moves=np.random.default_rng(seed))


def compare(seed: int, job: ChangingJob, moves: np.random.Generator | None = None) -> None:
    """`moves`: draws numbers of buckets."""
    random = np.random.default_rng(seed)
    arrivals = read_records([*tables(random, 300, job.base.sources), controls(random, 300)], READING).arrivals
    places = arrivals.system("place")
    *left, control = [np.flatnonzero(places == place) for place in np.unique(places)]
    job.step({"control": arrivals.take(control)})  # they wait for the sources
    epochs: dict[int, Epoch] = {}
    for parts in read_unevenly(random, arrivals, left):
        job.step(parts)
        for _ in range(int(random.integers(0, 3)) * int(random.random() < 0.6)):
            job.change(change_of(random))
            epochs |= {epoch.number: epoch for epoch in job.journal.epochs}
        if moves is not None and moves.random() < 0.7:
            job.move(int(moves.choice([1, 2, 3, 5])))
    job.step({}, Signal.FLUSH)
    furthest = int(arrivals.system("arrival").max())
    epochs |= {epoch.number: epoch for epoch in job.ahead().epochs if (epoch.begins or 0) <= furthest}
    matches = Counter((row["query"], row["match_id"]) for row in rows_of(job.stream.tagged, Tag.MATCH))
    expected, account, refused = by_themselves(arrivals, [*epochs.values()])
    assert matches == expected
    assert Counter(refused_of(rows_of(job.stream.tagged, Tag.DISCARDED))) == Counter(refused)
    assert len(matches) > 20
    found = {key: count for key, count in ledger_of(rows_of(job.stream.tagged, Tag.LEDGER)).items() if count}
    assert found == {key: count for key, count in ledger_of(ledger_table(account).to_pylist()).items() if count}
