"""The numbers by which Spark knows buckets, so that each of its tasks has equally many of them.

Spark divides rows among tasks by a hash of their bucket's number. Of the buckets 0 to 3, two tasks
would have one and three. A label is a number whose hash leads to the wanted task. A checkpoint
keeps its labels for good: state is found by them.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from itertools import count

_BITS = 0xFFFFFFFF


@lru_cache(maxsize=64)
def bucket_labels(buckets: int, tasks: int | None) -> tuple[int, ...]:
    """The label of each bucket; tasks: as in `Program`."""
    if tasks is None:
        return tuple(range(buckets))
    labels: list[int] = []
    for label in count():
        if len(labels) == buckets:
            break
        if task_of(label, tasks) == len(labels) % tasks:
            labels.append(label)
    return tuple(labels)


@lru_cache(maxsize=64)
def buckets_by_label(buckets: int, tasks: int | None) -> Mapping[int, int]:
    """The inverse of `bucket_labels`."""
    return {label: bucket for bucket, label in enumerate(bucket_labels(buckets, tasks))}


def last_label(label: int, buckets: int, tasks: int) -> int:
    """The largest label of a label's task, which Spark calls last."""
    own = task_of(label, tasks)
    return max(other for other in bucket_labels(buckets, tasks) if task_of(other, tasks) == own)


def task_of(label: int, tasks: int) -> int:
    """The task that Spark gives rows with this integer to."""
    return _spark_hash(label) % tasks


def _spark_hash(number: int) -> int:
    """Spark's `hash` of one integer: Murmur3 with the seed 42."""
    mixed = _rotated(number * 0xCC9E2D51 & _BITS, 15) * 0x1B873593 & _BITS
    result = _rotated(42 ^ mixed, 13) * 5 + 0xE6546B64 & _BITS
    result ^= 4  # the integer's length in bytes
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        result = (result ^ result >> shift) * factor & _BITS
    result ^= result >> 16
    return result - (1 << 32) if result >> 31 else result


def _rotated(number: int, bits: int) -> int:
    return (number << bits | number >> (32 - bits)) & _BITS
