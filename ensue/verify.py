"""Compare an embedded replay with the other ways to run queries, on a user's own data: worker
processes of this machine, and Spark, in batch and as a stream.

Everything is compared: matches with their times, outputs, discards, accounts.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from ensue import executors
from ensue.answer import Replay
from querylang.dataclass import dataclass
from querylang.errors import counted
from runtime.results.for_users import PlainMatches, plain_outputs, plain_value
from runtime.results.schemas import Results

SINGULAR = {"matches": "match", "outputs": "output", "discards": "discard"}
MOST_SHOWN = 3
"""Differences printed of each kind; all are counted."""


@dataclass(frozen=True, slots=True)
class Difference:
    """How one executor differs from the embedded run in one kind of results.

    missing, added: results as JSON that only the embedded run, or only the other executor, has
    """

    executor: str
    what: str
    missing: Sequence[str]
    added: Sequence[str]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was compared, and every difference.

    counts: results of the embedded run by kind
    batches: micro-batches of the streams
    left_out: why Spark was not asked; "" = it was
    """

    counts: dict[str, int]
    batches: int
    differences: Sequence[Difference]
    left_out: str = ""

    @property
    def is_equal(self) -> bool:
        """Whether all executors have the same results."""
        return not self.differences

    def to_plain(self) -> dict[str, Any]:
        """For machines."""
        differences = [
            {"executor": item.executor, "what": item.what, "missing": len(item.missing), "added": len(item.added)}
            for item in self.differences
        ]
        return {
            "equal": self.is_equal,
            "counts": self.counts,
            "batches": self.batches,
            "differences": differences,
            "left_out": self.left_out,
        }

    def text(self) -> str:
        """For people."""
        if self.is_equal:
            compared = ", ".join(counted(count, SINGULAR[what], what) for what, count in self.counts.items())
            ways = "embedded = local" if self.left_out else "embedded = local = batch = stream"
            lines = [f"{ways} ({counted(self.batches, 'micro-batch', 'micro-batches')}): {compared}"]
        else:
            lines = self._told()
        if self.left_out:
            lines.append(f"not compared with Spark: {self.left_out}")
        return "\n".join(lines)

    def _told(self) -> list[str]:
        lines = []
        for item in self.differences:
            lines.append(
                f"{item.what}: {item.executor} lacks {len(item.missing)} of the embedded run and has {len(item.added)} more"
            )
            lines += [f"  - {text}" for text in item.missing[:MOST_SHOWN]]
            lines += [f"  + {text}" for text in item.added[:MOST_SHOWN]]
        return lines


def compare(replay: Replay, batches: int) -> Verdict:
    """Run the replay's records in the other ways, and compare the results.

    batches: micro-batches of the streams
    """
    splits = executors.even_splits(len(replay.records.rows), batches)
    job = executors.Job(replay.plan, replay.records, replay.flush, splits, replay.script)
    left_out = executors.spark_is_missing()
    others = {"local": executors.local([job])[0]}
    if not left_out:
        others |= {"batch": executors.batch([job])[0], "stream": executors.stream([job])[0]}
    expected = contents(replay.results)
    differences = [
        Difference(executor, what, _sorted(counter - counted[what]), _sorted(counted[what] - counter))
        for executor, results in others.items()
        for counted in (contents(results),)
        for what, counter in expected.items()
        if counter != counted[what]
    ]
    counts = {what: counter.total() for what, counter in expected.items() if what != "accounts"}
    return Verdict(counts, len(splits) + 1, differences, left_out)


def contents(results: Results) -> dict[str, Counter[str]]:
    """All results by kind, as JSON text, with how often each is there."""
    matches = [match for found in PlainMatches(_offset).of(results).values() for match in found]
    discards = [] if results.discarded is None else _rows(results.discarded)
    accounts = [row for row in results.ledger.to_pylist() if row["count"]]
    kinds = {"matches": matches, "outputs": plain_outputs(results.outputs), "discards": discards, "accounts": accounts}
    return {
        what: Counter(json.dumps(item, sort_keys=True, default=str) for item in found) for what, found in kinds.items()
    }


def _offset(_source: str, _partition: int, offset: int) -> int:
    return offset


def _rows(table: pa.Table) -> list[Any]:
    public = table.select([name for name in table.column_names if not name.startswith("_")])
    return [plain_value(row) for row in public.to_pylist()]


def _sorted(counter: Counter[str]) -> list[str]:
    return sorted(counter.elements())
