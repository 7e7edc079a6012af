"""Changes of the queries of a job, against engines that run each query by itself; without Spark."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from itertools import islice

import numpy as np
import pytest

from job_engine.job.journal import JournalEpoch
from job_engine.wire.clock_sources import ClockSource
from job_engine.wire.packed_rows import Signal
from job_engine.wire.tagged_rows import Tag
from runtime.replay.replay import read_records
from runtime.results.ledger import ledger_table
from tests.support.buckets import rows_of
from tests.support.changing_job import (
    FALLING,
    OWN_TYPES,
    READING,
    RISING,
    SOURCES,
    WAITING,
    WHOLE,
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


ALL_GO = ['UndeployQuery("Waiting")', 'RemoveInstance("Rising", "")', 'UndeployQuery("Rising")']
ALL_COME = [json.dumps({"DeployQuery": [text]}) for text in (FALLING, WHOLE, RISING)]
NOBODY_LEFT = [*ALL_GO, ALL_COME[0], 'UndeployQuery("Falling")', *ALL_COME[1:], 'UndeployQuery("Whole")']


@pytest.mark.parametrize(("buckets", "sources"), [(1, SOURCES), (3, OWN_TYPES)])
def test_a_job_without_queries_reads_on_until_one_is_deployed(buckets: int, sources: tuple[ClockSource, ...]) -> None:
    compare(1, ChangingJob(buckets, sources), changes=iter(NOBODY_LEFT))


def test_buckets_may_change_their_number_while_no_query_runs() -> None:
    compare(2, ChangingJob(2), moves=np.random.default_rng(1), changes=iter(NOBODY_LEFT))


def compare(
    seed: int, job: ChangingJob, moves: np.random.Generator | None = None, changes: Iterator[str] | None = None
) -> None:
    """Compare a job with engines that run each query by itself.

    moves: draws numbers of buckets
    changes: one with each second micro-batch; None = random ones
    """
    random = np.random.default_rng(seed)
    arrivals = read_records([*tables(random, 300, job.base.sources), controls(random, 300)], READING).arrivals
    places = arrivals.system("place")
    *left, control = [np.flatnonzero(places == place) for place in np.unique(places)]
    job.step({"control": arrivals.take(control)})  # they wait for the sources
    epochs: dict[int, JournalEpoch] = {}
    for number, parts in enumerate(read_unevenly(random, arrivals, left)):
        job.step(parts)
        drawn = [change_of(random) for _ in range(int(random.integers(0, 3)) * int(random.random() < 0.6))]
        for change in drawn if changes is None else islice(changes, number % 2):
            job.change(change)
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


def test_the_end_of_a_handover_is_told_once_where_time_is_flushed() -> None:
    job = ChangingJob(2)
    arrivals = read_records(tables(np.random.default_rng(1), 300, job.base.sources), READING).arrivals
    places = arrivals.system("place")
    job.step(
        {
            name: arrivals.take(np.flatnonzero(places == place))
            for name, place in zip("ab", np.unique(places), strict=True)
        }
    )
    longer = RISING.replace("15 seconds", "25 seconds").replace("+ least", "+ least + 1.0")
    job.change(json.dumps({"ReplaceQuery": [longer]}))
    for signal in (None, Signal.FLUSH, Signal.FLUSH):
        job.step({}, signal)
    told = [(row["kind"], row["query"]) for row in rows_of(job.stream.tagged, Tag.OUTPUT)]
    assert [item for item in told if item[0] in ("replaced", "handed_over")] == [
        ("replaced", "Rising"),
        ("handed_over", "Rising"),
    ]


REPLACE_WAITING = json.dumps({"ReplaceQuery": [WAITING.replace("15 seconds", "25 seconds")]})
BEGINS = "1970-01-01 00:16:40"


@pytest.mark.parametrize("has_started", [False, True], ids=["first micro-batch", "after micro-batches without records"])
def test_changes_before_all_records_have_the_time_of_the_first_one(has_started: bool) -> None:
    job = ChangingJob(1)
    for change in (REPLACE_WAITING, 'UndeployQuery("Missing")', 'UndeployQuery("Rising")'):
        job.change(change)
        if has_started:
            job.step({}, Signal.START)
    arrivals = read_records(tables(np.random.default_rng(1), 300, job.base.sources), READING).arrivals
    places = arrivals.system("place")
    job.step(
        {
            name: arrivals.take(np.flatnonzero(places == place))
            for name, place in zip("ab", np.unique(places), strict=True)
        }
    )
    job.change('UndeployQuery("Waiting")')
    job.step({}, Signal.FLUSH)
    rows = [row for tag in (Tag.OUTPUT, Tag.ERROR) for row in rows_of(job.stream.tagged, tag) if row["key"] == "{}"]
    told = [(row["kind"], row["query"], str(row["time"]).startswith(BEGINS)) for row in rows]
    assert told == [  # no record was there for the old text, so nothing is handed over
        ("replaced", "Waiting", True),
        ("undeployed", "Rising", True),
        ("undeployed", "Waiting", False),
        ("error", "Missing", True),
    ]
    assert len(job.journal.taken) == 2  # the last one that was reported stays, and the new one
