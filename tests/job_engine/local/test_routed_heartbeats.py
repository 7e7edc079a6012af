"""A routed heartbeat reaches the query that it is for, in whichever bucket that is."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from tests.support.local_jobs import run
from tests.torture.answers import replayed, written
from tests.torture.project import SINKS
from tests.torture.streams import SECOND, Row, Source, write_next

TEXT = """
event E { integer k; integer h; }
event F { integer k; float v; }
event Beat { integer k; }
query Q { inputs { E() key k within 1 minute; } find E as e { route Beat(e.h); } }
query R { inputs { F() %s within 1 minute wait 30.0 or Beat; } find F as f -> F as g { print "x"; } }
"""
DEPLOYMENT = """
name: case
queries: [case.query]
engine: local
checkpoint: state
sources:
  in: {format: json, path: in, source_time: ts, options: {maxFilesPerTrigger: 1, recursiveFileLookup: true}}
"""


@pytest.mark.parametrize("key", ["", "key k"])
@pytest.mark.parametrize("buckets", [1, 2, 5])
def test_routed_heartbeats_move_the_time_of_their_query(tmp_path: Path, key: str, buckets: int) -> None:
    chooser, source = random.Random(buckets), Source("in", "json", None, [])
    for number in range(60):
        cells = {"at": number, "event": "F", "k": number % 4, "v": float(number), "ts": number - 5.0}
        if number % 7 == 3:
            cells |= {"event": "E", "h": number % 4, "ts": float(number)}
        source.rows.append(Row(number, number * SECOND, cells))
    (tmp_path / "in").mkdir()
    while path := write_next(chooser, tmp_path / "in", source, 13):
        os.utime(path, (len(source.files), len(source.files)))
    (tmp_path / "case.query").write_text(TEXT % key, "utf-8")
    (tmp_path / "case.yaml").write_text(f"{DEPLOYMENT}{SINKS}\nbuckets: {buckets}\n", "utf-8")
    run(tmp_path / "case.yaml")
    found = written(tmp_path / "out")
    assert found.discarded, "records of R are too late once a heartbeat has come"
    assert found.ledger["R", "heartbeat"] == 9
    assert found.differences(replayed(tmp_path / "case.query", [source], [])) == []
