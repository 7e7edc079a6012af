"""Jobs with checkpoints that older versions wrote, from `tests/snapshots`."""

from __future__ import annotations

import json
import tarfile
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import ensue
from job_engine.job.job import run
from job_engine.job.status import status_of
from runtime.admission.rules import Outcome
from runtime.results.for_users import Plain
from runtime.results.ledger import RECEIVED

LAST = "at,k,v,ts\n12,a,5,11\n13,b,4,1\n14,b,9,12.5\n"
"""What comes after the stream of the samples."""


WITHOUT_ANNOTATIONS = "event A { string k; float v; float ts; }"
"""How earlier versions understood a text of a change that leaves the definition to the job."""


def unpacked(sample: Path, folder: Path) -> None:
    """Unpack a job into a folder; its record then has the paths of its sources there."""
    with tarfile.open(sample) as archive:
        archive.extractall(folder, filter="data")
    record = folder / "state/ensue.json"
    found = json.loads(record.read_text())
    for name, source in found["sources"].items():
        source["path"] = str(folder / {"s": "in", "t": "in-t"}.get(name, "control"))
    record.write_text(json.dumps(found))


def continue_as_a_replay(job: Path) -> None:
    """Run a job on its sample and what comes later, with the results of a replay.

    The replay has the changes of the queries, which commands have brought to the job, as an event table. Some samples
    have their results; those of the others are what a replay of their files gives, as they held no records back.
    """
    folder = job.parent
    later, changes = folder / "later.csv", folder / "changes.csv"
    if changes.exists() and not _has_annotations(folder):
        text = changes.read_text()
        assert '[""query ' in text
        changes.write_text(text.replace('[""query ', f'[""{WITHOUT_ANNOTATIONS} query '))
    before = [] if (folder / "out").exists() else _plain_matches(_replay(folder, changes, flush=False))
    (folder / "in/3.csv").write_text(later.read_text() if later.exists() else LAST)
    if (folder / "in-t").exists():
        (folder / "in-t/3.jsonl").write_text((folder / "later.jsonl").read_text())
    whole = _replay(folder, changes, flush=True)
    run(job, once=True, flush=True)
    new = [row for row in _plain_matches(whole) if row not in before]
    assert len(new) >= 4
    written = _lines(folder / "out/matches")
    assert sorted((row["query"], row["match_id"], row["emitted"]) for row in written) == sorted(new)
    counts = [(query, what, count) for (query, _, what), count in status_of(job).ledger.items()]
    expected = [(*of, int(count)) for of, count in whole.ledger.groupby(["query", "what"])["count"].sum().items()]
    lasting = _handed_over(whole.output_objects()) - _handed_over(_lines(folder / "out/output"))
    assert len(lasting) <= 1
    ours, theirs = (_records(item for item in found if item[0] not in lasting) for found in (counts, expected))
    assert ours == theirs


def _has_annotations(folder: Path) -> bool:
    """Whether the job's changes were compiled with the annotations of event types."""
    journal = json.loads((folder / "state/ensue/program.json").read_text())
    return bool(journal["running"].get("annotated"))


def _lines(folder: Path) -> list[Plain]:
    return [json.loads(line) for file in folder.rglob("*.json") for line in file.read_text().splitlines()]


def _handed_over(outputs: Iterable[Plain]) -> set[str]:
    """The queries whose old texts have ended.

    Where an earlier version could not know when that is, the old text runs on, and counts its records.
    """
    return {row["query"] for row in outputs if row["kind"] == "handed_over"}


def _records(counts: Iterable[tuple[str, str, int]]) -> Counter[tuple[str, str]]:
    """Counts without control events: a replay receives the changes, too."""
    total = Counter[tuple[str, str]]()
    for query, what, count in counts:
        if what == Outcome.CONTROL.word:
            total[query, RECEIVED] -= count
        else:
            total[query, what] += count
    return Counter({key: count for key, count in total.items() if count})


def _replay(folder: Path, changes: Path, *, flush: bool) -> ensue.Replay:
    rows = [path for source in ("in", "in-t") for path in sorted(folder.glob(f"{source}/*"))]
    tables = [*rows, folder / "control/1.csv", *([changes] if changes.exists() else [])]
    return ensue.replay(folder / "old.query", tables, flush=flush)


def _plain_matches(replay: ensue.Replay) -> list[tuple[str, str, str]]:
    return [(row["query"], row["match_id"], row["emitted"]) for row in replay.match_objects()]
