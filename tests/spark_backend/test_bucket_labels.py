"""Labels of buckets: as many of them for each task of Spark, and the same ones for ever."""

from __future__ import annotations

import pytest

from job_engine.wire.program import bucket_labels, buckets_by_label, last_label, task_of


@pytest.mark.parametrize("tasks", [1, 2, 3, 4, 7, 16])
@pytest.mark.parametrize("buckets", [1, 4, 16, 64])
def test_tasks_have_equally_many_buckets(buckets: int, tasks: int) -> None:
    labels = bucket_labels(buckets, tasks)
    shares = [sum(task_of(label, tasks) == task for label in labels) for task in range(tasks)]
    assert max(shares) - min(shares) <= 1
    assert [buckets_by_label(buckets, tasks)[label] for label in labels] == list(range(buckets))
    for label in labels:
        last = last_label(label, buckets, tasks)
        assert last >= label
        assert task_of(last, tasks) == task_of(label, tasks)


def test_a_checkpoint_finds_its_buckets_by_labels_that_never_change() -> None:
    assert bucket_labels(9, 2) == (2, 3, 4, 6, 10, 11, 12, 15, 18)
    assert bucket_labels(8, 2) == bucket_labels(9, 2)[:8]
    assert bucket_labels(4, None) == (0, 1, 2, 3)


def test_tasks_are_those_of_spark() -> None:
    hashes = {0: 933211791, 1: -559580957}  # what `select hash(0), hash(1)` gives
    assert {number: task_of(number, 1 << 32) for number in hashes} == {
        number: value % (1 << 32) for number, value in hashes.items()
    }
