"""The identity of a match never changes: not for queries and data that use nothing new.

People keep match ids in their tables. `tests/snapshots/match-ids` has query files, their events, and the ids of the
matches that version 0.1 found, a line each: file, query, instance, id.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import ensue

SAMPLES = Path(__file__).parents[1] / "snapshots" / "match-ids"
KEPT = (SAMPLES / "ids.txt").read_text().splitlines()
INSTANCES = {"constructs": {"Above": {"low": {"least": 30.0}, "high": {"least": 70.0, "period": 20.0}}}}


def events(name: str) -> list[dict[str, Any]] | Path:
    """Rows in Python, whose source is `table`, or a file, whose source is its name."""
    path = SAMPLES / f"{name}.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if name == "constructs" else path


def ids(name: str) -> Iterator[str]:
    """The lines of one query file, sorted."""
    found = ensue.replay(SAMPLES / f"{name}.query", events(name), parameters=INSTANCES.get(name))
    yield from sorted(f"{name} {row['query']} {row['instance']} {row['match_id']}" for row in found.match_objects())


@pytest.mark.parametrize("name", ["constructs", "patterns"])
def test_matches_keep_their_ids(name: str) -> None:
    assert [*ids(name)] == [line for line in KEPT if line.startswith(name)]


def test_the_samples_are_a_thousand_matches_of_every_query() -> None:
    assert len(KEPT) == len(set(KEPT)) >= 1000
    queries = {tuple(line.split(" ")[:3]) for line in KEPT}
    assert len(queries) == 35
