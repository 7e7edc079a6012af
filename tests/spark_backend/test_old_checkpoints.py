"""Checkpoints of older versions: a job continues from them, and its results are those of a replay.

`tests/snapshots/checkpoint-3.tar.gz` is a job with its checkpoint, of record version 3 and Spark 4.2, after `ensue run
--once` on its two files: with an event that waits, a changed leeway, a malformed row.
"""

from __future__ import annotations

import json
import tarfile
from collections import Counter
from pathlib import Path

import pytest

import ensue
from spark_backend.job.job import run
from spark_backend.job.status import status_of

SAMPLES = Path(__file__).parents[1] / "snapshots"
LAST = "at,k,v,ts\n12,a,5,11\n13,b,4,1\n14,b,9,12.5\n"


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("sample", sorted(SAMPLES.glob("checkpoint-*.tar.gz")), ids=lambda path: path.name)
def test_a_job_continues_from_an_old_checkpoint(tmp_path: Path, sample: Path) -> None:
    with tarfile.open(sample) as archive:
        archive.extractall(tmp_path, filter="data")
    moved(tmp_path)
    (tmp_path / "in/3.csv").write_text(LAST)
    tables = [*sorted((tmp_path / "in").iterdir()), tmp_path / "control/1.csv"]
    whole = ensue.replay(tmp_path / "old.query", tables)
    before = ensue.replay(tmp_path / "old.query", [*tables[:2], tables[3]], flush=False)
    run(tmp_path / "old.yaml", once=True, flush=True)
    new = [row for row in plain_matches(whole) if row not in plain_matches(before)]
    assert (len(plain_matches(before)), len(new)) == (2, 4)
    files = (tmp_path / "out/matches").rglob("*.json")
    written = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    assert sorted((row["query"], row["match_id"], row["emitted"]) for row in written) == sorted(new)
    total = Counter[tuple[str, str]]()
    for (query, _, what), count in status_of(tmp_path / "old.yaml").ledger.items():
        total[query, what] += count
    expected = whole.ledger.groupby(["query", "what"])["count"].sum()
    assert total == {key: count for key, count in expected.items() if count}


def plain_matches(replay: ensue.Replay) -> list[tuple[str, str, str]]:
    return [(row["query"], row["match_id"], row["emitted"]) for row in replay.match_objects()]


def moved(folder: Path) -> None:
    """The record of a checkpoint holds the paths of its sources."""
    record = folder / "state/ensue.json"
    found = json.loads(record.read_text())
    for name, source in found["sources"].items():
        source["path"] = str(folder / ("in" if name == "s" else "control"))
    record.write_text(json.dumps(found))
