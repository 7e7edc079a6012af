"""The driver keeps counts by micro-batch, so that one which is repeated replaces its own."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

import pyarrow as pa

from job_engine.durable_files import write_durably
from job_engine.sinks import kinds
from job_engine.sinks.kinds import Draft, MicroBatch, Result, Sink
from querylang.errors import InputError


def counts(file: Path | str) -> dict[str, dict[str, int]]:
    """Rows by place, by the name of their micro-batch."""
    found: dict[str, dict[str, int]] = json.loads(Path(file).read_text()) if Path(file).exists() else {}
    return found


class Publishing(kinds.Publishing):
    def refuse_unwritable(self, sink: Sink, parts: Mapping[str, pa.Schema]) -> None:
        if Path(sink.own.path).is_dir():
            raise InputError(f"{sink.own.path}: is a folder; counts are in a file")

    def publish(self, batch: MicroBatch, drafts: Sequence[tuple[Sink, Sequence[Draft]]]) -> None:
        for sink, own in drafts:
            total = sum((Counter(json.loads(draft.data or b"{}")) for draft in own), Counter[str]())
            write_durably(Path(sink.own.path), json.dumps({**counts(sink.own.path), batch.name: total}))

    def results(self, sink: Sink) -> Iterator[Result]:
        for name in counts(sink.own.path):
            identity, number, _ = name.split("-")
            yield Result(identity, int(number), f"{name} in {sink.own.path}")

    def remove_leftovers(self, sink: Sink, batch: MicroBatch, written: Collection[str]) -> None:
        """Nothing is left: drafts are in no file."""


PUBLISHING = Publishing()
