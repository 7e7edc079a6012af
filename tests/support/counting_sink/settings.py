"""What a deployment file says of it: `format: counter`, and a file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from job_engine.sinks.kinds import Sink, SinkEntry, SinkKind


@dataclass(frozen=True, slots=True)
class CountFile:
    """The file of the counts."""

    path: str


class CounterKind(SinkKind):
    keys: Mapping[str, str] = {"file": "counters"}
    needs = ("file",)

    def read(self, entry: SinkEntry) -> Sink:
        file = entry.found.get("file")
        return entry.sink(CountFile("" if file is None else str(entry.folders.path(file))))


KIND = CounterKind()
