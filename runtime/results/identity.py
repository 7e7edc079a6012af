"""The identity of one match in plain Python; `runtime.results.match_table` makes those of many."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from functools import lru_cache

from querylang.plan.model import QueryPlan
from runtime.columns.keys import FNV_FACTOR, FNV_START, MIX_FIRST, MIX_SECOND, MIX_STEP
from runtime.interpreter.values import Value

Place = tuple[str, int, int]
"""Where an event was read: source, partition, offset."""

_WORD = 2**64 - 1
_NAN = 0x7FF8000000000000


@lru_cache(maxsize=4096)
def text_hash(text: str) -> int:
    """FNV-1a over the bytes of a text."""
    value = FNV_START
    for byte in text.encode():
        value = (value ^ byte) * FNV_FACTOR & _WORD
    return value


def seeds_of(query: QueryPlan) -> tuple[int, int]:
    """The words with which the two halves of a query's identities begin."""
    first, second = (text_hash(f"{lane}\0{query.name}\0{query.instance}") for lane in "ab")
    return first, second


def match_id(seeds: tuple[int, int], key: Sequence[Value], members: Sequence[Place | None]) -> str:
    """The identity of a match.

    seeds: `seeds_of` its query
    key: its parts are booleans, integers, floats and strings
    members: None = a name that is unset
    """
    start = 0
    for part in key:
        start = _mixed(start ^ _word(part))
    words = [_mixed(seed ^ start) for seed in seeds]
    for member in members:
        if member is None:
            words = [_mixed(~word & _WORD) for word in words]
        else:
            source, partition, offset = member
            place, number = _place(source, partition), offset & _WORD
            words = [_mixed(_mixed(word ^ place) ^ number) for word in words]
    return "".join(f"{word:016x}" for word in words)


@lru_cache(maxsize=1024)
def _place(source: str, partition: int) -> int:
    return _mixed(_mixed(text_hash(source)) ^ (partition & _WORD))


def _word(value: Value) -> int:
    """As `runtime.columns.keys.hash_keys` has it for a column of such values."""
    match value:
        case str():
            return text_hash(value)
        case float():
            bits: int = struct.unpack("<Q", struct.pack("<d", value + 0.0))[0]
            return _NAN if math.isnan(value) else bits
        case int():
            return value & _WORD
    raise AssertionError(f"{value!r} is not part of such a key")


def _mixed(word: int) -> int:
    """`runtime.columns.keys.mix` of one word."""
    word = word + MIX_STEP & _WORD
    word = (word ^ word >> 30) * MIX_FIRST & _WORD
    word = (word ^ word >> 27) * MIX_SECOND & _WORD
    return word ^ word >> 31
